"""The files beside a model's weights, in the forms of this project, transformers and TensorBoard.

A folder of this project has `bert_config.json`, `vocab.txt` and, fine-tuned, `task.json`; a folder
of transformers has `config.json`. TensorBoard's projector shows the word embeddings of a folder
with files that name the table in the latest checkpoint, and the words of its rows.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert.files import fingerprints
from bert.files.paths import is_file, read_file, to_json
from bert.files.stored_models import HUGGINGFACE_FIXED, TASK_FILE
from bert.options import Message, MessageError, Option
from bert.weights.options import ARCHITECTURES
from bert.weights.tokenizers import (
    TOKENIZER,
    TOKENIZER_CONFIG_FILE,
    check_stored_options,
    tokenizer_config,
)
from modeling import BertConfig

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"

# The files that a run writes before it trains.
MODEL_FILES = (CONFIG_FILE, VOCAB_FILE, TASK_FILE)
# The key in `task.json` of the sizes and digests of the other files, by name.
FILES_KEY = "files"


def make_files(
    config: BertConfig,
    vocabulary: bytes | None = None,
    task: Mapping[str, Any] | None = None,
    do_lower_case: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Returns by name the files of a folder of this project, weights apart.

    Args:
      config: The shape of the model.
      vocabulary: The text of its `vocab.txt`, or None for none.
      task: The content of `task.json`, where the model is fine-tuned.
      do_lower_case: The casing, for `tokenizer_config.json`; None for no such file.
      options: How the tokenizer differs from the original's, for that file.
    """
    files = {CONFIG_FILE: config.to_json_string().encode()}
    if vocabulary is not None:
        files[VOCAB_FILE] = vocabulary
    if task is not None:
        saved = {
            name: {"bytes": len(text), "sha256": fingerprints.of_bytes(text)}
            for name, text in files.items()
        }
        files[TASK_FILE] = to_json({**task, FILES_KEY: saved})
    if do_lower_case is not None:
        values = tokenizer_config(do_lower_case, config.max_position_embeddings, options)
        files[TOKENIZER_CONFIG_FILE] = to_json(values)
    return files


def check_task(stored: Mapping[str, Any], path: str) -> None:
    """Checks the form of a `task.json`, whose content `stored` is."""
    objects = ((key, dict, "an object") for key in ("task", FILES_KEY))
    for key, kind, noun in (("kind", str, "text"), *objects):
        if not isinstance(stored.get(key, kind()), kind):
            raise ValueError(f"`{key}` in {path!r} must be {noun}. It is {stored[key]!r:.80}.")
    check_stored_options(stored.get(TOKENIZER, {}), path)
    for name, saved in stored.get(FILES_KEY, {}).items():
        values = saved if isinstance(saved, dict) else {}
        if [type(values.get(key)) for key in ("bytes", "sha256")] != [int, str]:
            raise ValueError(
                f"`{FILES_KEY}` in {path!r} must have `bytes` and `sha256` of each file. Of "
                f"{name!r}, it has {saved!r:.80}."
            )


def check_digest(path: str, saved: Mapping[str, Any]) -> None:
    """Checks that a file has the digest that `task.json` beside it has saved, if it has one."""
    expected = saved.get(os.path.basename(path))
    if expected is None:
        return
    text = read_file(path)
    if fingerprints.of_bytes(text) != expected["sha256"]:
        raise ValueError(
            f"{path!r} must be the file that the model was trained with, of {expected['bytes']:,} "
            f"bytes, as {TASK_FILE} beside it says. It is another one, of {len(text):,}. "
            "Restore it, or train again."
        )


def find_config_differences(folder: str, config: BertConfig, option: Option) -> list[Any]:
    """Returns how a configuration, which `option` names, differs from the one in a folder."""
    path = os.path.join(folder, CONFIG_FILE)
    stored = vars(BertConfig.from_json_file(path)) if is_file(path) else {}
    return [
        Message("`%s` is %r there and %r in %s", key, stored[key], value, option)
        for key, value in vars(config).items()
        if key in stored and stored[key] != value
    ]


