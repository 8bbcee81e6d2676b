"""Tokenizers of models: their options in files of transformers or `task.json`, and their making."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import tokenization
from bert.files.paths import find_json_object, is_file, read_file
from bert.files.stored_models import TASK_FILE
from bert.options import MessageError, Option, OptionError
from bert.text.inputs import special_tokens
from bert.text.vocabulary import (
    check_size,
    find_step,
    is_tokenizer_json,
    read_json_casing,
    read_json_vocab,
)

# The key in `task.json` of how the tokenizer differs from the original's.
TOKENIZER = "tokenizer"

# Files of transformers that say how a tokenizer differs from the original's.
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
ADDED_TOKENS_FILE = "added_tokens.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
FILES = (TOKENIZER_FILE, TOKENIZER_CONFIG_FILE, ADDED_TOKENS_FILE, SPECIAL_TOKENS_FILE)
# Where keras-hub has the vocabulary.
VOCABULARIES = ("assets/tokenizer/vocabulary.txt",)
# The configuration of a model of transformers, which may name the class of its tokenizer.
HUGGINGFACE_CONFIG_FILE = "config.json"


def read_options(folder: str) -> dict[str, Any]:
    """Returns `read_tokenizer_options` of the files of transformers in a folder.

    Raises:
      ValueError: where a file describes another tokenizer than BERT's.
    """
    try:
        names = (*FILES, HUGGINGFACE_CONFIG_FILE)
        files = {name: find_json_object(os.path.join(folder, name)) for name in names}
        files[TOKENIZER_CONFIG_FILE] |= _of_keras_hub(files[TOKENIZER_FILE])
        other = find_other_tokenizer(files)
        options = read_tokenizer_options(files)
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


def read_options_beside(vocab_file: str) -> dict[str, Any]:
    """Returns the options of the files beside a vocabulary, as `read_options`."""
    folder = os.path.dirname(vocab_file)
    path = os.path.join(folder, TASK_FILE)
    options = find_json_object(path).get(TOKENIZER)
    if options is None:
        return read_options(folder)
    check_stored_options(options, path)
    return dict(options)


def read_casing(folder: str) -> tuple[bool, str] | None:
    """Returns whether a folder says that its model is uncased, and the file that says so."""
    names = [TASK_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE]
    kind = find_json_object(os.path.join(folder, TOKENIZER_CONFIG_FILE)).get("tokenizer_class")
    if kind in _OF_JSON:
        names = [TASK_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE]
    for name in names:
        path = os.path.join(folder, name)
        values = find_json_object(path)
        casing = (_of_keras_hub(values) or values).get("do_lower_case")
        if casing is None and name == TOKENIZER_FILE and is_file(path):
            casing = read_json_casing(read_file(path), path)
        if isinstance(casing, bool):
            return casing, path
        if casing is not None:
            must = f"`do_lower_case` in {path!r} must be true or false."
            raise ValueError(f"{must} Received {casing!r:.80}.")
    return None


def check_casing(casing: bool, stored: tuple[bool, str] | None) -> None:
    """Checks a casing against the result of `read_casing`.

    Raises:
      OptionError: where the folder says the other casing.
    """
    if stored and stored[0] != casing:
        is_uncased, path = stored
        must = f"be {is_uncased} for this model, as {path!r} says"
        raise OptionError("do_lower_case", must, casing)


def _of_keras_hub(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a `tokenizer.json` of keras-hub says, as in a `tokenizer_config.json`."""
    name, config = values.get("registered_name"), values.get("config")
    if not isinstance(name, str) or not isinstance(config, dict):
        return {}
    if not name.endswith(">BertTokenizer"):
        return {"tokenizer_class": name}
    keys = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"}
    return {ours: config[theirs] for ours, theirs in keys.items() if theirs in config}


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
    if is_tokenizer_json(vocab_file):
        text = read_file(vocab_file)
        vocab = read_json_vocab(text, vocab_file, with_added=False)
    else:
        vocab = tokenization.load_vocab(vocab_file)
    return make_of_vocab(vocab, do_lower_case, options)


