"""Losses, learning rate and gradient norm of a training run, step by step, in `train_log.jsonl`.

The file holds no times, so an interrupted and resumed run writes the same bytes as another one.
"""

import json
import math
import os
from collections.abc import Mapping
from typing import Any

from bert.files.durable import write_text
from bert.files.json_text import parse_json
from bert.files.owned import claim
from bert.files.paths import is_file, read_file
from bert.log import logger
from bert.training.options import TRAIN_LOG

# Maximum number of lines: of a longer run, every n-th step has a line. Where the number of steps is
# unknown, n doubles each time that there would be more lines.
MOST_LINES = 10_000

_NAMES = {"gradient_norm": "grad_norm"}


class TrainLog:
    """The results of single steps, on lines of JSON.

    Args:
      folder: The folder of the training run.
      first_step: The step that training resumes from; lines of later steps are dropped.
      num_train_steps: The last step; None for an unknown number.
    """

    def __init__(self, folder: str, *, first_step: int, num_train_steps: int | None) -> None:
        self._folder = folder
        self._doubles = num_train_steps is None
        self._every = -(-(num_train_steps or first_step or 1) // MOST_LINES)
        if self._doubles:
            self._every = 1 << (self._every - 1).bit_length()
        # The lines by step.
        self._lines = _read_lines(os.path.join(folder, TRAIN_LOG), first_step)
        self._written = -1

    def add(self, step: int, results: Mapping[str, float]) -> None:
        """Adds the results of a step, which `write` saves."""
        if step % self._every == 0:
            values = {_NAMES.get(name, name): _short(value) for name, value in results.items()}
            self._lines[step] = json.dumps({"step": step, **values})
        if self._doubles and step > self._every * MOST_LINES:
            self._every *= 2
            self._lines = {at: line for at, line in self._lines.items() if at % self._every == 0}

    def write(self) -> None:
        """Writes the file; called before the checkpoint of the last step is saved."""
        last = max(self._lines, default=0)
        if last != self._written:
            text = "".join(f"{line}\n" for line in self._lines.values())
            write_text(claim(self._folder, TRAIN_LOG), text)
            self._written = last


def _short(value: float) -> float | None:
    """Returns a value with the precision of float32; None where it has overflowed."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _read_lines(path: str, last: int) -> dict[int, str]:
    """Returns the lines of a file up to a step, by step."""
    if not last or not is_file(path):
        return {}
    lines = {}
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            step: Any = parse_json(line)["step"]
        except (ValueError, TypeError, KeyError):
            step = None
        if type(step) is not int:
            logger.warning(
                "%s:%d is not the results of a step, so the file starts over after step %d.",
                path,
                number,
                last,
            )
            return {}
        if step <= last:
            lines[step] = line.decode()
    return lines
