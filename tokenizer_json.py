"""The vocabulary in a `tokenizer.json` of Hugging Face, which some models have in place of a file.

Only what makes the tokens of BERT is taken: WordPiece, with `##` before what continues a word.
"""

import json
from collections.abc import Iterable
from typing import Any


def is_one(path: str) -> bool:
    """Returns whether a vocabulary of that name is read as JSON."""
    return path.endswith(".json")


def read_vocab(text: bytes, name: str) -> dict[str, int]:
    """Returns the id of every token, in the order of the ids.

    Args:
      text: Of the file.
      name: Its name, for messages.

    Raises:
      ValueError: where it does not hold the vocabulary of a WordPiece tokenizer.
    """
    values = _parse(text, name)
    model = values["model"]
    for key, only in (("type", "WordPiece"), ("continuing_subword_prefix", "##")):
        if model.get(key, only) != only:
            raise ValueError(
                f"`{key}` of the tokenizer in {name!r} must be {only!r}. Received {model[key]!r}."
            )
    ids = dict(model["vocab"])
    ids |= {token["content"]: token["id"] for token in values.get("added_tokens") or []}
    ordered = sorted(ids.items(), key=lambda item: item[1])
    if [number for _, number in ordered] != list(range(len(ordered))):
        raise ValueError(f"The ids of the tokens in {name!r} must be 0, 1, 2 and so on.")
    return dict(ordered)


def read_casing(text: bytes, name: str) -> bool | None:
    """Returns whether the tokenizer lower-cases, where it says so."""
    lowercase = (_parse(text, name).get("normalizer") or {}).get("lowercase")
    return lowercase if isinstance(lowercase, bool) else None


def _parse(text: bytes, name: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
        vocab = values["model"]["vocab"]
    except (ValueError, KeyError, TypeError):
        vocab = None
    if not isinstance(vocab, dict):
        raise ValueError(
            f"`vocab_file` must be a text of one token a line, or the `tokenizer.json` of a BERT "
            f"model. Received {name!r}, whose `model` has no `vocab`."
        )
    return dict(values)


def vocab_text(tokens: Iterable[str]) -> bytes:
    """Returns a `vocab.txt` of these tokens."""
    return "".join(f"{token}\n" for token in tokens).encode()
