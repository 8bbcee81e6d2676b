"""Word pieces by the kernel of TensorFlow Text, which is faster than TensorFlow's own operations.

Whatever loads a graph with this kernel needs the package tensorflow-text.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tensorflow_text  # type: ignore

from bert.export.formats import CORE

Tensor = Any

_MARK = "##"
# UTF-8 has four bytes a character at most.
_BYTES = 4
# The kernel's limit of a token without its mark.
_TOKEN_BYTES = 256


class TextWordpiece(tf.Module):
    """Does in a graph what a `WordpieceTokenizer` does.

    Args:
      ids: The ids of the tokens.
      unknown: The token of a word that cannot be cut into tokens.
      longest: The number of characters that a word may have; a longer one is unknown.

    Raises:
      ValueError: where a token is too long for the kernel.
    """

    def __init__(self, ids: Mapping[str, int], unknown: str, longest: int) -> None:
        super().__init__()
        # A token that is empty or longer than any word is never found.
        bare = {each: each.removeprefix(_MARK) for each in ids}
        tokens = [each for each in ids if 0 < len(bare[each]) <= longest or each == unknown]
        for token in tokens:
            if len(bare[token].encode()) > _TOKEN_BYTES:
                raise ValueError(
                    f"The kernel of TensorFlow Text takes tokens of at most {_TOKEN_BYTES} bytes. "
                    f"Received {token!r}. Cut words into pieces with {CORE!r}."
                )
        self._ids = tf.constant([ids[token] for token in tokens], tf.int32)
        self._kernel = tensorflow_text.FastWordpieceTokenizer(
            vocab=tokens,
            suffix_indicator=_MARK,
            max_bytes_per_word=_BYTES * longest,
            token_out_type=tf.int32,
            unknown_token=unknown,
            no_pretokenization=True,
        )
        self._longest = longest
        # Unknown to the kernel, whose limit is in bytes.
        self._too_long = "x" * (_BYTES * longest + 1)

    def tokenize(self, words: Tensor) -> tf.RaggedTensor:
        """Returns the ids of the pieces of words.

        Args:
          words: string [N], in UTF-8, none of them empty.

        Returns:
          int32 [N, (P)].
        """
        is_long = tf.strings.length(words, "UTF8_CHAR") > self._longest
        numbers = self._kernel.tokenize(tf.where(is_long, self._too_long, words))
        return numbers.with_values(tf.gather(self._ids, numbers.values))
