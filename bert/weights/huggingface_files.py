"""Reads and writes the JSON files of a Hugging Face model in the original's terms.

`config.json` has the shape and the labels; the files of the tokenizer have its options and added
tokens.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.huggingface_config import FIXED
from bert.options import MessageError, Option

CONFIG_FILE = "config.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
TOKENIZER_FILE = "tokenizer.json"
ADDED_TOKENS_FILE = "added_tokens.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"

# Architectures of transformers by their heads, as these are named in a TF1 checkpoint; the first
# one of which a checkpoint has all. A head of the name `output_weights` has several meanings.
ARCHITECTURES = {
    "BertForPreTraining": ("cls/predictions/output_bias", "cls/seq_relationship/output_weights"),
    "BertForMaskedLM": ("cls/predictions/output_bias",),
    "BertForNextSentencePrediction": ("cls/seq_relationship/output_weights",),
    "BertForQuestionAnswering": ("cls/squad/output_weights",),
    "BertForSequenceClassification": ("output_weights",),
    "BertForTokenClassification": ("output_weights",),
    "BertForMultipleChoice": ("output_weights",),
    "BertModel": (),
}

# Of a fine-tuned model, by the `kind` in `task.json`.
FINE_TUNED = {
    "classification": "BertForSequenceClassification",
    "question_answering": "BertForQuestionAnswering",
    "tagging": "BertForTokenClassification",
    "multiple_choice": "BertForMultipleChoice",
}

_THEIR_ACTIVATIONS = {
    "gelu_erf": "gelu",
    "gelu": "gelu_new",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
    "": "linear",
}

# By `task_type` in a `task.json`.
_PROBLEM_TYPES = {
    "classification": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}


def from_bert(
    config: Mapping[str, Any],
    architecture: str,
    labels: Sequence[str] | None = None,
    task_type: str | None = None,
) -> dict[str, Any]:
    """Returns a `config.json` for the model that `config`, a `bert_config.json`, describes.

    Args:
      config: Complete, as `BertConfig.to_dict` gives it.
      architecture: Name of the class in transformers.
      labels: Names of the outputs.
      task_type: The type of a classifier, as in `task.json`.

    Raises:
      ValueError: where transformers has no such model.
    """
    check_known(config)
    problem_type = _PROBLEM_TYPES.get(task_type or "")
    return {
        **config,
        "model_type": FIXED["model_type"],
        "layer_norm_eps": FIXED["layer_norm_eps"],
        "architectures": [architecture],
        "hidden_act": _THEIR_ACTIVATIONS[config["hidden_act"].lower()],
        "dtype": "float32",
        "pad_token_id": 0,
        **(label_keys(labels) if labels else {}),
        **({"problem_type": problem_type} if problem_type else {}),
    }


def check_known(config: Mapping[str, Any]) -> None:
    """Checks that transformers has a model of the shape of a `bert_config.json`.

    Raises:
      ValueError: where it has none.
    """
    if config.get("is_decoder"):
        raise MessageError(
            "`is_decoder` must be false for transformers, whose decoders differ. The model is one "
            "of %s; this project's scripts read it as it is.",
            Option("objective", "left_to_right"),
        )
    if config.get("encoder_type", "transformer") != "transformer":
        raise MessageError(
            "`encoder_type` must be 'transformer' for transformers, which has no others. The model "
            "is one of %s, or of word vectors; this project's scripts read it as it is.",
            Option("objective", "bilstm_lm"),
        )


def task_type(values: Mapping[str, Any]) -> str | None:
    """Returns the type of a classifier in the words of `task.json`, None where there is none."""
    kinds = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
    return kinds.get(str(values.get("problem_type")))


def labels(values: Mapping[str, Any]) -> list[str] | None:
    """Returns the labels of a `config.json` in the order of the outputs; None where it has none.

    Raises:
      ValueError: where they are not numbered from 0.
    """
    named = values.get("id2label")
    if not named:
        return None
    try:
        numbered = {int(number): str(label) for number, label in named.items()}
    except (AttributeError, ValueError):
        numbered = {}
    if not numbered or sorted(numbered) != list(range(len(named))):
        raise ValueError(f"`id2label` must number the labels from 0. Received {named!r}.")
    return [numbered[number] for number in range(len(numbered))]


def label_keys(names: Sequence[str]) -> dict[str, Any]:
    """Returns the keys of a `config.json` that name the outputs."""
    return {
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def read_tokenizer_options(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the options in which a tokenizer differs from the original's, {} for none.

    Args:
      files: By name the contents of `TOKENIZER_CONFIG_FILE`, `TOKENIZER_FILE`, `ADDED_TOKENS_FILE`
        and `SPECIAL_TOKENS_FILE`, {} for an absent file.

    Returns:
      Some of `strip_accents`, `tokenize_chinese_chars` and `added_tokens`, a list of what
      `AddedToken.from_dict` takes, each with its `id` if a file has it.

    Raises:
      ValueError: where a value is of the wrong type.
    """
    config = files[TOKENIZER_CONFIG_FILE]
    normalizer = files[TOKENIZER_FILE].get("normalizer") or {}
    options: dict[str, Any] = {}
    for name, other in (
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ):
        value = config.get(name, normalizer.get(other))
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"`{name}` of a tokenizer must be true or false. Received {value!r}.")
        if value is not None and (name, value) != ("tokenize_chinese_chars", True):
            options[name] = value
    if added := _added_tokens(files):
        options["added_tokens"] = added
    return options


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
      files: As for `read_tokenizer_options`, with `CONFIG_FILE`.
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
    for name in (TOKENIZER_CONFIG_FILE, CONFIG_FILE):
        if kind := files[name].get("tokenizer_class"):
            return None if _TOKENIZERS.fullmatch(str(kind)) else ("tokenizer_class", name, kind)
    return None


def _added_tokens(files: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns added tokens in the order of their ids, those without one last."""
    config = files[TOKENIZER_CONFIG_FILE]
    special = _special_tokens(config) or _special_tokens(files[SPECIAL_TOKENS_FILE])
    found: dict[str, dict[str, Any]] = {}
    if listed := config.get("added_tokens_decoder"):
        numbered = [{**token, "id": int(number)} for number, token in listed.items()]
    else:
        # As in transformers: nothing else is looked at where the list is there.
        numbered = [
            {
                "content": content,
                "id": number,
                "normalized": content not in special,
                "special": content in special,
            }
            for content, number in files[ADDED_TOKENS_FILE].items()
        ]
        numbered += files[TOKENIZER_FILE].get("added_tokens") or []
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
