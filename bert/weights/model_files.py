"""The files beside a model's weights: what a prediction needs besides them."""

import json
import os
from collections.abc import Mapping
from typing import Any

from bert.files import fingerprints
from bert.files.json_text import to_json
from bert.files.paths import is_file, read_file
from bert.files.weight_names import TASK_FILE
from bert.options import Message, Option
from bert.weights import huggingface_files
from bert.weights.tokenizers import TOKENIZER, check_stored_options
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
        values = huggingface_files.tokenizer_config(
            do_lower_case, config.max_position_embeddings, options
        )
        files[huggingface_files.TOKENIZER_CONFIG_FILE] = to_json(values)
    return files


def check_task(stored: Mapping[str, Any], path: str) -> None:
    """Checks the form of a `task.json`, whose content `stored` is."""
    objects = dict.fromkeys(("task", FILES_KEY), (dict, "an object"))
    for key, (kind, noun) in {"kind": (str, "text"), **objects}.items():
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
