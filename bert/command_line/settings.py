"""The flags that several scripts share: a data class for each kind of script."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

from bert.command_line.exports import MODEL_FILES
from bert.command_line.flags import REQUIRED, check_several, flag, read_grid, several

# What files that belong to a checkpoint are by default.
BESIDE = "; absent, the one in the folder of the checkpoint"

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """The flag of every script."""

    GROUP = "steps"

    check: bool = flag(
        False,
        "Only show what the run needs and whether it is there, a line for each thing, with the "
        "memory and the time it will take; nothing is written. Exits with 1 if it would fail.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelSettings(CheckSettings):
    """The flag of every script that has a model."""

    GROUP = "model"

    bert_config_file: str = flag("", f"The bert_config.json that gives the model's shape{BESIDE}.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabularySettings:
    """The flags of every script that cuts text into word pieces."""

    GROUP = "model"

    vocab_file: str = flag("", f"WordPiece vocabulary, one entry a line{BESIDE}.")
    # The original's README tells users of cased models to pass --do_lower=False.
    do_lower_case: bool | None = flag(
        None,
        "Lower-case the text and strip accents: true for uncased models, false for cased ones; "
        "absent, as the folder of the model says, or else true.",
        alias="do_lower",
    )
    # What it is where neither the flag nor the folder of the model says anything.
    LOWERS_BY_DEFAULT: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextSettings:
    """The flags of every script that makes vectors of texts, besides the files that hold them."""

    input_format: str | None = flag(
        None,
        "lines: a text a line; tsv and csv: a header names the columns; jsonl: an object a line; "
        "parquet. Absent, by the file's ending, or else lines.",
        choices=("lines", "tsv", "csv", "jsonl", "parquet"),
    )
    text_column: str | None = flag(
        None,
        "Of a table, the column or key with the texts, or both of pairs with a comma between; "
        "absent, text, or text_a and text_b, or sentence, or the only one.",
    )
    id_column: str | None = flag(
        None, "Of a table, the column or key that tells the texts apart, which is written beside."
    )
    separator: str | None = flag(
        None, "What separates the columns of a table, such as ';' or tab; absent, by its form."
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputSettings(CheckSettings):
    """The flag of every script that writes one file."""

    GROUP = "output"

    overwrite: bool = flag(False, "Replace an output file that is there.")

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
        "Checkpoint to start from: its prefix (.../bert_model.ckpt), its .index file or its "
        "folder, which may also be that of a Hugging Face model; or the name of one on the hub, "
        "owner/model. Not read where --output_dir already holds a checkpoint of this run.",
        group="model",
    )
    output_dir: str = flag(REQUIRED, "Folder for checkpoints, logs and results.", group="output")
    do_train: bool = flag(False, "Train.", group="steps")
    learning_rate: float = flag(5e-5, "Peak of the learning rate.", low=0.0, shapes_training=True)
    save_checkpoints_steps: int = flag(1000, "Steps between checkpoints.", low=1, group="output")
    keep_checkpoint_max: int = flag(
        5, "Checkpoints to keep, the latest ones; 0 for all.", low=0, group="output"
    )
    log_every_steps: int | None = flag(
        None,
        "Steps between points of TensorBoard's curves, each with a line of the log; absent, a "
        "twentieth of the training, at most 100.",
        low=1,
        group="output",
    )
    gradient_accumulation_steps: int = flag(
        1,
        "Parts into which a batch is cut to save memory; neither the result nor the step count "
        "changes.",
        low=1,
        group="devices",
    )
    gradient_checkpointing: bool = flag(
        False,
        "Compute each layer again in the backward pass rather than keep it: the same result, bit "
        "for bit, in less memory: of long texts, in less than half.",
        group="devices",
    )
    seed: int = flag(
        12345,
        "Seed of the initial weights, the order of the data and dropout.",
        low=0,
        high=2**32 - 1,
        shapes_training=True,
    )
    resume_with_changes: bool = flag(
        False,
        "Go on with the training in --output_dir although it began with other flags, data or "
        "weights.",
    )
    precision: str = flag(
        "float32",
        "Arithmetic of the network; weights, losses and the optimizer stay float32. float16 uses "
        "loss scaling.",
        choices=PRECISIONS,
        shapes_training=True,
        group="devices",
    )
    strategy: str = flag(
        "one_device",
        "Devices to train on: one; all of this machine; or those of several processes or machines, "
        "which `bert launch` starts or TF_CONFIG names. Batch sizes are totals over all devices.",
        choices=("one_device", "mirrored", "multi_worker"),
        group="devices",
    )
    all_reduce_precision: str = flag(
        "float32",
        "What several devices send each other of their gradients. bfloat16 is half of the bytes, "
        "for networks that cannot take more: gradients and their sums have 8 bits of precision "
        "then; weights and the optimizer stay float32.",
        choices=("float32", "bfloat16"),
        shapes_training=True,
        group="devices",
    )
    # The original's default; there, so many steps were one call of the TPU.
    iterations_per_loop: int = flag(
        1000,
        "1 reads each step's results before the next one starts; more, after it has started, so "
        "that a GPU does not wait for the host. The results are the same.",
        low=1,
        group="devices",
    )
    use_tpu: bool = flag(False, "Train on the TPU named by --tpu_name.", group="devices")
    tpu_name: str | None = flag(None, "Name or grpc:// address of the TPU.", group="devices")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(VocabularySettings, TrainingSettings):
    """The flags of every script that fine-tunes; what it predicts is the dev set."""

    GROUP = "training"

    max_seq_length: int = flag(
        128,
        "Tokens per sequence at most, with [CLS] and [SEP]; what is longer is cut.",
        low=4,
        group="data",
    )
    do_predict: bool = flag(
        False, "Predict, after training where both are asked for.", group="steps"
    )
    learning_rate: float = several(
        flag(5e-5, "Peak of the learning rate.", low=0.0, shapes_training=True)
    )
    do_export: bool = flag(
        False,
        "Write the model to <output_dir>/<format>, for use without this project; a SavedModel, "
        "the default, takes raw text.",
        group="steps",
    )
    export_format: str = flag(
        "saved_model",
        f"What --do_export writes: {', '.join(MODEL_FILES)}, or several with commas between.",
        group="output",
    )
    export_precision: str = flag(
        "float32",
        "Of what is exported: float32; bfloat16, half the size (saved_model); int8, a quarter of "
        "it (tflite, onnx); or several with commas between. Others than float32 go to "
        "<format>_<precision>.",
        group="output",
    )
    max_score_loss: float = flag(
        0.01,
        "Refuse an export whose score on the dev set is lower by more than this than that of the "
        "model in float32.",
        low=0.0,
        group="output",
    )
    train_batch_size: int = several(
        flag(32, "Examples per training step, over all devices.", low=1, shapes_training=True)
    )
    predict_batch_size: int = flag(8, "Examples per prediction step.", low=1)
    num_train_epochs: float = several(
        flag(3.0, "How often each training example is seen.", low=0.0, shapes_training=True)
    )
    warmup_proportion: float = flag(
        0.1,
        "Part of the training over which the learning rate rises.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    early_stopping_patience: int = flag(
        0,
        "Stop after so many evaluations without a better score, and go on with the best weights; "
        "0 trains to the end. There is an evaluation every --save_checkpoints_steps.",
        low=0,
        shapes_training=True,
    )
    num_runs: int = flag(
        1,
        "Runs with seeds --seed, --seed + 1 and so on, each in a folder of its own; reports mean "
        "and standard deviation.",
        low=1,
    )
    freeze_layers: int | None = flag(
        None,
        "Train neither the embeddings nor the first so many layers; absent, train everything.",
        low=0,
        shapes_training=True,
    )
    layerwise_lr_decay: float = flag(
        1.0,
        "What the learning rate is multiplied by from one layer to the one below it.",
        low=0.0,
        high=1.0,
        shapes_training=True,
    )
    add_bilstm: bool = flag(
        False,
        "Train a BiLSTM, as wide as the model, between it and its head (paper, table 5); where "
        "nothing is trained, there is one if the model was trained with it.",
        shapes_training=True,
        group="model",
    )
    pad_to_max_length: bool = flag(
        False,
        "Pad every batch to --max_seq_length rather than to its longest sequence: the same "
        "results, but slower.",
    )
    overwrite_output_dir: bool = flag(
        False, "Delete what an earlier run left in --output_dir, and begin anew.", group="output"
    )

    def __post_init__(self) -> None:
        for name, values in read_grid(self).items():
            try:
                check_several(values)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}.") from None

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_predict}

    def other_models(self) -> Mapping[str, str]:
        """Returns, by flag, models beside `--init_checkpoint` whose weights shape the training."""
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
        False, "Evaluate on the dev set, during and after training.", group="steps"
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
    train_file: str | None = flag(None, "File to train on, in place of that in --data_dir.")
    dev_file: str | None = flag(
        None,
        "File to evaluate on, in place of that in --data_dir. Without either, --dev_fraction of "
        "the training file is split off.",
    )
    test_file: str | None = flag(
        None,
        "File to predict, in place of that in --data_dir; where it has the answers, too, there are "
        "scores.",
    )
    dev_fraction: float = flag(
        0.1,
        "Part of --train_file that is split off to evaluate on where there is no other dev set: "
        "all labels alike, the same texts together.",
        low=0.0,
        high=1.0,
    )
    split_seed: int | None = flag(
        None,
        "Seed by which that part is chosen; absent, --seed, of several runs the first's.",
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
        "Folder of a fine-tuned model of the same labels, mostly a larger one, whose "
        "probabilities are learned beside the labels.",
        group="training",
    )
    unlabeled_file: str | None = flag(
        None,
        "Texts of which the --teacher's answers alone are learned, in any form that predict.py "
        "reads: many of these make a small model good.",
        group="training",
    )
    teacher_weight: float = flag(
        0.5,
        "Share of the --teacher in the loss of what has a label.",
        low=0.0,
        high=1.0,
        shapes_training=True,
        group="training",
    )
    distillation_temperature: float = flag(
        2.0,
        "What logits are divided by before the --teacher's probabilities are learned: the higher, "
        "the more its less likely labels count.",
        low=0.01,
        shapes_training=True,
        group="training",
    )
    distill_layers: str | None = flag(
        None,
        "Learn the --teacher's layers, too: for each layer of the student the number of one, from "
        "0, with commas between; or uniform, at even distances up to the last.",
        shapes_training=True,
        group="training",
    )
    distill_layers_weight: float = flag(
        1.0,
        "With --distill_layers, what the mean squared distance from them is multiplied by in the "
        "loss.",
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

    def other_models(self) -> Mapping[str, str]:
        """Returns the teacher, if there is one."""
        return {"teacher": self.teacher} if self.teacher else {}
