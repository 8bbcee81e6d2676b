"""What the training in a folder is made of and how far it is, as `run.json` there tells.

A training goes on only as what it began as: else its result would be of no flags at all.
"""

import json
import os
from collections.abc import Mapping
from typing import Any

from absl import logging

from bert.files import owned
from bert.files.durable import write_text
from bert.files.json_text import parse_json
from bert.files.paths import is_file, read_file

RUN_FILE = "run.json"

# The name of what is compared by its fingerprint alone; the rest of it is for messages.
_DIGEST = "sha256"
_INIT = "--init_checkpoint"


def read(folder: str) -> dict[str, Any]:
    """Returns what `run.json` holds, {} where there is none.

    Raises:
      ValueError: where it is damaged.
    """
    path = os.path.join(folder, RUN_FILE)
    if not is_file(path):
        return {}
    try:
        values = parse_json(read_file(path))
    except ValueError:
        values = None
    if not isinstance(values, dict) or not isinstance(values.get("made_of"), dict):
        raise ValueError(
            f"{path!r} must tell what the training there is made of. It is damaged; remove it to "
            "go on without that check."
        )
    return values


def begin(
    folder: str,
    made_of: Mapping[str, Any],
    num_train_steps: int | None,
    ran_with: Mapping[str, Any],
    *,
    begins_anew: bool,
) -> None:
    """Keeps what a training is made of, and that it has not ended.

    Args:
      folder: That of the training.
      made_of: As `differences`.
      num_train_steps: The step that it is to end with; None where a clock ends it.
      ran_with: What else is to be known of it; nothing is compared.
      begins_anew: Whether what is kept there is of another training.
    """
    before = {} if begins_anew else read(folder).get("made_of", {})
    # What a training goes on from is its own checkpoint, whatever else is named.
    if _INIT in before:
        made_of = {**made_of, _INIT: before[_INIT]}
    values = {"made_of": made_of, "num_train_steps": num_train_steps, "ended": False}
    _write(folder, {**values, "ran_with": ran_with})


def end(folder: str) -> None:
    """Keeps that the training has ended."""
    values = read(folder)
    if values and not values.get("ended"):
        _write(folder, {**values, "ended": True})


def tell(folder: str, told: Mapping[str, Any]) -> None:
    """Keeps what else is to be told of a training that has ended, such as its command."""
    values = read(folder)
    if values and values.get("told") != told:
        _write(folder, {**values, "told": told})


def copy(source: str, folder: str, flags: Mapping[str, Any]) -> None:
    """Keeps in a folder what made the model that it has from another one.

    Args:
      source: That in which it was trained.
      folder: That to which it is copied.
      flags: Those of the command, of which the training was a part.
    """
    if values := read(source):
        ran_with = {**values.get("ran_with", {}), "flags": flags}
        _write(folder, {**values, "ran_with": ran_with})


def _write(folder: str, values: Mapping[str, Any]) -> None:
    text = json.dumps(values, indent=2, ensure_ascii=False)
    write_text(owned.claim(folder, RUN_FILE), text + "\n")


def differences(folder: str, made_of: Mapping[str, Any]) -> list[str]:
    """Returns how a training differs from the one in a folder, an item for each thing.

    Args:
      folder: Nothing differs from one that does not tell, such as that of the original.
      made_of: By flag or by name what a training is made of; what is compared by its fingerprint is
        a mapping with `sha256`. An `--init_checkpoint` that is not given again does not differ.
    """
    stored = read(folder).get("made_of", {})
    lines = []
    for name, value in made_of.items():
        # What it began with need not be named again.
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


def check_trained(folder: str, step: int | None, flag: str) -> None:
    """Checks that the weights to answer with are trained ones; warns where training has not ended.

    Args:
      folder: Theirs.
      step: That of a checkpoint of a training; None for weights that a training has ended with.
      flag: The flag that named the folder, for messages.

    Raises:
      ValueError: where they are those that a training began with.
    """
    run = read(folder)
    if step is None or not run or run.get("ended"):
        return
    if step == 0:
        raise ValueError(
            f"`--{flag}` must hold trained weights. In {folder!r}, the training has not got beyond "
            "step 0; run its command again."
        )
    steps = run.get("num_train_steps")
    logging.warning(
        "The training in %r has not ended: the weights are those of step %d%s. The command "
        "that began it goes on.",
        folder,
        step,
        "" if steps is None else f" of {steps}",
    )
