"""What a task adds to a model for it to answer questions: the part that `serving` does not know."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class ServedTask:
    """What a task adds to a model.

    Attributes:
      fields: Names of an input's values, such as `text_a` and `text_b`; all must be there.
      model: A functional model whose inputs and outputs are dictionaries.
      make_features: From inputs, what the model reads: int32 [N, S] or [N, E, S] with 0 for
        padding. N need not be the number of inputs.
      decode: From the inputs, their features and the model's outputs for these, one answer per
        input, fit for JSON. Outputs per token are padded with 0 to S.
    """

    fields: tuple[str, ...]
    model: Any
    make_features: Callable[[Sequence[Row]], Mapping[str, np.ndarray]]
    decode: Callable[
        [Sequence[Row], Mapping[str, np.ndarray], Mapping[str, np.ndarray]], list[dict[str, Any]]
    ]
