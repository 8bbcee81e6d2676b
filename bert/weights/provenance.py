"""Reads and writes `run.json`: the inputs and the progress of the training run in a folder.

A training run resumes only with the inputs that it began with: else no flags would give its result.
"""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from bert.files import owned
from bert.files.durable import write_text
from bert.files.paths import is_file, parse_json, read_file
from bert.log import logger
from bert.options import OptionError

RUN_FILE = "run.json"
# The value of the option `objective` for the original's pre-training.
BERT_OBJECTIVE = "masked_lm_nsp"
# How the names of the head of next sentences begin.
PAIR_HEAD = "cls/seq_relationship/"

# The key of the fingerprint by which an input is compared; its other keys are for messages.
_DIGEST = "sha256"
# The keys of the weights that a run began with, and of those of its teacher.
_INIT = "--" + "init_checkpoint"
# By option, what runs of earlier versions had, which do not say so.
_UNSAID = {"teacher": None, "optimizer": "adam", "max_train_samples": None}


def read(folder: str) -> dict[str, Any]:
    """Returns the content of `run.json`, {} where there is none; a `ValueError` if damaged."""
    path = os.path.join(folder, RUN_FILE)
    if not is_file(path):
        return {}
    try:
        values = parse_json(read_file(path))
    except ValueError:
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("made_of"), dict):
        raise ValueError(
            f"{path!r} must hold the inputs of the training run there. It is damaged; remove it to "
            "go on without that check."
        )
    return values


def find_learned(folder: str) -> str:
    """Returns the objective of the model in a folder; BERT's where the folder records none."""
    return read(folder).get("made_of", {}).get("--objective", BERT_OBJECTIVE)


def find_untrained(folder: str, names: Iterable[str]) -> set[str]:
    """Returns the names of a folder's tensors that its training run has not trained.

    These are of the next-sentence head. A copy of the model must not have them, since it does not
    record the objective.
    """
    if find_learned(folder) == BERT_OBJECTIVE:
        return set()
    return {name for name in names if name.startswith(PAIR_HEAD)}


def begin(
    folder: str,
    made_of: Mapping[str, Any],
    num_train_steps: int | None,
    ran_with: Mapping[str, Any],
    *,
    begins_anew: bool,
) -> None:
    """Writes the inputs of a training run, and that it has not ended.

    Args:
      folder: The folder of the run.
      made_of: The inputs, as for `differences`.
      num_train_steps: The step that it is to end with; None where a clock ends it.
      ran_with: The environment, which is not compared.
      begins_anew: Whether the `run.json` that is there is of another run.
    """
    before = {} if begins_anew else read(folder).get("made_of", {})
    # A run resumes from its own checkpoint, whatever else is named.
    if _INIT in before:
        made_of = {**made_of, _INIT: before[_INIT]}
    values = {"made_of": made_of, "num_train_steps": num_train_steps, "ended": False}
    _write(folder, {**values, "ran_with": ran_with})


def end(folder: str) -> None:
    """Writes that the training run has ended."""
    values = read(folder)
    if values and not values.get("ended"):
        _write(folder, {**values, "ended": True})


def describe(folder: str, description: Mapping[str, Any]) -> None:
    """Writes a description of a training run that has ended, such as its command."""
    values = read(folder)
    if values and values.get("told") != description:
        _write(folder, {**values, "told": description})


def copy(source: str, folder: str, flags: Mapping[str, Any]) -> None:
    """Copies the `run.json` of a model that was trained in `source` and copied to `folder`.

    The flags become those of the command that the training run was a part of.
    """
    if values := read(source):
        ran_with = {**values.get("ran_with", {}), "flags": flags}
        _write(folder, {**values, "ran_with": ran_with})


def _write(folder: str, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_text(owned.claim(folder, RUN_FILE), text + "\n")


def differences(folder: str, made_of: Mapping[str, Any]) -> list[str]:
    """Returns how the inputs of a training run differ from a folder's run.

    Args:
      folder: The folder; nothing differs from one without `run.json`, such as the original's.
      made_of: The inputs by flag or by name; one that is compared by its fingerprint is a mapping
        with `sha256`. Weights to begin with that are not given again do not differ.
    """
    stored = read(folder).get("made_of", {})
    if stored:
        stored = {**{f"--{name}": value for name, value in _UNSAID.items()}, **stored}
    lines = []
    for name, value in made_of.items():
        # The weights that a run began with need not be named again.
        if name not in stored or (name == _INIT and value is None):
            continue
        if _compared(stored[name]) == _compared(value):
            continue
        before, now = _described(stored[name]), _described(value)
        if before == now:
            now = "something else of that name"
        lines.append(f"{name} is {before} there and {now} now")
    return lines


def _compared(value: Any) -> Any:
    return value.get(_DIGEST) if isinstance(value, Mapping) else value


def _described(value: Any) -> str:
    if value is None:
        return "absent"
    if not isinstance(value, Mapping):
        return repr(value)
    return ", ".join(str(each) for name, each in value.items() if name != _DIGEST)


def check_trained(folder: str, step: int | None, option: str) -> None:
    """Checks that weights to predict with are trained; warns where their run has not ended.

    Args:
      folder: The folder of the weights.
      step: The step of a checkpoint; None for weights that a training run has ended with.
      option: The option that named the folder, for messages.

    Raises:
      ValueError: where a training run began with these weights.
    """
    run = read(folder)
    if step is None or not run or run.get("ended"):
        return
    if step == 0:
        remedy = f"In {folder!r}, the training has not got beyond step 0; run its command again."
        raise OptionError(option, "hold trained weights", remedy=remedy)
    steps = run.get("num_train_steps")
    logger.warning(
        "The training in %r has not ended: the weights are those of step %d%s. The command "
        "that began it resumes it.",
        folder,
        step,
        "" if steps is None else f" of {steps}",
    )
