"""What a training run minimizes."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

Tensor = Any
Batch = Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Objective:
    """The objective of a training run, as a sum of parts.

    Attributes:
      weights: Returns for a batch what the sum of each part is divided by.
      losses: Returns the share of a batch of each part, from the outputs of the model, the batch
        and the weights of the whole step.
    """

    weights: Callable[[Batch], dict[str, Tensor]]
    losses: Callable[[Mapping[str, Tensor], Batch, Mapping[str, Tensor]], dict[str, Tensor]]
