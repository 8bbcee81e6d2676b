"""Tokenizers of the folders of models: what they are made with, and whether they fit the model."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tokenization
from bert.files import huggingface as huggingface_files
from bert.files.paths import is_file, read_file
from bert.files.weight_names import TASK_FILE
from bert.text.vocabulary import check_size

# In `task.json`, how the tokenizer differs from the original's.
TOKENIZER = "tokenizer"

# Those of transformers that tell how a tokenizer differs from that of the original.
FILES = (
    huggingface_files.TOKENIZER_FILE,
    huggingface_files.TOKENIZER_CONFIG_FILE,
    huggingface_files.ADDED_TOKENS_FILE,
    huggingface_files.SPECIAL_TOKENS_FILE,
)


def read_options(folder: str, read_object: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """Returns how a tokenizer differs from that of the original, {} where it does not.

    Args:
      folder: That of the model, for messages.
      read_object: Returns what a JSON file of this name in the folder holds, {} where it is not.

    Returns:
      As `huggingface.read_tokenizer_options`.

    Raises:
      ValueError: where a file describes something else.
    """
    try:
        files = {name: read_object(name) for name in (*FILES, huggingface_files.CONFIG_FILE)}
        other = huggingface_files.find_other_tokenizer(files)
        options = huggingface_files.read_tokenizer_options(files)
        check_options(options)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"The tokenizer's files in {folder!r} must be those of transformers. Received "
            f"something else ({type(error).__name__}: {error})."
        ) from error
    if other:
        key, name, value = other
        raise ValueError(
            f"The tokenizer must be BERT's WordPiece. {os.path.join(folder, name)!r} has `{key}` "
            f"{value!r}, which cuts texts otherwise, so that the model would not understand them. "
            "Where that is not so, correct it there."
        )
    return options


def check_options(options: Mapping[str, Any]) -> None:
    """Checks the options of a tokenizer that a file holds.

    Args:
      options: As `read_options` returns them.

    Raises:
      ValueError: where one is of the wrong type, or the id of an added token is no row of a table.
    """
    for name in ("strip_accents", "tokenize_chinese_chars"):
        if not isinstance(options.get(name), bool | None):
            raise ValueError(f"`{name}` must be true or false. Received {options[name]!r:.80}.")
    added = options.get("added_tokens", [])
    if not isinstance(added, list) or not all(isinstance(token, dict) for token in added):
        raise ValueError(f"`added_tokens` must be a list of objects. Received {added!r:.80}.")
    for token in added:
        tokenization.AddedToken.from_dict(token)
        number = token.get("id", 0)
        if type(number) is not int or number < 0:
            raise ValueError(
                f"The `id` of the added token {token['content']!r:.80} must be a whole number from "
                f"0. Received {number!r:.80}."
            )


def check_stored_options(options: Any, path: str) -> None:
    """Checks the options in a `task.json`, as `check_options`."""
    try:
        if not isinstance(options, dict):
            raise ValueError(f"It is {options!r:.80}.")
        check_options(options)
    except ValueError as error:
        raise ValueError(
            f"`{TOKENIZER}` in {path!r} must be an object as a training writes it. {error}"
        ) from error


def cutting_of(options: Mapping[str, Any], do_lower_case: bool) -> dict[str, bool]:
    """Returns the options that change how words are cut, apart from added tokens.

    Args:
      options: As `read_options`.
      do_lower_case: Whether the model is uncased, whose accents are stripped if nothing is said.
    """
    usual = {"strip_accents": do_lower_case, "tokenize_chinese_chars": True}
    return {name: options[name] for name in usual if options.get(name, usual[name]) != usual[name]}


def read_cutting(vocab_file: str, do_lower_case: bool) -> dict[str, bool]:
    """Returns `cutting_of` what the files beside a vocabulary say."""
    folder = os.path.dirname(vocab_file)

    def read_object(name: str) -> dict[str, Any]:
        path = os.path.join(folder, name)
        return huggingface_files.read_json(path) if is_file(path) else {}

    kept = read_object(TASK_FILE).get(TOKENIZER)
    if kept is None:
        return cutting_of(read_options(folder, read_object), do_lower_case)
    check_stored_options(kept, os.path.join(folder, TASK_FILE))
    return cutting_of(kept, do_lower_case)


def read_casing(
    folder: str, read_object: Callable[[str], dict[str, Any]], names: Sequence[str]
) -> tuple[bool, str] | None:
    """Returns whether a folder says that its model is uncased, and the file that says so.

    Args:
      folder: That of the model.
      read_object: As `read_options`.
      names: JSON files that may have `do_lower_case`, the first one to count.
    """
    for name in names:
        casing = read_object(name).get("do_lower_case")
        if isinstance(casing, bool):
            return casing, os.path.join(folder, name)
    path = os.path.join(folder, huggingface_files.TOKENIZER_FILE)
    casing = huggingface_files.read_casing(read_file(path), path) if is_file(path) else None
    return None if casing is None else (casing, path)


def make(
    vocab_file: str, do_lower_case: bool, options: Mapping[str, Any], whole_words: bool = False
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a model.

    Args:
      vocab_file: A `vocab.txt` or `tokenizer.json`.
      do_lower_case: Whether the model is uncased.
      options: How it differs from the original's.
      whole_words: Whether it is a `WordTokenizer`, of which nothing differs.
    """
    if whole_words:
        return WordTokenizer.from_vocab(tokenization.load_vocab(vocab_file), do_lower_case=False)
    if huggingface_files.is_tokenizer(vocab_file):
        text = read_file(vocab_file)
        vocab = huggingface_files.read_vocab(text, vocab_file, with_added=False)
    else:
        vocab = tokenization.load_vocab(vocab_file)
    added = options.get("added_tokens", ())
    tokenizer = tokenization.FullTokenizer.from_vocab(
        vocab,
        do_lower_case,
        strip_accents=options.get("strip_accents"),
        tokenize_chinese_chars=options.get("tokenize_chinese_chars", True),
        added_tokens=[tokenization.AddedToken.from_dict(token) for token in added],
    )
    # Their rows are where the files say.
    numbers = {token["content"]: token["id"] for token in added if "id" in token}
    if lacking := {token: n for token, n in numbers.items() if token not in vocab}:
        tokenizer.vocab |= lacking
        tokenizer.inv_vocab = {number: token for token, number in tokenizer.vocab.items()}
    return tokenizer