def make_of_vocab(
    vocab: Mapping[str, int], do_lower_case: bool, options: Mapping[str, Any]
) -> tokenization.FullTokenizer:
    """Returns the tokenizer of a vocabulary that is already in memory; arguments as for `make`."""
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
    tokenizer: tokenization.FullTokenizer,
    vocab_file: str,
    vocab_size: int,
    special_tokens: Sequence[str],
) -> None:
    """Checks that a vocabulary has the special tokens and no more tokens than the model's rows."""
    vocab = tokenizer.vocab
    if missing := [token for token in special_tokens if token not in vocab]:
        remedy = f"{vocab_file!r} lacks {missing}."
        raise OptionError("vocab_file", f"hold {list(special_tokens)}", remedy=remedy)
    words = tokenizer.wordpiece_tokenizer.vocab
    for token in tokenizer.added_tokens:
        if (number := vocab[token.content]) >= vocab_size > max(words.values()):
            raise MessageError(
                "Added tokens must have rows in the model's table, of %d, the `vocab_size` in %s. "
                "%r with the id %d has none: remove it from the tokenizer's files beside %r, or "
                "have the program that added it extend the table.",
                vocab_size,
                Option("bert_config_file"),
                token.content,
                number,
                vocab_file,
            )
    # Blank lines at the end of the file, which the original takes, too, are no token of any text.
    size = max(number for token, number in vocab.items() if token) + 1
    check_size(size, vocab_size, Option("vocab_file"), vocab_file)


def check_json_agrees(vocab: Mapping[str, int], vocab_file: str) -> None:
    """Checks that a `tokenizer.json` beside a `vocab.txt` gives no token another id.

    transformers takes the former, and leaves an older `vocab.txt` where it saves one.
    """
    path = os.path.join(os.path.dirname(vocab_file), TOKENIZER_FILE)
    model = find_json_object(path).get("model")
    ids = model.get("vocab") if isinstance(model, Mapping) else None
    if not isinstance(ids, Mapping):
        return
    for token, number in vocab.items():
        if ids.get(token, number) != number:
            raise OptionError(
                "vocab_file",
                "be given, or one of two vocabularies be removed",
                remedy=f"{vocab_file!r} and {path!r} give {token!r:.80} the ids {number} and "
                f"{ids[token]!r:.80}. The model's is most likely the latter, which transformers "
                "takes.",
            )


