"""How large everything is at a budget: shapes, steps, examples and seeds, on a ladder of rungs."""

import dataclasses
from collections.abc import Mapping
from typing import Any

# Lengths of the two phases of a pre-training (paper, appendix A.2, has 128 and 512).
SHORT, LONG = 32, 128


@dataclasses.dataclass(frozen=True)
class Size:
    """The shape of a model, by the paper's letters."""

    layers: int
    hidden: int
    heads: int

    @property
    def name(self) -> str:
        """Such as `L4_H256_A4`."""
        return f"L{self.layers}_H{self.hidden}_A{self.heads}"

    @property
    def title(self) -> str:
        """As the paper writes it."""
        return f"L={self.layers} H={self.hidden} A={self.heads}"

    @property
    def parameters(self) -> int:
        """Weights of the layers, embeddings apart."""
        return 12 * self.layers * self.hidden**2


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What a budget is spent on; the same for all that is compared.

    Attributes:
      hidden: Width of the base model, which has four layers, for table 7 looks at four.
      tokens: Of a pre-training step, of either length.
      steps: Of pre-training on sequences of `SHORT` and of `LONG` tokens.
      examples: To fine-tune on, at most; `glue_examples` of a task of GLUE, whose texts are short,
        and `questions` of SQuAD.
      held_out: Examples and records to evaluate on, at most.
      epochs: Of each fine-tuning.
      seeds: Fine-tunings of which a score is the mean; table 1 has `top_seeds`.
      points: Checkpoints of each phase of a pre-training that figure 5 shows.
      text_bytes: Of the text to pre-train on, at most.
    """

    hidden: int
    tokens: int
    steps: tuple[int, int]
    examples: int
    glue_examples: int
    held_out: int
    epochs: float
    seeds: int
    top_seeds: int
    points: int
    text_bytes: int
    vocab_size: int = 8000

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Five models from small to large, for table 6; the fourth is the base model."""
        half, whole = self.hidden // 2, self.hidden
        heads = max(whole // 64, 2)
        return (
            Size(1, half, heads // 2),
            Size(2, half, heads // 2),
            Size(2, whole, heads),
            Size(4, whole, heads),
            Size(6, whole * 3 // 2, heads * 3 // 2),
        )

    @property
    def base(self) -> Size:
        """The model of all other tables."""
        return self.sizes[3]

    @property
    def questions(self) -> int:
        """Questions of SQuAD to fine-tune on, at most: 2,500 teach no model here anything."""
        return 5 * self.examples

    def batch_size(self, length: int) -> int:
        """Returns how many sequences make the tokens of a step."""
        return max(self.tokens // length, 1)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, fit for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Recipe":
        """Returns the recipe that a ledger holds.

        Raises:
          ValueError: where these are not its fields.
        """
        known = LADDER[0].to_dict()
        if (
            not isinstance(values, Mapping)
            or values.keys() != known.keys()
            or not all(_is_like(values[name], known[name]) for name in known)
        ):
            raise ValueError(
                f"A recipe must have {sorted(known)}, all numbers, and two of steps. Received "
                f"{values!r}: another version wrote it, or it is damaged; give another "
                "`--output_dir`."
            )
        return cls(**{**values, "steps": tuple(values["steps"])})


def _is_like(value: Any, example: Any) -> bool:
    """Returns whether a value of a ledger is of the kind of another, and more than nothing."""
    if isinstance(example, tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(example)
            and all(map(_is_like, value, example))
        )
    kinds = (int, float) if isinstance(example, float) else (int,)
    return type(value) in kinds and value > 0


# From a minute to a day. What is on the first rung is enough to see that all of it runs. Steps are
# many and small: until a masked model has begun to look at its context, which takes some thousands
# of them, it learns little more than how frequent words are. Then it learns most from long
# sequences, which so get the larger part of long pre-trainings (docs/hour.md).
LADDER = (
    Recipe(32, 256, (6, 2), 48, 48, 48, 1.0, 1, 1, 1, 100_000, 1000),
    Recipe(128, 512, (600, 120), 400, 400, 400, 2.0, 1, 1, 1, 2_000_000),
    Recipe(128, 512, (1600, 300), 800, 800, 500, 3.0, 1, 2, 2, 4_000_000),
    Recipe(128, 1024, (1600, 400), 1200, 1200, 900, 3.0, 1, 3, 2, 8_000_000),
    Recipe(128, 1024, (2400, 600), 1500, 2500, 900, 3.0, 2, 2, 2, 8_000_000),
    Recipe(128, 1024, (4000, 6000), 2500, 5000, 1000, 3.0, 2, 3, 2, 16_000_000),
    Recipe(128, 1024, (8000, 12000), 2500, 10_000, 1000, 3.0, 2, 3, 2, 40_000_000),
    Recipe(256, 1024, (5000, 5000), 4000, 10_000, 1500, 3.0, 3, 3, 2, 40_000_000),
    Recipe(256, 1024, (6000, 8000), 4000, 10_000, 1500, 3.0, 3, 3, 2, 40_000_000),
    Recipe(256, 1024, (8000, 12000), 5000, 15_000, 2000, 3.0, 3, 3, 3, 40_000_000),
    Recipe(256, 1024, (10_000, 20_000), 6000, 20_000, 3500, 3.0, 3, 3, 3, 80_000_000),
    Recipe(256, 1024, (16_000, 32_000), 12000, 40_000, 3500, 3.0, 5, 5, 3, 200_000_000),
    Recipe(256, 2048, (28_000, 56_000), 20000, 70_000, 6000, 3.0, 5, 5, 4, 400_000_000),
)
