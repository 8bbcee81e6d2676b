"""The flags of run_pretraining.py."""

import dataclasses
from collections.abc import Mapping

from bert.command_line.durations import read_duration
from bert.command_line.flags import REQUIRED, flag
from bert.command_line.settings import TrainingSettings
from bert.tasks.pretraining import making
from bert.tasks.pretraining.goals import BERT, GOALS

# What the original takes where nothing is said.
STEPS: Mapping[str, int] = {"num_train_steps": 100000, "num_warmup_steps": 10000}
# Of a time budget, and its seconds at least.
WARMUP_PROPORTION = 0.1
SHORTEST_BUDGET = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(TrainingSettings):
    """The flags of this script, by name."""

    # None until the index beside the records is read.
    max_seq_length: int = flag(
        None,
        "Tokens per sequence of the records; absent, as the index beside them says, or else "
        f"{making.LENGTHS['max_seq_length']}.",
        low=1,
        group="data",
    )
    max_predictions_per_seq: int = flag(
        None,
        "Masked tokens per sequence of the records at most; absent, as the index beside them says, "
        f"or else {making.LENGTHS['max_predictions_per_seq']}.",
        low=1,
        group="data",
    )
    input_file: str = flag(
        REQUIRED, "TFRecord files to train on: a comma-separated list of paths or patterns."
    )
    eval_input_file: str | None = flag(
        None,
        "TFRecord files to evaluate on, best of text that training does not see. Where absent, "
        "--input_file, as the original did.",
    )
    shuffle_block: int = flag(
        0,
        "Consecutive records that are read together, for files on disks or elsewhere where a read "
        "takes long: blocks of so many are shuffled, and the records of 16 blocks among each "
        "other; about 1000 is much. 0: all records are shuffled, and each is read by itself.",
        low=0,
        shapes_training=True,
        group="data",
    )
    do_eval: bool = flag(False, "Evaluate, after training where both are asked for.", group="steps")
    objective: str = flag(
        BERT.name,
        "What is learned (paper, section 5.1). masked_lm_nsp: masked tokens, and whether the "
        "second segment follows the first, as BERT does; masked_lm: masked tokens alone; "
        "left_to_right: each token from those before it, as GPT does; bilstm_lm: each token from "
        "those before it and from those behind it, by LSTMs for either, as ELMo does. All read the "
        "same records.",
        choices=tuple(GOALS),
        shapes_training=True,
        group="training",
    )
    train_batch_size: int = flag(
        32,
        "Sequences per training step, over all devices.",
        low=1,
        shapes_training=True,
        group="training",
    )
    eval_batch_size: int = flag(
        8, "Sequences per evaluation step, over all devices.", low=1, group="training"
    )
    # Of a training that goes by --time_budget, `fit.complete` makes None of both.
    num_train_steps: int = flag(
        STEPS["num_train_steps"],
        "Steps to train in all, those of earlier runs in --output_dir included; the learning "
        "rate falls to 0 there. With --time_budget, as many as it has time for.",
        low=1,
        shapes_training=True,
        group="training",
    )
    num_warmup_steps: int = flag(
        STEPS["num_warmup_steps"],
        "Steps over which the learning rate rises.",
        low=0,
        shapes_training=True,
        group="training",
    )
    time_budget: str | None = flag(
        None,
        "Time to train in all, in place of --num_train_steps, such as 90s, 60m, 1.5h or 1h30m, "
        "that of earlier runs in --output_dir included; the learning rate falls to 0 there. Start, "
        "building of the graph, saving and evaluation take time besides.",
        group="training",
    )
    warmup_proportion: float | None = flag(
        None,
        f"Part of --time_budget over which the learning rate rises; absent, {WARMUP_PROPORTION:g}.",
        low=0.0,
        high=1.0,
        group="training",
    )
    max_eval_steps: int = flag(
        100, "Batches to evaluate at most; each record counts once.", low=1, group="training"
    )

    @property
    def seconds(self) -> float | None:
        """The time to train; None where it is steps that are counted.

        Raises:
          ValueError: where `time_budget` is no time.
        """
        try:
            return None if self.time_budget is None else read_duration(self.time_budget)
        except ValueError as error:
            raise ValueError(f"`--time_budget`: {error}.") from None

    @property
    def num_predictions(self) -> int:
        """Tokens of each sequence that are predicted, at most."""
        directions = GOALS[self.objective].directions
        if directions:
            return len(directions) * (self.max_seq_length - 1)
        return self.max_predictions_per_seq
