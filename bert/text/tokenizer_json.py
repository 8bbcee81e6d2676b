"""Reads vocabulary and casing from a `tokenizer.json`, which may replace a `vocab.txt`."""

from collections.abc import Iterable
from typing import Any

from bert.files.json_text import parse_json


def is_tokenizer(path: str) -> bool:
    """Returns whether a vocabulary is read as JSON, by its name."""
    return path.endswith(".json")


def read_vocab(text: bytes, name: str, *, with_added: bool = True) -> dict[str, int]:
    """Returns the id of every token, in the order of the ids.

    Args:
      text: The content of the file.
      name: The name of the file, for messages.
      with_added: Whether to include added tokens whose ids follow the word pieces; added tokens
        among the word pieces are always included.

    Raises:
      ValueError: where the file has no vocabulary of a WordPiece tokenizer.
    """
    values = _parse_tokenizer(text, name)
    model = values["model"]
    for key, only in (("type", "WordPiece"), ("continuing_subword_prefix", "##")):
        if model.get(key, only) != only:
            raise ValueError(
                f"`{key}` of the tokenizer in {name!r} must be {only!r}. Received {model[key]!r}."
            )
    ids = dict(model["vocab"])
    added = {token["content"]: token["id"] for token in values.get("added_tokens") or []}
    if with_added or sorted(ids.values()) != list(range(len(ids))):
        ids |= added
    ordered = sorted(ids.items(), key=lambda item: item[1])
    if [number for _, number in ordered] != list(range(len(ordered))):
        raise ValueError(f"The ids of the tokens in {name!r} must be 0, 1, 2 and so on.")
    return dict(ordered)


def read_casing(text: bytes, name: str) -> bool | None:
    """Returns whether the tokenizer lower-cases, or None where the file does not say."""
    lowercase = (_parse_tokenizer(text, name).get("normalizer") or {}).get("lowercase")
    return lowercase if isinstance(lowercase, bool) else None


def _parse_tokenizer(text: bytes, name: str) -> dict[str, Any]:
    try:
        values = parse_json(text)
        vocab = values["model"]["vocab"]
    except (ValueError, KeyError, TypeError):
        vocab = None
    if not isinstance(vocab, dict):
        raise ValueError(
            f"`vocab_file` must be a text of one token a line, or the `tokenizer.json` of a BERT "
            f"model. Received {name!r}, whose `model` has no `vocab`."
        )
    added = values.get("added_tokens") or []
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise ValueError(f"`added_tokens` in {name!r} must be a list of objects.")
    tokens = [*vocab.items(), *((token.get("content"), token.get("id")) for token in added)]
    for token, number in tokens:
        if not isinstance(token, str) or type(number) is not int:
            raise ValueError(
                f"Every token in {name!r} must have a text and a number. Received {token!r:.80} "
                f"with {number!r:.80}."
            )
    if not isinstance(values.get("normalizer") or {}, dict):
        raise ValueError(f"`normalizer` in {name!r} must be an object.")
    return dict(values)


def vocab_text(tokens: Iterable[str]) -> bytes:
    """Returns the content of a `vocab.txt` with these tokens."""
    return "".join(f"{token}\n" for token in tokens).encode()