class WordTokenizer(tokenization.FullTokenizer):
    """Takes words whole: as they are written, or else in lower case, or else as [UNK]."""

    def tokenize(self, text: str | bytes) -> list[str]:
        return [self.find(word) for word in tokenization.convert_to_unicode(text).split()]

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        return self.convert_tokens_to_ids(self.tokenize(text))

    def find(self, word: str) -> str:
        """Returns the entry of the vocabulary for a word."""
        return next((form for form in (word, word.lower()) if form in self.vocab), "[UNK]")


def options_of(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Returns what `make` takes to make it, {} for the original's; added tokens have an `id`."""
    basic = tokenizer.basic_tokenizer
    options: dict[str, Any] = {}
    if basic.strip_accents is not None:
        options["strip_accents"] = basic.strip_accents
    if not basic.tokenize_chinese_chars:
        options["tokenize_chinese_chars"] = False
    if tokenizer.added_tokens:
        options["added_tokens"] = [
            {**token.to_dict(), "id": tokenizer.vocab[token.content]}
            for token in tokenizer.added_tokens
        ]
    return options


def check_vocabulary(
    vocab: Mapping[str, int], vocab_file: str, vocab_size: int, special_tokens: Sequence[str]
) -> None:
    """Checks that a vocabulary has the special tokens and fits the model.

    Args:
      vocab: The id of every token.
      vocab_file: Where it is from, for messages.
      vocab_size: What `bert_config.json` says.
      special_tokens: Tokens that it must hold.

    Raises:
      ValueError: where it does not.
    """
    if missing := [token for token in special_tokens if token not in vocab]:
        raise ValueError(
            f"`--vocab_file` must hold {list(special_tokens)}. {vocab_file!r} lacks {missing}."
        )
    # Blank lines at the end of the file, which the original takes, too, are no token of any text.
    size = max(number for token, number in vocab.items() if token) + 1
    check_size(size, vocab_size, "`--vocab_file`", vocab_file)
