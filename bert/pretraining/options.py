"""Options of pre-training: its records, its objective, its schedule and its evaluation."""

import dataclasses
from collections.abc import Mapping

from bert.files.durations import read_duration
from bert.options import REQUIRED, Message, MessageError, Option, option
from bert.pretraining.goals import BERT, GOALS

# The original's defaults.
LENGTHS: Mapping[str, int] = {"max_seq_length": 128, "max_predictions_per_seq": 20}
STEPS: Mapping[str, int] = {"num_train_steps": 100000, "num_warmup_steps": 10000}
# Of a time budget, and its seconds at least.
WARMUP_PROPORTION = 0.1
SHORTEST_BUDGET = 1e-4
PATTERNS = "comma-separated paths or patterns"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFiles:
    """The records of pre-training."""

    GROUP = "data"

    # None until the index beside the records is read.
    max_seq_length: int = option(
        None,
        "Tokens per sequence in the records. Default: as the index next to them says, or else "
        f"{LENGTHS['max_seq_length']}.",
        low=1,
    )
    max_predictions_per_seq: int = option(
        None,
        "Maximum masked tokens per sequence in the records. Default: as the index next to them "
        f"says, or else {LENGTHS['max_predictions_per_seq']}.",
        low=1,
    )
    input_file: str = option(REQUIRED, f"TFRecord files to train on: {PATTERNS}.")
    eval_input_file: str | None = option(
        None,
        Message(
            f"TFRecord files to evaluate on, best of text that training does not see: {PATTERNS}. "
            "Default: %s, as in the original.",
            Option("input_file"),
        ),
    )
    shuffle_block: int = option(
        0,
        "Number of consecutive records to read at once, where single reads are slow, as on "
        "spinning disks and object stores; about 1000 is plenty. Blocks of this size are shuffled, "
        "and so are the records within 16 blocks. 0: all records are shuffled, and each is read "
        "individually.",
        low=0,
        shapes_training=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSchedule:
    """What is learned how long at which learning rate."""

    GROUP = "training"

    learning_rate: float = option(5e-5, "Peak learning rate.", low=0.0, shapes_training=True)
    objective: str = option(
        BERT.name,
        "Pre-training objective (paper, section 5.1). masked_lm_nsp: masked tokens and whether "
        "the second segment follows the first, like BERT; masked_lm: masked tokens only; "
        "left_to_right: each token from those before it, like GPT; bilstm_lm: each token from "
        "those before it and from those after it, with LSTMs for either direction, like ELMo. All "
        "read the same records.",
        choices=tuple(GOALS),
        shapes_training=True,
    )
    train_batch_size: int = option(
        32, "Sequences per training step, across all devices.", low=1, shapes_training=True
    )
    # None where a time budget ends the training run, as are the warm-up steps.
    num_train_steps: int = option(
        STEPS["num_train_steps"],
        Message(
            "Total number of training steps, including those of earlier runs in %s; the "
            "learning rate falls to 0 at the end. With %s: as many as it has time for.",
            *(Option("output_dir"), Option("time_budget")),
        ),
        low=1,
        shapes_training=True,
    )
    num_warmup_steps: int = option(
        STEPS["num_warmup_steps"],
        "Steps over which the learning rate warms up.",
        low=0,
        shapes_training=True,
    )
    time_budget: str | None = option(
        None,
        Message(
            "Total training time, instead of %s, such as 90s, 60m, 1.5h or 1h30m, "
            "including that of earlier runs in %s; the learning rate falls to 0 at the end. "
            "Startup, graph building, saving and evaluation take additional time.",
            *(Option("num_train_steps"), Option("output_dir")),
        ),
    )
    warmup_proportion: float | None = option(
        None,
        Message(
            "Fraction of %s over which the learning rate warms up. Default: "
            f"{WARMUP_PROPORTION:g}.",
            Option("time_budget"),
        ),
        low=0.0,
        high=1.0,
    )

    @property
    def seconds(self) -> float | None:
        """The time to train; None where steps are counted.

        Raises:
          ValueError: where `time_budget` is no time.
        """
        try:
            return None if self.time_budget is None else read_duration(self.time_budget)
        except ValueError as error:
            raise MessageError("%s: %s.", Option("time_budget"), error) from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingEvaluation:
    """How many records are evaluated."""

    GROUP = "training"

    eval_batch_size: int = option(8, "Sequences per evaluation step, across all devices.", low=1)
    max_eval_steps: int = option(
        100, "Maximum number of batches to evaluate; each record counts once.", low=1
    )


def count_predictions(objective: str, records: RecordFiles) -> int:
    """Returns how many tokens of each sequence are predicted, at most."""
    directions = GOALS[objective].directions
    if directions:
        return len(directions) * (records.max_seq_length - 1)
    return records.max_predictions_per_seq
