"""Losses, learning rate and gradient norm of a training, step by step, as `train_log.jsonl`.

The file is made of the training alone, not of times: that of a training which was stopped and has
gone on holds the same bytes as that of one which was left alone.
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

# Of a longer training, every n-th step makes a line, so that there are at most so many. Where
# nobody knows how long it will be, n doubles each time that there are more.
MOST_LINES = 10_000

_NAMES = {"gradient_norm": "grad_norm"}


class TrainLog:
    """The results of single steps, on lines of JSON.

    Args:
      folder: That of the training.
      first_step: The step that it goes on from; lines behind it are of what is trained again.
      num_train_steps: The step that it ends with; None where nobody knows.
    """

    def __init__(self, folder: str, *, first_step: int, num_train_steps: int | None) -> None:
        self._folder = folder
        self._doubles = num_train_steps is None
        self._every = -(-(num_train_steps or first_step or 1) // MOST_LINES)
        if self._doubles:
            self._every = 1 << (self._every - 1).bit_length()
        # By step.
        self._lines = _read_lines(os.path.join(folder, TRAIN_LOG), first_step)
        self._written = -1

    def add(self, step: int, results: Mapping[str, float]) -> None:
        """Takes the results of a step; `write` keeps them."""
        if step % self._every == 0:
            values = {_NAMES.get(name, name): _short(value) for name, value in results.items()}
            self._lines[step] = json.dumps({"step": step, **values})
        if self._doubles and step > self._every * MOST_LINES:
            self._every *= 2
            self._lines = {at: line for at, line in self._lines.items() if at % self._every == 0}

    def write(self) -> None:
        """Writes the file, which a checkpoint of the last step may then follow."""
        last = max(self._lines, default=0)
        if last != self._written:
            text = "".join(f"{line}\n" for line in self._lines.values())
            write_text(claim(self._folder, TRAIN_LOG), text)
            self._written = last


def _short(value: float) -> float | None:
    """Returns a value with the digits that float32 has; None where it has overflowed."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _read_lines(path: str, last: int) -> dict[int, str]:
    """Returns the lines up to a step, as they are in a file, by step."""
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
                "%s:%d is no step's results, so the file begins anew behind step %d.",
                path,
                number,
                last,
            )
            return {}
        if step <= last:
            lines[step] = line.decode()
    return lines
