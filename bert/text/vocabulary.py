"""Vocabularies: loading, checking against a model, and conversion of tokens and ids."""

import io
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from bert.files.paths import read_file
from bert.log import logger
from bert.options import Message, MessageError, Option
from bert.text import tokenizer_json

K = TypeVar("K")
V = TypeVar("V")


def load_vocab(vocab_file: str | bytes | os.PathLike[str] | Iterable[bytes]) -> dict[str, int]:
    """Returns the id of every token, in the order of the file's lines.

    Args:
      vocab_file: A path that `tf.io.gfile` reads, or an open binary file, with one token a line.
        The id is the number of the line, from 0; blank lines count. A path that ends in .json is
        read as a `tokenizer.json`.
    """
    if isinstance(vocab_file, str | bytes | os.PathLike):
        path = os.fsdecode(vocab_file)
        try:
            content = read_file(path)
        except OSError as error:
            raise ValueError(
                f"`vocab_file` must be a readable file. Received {path!r} "
                f"({error.strerror or error})."
            ) from error
        if tokenizer_json.is_tokenizer(path):
            return tokenizer_json.read_vocab(content, path)
        return _number_tokens(io.BytesIO(content), path)
    return _number_tokens(vocab_file, str(getattr(vocab_file, "name", "vocabulary")))


def _number_tokens(lines: Iterable[bytes], name: str) -> dict[str, int]:
    vocab: dict[str, int] = {}
    repeated: list[str] = []
    for index, line in enumerate(lines):
        try:
            text = line.decode("utf-8-sig" if index == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"`vocab_file` must be UTF-8 text. Received {name!r} with line {index + 1} = "
                f"{line!r}."
            ) from error
        # Faithful: all carriage returns are removed, as in tf.gfile, which may empty a last line.
        text = text.replace("\r", "")
        if not text:
            break
        token = text.strip()
        if token in vocab:
            repeated.append(f"{token!r} on lines {vocab[token] + 1} and {index + 1}")
        # Faithful: the last line of a token that is listed twice counts.
        vocab[token] = index
    if not vocab:
        raise ValueError(
            f"`vocab_file` must hold a token a line. Received {name!r}, which is empty."
        )
    if repeated:
        logger.warning(
            "Vocabulary %r lists %d tokens again, and the last line counts: %s.",
            name,
            len(repeated),
            "; ".join(repeated[:5]),
        )
    return vocab


# Embedding tables are padded to multiples of 8, 64 or 128 rows.
_MULTIPLE = 8
_PADDING = 128


def check_size(size: int, vocab_size: int, what: Any, path: str) -> None:
    """Checks that a vocabulary has a possible size for a model; warns of an unlikely one.

    Released models have as many rows as tokens, or a few more for padding. Some have spare rows:
    the most of any known public model is 50,000 rows for 30,521 tokens.

    Args:
      size: The number of tokens in the vocabulary.
      vocab_size: The number of rows in the model's table, as in `bert_config.json`.
      what: The vocabulary, to begin a message.
      path: The file of the vocabulary.

    Raises:
      ValueError: where there are more tokens than rows; or fewer than half as many, and at least
        128 fewer.
    """
    rows = Message("the `vocab_size` in %s", Option("bert_config_file"))
    if size > vocab_size:
        raise MessageError(
            "%s must have at most %d tokens, %s. %r has %d; do they belong together?",
            *(what, vocab_size, rows, path, size),
        )
    num_spare = vocab_size - size
    if num_spare >= max(size, _PADDING):
        raise MessageError(
            "%s must have more than half as many tokens as the model has rows, %d, %s; padding and "
            "spare rows are fewer. %r has %d, so it cannot be the model's; give the vocabulary "
            "that the model was trained with.",
            *(what, vocab_size, rows, path, size),
        )
    is_padding = num_spare < _PADDING and vocab_size % _MULTIPLE == 0
    if num_spare and not is_padding:
        logger.warning(
            "%r has %d tokens, but `vocab_size` in %s is %d. Do they belong together?",
            *(path, size, Option("bert_config_file"), vocab_size),
        )


def check_same(
    vocab: Mapping[str, int], what: Any, path: str, *, own: Mapping[str, int], own_file: str
) -> None:
    """Checks that a vocabulary is the model's, perhaps with replaced [unused] or added entries.

    Args:
      vocab: The id of every token.
      what: The vocabulary, to begin a message.
      path: The file of the vocabulary.
      own: The vocabulary beside the model's weights.
      own_file: The file of the vocabulary beside the weights.

    Raises:
      ValueError: where most entries differ.
    """
    changed = own.items() - vocab.items()
    if 2 * len(changed) > len(own):
        raise MessageError(
            "%s must be the model's, or extend it. %r differs from %r in %s of %s entries. Leave "
            "it out, since the latter is the default.",
            *(what, path, own_file, f"{len(changed):,}", f"{len(own):,}"),
        )
    if changed:
        logger.info(
            "The vocabulary of %r differs from %r in %d entries.", path, own_file, len(changed)
        )


class UnknownTokenError(KeyError, ValueError):
    """The vocabulary does not have a token or an id."""

    def __str__(self) -> str:
        # `KeyError` puts its message in quotes.
        return str(self.args[0])


def convert_by_vocab(vocab: Mapping[K, V], items: Iterable[K]) -> list[V]:
    """Returns the value of each item in a vocabulary.

    Raises:
      UnknownTokenError: where the vocabulary does not have an item.
    """
    try:
        return list(map(vocab.__getitem__, items))
    except KeyError as error:
        raise UnknownTokenError(
            f"The vocabulary must hold every token or id. Received {error.args[0]!r}, which is not "
            f"among its {len(vocab)}. `FullTokenizer.tokenize` gives none but its tokens; is the "
            "text tokenized with another vocabulary, or a special token not in it?"
        ) from None