def read_tokenizer_options(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the options in which a tokenizer differs from the original's, {} for none.

    Args:
      files: By name the contents of `TOKENIZER_CONFIG_FILE`, `TOKENIZER_FILE`, `ADDED_TOKENS_FILE`
        and `SPECIAL_TOKENS_FILE`, {} for an absent file.

    Returns:
      Some of `strip_accents`, `tokenize_chinese_chars` and `added_tokens`, a list of what
      `AddedToken.from_dict` takes, each with its `id` if a file has it; `check_options` has still
      to check them.
    """
    config = files[TOKENIZER_CONFIG_FILE]
    normalizer = find_step(files[TOKENIZER_FILE], "normalizer")
    said = {
        ours: normalizer[theirs]
        for ours, theirs in (
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        )
        if theirs in normalizer
    }
    said = {**config, **said} if config.get("tokenizer_class") in _OF_JSON else {**said, **config}
    options: dict[str, Any] = {}
    strips = said.get("strip_accents")
    if strips is not None:
        options["strip_accents"] = strips
    chinese = said.get("tokenize_chinese_chars")
    if chinese is not None and chinese is not True:
        options["tokenize_chinese_chars"] = chinese
    if added := _added_tokens(files):
        options["added_tokens"] = added
    return options


# Classes of transformers that follow `tokenizer.json` alone where the files contradict each other;
# those of BERT follow `tokenizer_config.json`.
_OF_JSON = ("PreTrainedTokenizer", "PreTrainedTokenizerFast", "TokenizersBackend")

# Classes of transformers that tokenize as BERT's does, or as their `tokenizer.json` says.
_TOKENIZERS = re.compile(
    r"((Distil|Mobile|Squeeze|Conv|Retri)?Bert|Electra|Lxmert|LayoutLM|DPR\w*|PreTrained|Auto)"
    r"Tokenizer(Fast)?|TokenizersBackend"
)


def find_other_tokenizer(
    files: Mapping[str, Mapping[str, Any]],
) -> tuple[str, str, Any] | None:
    """Returns the first sign of a tokenizer other than BERT's: a key, its file and its value.

    Args:
      files: As for `read_tokenizer_options`, with `HUGGINGFACE_CONFIG_FILE`.
    """
    config = files[TOKENIZER_CONFIG_FILE]
    usual = {
        "word_tokenizer_type": "basic",
        "subword_tokenizer_type": "wordpiece",
        "do_basic_tokenize": True,
    }
    for key, value in usual.items():
        if config.get(key) not in (None, value):
            return key, TOKENIZER_CONFIG_FILE, config[key]
    for name in (TOKENIZER_CONFIG_FILE, HUGGINGFACE_CONFIG_FILE):
        if kind := files[name].get("tokenizer_class"):
            if not _TOKENIZERS.fullmatch(str(kind)):
                return "tokenizer_class", name, kind
            break
    follows_json = config.get("tokenizer_class") in _OF_JSON
    return _find_other_mark(config) or _find_other_step(files[TOKENIZER_FILE], follows_json)


def _find_other_mark(config: Mapping[str, Any]) -> tuple[str, str, Any] | None:
    """Returns the first special token that is not BERT's, which may be there beside it."""
    for key, usual in (("cls_token", "[CLS]"), ("sep_token", "[SEP]"), ("unk_token", "[UNK]")):
        token = config.get(key)
        content = token.get("content") if isinstance(token, Mapping) else token
        if content not in (None, usual):
            return key, TOKENIZER_CONFIG_FILE, content
    return None


def _find_other_step(values: Mapping[str, Any], follows_json: bool) -> tuple[str, str, Any] | None:
    """Returns the first step of a `tokenizer.json` that is not as BERT's.

    Args:
      values: The content of the file.
      follows_json: Whether its normalizer counts; the classes of BERT make their own.
    """
    for key, usual in (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer")):
        step = find_step(values, key)
        is_lacking = values.get(key, {}) is None
        if key == "normalizer":
            is_lacking = follows_json and (is_lacking or step.get("clean_text") is False)
        # Without a step before the pieces, a whole text would be one word.
        if is_lacking or step.get("type", usual) != usual:
            return key, TOKENIZER_FILE, values[key]
    return None


def _added_tokens(files: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns added tokens in the order of their ids, those without one last."""
    config = files[TOKENIZER_CONFIG_FILE]
    special = _special_tokens(config) or _special_tokens(files[SPECIAL_TOKENS_FILE])
    found: dict[str, dict[str, Any]] = {}
    in_json = files[TOKENIZER_FILE].get("added_tokens") or []
    if listed := config.get("added_tokens_decoder"):
        numbered = [{**token, "id": int(number)} for number, token in listed.items()]
        if config.get("tokenizer_class") in _OF_JSON:
            ids = {token["content"]: {"id": token["id"]} for token in in_json}
            numbered = [*in_json, *(token | ids.get(token["content"], {}) for token in numbered)]
    else:
        # As in transformers: BERT's classes look at nothing else where the list is there.
        numbered = [
            {
                "content": content,
                "id": number,
                "normalized": content not in special,
                "special": content in special,
            }
            for content, number in files[ADDED_TOKENS_FILE].items()
        ]
        numbered += in_json
    for token in sorted(numbered, key=lambda token: token["id"]):
        found[token["content"]] = dict(token)
    for content, token in special.items():
        found.setdefault(content, token)
    return list(found.values())


def _special_tokens(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns by content the special tokens beyond those that every model has."""
    listed = values.get("extra_special_tokens") or values.get("additional_special_tokens") or []
    # Some files name them.
    listed = list(listed.values()) if isinstance(listed, Mapping) else listed
    plain = {"normalized": False, "special": True}
    tokens: list[dict[str, Any]] = [
        {**plain, "content": token} if isinstance(token, str) else {**token, "special": True}
        for token in listed
    ]
    return {token["content"]: token for token in tokens}


def tokenizer_config(
    do_lower_case: bool, max_length: int, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Returns a `tokenizer_config.json` for a vocabulary of this project.

    Args:
      do_lower_case: Whether the model is uncased.
      max_length: Of its inputs, in tokens.
      options: As `read_tokenizer_options` gives them, with the `id` of every added token.
    """
    options = options or {}
    added = {
        str(token["id"]): {name: value for name, value in token.items() if name != "id"}
        for token in options.get("added_tokens", ())
    }
    special = ("unk", "cls", "sep", "mask", "pad")
    return {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": options.get("strip_accents"),
        "tokenize_chinese_chars": options.get("tokenize_chinese_chars", True),
        "model_max_length": max_length,
        **({"added_tokens_decoder": added} if added else {}),
        **{f"{name}_token": f"[{name.upper()}]" for name in special},
    }


def tokenizer_json(tokenizer: tokenization.FullTokenizer) -> dict[str, Any]:
    """Returns a `tokenizer.json`, for the library `tokenizers` and what is built on it.

    Args:
      tokenizer: A tokenizer whose vocabulary has [CLS] and [SEP].
    """
    basic, wordpiece = tokenizer.basic_tokenizer, tokenizer.wordpiece_tokenizer
    added = [
        {"id": tokenizer.vocab[token.content], **token.to_dict()}
        for token in (*special_tokens(tokenizer), *tokenizer.added_tokens)
    ]
    marks = {"cls": "[CLS]", "sep": "[SEP]"}
    ends = {name: (mark, tokenizer.vocab[mark]) for name, mark in marks.items()}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": basic.tokenize_chinese_chars,
            "strip_accents": basic.strip_accents,
            "lowercase": basic.do_lower_case,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", **ends},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": wordpiece.unk_token,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": wordpiece.max_input_chars_per_word,
            "vocab": dict(wordpiece.vocab),
        },
    }
