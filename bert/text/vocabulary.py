"""Vocabularies: a token a line, whose number is its id."""

import io
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from absl import logging

from bert.files.paths import read_file
from bert.options import Message, MessageError, Option
from bert.text import tokenizer_json

K = TypeVar("K")
V = TypeVar("V")


def load_vocab(vocab_file: str | bytes | os.PathLike[str] | Iterable[bytes]) -> dict[str, int]:
    """Returns the id of every token, in the order of the file's lines.

    Args:
      vocab_file: a path that `tf.io.gfile` reads, or a file open for reading bytes, with one token
        a line. The id is the number of the line, from 0; blank lines have one too. A path that ends
        in .json is that of a `tokenizer.json`.
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
        # Faithful: carriage returns vanish wherever they stand, as tf.gfile had it, and then
        # nothing may be left of a last line.
        text = text.replace("\r", "")
        if not text:
            break
        token = text.strip()
        if token in vocab:
            repeated.append(f"{token!r} on lines {vocab[token] + 1} and {index + 1}")
        # Faithful: of a token listed twice, the last line counts.
        vocab[token] = index
    if not vocab:
        raise ValueError(
            f"`vocab_file` must hold a token a line. Received {name!r}, which is empty."
        )
    if repeated:
        logging.warning(
            "Vocabulary %r lists %d tokens again, and the last line counts: %s.",
            name,
            len(repeated),
            "; ".join(repeated[:5]),
        )
    return vocab


# Tables of tokens are padded to multiples of 8, 64 or 128 rows.
_MULTIPLE = 8
_PADDING = 128


def check_size(size: int, vocab_size: int, what: Any, path: str) -> None:
    """Checks that a vocabulary can be that of a model; warns where that is not likely.

    Released models have as many tokens as rows, or a few less where the table is padded. Some have
    spare rows: 30,521 tokens for 50,000 rows is the most that is known of public ones.

    Args:
      size: The tokens of the vocabulary.
      vocab_size: The rows of the model's table, as `bert_config.json` says.
      what: The vocabulary, to begin a message.
      path: Where it is from.

    Raises:
      ValueError: where it has more tokens than the model has rows; or not half as many, and at
        least 128 fewer.
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
        logging.warning(
            "%r has %d tokens, but `vocab_size` in %s is %d. Do they belong together?",
            *(path, size, Option("bert_config_file"), vocab_size),
        )


def check_same(
    vocab: Mapping[str, int], what: Any, path: str, *, own: Mapping[str, int], own_file: str
) -> None:
    """Checks that a vocabulary is that of a model, or made of it.

    Made of it is one with other words in place of [unused] entries, or more behind the last.

    Args:
      vocab: The id of every token.
      what: The vocabulary, to begin a message.
      path: Where it is from.
      own: The vocabulary beside the model's weights.
      own_file: The file of that one.

    Raises:
      ValueError: where they differ in most entries.
    """
    others = own.items() - vocab.items()
    if 2 * len(others) > len(own):
        raise MessageError(
            "%s must be that of the model, or made of it. %r differs from %r in %s of %s entries. "
            "Give that one, which is taken where no other is given.",
            *(what, path, own_file, f"{len(others):,}", f"{len(own):,}"),
        )
    if others:
        logging.info(
            "The vocabulary of %r differs from %r in %d entries.", path, own_file, len(others)
        )


class UnknownTokenError(KeyError, ValueError):
    """A vocabulary lacks a token or an id."""

    def __str__(self) -> str:
        # `KeyError` puts its message in quotes.
        return str(self.args[0])


def convert_by_vocab(vocab: Mapping[K, V], items: Iterable[K]) -> list[V]:
    """Returns the value of each item in a vocabulary.

    Raises:
      UnknownTokenError: where it lacks an item.
    """
    try:
        return list(map(vocab.__getitem__, items))
    except KeyError as error:
        raise UnknownTokenError(
            f"The vocabulary must hold every token or id. Received {error.args[0]!r}, which is not "
            f"among its {len(vocab)}. `FullTokenizer.tokenize` gives none but its tokens; is the "
            "text tokenized with another vocabulary, or a special token not in it?"
        ) from None
