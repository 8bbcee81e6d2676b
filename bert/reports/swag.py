"""What a page shows of chosen endings: each example with the probabilities of its endings."""

from collections.abc import Mapping, Sequence

import numpy as np

from bert.reports.page import (
    UNKNOWN,
    Bar,
    Bars,
    Block,
    Example,
    Section,
    Text,
    shorten,
    worst_first,
)
from bert.tasks.swag import examples as swag_examples


def make_sections(
    part: str,
    examples: Sequence[swag_examples.Example],
    arrays: Mapping[str, np.ndarray],
    logits: np.ndarray,
) -> list[Section]:
    """Returns what a page shows; arguments as `examples.decode`, and whose the examples are."""
    losses = swag_examples.losses(arrays, logits).tolist()
    decoded = swag_examples.decode(examples, arrays, logits)
    shown = []
    for number, (example, answer) in enumerate(zip(examples, decoded, strict=True)):
        said = answer["label"]
        bars = [
            Bar(shorten(ending), probability, choice == example.label, choice == said)
            for choice, (ending, probability) in enumerate(
                zip(example.endings, answer["probabilities"], strict=True)
            )
        ]
        blocks: list[Block] = [Text(shorten(example.context)), Bars(bars)]
        is_known = example.label is not None
        rank, is_right = (losses[number], said == example.label) if is_known else (UNKNOWN, None)
        facts = [*[f"loss {losses[number]:.3f}"] * is_known, example.id]
        shown.append(Example(number, rank, is_right, facts, blocks))
    return [worst_first(part, f"Examples of the {part} set", shown, order="loss")]
