"""Examples as a model reads them, for people to see whether the data are what they should be."""

from typing import Any

import numpy as np
from absl import logging

from bert.tasks.task import Inputs, Task

# Examples that are logged, and that are with --verbosity=1.
_NUM_SHOWN, _MOST_SHOWN = 2, 20
# Tokens and tags that are shown of each.
_MOST_TOKENS = 60


def show_examples(task: Task, inputs: Inputs) -> None:
    """Logs the first examples of a part: what they are called, their tokens and their answers."""
    head, num_rows = inputs.head(_MOST_SHOWN), inputs.num_rows
    ids, mask = head["input_ids"], head["input_mask"]
    # Long questions and sentences make several rows, which have no answers of their own.
    examples = inputs.examples if len(inputs.examples) == num_rows else [None] * num_rows
    for row in range(len(ids)):
        # Of several endings the first one.
        kept = np.asarray(ids[row])[np.asarray(mask[row]) > 0] if ids.ndim == 2 else ids[row, 0]
        tokens = task.tokenizer.convert_ids_to_tokens(kept[kept > 0].tolist())
        logging.log(
            logging.INFO if row < _NUM_SHOWN else logging.DEBUG,
            "Example %s: %s%s",
            getattr(examples[row], "guid", f"{inputs.part.split}-{row + 1}"),
            _cut(tokens),
            _answer(examples[row]),
        )


def _answer(example: Any) -> str:
    tags = getattr(example, "tags", None)
    if tags:
        return f" | tags: {_cut(tags)}"
    label = getattr(example, "label", None)
    return "" if label is None else f" | label: {label}"


def _cut(words: Any) -> str:
    more = len(words) - _MOST_TOKENS
    shown = " ".join(words[:_MOST_TOKENS])
    return f"{shown} … and {more} more" if more > 0 else shown
