"""The flags that several scripts share: a data class for each kind of script."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bert.command_line.flags import REQUIRED, check_several, flag, read_grid, several
from bert.export.formats import MODEL_FILES

# What the help of several flags has in common.
BESIDE = " Default: the one next to the checkpoint."
# Tokens of a text at most (original: extract_features.py).
DEFAULT_LENGTH = 128
CHECKPOINT_FORMS = (
    "its prefix (.../bert_model.ckpt), .index file or folder; a Hugging Face folder; or the name "
    "of a model on the Hugging Face hub, owner/model"
)
AS_IN_FOLDER = "as the folder of a sentence-transformers model says"
LOWERS = "Lowercase the text and strip accents: true for uncased models, false for cased ones."
MAX_TOKENS = "Maximum tokens per sequence, including [CLS] and [SEP]"
OVERWRITE = "Delete what an earlier run left in --output_dir, and start over."
PATTERNS = "comma-separated paths or patterns"
PRECISION = "Numeric precision of the network's computations."
SEPARATORS = "one character, such as ';', or tab, comma, semicolon or space"
WHOLE_FILE = "File to write, which appears only when it is complete"

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")
# Of what trains.
AUTO = "auto"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """The flag of every script."""

    GROUP = "steps"

    check: bool = flag(
        False,
        "Dry run: report what the run needs and whether it is available, one line each; of a "
        "training, also the expected memory, disk and time. Write nothing; exit with status 1 if "
        "the run would fail.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(CheckSettings):
    """The flag of every script that has a model."""

    GROUP = "model"

    bert_config_file: str = flag("", f"The model's configuration, bert_config.json.{BESIDE}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings:
    """The flags of every script that cuts text into word pieces."""

    GROUP = "model"

    vocab_file: str = flag("", f"WordPiece vocabulary, one entry per line.{BESIDE}")
    # The original's README tells users of cased models to pass --do_lower=False.
    do_lower_case: bool | None = flag(
        None,
        f"{LOWERS} Default: as the model's folder says, or else true.",
        alias="do_lower",
    )
    # What it is where neither the flag nor the folder of the model says anything.
    LOWERS_BY_DEFAULT: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """The flags of every script that makes vectors of texts, besides the files that hold them."""

    input_format: str | None = flag(
        None,
        "lines: one text per line. tsv, csv: a table whose header names the columns. jsonl: one "
        "JSON object per line. parquet: a Parquet file. Default: by the file's extension, or else "
        "lines.",
        choices=("lines", "tsv", "csv", "jsonl", "parquet"),
    )
    text_column: str | None = flag(
        None,
        "Column or key of the texts in a table; two, separated by a comma, for pairs. Default: "
        "the only column; or text, text_a (with text_b, if present) or sentence.",
    )
    id_column: str | None = flag(
        None, "Column or key of an ID for each text in a table; it is written with the results."
    )
    separator: str | None = flag(
        None, f"Column separator of a table: {SEPARATORS}. Default: tab for tsv, comma for csv."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings(CheckSettings):
    """The flag of every script that writes one file."""

    GROUP = "output"

    overwrite: bool = flag(False, "Replace the output file if it exists.")

    def may_replace(self, path: str) -> bool:
        """Returns whether the file that is there may go, for `check_outputs`."""
        del path
        return self.overwrite


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingSettings(ModelSettings):
    """The flags of every script that trains."""

    GROUP = "training"

    init_checkpoint: str | None = flag(
        None,
        f"Checkpoint to start from: {CHECKPOINT_FORMS}. Not used if --output_dir already holds a "
        "checkpoint of this run: leave it out if it is no longer there. Without --do_train, one in "
        "--output_dir is used as named.",
        group="model",
    )
    output_dir: str = flag(REQUIRED, "Folder for checkpoints, logs and results.", group="output")
    do_train: bool = flag(False, "Train the model.", group="steps")
    learning_rate: float = flag(5e-5, "Peak learning rate.", low=0.0, shapes_training=True)
    save_checkpoints_steps: int = flag(1000, "Steps between checkpoints.", low=1, group="output")
    keep_checkpoint_max: int = flag(
        5, "Number of checkpoints to keep, the latest ones; 0 keeps all.", low=0, group="output"
    )
    log_every_steps: int | None = flag(
        None,
        "Steps between points of TensorBoard's curves, each also a line of the log. Default: 1/20 "
        "of the training, at most 100.",
        low=1,
        group="output",
    )
    gradient_accumulation_steps: int = flag(
        1,
        "Number of parts to split each batch into, to save memory. Neither the result nor the "
        "number of steps changes.",
        low=1,
        group="devices",
    )
    gradient_checkpointing: bool = flag(
        False,
        "Recompute each layer in the backward pass instead of storing it. Saves memory, more than "
        "half of it for long sequences; the result is the same bit for bit.",
        group="devices",
    )
    seed: int = flag(
        12345,
        "Seed for the initial weights, the data order and dropout.",
        low=0,
        high=2**32 - 1,
        shapes_training=True,
    )
    resume_with_changes: bool = flag(
        False,
        "Continue the training in --output_dir even if it began with other flags, data or weights.",
    )
    precision: str = flag(
        "float32",
        f"{PRECISION} Weights, losses and the optimizer stay float32; mixed_float16 uses loss "
        "scaling. auto: float32 or mixed_bfloat16, whichever this machine computes faster; a "
        "resumed training keeps its precision.",
        choices=(*PRECISIONS, AUTO),
        shapes_training=True,
        group="devices",
    )
    strategy: str = flag(
        "one_device",
        "Devices to train on. one_device: a single one; mirrored: all of this machine; "
        "multi_worker: those of several processes or machines, started by `bert launch` or listed "
        "in TF_CONFIG. Batch sizes are totals across all devices.",
        choices=("one_device", "mirrored", "multi_worker"),
        group="devices",
    )
    all_reduce_precision: str = flag(
        "float32",
        "Precision of the gradients that devices exchange. bfloat16 halves the traffic, for slow "
        "networks, but leaves gradients and their sums only 8 bits of precision; weights and the "
        "optimizer stay float32.",
        choices=("float32", "bfloat16"),
        shapes_training=True,
        group="devices",
    )
    # The original's default; there, so many steps were one call of the TPU.
    iterations_per_loop: int = flag(
        1000,
        "When to read the results of a step. 1: before the next step starts; more: after it has "
        "started, so that a GPU does not wait for the host. The results are the same.",
        low=1,
        group="devices",
    )
    use_tpu: bool = flag(False, "Train on the TPU given by --tpu_name.", group="devices")
    tpu_name: str | None = flag(None, "Name or grpc:// address of the TPU.", group="devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(VocabularySettings, TrainingSettings):
    """The flags of every script that fine-tunes; what it predicts is the dev set."""

    GROUP = "training"

    max_seq_length: int = flag(
        128,
        f"{MAX_TOKENS}; longer text is truncated.",
        low=4,
        group="data",
    )
    do_predict: bool = flag(False, "Predict; with --do_train, after training.", group="steps")
    learning_rate: float = several(flag(5e-5, "Peak learning rate.", low=0.0, shapes_training=True))
    do_export: bool = flag(
        False,
        "Export the model to <output_dir>/<format>, for use without this project. A SavedModel, "
        "the default format, takes raw text.",
        group="steps",
    )
    export_format: str = flag(
        "saved_model",
        f"Formats that --do_export writes, comma-separated: {', '.join(MODEL_FILES)}.",
        group="output",
    )
    export_precision: str = flag(
        "float32",
        "Precisions of the exported weights, comma-separated: float32; bfloat16, half the size "
        "(saved_model); int8, a quarter of the size (tflite, onnx). Other than float32, exports "
        "go to <output_dir>/<format>_<precision>.",
        group="output",
    )
    max_score_loss: float = flag(
        0.01,
        "Refuse an export whose dev-set score is lower than that of the float32 model by more "
        "than this; of accuracy, by more than one example, too, unless this is 0.",
        low=0.0,
        group="output",
    )
    train_batch_size: int = several(
        flag(32, "Examples per training step, across all devices.", low=1, shapes_training=True)
    )
    predict_batch_size: int = flag(8, "Examples per prediction step.", low=1)
    num_train_epochs: float = several(
        flag(3.0, "Number of training epochs.", low=0.0, shapes_training=True)
    )
    warmup_proportion: float = flag(
        0.1,
        "Fraction of the training over which the learning rate warms up.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    early_stopping_patience: int = flag(
        0,
        "Stop after this many evaluations without a better score, and use the best weights; 0 "
        "trains to the end. Evaluations take place every --save_checkpoints_steps.",
        low=0,
        shapes_training=True,
    )
    num_runs: int = flag(
        1,
        "Number of runs, with seeds --seed, --seed + 1 and so on, each in its own folder. Reports "
        "mean and standard deviation.",
        low=1,
    )
    freeze_layers: int | None = flag(
        None,
        "Freeze the embeddings and this many of the lowest layers. Default: train everything.",
        low=0,
        shapes_training=True,
    )
    layerwise_lr_decay: float = flag(
        1.0,
        "Factor by which the learning rate changes from each layer to the one below it.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    add_bilstm: bool = flag(
        False,
        "Train a BiLSTM, as wide as the model, between the model and its head (paper, table 5). "
        "Without --do_train, it is present if the model was trained with it.",
        shapes_training=True,
        group="model",
    )
    pad_to_max_length: bool = flag(
        False,
        "Pad every batch to --max_seq_length instead of to its longest sequence: same results, "
        "but slower.",
    )
    overwrite_output_dir: bool = flag(False, OVERWRITE, group="output")

    def __post_init__(self) -> None:
        for name, values in read_grid(self).items():
            try:
                check_several(values)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}.") from None

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_predict}

    def other_models(self) -> Mapping[str, str | None]:
        """Returns, by flag, models beside `--init_checkpoint` whose weights shape the training.

        None for one that is not given.
        """
        return {}

    def batch_size(self, split: str) -> int:
        """Returns the number of examples that a step takes of a part of the data."""
        return self.train_batch_size if split == "train" else self.predict_batch_size

    def evaluates_in_training(self) -> bool:
        """Returns whether the dev set is scored on the way."""
        return self.early_stopping_patience > 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluatedSettings(FineTuningSettings):
    """The flags of every script that evaluates on a dev set and predicts a test set."""

    GROUP = "training"

    do_eval: bool = flag(
        False, "Evaluate on the dev set; with --do_train, during and after training.", group="steps"
    )
    do_predict: bool = flag(
        False, "Predict the test set; with --do_train, after training.", group="steps"
    )
    eval_batch_size: int = flag(8, "Examples per evaluation step.", low=1)

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_eval, "test": self.do_predict}

    def batch_size(self, split: str) -> int:
        """Returns the number of examples that a step takes of a part of the data."""
        return self.eval_batch_size if split == "dev" else super().batch_size(split)

    def evaluates_in_training(self) -> bool:
        """Returns whether the dev set is scored on the way."""
        return self.do_eval


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileSettings(EvaluatedSettings):
    """The flags of every script whose data are a folder, or files of any name."""

    data_dir: str | None = flag(None, "Folder with the files of the data set.")
    train_file: str | None = flag(None, "File to train on, instead of the one in --data_dir.")
    dev_file: str | None = flag(
        None,
        "File to evaluate on, instead of the one in --data_dir. With neither this nor --data_dir, "
        "--dev_fraction of --train_file is held out.",
    )
    test_file: str | None = flag(
        None,
        "File to predict, instead of the one in --data_dir; if it contains the answers, it is "
        "also scored.",
    )
    dev_fraction: float = flag(
        0.1,
        "Fraction of --train_file to hold out for evaluation if there is neither --dev_file nor "
        "--data_dir. The split is stratified by label; identical texts stay together.",
        low=0.0,
        high=1.0,
    )
    split_seed: int | None = flag(
        None,
        "Seed that selects the held-out part. Default: --seed (that of the first run, if there are "
        "several).",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.dev_fraction < 1:
            raise ValueError(
                "`--dev_fraction` must be between 0 and 1, neither of them, so that something is "
                f"left to train on and to evaluate on. Received {self.dev_fraction!r}."
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DistilledSettings(FileSettings):
    """The flags of every script whose models may learn from another one, mostly a larger one."""

    GROUP = "training"

    teacher: str | None = flag(
        None,
        "Folder of a fine-tuned model with the same labels, usually a larger one, to distill: its "
        "probabilities are learned in addition to the labels.",
        group="training",
    )
    unlabeled_file: str | None = flag(
        None,
        "Texts without labels, in any format that predict.py reads, for which only the "
        "--teacher's answers are learned. Many of these make a small model good.",
        group="training",
    )
    teacher_weight: float = flag(
        0.5,
        "Weight of the --teacher in the loss of labeled examples.",
        low=0.0,
        high=1.0,
        shapes_training=True,
        group="training",
    )
    distillation_temperature: float = flag(
        2.0,
        "Temperature that divides the logits before the --teacher's probabilities are learned: "
        "the higher, the more its less likely labels count.",
        low=0.01,
        shapes_training=True,
        group="training",
    )
    distill_layers: str | None = flag(
        None,
        "Also learn the --teacher's layers: for each layer of the student, the number of a layer "
        "of the teacher, from 0, comma-separated; or uniform, for evenly spaced ones up to the "
        "last.",
        shapes_training=True,
        group="training",
    )
    distill_layers_weight: float = flag(
        1.0,
        "With --distill_layers, weight of the mean squared distance from those layers in the loss.",
        low=0.0,
        shapes_training=True,
        group="training",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("unlabeled_file", "distill_layers"):
            if getattr(self, name) and not self.teacher:
                raise ValueError(
                    f"`--{name}` needs a `--teacher`, a fine-tuned model that is learned from. "
                    f"Received {getattr(self, name)!r} alone."
                )

    def other_models(self) -> Mapping[str, str | None]:
        """Returns the teacher, if there is one."""
        return {"teacher": self.teacher}
