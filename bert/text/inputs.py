"""From texts to the inputs of a model, and back, by the calls that transformers has."""

from collections.abc import Iterable, Sequence
from typing import Any

from bert.options import typed_value
from bert.text.added_tokens import AddedToken, Finder

# The class FullTokenizer is in a higher layer.
Tokenizer = Any

# Texts are searched for the special tokens, which are no words then.
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_PADDINGS = (True, False, "longest", "max_length", "do_not_pad")
# Pieces that follow the text before them without a space.
_CLOSING = (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re")
_TRUNCATIONS = (True, False, "longest_first", "only_first", "only_second", "do_not_truncate")


class TextInputs:
    """A tokenizer that can be called on texts.

    Attributes:
      model_max_length: Maximum tokens of a sequence of the model; None where nothing says it.
    """

    model_max_length: int | None = None

    def __call__(
        self: Tokenizer,
        texts: str | Sequence[str],
        text_pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        padding: bool | str = True,
        truncation: bool | str = False,
        return_tensors: str = "np",
    ) -> dict[str, Any]:
        """Returns `input_ids`, `input_mask` and `segment_ids` of texts, int32 [N, S].

        The values are those of `BertTokenizerFast` in transformers, where the mask is called
        `attention_mask`, and the segments `token_type_ids`. `[MASK]` and other special tokens in a
        text are not split, in contrast to `tokenize`.

        Args:
          texts: The texts; a single text is a list of one.
          text_pairs: The second text of each pair.
          max_length: Maximum tokens of a row, [CLS] and [SEP] included; by default
            `model_max_length`.
          padding: True or "longest" for rows as long as the longest one, "max_length" for rows of
            that length; False where all rows have the same length.
          truncation: True or "longest_first" to cut texts to that length, the longer one of a pair
            first; "only_first" or "only_second" to cut one text of each pair; False for none.
          return_tensors: "np" for arrays, or "tf" for tensors.

        Raises:
          ValueError: where an argument has another value, or a row does not fit.
        """
        import numpy as np  # noqa: PLC0415 (tokenizing alone needs none)

        for name, value, allowed in (
            ("padding", padding, _PADDINGS),
            ("truncation", truncation, _TRUNCATIONS),
            ("return_tensors", return_tensors, ("np", "tf")),
        ):
            if value not in allowed:
                raise ValueError(f"`{name}` must be one of {allowed}. Received {value!r}.")
        if max_length is not None:
            max_length = typed_value("max_length", max_length, int)
        limit = self.model_max_length if max_length is None else max_length
        truncation = False if truncation == "do_not_truncate" else truncation
        if limit is None and (truncation or padding == "max_length"):
            raise ValueError("`max_length` must be given to cut or pad texts to it.")
        rows = _read_rows(self, texts, text_pairs)
        if truncation:
            rows = [_cut(row, limit or 0, truncation, number) for number, row in enumerate(rows)]
        lengths = [_length(row) for row in rows]
        length = max(lengths, default=0)
        if max_length is not None and length > max_length:
            raise ValueError(
                f"Text {lengths.index(length)}, counted from 0, must have at most `max_length` "
                f"{max_length} tokens. It has {length}; cut texts with `truncation=True`."
            )
        if padding in (False, "do_not_pad") and lengths and min(lengths) < length:
            raise ValueError(
                "All texts must have the same number of tokens without `padding`. Received texts "
                f"of {min(lengths)} to {length}."
            )
        length = max(length, limit or 0) if padding == "max_length" else length
        cls, sep, pad = self.convert_tokens_to_ids(["[CLS]", "[SEP]", "[PAD]"])
        names = {"input_ids": pad, "input_mask": 0, "segment_ids": 0}
        arrays = {
            name: np.full((len(rows), length), value, np.int32) for name, value in names.items()
        }
        for number, (first, *second) in enumerate(rows):
            ids = [cls, *first, sep, *(index for part in second for index in (*part, sep))]
            arrays["input_ids"][number, : len(ids)] = ids
            arrays["input_mask"][number, : len(ids)] = 1
            arrays["segment_ids"][number, len(first) + 2 : len(ids)] = 1
        if return_tensors == "tf":
            import tensorflow as tf  # noqa: PLC0415

            return {name: tf.constant(array) for name, array in arrays.items()}
        return arrays

    def decode(self: Tokenizer, ids: Any, *, skip_special_tokens: bool = False) -> str:
        """Returns the text of a row of ids: words with spaces between them, and none before `.?!,`.

        The text is that of `BertTokenizerFast` in transformers, whose spaces around other
        punctuation are not those of the text that was tokenized.

        Args:
          ids: One id, or ids [S], as integers, an array or a tensor.
          skip_special_tokens: Whether to leave out [CLS], [SEP], [PAD], [MASK] and [UNK].

        Raises:
          ValueError: where there are several rows, or an id that the vocabulary lacks.
        """
        import numpy as np  # noqa: PLC0415

        row = np.asarray(ids)
        if row.size and row.dtype.kind not in "iuf":
            raise ValueError(f"`ids` must be integers. Received {ids!r:.200}.")
        if row.ndim > 1:
            raise ValueError(f"`ids` must be one row. Received {row.shape}; decode each row.")
        text = ""
        for index in map(int, row.reshape(-1)):
            token = self.inv_vocab.get(index)
            if token is None:
                raise ValueError(f"`ids` must be in the vocabulary. Received {index}.")
            if skip_special_tokens and token in _SPECIAL:
                continue
            is_next = not text or token.startswith(("##", *_CLOSING))
            text += ("" if is_next else " ") + (token.removeprefix("##") if text else token)
        return text


def _read_rows(
    tokenizer: Tokenizer,
    texts: str | Sequence[str],
    text_pairs: str | Sequence[str] | None,
) -> list[list[list[int]]]:
    """Returns the ids of the one or two texts of each row."""
    given = [texts] if text_pairs is None else [texts, text_pairs]
    columns = [
        [*each] if isinstance(each, Iterable) and not isinstance(each, str | bytes) else [each]
        for each in given
    ]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(
            f"`text_pairs` must have a text for each of the {len(columns[0])} `texts`. Received "
            f"{len(columns[1])}."
        )
    for text in (text for column in columns for text in column):
        if not isinstance(text, str):
            raise ValueError(f"`texts` and `text_pairs` must be strings. Received {text!r:.200}.")
    finder = Finder(special_tokens(tokenizer))
    rows = zip(*columns, strict=True)
    return [[_to_ids(tokenizer, finder, text) for text in row] for row in rows]


def special_tokens(tokenizer: Tokenizer) -> list[AddedToken]:
    """Returns the special tokens of the vocabulary that are no added tokens of the tokenizer."""
    known = {token.content for token in tokenizer.added_tokens}
    contents = [token for token in _SPECIAL if token in tokenizer.vocab and token not in known]
    return [AddedToken(content, normalized=False, special=True) for content in contents]


def _to_ids(tokenizer: Tokenizer, finder: Finder, text: str) -> list[int]:
    ids: list[int] = []
    for part, token in finder.cut(text):
        if token is None:
            ids += tokenizer.tokenize_to_ids(part)
        else:
            ids.append(tokenizer.vocab[token.content])
    return ids


def _length(row: Sequence[Sequence[int]]) -> int:
    """Returns the number of tokens of a row, [CLS] and [SEP] included."""
    return 1 + sum(len(ids) + 1 for ids in row)


def _cut(row: list[list[int]], limit: int, truncation: bool | str, number: int) -> list[list[int]]:
    """Returns the texts of a row without the tokens that do not fit."""
    over = _length(row) - limit
    if over <= 0:
        return row
    sizes = [len(ids) for ids in row]
    if truncation in ("only_first", "only_second"):
        which = ("only_first", "only_second").index(str(truncation))
        if which >= len(row) or sizes[which] <= over:
            raise ValueError(
                f"Text {number}, counted from 0, must fit in {limit} tokens once the "
                f"{truncation.split('_')[1]} text of the pair is cut. Its texts have {sizes}, and "
                f"{over} are too many."
            )
        sizes[which] -= over
    elif len(row) == 1:
        sizes = [sizes[0] - over]
    else:
        # Of an odd number, the longer text has one more, the second one of equals. The original,
        # and the class BertTokenizer, give it to the first (`truncate_pair`).
        budget = sum(sizes) - over
        shorter = min(*sizes, budget // 2)
        longer = budget - shorter
        sizes = [longer, shorter] if sizes[0] > sizes[1] else [shorter, longer]
    if min(sizes) < 0:
        raise ValueError(f"`max_length` must leave room for [CLS] and [SEP]. Received {limit}.")
    return [ids[:size] for ids, size in zip(row, sizes, strict=True)]
