"""Makes the tokenizers of models from the options that their folders hold."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tokenization
from bert.files.json_text import find_json_object
from bert.files.paths import is_file, read_file
from bert.files.weight_names import TASK_FILE
from bert.options import Option, OptionError
from bert.text import tokenizer_json
from bert.text.vocabulary import check_size
from bert.weights import huggingface_files

# The key in `task.json` of how the tokenizer differs from the original's.
TOKENIZER = "tokenizer"

# Files of transformers that say how a tokenizer differs from the original's.
FILES = (
    huggingface_files.TOKENIZER_FILE,
    huggingface_files.TOKENIZER_CONFIG_FILE,
    huggingface_files.ADDED_TOKENS_FILE,
    huggingface_files.SPECIAL_TOKENS_FILE,
)


def read_options(folder: str) -> dict[str, Any]:
    """Returns `read_tokenizer_options` of the files of transformers in a folder.

    Raises:
      ValueError: where a file describes another tokenizer than BERT's.
    """
    try:
        names = (*FILES, huggingface_files.CONFIG_FILE)
        files = {name: find_json_object(os.path.join(folder, name)) for name in names}
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
            f"{value!r}, which splits texts otherwise, so that the model would not understand "
            "them. Where that is not so, correct it there."
        )
    return options


def check_options(options: Mapping[str, Any]) -> None:
    """Checks the types of a tokenizer's options and the ids of its added tokens."""
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
            f"`{TOKENIZER}` in {path!r} must be an object as a run writes it. {error}"
        ) from error


def splitting_options(options: Mapping[str, Any], do_lower_case: bool) -> dict[str, bool]:
    """Returns the options that change how words are split, apart from added tokens."""
    # The accents of an uncased model are stripped by default.
    usual = {"strip_accents": do_lower_case, "tokenize_chinese_chars": True}
    return {name: options[name] for name in usual if options.get(name, usual[name]) != usual[name]}


def read_splitting_options(vocab_file: str, do_lower_case: bool) -> dict[str, bool]:
    """Returns `splitting_options` of the files beside a vocabulary."""
    folder = os.path.dirname(vocab_file)
    path = os.path.join(folder, TASK_FILE)
    options = find_json_object(path).get(TOKENIZER)
    if options is None:
        options = read_options(folder)
    else:
        check_stored_options(options, path)
    return splitting_options(options, do_lower_case)


def read_casing(folder: str) -> tuple[bool, str] | None:
    """Returns whether a folder says that its model is uncased, and the file that says so."""
    for name in (TASK_FILE, huggingface_files.TOKENIZER_CONFIG_FILE):
        path = os.path.join(folder, name)
        casing = find_json_object(path).get("do_lower_case")
        if isinstance(casing, bool):
            return casing, path
    path = os.path.join(folder, huggingface_files.TOKENIZER_FILE)
    casing = tokenizer_json.read_casing(read_file(path), path) if is_file(path) else None
    return None if casing is None else (casing, path)


def make(
    vocab_file: str, do_lower_case: bool, options: Mapping[str, Any], whole_words: bool = False
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a model.

    Args:
      vocab_file: A `vocab.txt` or `tokenizer.json`.
      do_lower_case: Whether the model is uncased.
      options: How the tokenizer differs from the original's.
      whole_words: Whether the tokenizer is a `WordTokenizer`, which has no options.
    """
    if whole_words:
        return WordTokenizer.from_vocab(tokenization.load_vocab(vocab_file), do_lower_case=False)
    if tokenizer_json.is_tokenizer(vocab_file):
        text = read_file(vocab_file)
        vocab = tokenizer_json.read_vocab(text, vocab_file, with_added=False)
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
    # The files say the rows of added tokens.
    numbers = {token["content"]: token["id"] for token in added if "id" in token}
    if lacking := {token: n for token, n in numbers.items() if token not in vocab}:
        tokenizer.vocab |= lacking
        tokenizer.inv_vocab = {number: token for token, number in tokenizer.vocab.items()}
    return tokenizer


class WordTokenizer(tokenization.FullTokenizer):
    """A tokenizer of whole words: as they are written, or else in lower case, or else [UNK]."""

    def tokenize(self, text: str | bytes) -> list[str]:
        return [self.find(word) for word in tokenization.convert_to_unicode(text).split()]

    def tokenize_to_ids(self, text: str | bytes) -> list[int]:
        return self.convert_tokens_to_ids(self.tokenize(text))

    def find(self, word: str) -> str:
        """Returns the entry of the vocabulary for a word."""
        return next((form for form in (word, word.lower()) if form in self.vocab), "[UNK]")


def options_of(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Returns the options of a tokenizer for `make`; added tokens have an `id`."""
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
    """Checks that a vocabulary has the special tokens and no more tokens than the model's rows."""
    if missing := [token for token in special_tokens if token not in vocab]:
        remedy = f"{vocab_file!r} lacks {missing}."
        raise OptionError("vocab_file", f"hold {list(special_tokens)}", remedy=remedy)
    # Blank lines at the end of the file, which the original takes, too, are no token of any text.
    size = max(number for token, number in vocab.items() if token) + 1
    check_size(size, vocab_size, Option("vocab_file"), vocab_file)
