"""Options of fine-tuning: data files, schedule, evaluation, and a teacher to distill."""

import dataclasses

from bert.files.rows import SEPARATORS
from bert.options import (
    Message,
    MessageError,
    Option,
    OptionError,
    OptionGroup,
    option,
    several,
)
from bert.weights.options import MAX_TOKENS

LEARNING_RATE = 5e-5
# The default of a feature-based tagger, whose LSTMs are random at first; the paper names no rate.
LSTM_LEARNING_RATE = 1e-3
# That of the transitions of a CRF, whatever the model's: Adam moves a weight by its learning rate
# in a step, and scores of the order of 1 are too far for that of an encoder.
CRF_LEARNING_RATE = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lengths(OptionGroup):
    """How long the sequences of a model are."""

    GROUP = "data"

    max_seq_length: int = option(
        128,
        f"{MAX_TOKENS}; longer text is truncated.",
        low=4,
    )
    pad_to_max_length: bool = option(
        False,
        Message(
            "Pad every batch to %s instead of to its longest sequence: slower, with the same "
            "results but for rounding and the masks of dropout.",
            Option("max_seq_length"),
        ),
        group="training",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule(OptionGroup):
    """What is trained how long at which learning rate."""

    GROUP = "training"

    # None until the run is planned.
    learning_rate: float = several(
        option(
            None,
            f"Peak learning rate. Default: {LEARNING_RATE:g}, or {LSTM_LEARNING_RATE:g} for a "
            "feature-based tagger.",
            low=0.0,
            shapes_training=True,
        )
    )
    train_batch_size: int = several(
        option(32, "Examples per training step, across all devices.", low=1, shapes_training=True)
    )
    num_train_epochs: float = several(
        option(3.0, "Number of training epochs.", low=0.0, shapes_training=True)
    )
    warmup_proportion: float = option(
        0.1,
        "Fraction of the training over which the learning rate warms up.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    max_train_samples: int | None = option(
        None,
        "Train on the first examples of the training set alone, at most so many, as they are read "
        "(SQuAD's: after their fixed shuffling). Texts without labels are not counted.",
        low=1,
        shapes_training=True,
        group="data",
    )
    freeze_layers: int | None = option(
        None,
        "Freeze the embeddings and this many of the lowest layers. Default: train everything.",
        low=0,
        shapes_training=True,
    )
    layerwise_lr_decay: float = option(
        1.0,
        "Factor by which the learning rate changes from each layer to the one below it.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )

    def with_learning_rate(self, *, is_feature_based: bool) -> "Schedule":
        """Returns the schedule with its learning rate."""
        if self.learning_rate is not None:
            return self
        rate = LSTM_LEARNING_RATE if is_feature_based else LEARNING_RATE
        return dataclasses.replace(self, learning_rate=rate)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwagSchedule(Schedule):
    """The paper's schedule for SWAG: 16 texts, each with four endings."""

    train_batch_size: int = 16
    learning_rate: float = 2e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction(OptionGroup):
    """How batches are predicted, and when evaluations end a training run."""

    GROUP = "training"

    predict_batch_size: int = option(8, "Examples per prediction step.", low=1)
    max_eval_samples: int | None = option(
        None,
        "Evaluate on the first examples of the dev set alone, at most so many.",
        low=1,
        group="data",
    )
    early_stopping_patience: int = option(
        0,
        Message(
            "Stop after this many evaluations without a better score, and use the best weights; 0 "
            "trains to the end. Evaluations take place every %s.",
            Option("save_checkpoints_steps"),
        ),
        low=0,
        shapes_training=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation(Prediction):
    """How a dev set is evaluated."""

    GROUP = "training"

    eval_batch_size: int = option(8, "Examples per evaluation step.", low=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoder(OptionGroup):
    """What is put between the encoder and its head."""

    GROUP = "model"

    add_bilstm: bool = option(
        False,
        Message(
            "Train a BiLSTM, as wide as the model, between the model and its head (paper, table "
            "5). Without %s, it is present if the model was trained with it.",
            Option("do_train"),
        ),
        shapes_training=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFiles(OptionGroup):
    """Files of a data set, in a folder or given one by one."""

    GROUP = "data"

    data_dir: str | None = option(None, "Folder with the files of the data set.")
    train_file: str | None = option(
        None, Message("File to train on, instead of the one in %s.", Option("data_dir"))
    )
    dev_file: str | None = option(
        None,
        Message(
            "File to evaluate on, instead of the one in %s. With neither this nor %s, %s of %s is "
            "held out.",
            Option("data_dir"),
            Option("data_dir"),
            Option("dev_fraction"),
            Option("train_file"),
        ),
    )
    test_file: str | None = option(
        None,
        Message(
            "File to predict, instead of the one in %s; if it contains the answers, it is also "
            "scored.",
            Option("data_dir"),
        ),
    )
    dev_fraction: float = option(
        0.1,
        Message(
            "Fraction of %s to hold out for evaluation if there is neither %s nor %s. The split "
            "is stratified by label; identical texts stay together.",
            *map(Option, ("train_file", "dev_file", "data_dir")),
        ),
        low=0.0,
        high=1.0,
    )
    split_seed: int | None = option(
        None,
        Message(
            "Seed that selects the held-out part. Default: %s (that of the first run, if there are "
            "several).",
            Option("seed"),
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.dev_fraction < 1:
            raise OptionError(
                "dev_fraction",
                "be between 0 and 1, neither of them, so that something is left to train on and "
                "to evaluate on",
                self.dev_fraction,
            )

    def with_split_seed(self, seed: int) -> "DataFiles":
        """Returns the files with a seed for their split where there is none."""
        return self if self.split_seed is not None else dataclasses.replace(self, split_seed=seed)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SwagData(DataFiles):
    """The data set of a model that chooses endings."""

    GROUP = "data"

    data_dir: str | None = option(
        None,
        "Folder with train, val and test, each .csv or .tsv with SWAG's columns, .jsonl or "
        ".parquet.",
    )
    separator: str | None = option(
        None,
        f"Column separator of the files: {SEPARATORS}. Default: tab for .tsv, comma for others.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Distillation(OptionGroup):
    """A model to learn from in addition to what a model learns without it."""

    GROUP = "training"

    teacher: str | None = option(
        None,
        "Folder of a fine-tuned model for the same task and labels, usually a larger one, to "
        "distill: its probabilities are learned in addition to the labels.",
    )
    teacher_weight: float = option(
        0.5,
        Message("Weight of the %s in the loss of labeled examples or tokens.", Option("teacher")),
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    distillation_temperature: float = option(
        2.0,
        Message(
            "Temperature that divides the logits before the %s's probabilities are learned: the "
            "higher, the more its less likely labels count.",
            Option("teacher"),
        ),
        low=0.01,
        shapes_training=True,
    )
    distill_layers: str | None = option(
        None,
        Message(
            "Also learn the %s's layers: for each layer of the student, the number of a layer of "
            "the teacher, from 0, comma-separated; or uniform, for evenly spaced ones up to the "
            "last.",
            Option("teacher"),
        ),
        shapes_training=True,
    )
    distill_layers_weight: float = option(
        1.0,
        Message(
            "With %s, weight of the mean squared distance from those layers in the loss.",
            Option("distill_layers"),
        ),
        low=0.0,
        shapes_training=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unlabeled_file", "distill_layers"):
            if (value := getattr(self, name, None)) and not self.teacher:
                raise MessageError(
                    "%s needs a %s, a model that is learned from. Received %r alone.",
                    Option(name),
                    Option("teacher"),
                    value,
                )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Teacher(Distillation):
    """A fine-tuned model to learn from in addition to the labels."""

    unlabeled_file: str | None = option(
        None,
        Message(
            "Texts without labels, in any format that predict.py reads, for which only the "
            "%s's answers are learned. Many of these make a small model good.",
            Option("teacher"),
        ),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingTeacher(Distillation):
    """A pre-trained model to learn from in addition to the text."""

    teacher: str | None = option(
        None,
        "Pre-trained model with the same vocabulary, a checkpoint or its folder, usually a larger "
        "one, to distill: its probabilities of the predicted tokens are learned in addition to the "
        "tokens.",
    )
