"""Options of pre-training and of the making of its records, and its objectives."""

import dataclasses
from collections.abc import Mapping

from bert.files.display import counted, read_duration
from bert.files.paths import PATTERNS
from bert.options import REQUIRED, Message, MessageError, Option, OptionError, OptionGroup, option
from bert.weights.provenance import BERT_OBJECTIVE

# The memory of a process for itself and its current work.
BYTES_PER_PROCESS = 250_000_000
# The default for all processes.
_MEMORY = 4_000_000_000


@dataclasses.dataclass(frozen=True)
class Goal:
    """An objective for records of create_pretraining_data.py.

    Attributes:
      name: The value of the option `objective`.
      has_next_sentence: Whether next-sentence prediction is an objective.
      is_decoder: Whether a token attends to earlier tokens only.
      encoder_type: The encoder of the model, one of `modeling.ENCODER_TYPES`.
    """

    name: str
    has_next_sentence: bool = False
    is_decoder: bool = False
    encoder_type: str = "transformer"

    @property
    def directions(self) -> tuple[int, ...]:
        """The neighbors that every token predicts: the next (1), the previous (-1) token, or both.

        Empty where masked tokens are predicted instead.
        """
        if self.encoder_type == "bilstm":
            return (1, -1)
        return (1,) if self.is_decoder else ()

    @property
    def tokens(self) -> str:
        """The prefix of the names of metrics of predicted tokens."""
        return "language_model" if self.directions else "masked_lm"

    @property
    def accuracy(self) -> str:
        """The name of the accuracy of predicted tokens."""
        return f"{self.tokens}_accuracy"

    @property
    def token_loss(self) -> str:
        """The name of the mean loss of predicted tokens."""
        return f"{self.tokens}_loss"


BERT = Goal(BERT_OBJECTIVE, has_next_sentence=True)
GOALS: Mapping[str, Goal] = {
    goal.name: goal
    for goal in (
        BERT,
        Goal("masked_lm"),
        Goal("left_to_right", is_decoder=True),
        Goal("bilstm_lm", encoder_type="bilstm"),
    )
}


# The original's defaults.
LENGTHS: Mapping[str, int] = {"max_seq_length": 128, "max_predictions_per_seq": 20}
STEPS: Mapping[str, int] = {"num_train_steps": 100000, "num_warmup_steps": 10000}
# Of a time budget, and its seconds at least.
WARMUP_PROPORTION = 0.1
SHORTEST_BUDGET = 1e-4


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFiles(OptionGroup):
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
class PretrainingSchedule(OptionGroup):
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
    optimizer: str = option(
        "adam",
        "adam: Adam, like the original. muon: Muon for the weights of dense layers, Adam for all "
        "others; small models predicted more masked tokens after the same time. Its steps take "
        "longer, the less so the larger the batch.",
        choices=("adam", "muon"),
        shapes_training=True,
    )
    train_batch_size: int = option(
        32, "Sequences per training step, across all devices.", low=1, shapes_training=True
    )
    # None where a time budget ends the training run, as are the warm-up steps.
    num_train_steps: int | None = option(
        STEPS["num_train_steps"],
        Message(
            "Total number of training steps, including those of earlier runs in %s; the "
            "learning rate falls to 0 at the end. With %s: as many as it has time for.",
            Option("output_dir"),
            Option("time_budget"),
        ),
        low=1,
        shapes_training=True,
    )
    num_warmup_steps: int | None = option(
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
            Option("num_train_steps"),
            Option("output_dir"),
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in () if self.time_budget else STEPS:
            if getattr(self, name) is None:
                raise OptionError(name, "have a value", None)

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
class PretrainingEvaluation(OptionGroup):
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Processing(OptionGroup):
    """Where text and records are, and which processes work on them."""

    GROUP = "devices"

    streaming: bool = option(
        False,
        Message(
            "Keep the text and the records on disk instead of in memory, for any amount of them. "
            "The records are other draws of the same kind than without this flag. They are the "
            "same for any %s and %s and, joined, for any %s.",
            *map(Option, ("num_workers", "memory_gb", "num_shards")),
        ),
    )
    num_workers: int = option(
        1,
        Message(
            "Number of processes; without %s, they share only the tokenization. The records are "
            "the same for any number.",
            Option("streaming"),
        ),
        low=1,
    )
    memory_gb: float | None = option(
        None,
        Message(
            "With %s, maximum memory of all processes together, in GB. Default: 4, or what %s "
            "need.",
            *map(Option, ("streaming", "num_workers")),
        ),
        low=0.0,
    )

    def find_memory(self, runner: str | None) -> int | None:
        """Returns the bytes that all processes may take; None where there is no limit.

        Args:
          runner: The runner of Beam, whose options limit its memory; None for no pipeline.

        Raises:
          OptionError: where it is too little, or the options exclude each other.
        """
        given, num_workers = self.memory_gb, self.num_workers
        if runner is not None and (given is not None or num_workers > 1):
            raise MessageError(
                "%s and %s must not go with %s, which has options of its own for that. Received %s "
                "and %s. Leave them out, and see %s.",
                *map(Option, ("memory_gb", "num_workers", "runner")),
                given,
                num_workers,
                Option("beam_options"),
            )
        if not self.streaming and given is not None:
            raise MessageError(
                "%s must go with %s: without it, the text and the records are held in memory. "
                "Received %s. Give %s too, or leave it out.",
                *map(Option, ("memory_gb", "streaming")),
                given,
                Option("streaming"),
            )
        if not self.streaming or runner is not None:
            return None
        needed = BYTES_PER_PROCESS * (num_workers + 1)
        if given is None:
            return max(_MEMORY, needed)
        if given * 1e9 < needed:
            must = (
                f"be at least {needed / 1e9:g} for {counted(num_workers, 'process', 'processes')}"
            )
            remedy = Message("Give more, or lower %s.", Option("num_workers"))
            raise OptionError("memory_gb", must, given, remedy)
        return int(given * 1e9)
