"""Vocabularies: their files, their casing, and the conversion and packing of tokens."""

import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from bert.files.paths import parse_json, read_file
from bert.log import logger
from bert.options import Message, MessageError, Option

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
        if is_tokenizer_json(path):
            return read_json_vocab(content, path)
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
            what,
            vocab_size,
            rows,
            path,
            size,
        )
    num_spare = vocab_size - size
    if num_spare >= max(size, _PADDING):
        raise MessageError(
            "%s must have more than half as many tokens as the model has rows, %d, %s; padding and "
            "spare rows are fewer. %r has %d, so it cannot be the model's; give the vocabulary "
            "that the model was trained with.",
            what,
            vocab_size,
            rows,
            path,
            size,
        )
    is_padding = num_spare < _PADDING and vocab_size % _MULTIPLE == 0
    if num_spare and not is_padding:
        logger.warning(
            "%r has %d tokens, but `vocab_size` in %s is %d. Do they belong together?",
            path,
            size,
            Option("bert_config_file"),
            vocab_size,
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
            "it out, since the latter is the default; or, if the latter is another model's, put "
            "the weights in a folder of their own.",
            what,
            path,
            own_file,
            f"{len(changed):,}",
            f"{len(own):,}",
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


def is_tokenizer_json(path: str) -> bool:
    """Returns whether a vocabulary is read as JSON, by its name."""
    return path.endswith(".json")


def read_json_vocab(text: bytes, name: str, *, with_added: bool = True) -> dict[str, int]:
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
    last = max(ids.values(), default=-1)
    added = {token["content"]: token["id"] for token in values.get("added_tokens") or []}
    ids |= {token: number for token, number in added.items() if with_added or number < last}
    ordered = sorted(ids.items(), key=lambda item: item[1])
    if [number for _, number in ordered] != list(range(len(ordered))):
        raise ValueError(f"The ids of the tokens in {name!r} must be 0, 1, 2 and so on.")
    return dict(ordered)


def read_json_casing(text: bytes, name: str) -> bool | None:
    """Returns whether the tokenizer lower-cases, or None where the file does not say."""
    lowercase = find_step(_parse_tokenizer(text, name), "normalizer").get("lowercase")
    return lowercase if isinstance(lowercase, bool) else None


def find_step(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Returns the `normalizer` or `pre_tokenizer` of a `tokenizer.json`, {} for none.

    A sequence of one is that one.
    """
    step = values.get(key) or {}
    while step.get("type") == "Sequence":
        within = step.get("normalizers" if key == "normalizer" else "pretokenizers") or []
        if len(within) != 1:
            break
        (step,) = within
    return dict(step)


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


# [CLS], [unused1], <S> and the like.
_MARK = re.compile(r"\[.*\]|<.*>", re.DOTALL)
# In the released cased vocabularies, at least 31 % of the entries with letters have capitals; in
# the uncased ones, none. Small vocabularies, and those of scripts without case, are undecided.
_FEWEST_LETTERS = 1000
_FEWEST_CAPITALS = 100
_CASED_SHARE = 0.1
_UNCASED_SHARE = 0.001

_RELEASED_NAME = re.compile(
    r"(?:^|/)(?P<name>(?:wwm_|multi_)?(?:un)?cased_L-\d+_H-\d+_A-\d+"
    r"|(?:multilingual|chinese)_L-12_H-768_A-12)(?:/bert_model\.ckpt[^/]*|/)?$"
)


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """Raises if `init_checkpoint` is named like a released model of the other casing."""
    match = _RELEASED_NAME.search(init_checkpoint or "")
    if match is None:
        return
    name = match["name"]
    cased = name.startswith(("cased", "wwm_cased", "multi_cased"))
    if cased == do_lower_case:
        raise ValueError(
            f"`do_lower_case` must be {not cased} for the {'cased' if cased else 'lower-cased'} "
            f"model {name!r}. Received {do_lower_case} with {init_checkpoint!r}. If that model is "
            "not the released one, give its folder another name."
        )


def find_casing(vocab: Iterable[str]) -> bool | None:
    """Returns whether a vocabulary is cased, or None if that is undecided."""
    letters = [token for token in vocab if token.lower() != token.upper()]
    letters = [token for token in letters if not _MARK.fullmatch(token)]
    capitals = sum(token != token.lower() for token in letters)
    if capitals >= _FEWEST_CAPITALS and capitals >= _CASED_SHARE * len(letters):
        return True
    if len(letters) >= _FEWEST_LETTERS and capitals <= _UNCASED_SHARE * len(letters):
        return False
    return None


def warn_of_casing(vocab: Iterable[str], vocab_file: str, do_lower_case: bool) -> None:
    """Warns where texts are not lower-cased as the vocabulary requires.

    Args:
      vocab: The tokens.
      vocab_file: The file of the tokens, for the message.
      do_lower_case: Whether texts are lower-cased.
    """
    is_cased = find_casing(vocab)
    if is_cased is None or is_cased != do_lower_case:
        return
    if is_cased:
        lost = "are never used, for texts are lower-cased"
    else:
        lost = "are absent, so words that begin with one are unknown"
    logger.warning(
        "%s is the vocabulary of %s model, but %s is %s: its entries with capitals %s. Is %s "
        "meant?",
        vocab_file,
        "a cased" if is_cased else "an uncased",
        Option("do_lower_case"),
        do_lower_case,
        lost,
        Option("do_lower_case", not is_cased),
    )


def truncate_pair(
    a: Sequence[str], b: Sequence[str], *, budget: int
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns both sequences truncated to `budget` tokens in total, the longer one first.

    Of equally long sequences, `b` is truncated (original: run_classifier.py, _truncate_seq_pair).
    """
    if budget < 0:
        raise ValueError(f"`budget` must not be negative. Received {budget}.")
    half = budget // 2
    return a[: max(budget - len(b), budget - half)], b[: max(budget - len(a), half)]


def pack(
    a: Sequence[str], b: Sequence[str] = (), *, max_length: int
) -> tuple[list[str], list[int]]:
    """Returns `[CLS] a [SEP] (b [SEP])` and its segment ids (paper, figure 2)."""
    a, b = truncate_pair(a, b, budget=max_length - (3 if b else 2))
    first = ["[CLS]", *a, "[SEP]"]
    second = [*b, "[SEP]"] if b else []
    return first + second, [0] * len(first) + [1] * len(second)
