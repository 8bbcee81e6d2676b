"""What a plan is, and what a run gives back."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert.parts import Line
from bert.runs.state import FolderState


@dataclasses.dataclass(frozen=True)
class Result:
    """What came of a run.

    Attributes:
      scores: The scores of what was evaluated; empty for none.
      step: The step of the weights.
      files: Paths of what runs have written in the output folder.
    """

    scores: Mapping[str, Any]
    step: int
    files: Sequence[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that can be done as its recipe describes it.

    Attributes:
      recipe: With all that was not given.
      lines: What was found of each part, in the order in which they were opened.
      strategy: The devices.
      limit: How many examples of each data set were read at most; None for all.
      state: The output folder as it was.
      has_memory: Whether the memory that training needs is free.
    """

    recipe: Any
    lines: tuple[Line, ...]
    strategy: tf.distribute.Strategy
    limit: int | None
    state: FolderState
    has_memory: bool

    def describe(self) -> str:
        """Returns what was found, a line for each part."""
        return "\n".join(map(str, self.lines))
