"""Vocabularies: a token a line, whose number is its id."""

import io
import logging
import os
from collections.abc import Iterable

from bert.files import huggingface as huggingface_files
from bert.files.paths import read_file


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
        if huggingface_files.is_tokenizer(path):
            return huggingface_files.read_vocab(content, path)
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
        logging.getLogger(__name__).warning(
            "Vocabulary %r lists %d tokens again, and the last line counts: %s.",
            name,
            len(repeated),
            "; ".join(repeated[:5]),
        )
    return vocab
