"""The plan of a run, the state of its output folder, and the result of a run."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.files import fingerprints, owned
from bert.files.paths import is_file
from bert.files.weight_names import step_of
from bert.options import Message, Option, OptionError
from bert.parts import UNCHECKED, Line, Parts
from bert.runs.resumption import Training
from bert.training import strategies
from bert.weights import provenance
from bert.weights.checkpoint import weight_files


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
      scores: The scores of what was evaluated; empty for none.
      step: The step of the weights.
      files: Paths of the files that runs have written in the output folder.
    """

    scores: Mapping[str, Any]
    step: int
    files: Sequence[str]


@dataclasses.dataclass(frozen=True)
class FolderState:
    """The state of an output folder, which another run may change between planning and running.

    Attributes:
      digest: The fingerprint of `run.json`; "" where there is none.
      latest: The name of the latest checkpoint; "" where there is none.
    """

    digest: str
    latest: str

    @classmethod
    def of(cls, folder: str) -> "FolderState":
        """Returns the state of a folder as it is now."""
        path = os.path.join(folder, provenance.RUN_FILE)
        digest = fingerprints.of_files([path]) if is_file(path) else ""
        names = [name for name in weight_files(folder) if step_of(name) is not None]
        return cls(digest, max(names, key=lambda name: step_of(name) or 0, default=""))

    def check(self, folder: str) -> None:
        """Checks that the folder has not changed.

        Raises:
          OptionError: where another run has changed it.
        """
        now = FolderState.of(folder)
        if now != self:
            what = "`run.json`" if now.digest != self.digest else "the latest checkpoint"
            raise OptionError(
                "output_dir",
                "be as it was when the run was planned",
                remedy=Message(
                    "In %r, %s has changed. Plan again, or give another %s.",
                    *(folder, what, Option("output_dir")),
                ),
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A verified plan of a run.

    Attributes:
      recipe: The recipe, with all values that it left out.
      lines: A line for each part, in the order in which they were opened.
      strategy: The devices.
      limit: The most examples of each data set that were read; None for all.
      state: The state of the output folder.
      has_memory: Whether the memory that training needs is free.
      training: How far training goes, and from where; None for no training.
    """

    recipe: Any
    lines: tuple[Line, ...]
    strategy: tf.distribute.Strategy
    limit: int | None
    state: FolderState
    has_memory: bool
    training: Training | None

    def describe(self) -> str:
        """Returns a line for each part."""
        return "\n".join(map(str, self.lines))

    @contextlib.contextmanager
    def locked(self, folder: str) -> Iterator[None]:
        """Locks an output folder for training, on the chief alone, and checks that it is unchanged.

        Raises:
          ValueError: where another process trains in the folder, or has changed it.
        """
        if not strategies.is_chief(self.strategy):
            yield
            return
        with owned.lock(folder) if self.training else contextlib.nullcontext():
            self.state.check(folder)
            yield

    def estimate(self) -> list[Line]:
        """Tries a plan with a limit; returns a line on the time of training, or on the weights."""
        parts = Parts(is_muted=True)
        if self.training and self.obstacle:
            parts.add(UNCHECKED, "time", f"not measured, for {self.obstacle}")
            return parts.lines
        with self.strategy.scope():
            if self.training:
                parts("time", self.try_steps, shows=str)
            else:
                parts("model", self.restore, shows=lambda step: f"step {step}")
        return parts.lines

    @property
    def obstacle(self) -> str:
        """Why no steps can be tried; "" where they can be."""
        return "" if self.has_memory else "there is too little memory"

    def restore(self) -> int:
        """Returns the step of the weights that a run without training would use."""
        raise NotImplementedError

    def try_steps(self) -> str:
        """Takes a few steps of training; returns an estimate of the time that training takes."""
        raise NotImplementedError