def find_task_differences(stored: Mapping[str, Any], task: Mapping[str, Any]) -> list[Any]:
    """Returns how a task differs from a stored one in the keys that both have."""
    # JSON reads lists for tuples.
    wanted = json.loads(json.dumps(task))
    return [
        difference
        for key, value in wanted.items()
        if key in stored
        for difference in _differences(key, stored[key], value)
    ]


def _differences(name: str, there: Any, now: Any) -> list[str]:
    """Returns how a value differs from a stored one, as briefly as possible."""
    if there == now:
        return []
    if isinstance(there, dict) and isinstance(now, dict):
        both = [key for key in there if key in now]
        sides = (("there", there), ("now", now))
        return [
            *(line for key in both for line in _differences(f"{name}.{key}", there[key], now[key])),
            *(
                f"`{name}.{key}` is {values[key]!r:.200} only {side}"
                for side, values in sides
                for key in sorted(values.keys() - both)
            ),
        ]
    if isinstance(there, list) and isinstance(now, list):
        lost = [item for item in there if item not in now]
        new = [item for item in now if item not in there]
        if not lost and not new:
            return [f"`{name}` is {there!r:.200} there and in another order now"]
        items = (("there", lost), ("now", new))
        return [
            f"`{name}` has {item!r:.200} only {side}" for side, values in items for item in values
        ]
    return [f"`{name}` is {there!r} there and {now!r} now"]


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


def architecture_of(tensor_names: Sequence[str]) -> str:
    """Returns the first of `ARCHITECTURES` all heads of which are among the tensors."""
    present = set(tensor_names)
    return next(name for name, heads in ARCHITECTURES.items() if present.issuperset(heads))


def make_huggingface_config(
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
    check_known_to_transformers(config)
    values = {
        **config,
        "model_type": HUGGINGFACE_FIXED["model_type"],
        "layer_norm_eps": HUGGINGFACE_FIXED["layer_norm_eps"],
        "architectures": [architecture],
        "hidden_act": _THEIR_ACTIVATIONS[config["hidden_act"].lower()],
        "dtype": "float32",
        "pad_token_id": 0,
    }
    if labels:
        values["id2label"] = {str(number): name for number, name in enumerate(labels)}
        values["label2id"] = {name: number for number, name in enumerate(labels)}
    if problem_type := _PROBLEM_TYPES.get(task_type or ""):
        values["problem_type"] = problem_type
    return values


def check_known_to_transformers(config: Mapping[str, Any]) -> None:
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


def read_task_type(values: Mapping[str, Any]) -> str | None:
    """Returns the type of a classifier in the words of `task.json`, None where there is none."""
    kinds = {theirs: ours for ours, theirs in _PROBLEM_TYPES.items()}
    return kinds.get(str(values.get("problem_type")))


def read_labels(values: Mapping[str, Any]) -> list[str] | None:
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


PROJECTOR_FILE = "projector_config.pbtxt"
WORDS_FILE = "projector_words.tsv"

_PROJECTOR = """\
embeddings {{
  tensor_name: "bert/embeddings/word_embeddings"
  metadata_path: "{words}"
}}
"""


def projector_files(vocabulary: bytes, vocab_size: int) -> dict[str, bytes]:
    """Returns by name the files for the projector.

    Args:
      vocabulary: The text of a `vocab.txt`.
      vocab_size: Rows of the table; there is a label for each.
    """
    tokens = vocabulary.decode("utf-8-sig", "replace").split("\n")[:vocab_size]
    # No tab and nothing that some program takes for the end of a line; a blank line would be left
    # out, and the labels behind it would be those of other rows.
    labels = [" ".join(token.split()) for token in tokens]
    labels += [""] * (vocab_size - len(labels))
    lines = [f"{label or f'[{row}]'}\n" for row, label in enumerate(labels)]
    return {
        PROJECTOR_FILE: _PROJECTOR.format(words=WORDS_FILE).encode(),
        WORDS_FILE: "".join(lines).encode(),
    }
