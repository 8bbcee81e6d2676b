"""What the programs of prediction.py have in common: they predict and take their time.

Imports nothing but NumPy, as they run in different environments.
"""

import functools
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import worker

IDS = ("input_ids", "input_mask", "segment_ids")
LABELS = ("negative", "positive")
MAX_LENGTH = 128

# From a batch to logits, or from texts to labels.
Predict = Callable[[Any], Any]


def read_cases(path: str) -> dict[str, list[Any]]:
    """Returns the batches of each case: int32 [B, S] by the names in `IDS`, or texts."""
    with open(path, encoding="utf-8") as file:
        cases = json.load(file)
    return {
        name: [
            {key: np.array(rows, np.int32) for key, rows in batch.items()}
            if isinstance(batch, dict)
            else batch
            for batch in batches
        ]
        for name, batches in cases.items()
    }


def serve(cases_file: str, predict: Mapping[str, Predict]) -> None:
    """Serves the measures "answers" and "seconds" of cases.

    Args:
      cases_file: As `read_cases` takes it.
      predict: By the form of a case, the first part of its name.
    """
    cases = read_cases(cases_file)

    def answers(case: str) -> list[Any]:
        """Returns what is predicted for each batch."""
        outputs = [predict[case.split("/", maxsplit=1)[0]](batch) for batch in cases[case]]
        return [np.asarray(output).tolist() for output in outputs]

    def seconds(case: str, at_least: float) -> list[float]:
        """Returns how long each batch took, in as many passes over them all as take so long."""
        function = predict[case.split("/", maxsplit=1)[0]]
        taken: list[float] = []
        started = time.perf_counter()
        while not taken or time.perf_counter() - started < at_least:
            taken += [worker.seconds(functools.partial(function, each)) for each in cases[case]]
        return taken

    worker.serve({"answers": answers, "seconds": seconds})
