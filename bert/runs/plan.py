"""The plan of a run: everything is opened and verified, and nothing is written."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert.files import owned
from bert.files.process import import_tensorflow
from bert.options import check_bounds
from bert.parts import UNCHECKED, Line, Parts
from bert.runs.recipes import FineTuning, PreTraining, Search

if TYPE_CHECKING:
    import tensorflow as tf

    from bert.runs.identity import FolderState, Training


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
    strategy: "tf.distribute.Strategy"
    limit: int | None
    state: "FolderState"
    has_memory: bool
    training: "Training | None"

    def describe(self) -> str:
        """Returns a line for each part."""
        return "\n".join(map(str, self.lines))

    @contextlib.contextmanager
    def locked(self, folder: str) -> Iterator[None]:
        """Locks an output folder for training, on the chief alone, and checks that it is unchanged.

        Raises:
          ValueError: where another process trains in the folder, or has changed it.
        """
        # As `strategies.is_chief`; this module loads no TensorFlow.
        if not self.strategy.extended.should_checkpoint:
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


def plan(
    recipe: PreTraining | FineTuning | Search,
    limit: int | None = None,
    strategy: "tf.distribute.Strategy | None" = None,
) -> Plan:
    """Returns the verified plan of a run; writes nothing.

    Args:
      recipe: The description of the run.
      limit: The most examples of each data set to read; None for all. A plan with a limit shows
        what a run would do, and cannot be run.
      strategy: The devices, where they are opened already.

    Raises:
      PlanError: naming all faults, as far as they can be found: without a limit, no data are read
        where something else is wrong.
    """
    for group in (recipe.shared if isinstance(recipe, Search) else recipe).groups():
        check_bounds(group)
    import_tensorflow()
    # A run loads what its own kind needs.
    if isinstance(recipe, PreTraining):
        from bert.runs import pretraining  # noqa: PLC0415

        return pretraining.plan(recipe, limit, strategy)
    if isinstance(recipe, Search):
        from bert.runs import search  # noqa: PLC0415

        return search.plan(recipe.completed(), limit, strategy)
    from bert.runs import finetuning  # noqa: PLC0415

    return finetuning.plan(recipe.completed(), limit, strategy)[0]
