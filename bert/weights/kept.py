"""The files that stand beside a model's weights, and tell what a prediction needs besides them."""

from collections.abc import Mapping
from typing import Any

from bert.files import fingerprints
from bert.files import huggingface as huggingface_files
from bert.files.weight_names import TASK_FILE
from bert.weights.tokenizers import TOKENIZER, check_stored_options
from modeling import BertConfig

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"

# What a run keeps while it trains.
KEPT_FILES = (CONFIG_FILE, VOCAB_FILE, TASK_FILE)
# By these names, in `task.json`, the bytes and digests of the files that it needs beside it.
KEPT = "files"


def kept_files(
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
      task: What it decides, where it is fine-tuned.
      do_lower_case: Whether it is uncased, for `tokenizer_config.json`; None for no such file.
      options: How the tokenizer differs from the original's, for that file.
    """
    files = {CONFIG_FILE: config.to_json_string().encode()}
    if vocabulary is not None:
        files[VOCAB_FILE] = vocabulary
    if task is not None:
        kept = {
            name: {"bytes": len(text), "sha256": fingerprints.of_bytes(text)}
            for name, text in files.items()
        }
        files[TASK_FILE] = huggingface_files.json_text({**task, KEPT: kept})
    if do_lower_case is not None:
        values = huggingface_files.tokenizer_config(
            do_lower_case, config.max_position_embeddings, options
        )
        files[huggingface_files.TOKENIZER_CONFIG_FILE] = huggingface_files.json_text(values)
    return files


def check_task(stored: Mapping[str, Any], path: str) -> None:
    """Checks that what a `task.json` holds has the form that `kept_files` and a task give it.

    Args:
      stored: What it holds.
      path: Where it is.

    Raises:
      ValueError: where it has another one.
    """
    objects = dict.fromkeys(("task", KEPT), (dict, "an object"))
    for key, (kind, noun) in {"kind": (str, "text"), **objects}.items():
        if not isinstance(stored.get(key, kind()), kind):
            raise ValueError(f"`{key}` in {path!r} must be {noun}. It is {stored[key]!r:.80}.")
    check_stored_options(stored.get(TOKENIZER, {}), path)
    for name, kept in stored.get(KEPT, {}).items():
        values = kept if isinstance(kept, dict) else {}
        if [type(values.get(key)) for key in ("bytes", "sha256")] != [int, str]:
            raise ValueError(
                f"`{KEPT}` in {path!r} must have `bytes` and `sha256` of each file. Of "
                f"{name!r}, it has {kept!r:.80}."
            )
