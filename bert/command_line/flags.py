"""Flags that two or more scripts share.

Nothing is defined on import; each script calls the functions for the flags it takes.
"""

import dataclasses
from typing import TypeVar

from absl import flags

flags.disclaim_key_flags()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of every script that trains; the functions below say what each means."""

    output_dir: str
    bert_config_file: str = ""
    init_checkpoint: str | None = None
    save_checkpoints_steps: int = 1000
    keep_checkpoint_max: int = 5
    log_every_steps: int = 100
    gradient_accumulation_steps: int = 1
    seed: int = 12345
    precision: str = "float32"
    strategy: str = "one_device"
    use_tpu: bool = False
    tpu_name: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(Settings):
    """The flags of every script that fine-tunes."""

    vocab_file: str = ""
    do_lower_case: bool = True
    max_seq_length: int = 128
    do_train: bool = False
    do_predict: bool = False
    do_export: bool = False
    train_batch_size: int = 32
    predict_batch_size: int = 8
    learning_rate: float = 5e-5
    num_train_epochs: float = 3.0
    warmup_proportion: float = 0.1
    early_stopping_patience: int = 0
    num_runs: int = 1
    freeze_layers: int | None = None
    layerwise_lr_decay: float = 1.0
    pad_to_max_length: bool = False
    overwrite_output_dir: bool = False


SettingsType = TypeVar("SettingsType")


def read_settings(kind: type[SettingsType]) -> SettingsType:
    """Returns the values of the flags that are fields of the data class `kind`."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(flags.FLAGS, name) for name in names})


# What files that belong to a checkpoint are by default.
BESIDE = "; absent, the one in the folder of the checkpoint"


def define_vocabulary_flags(*, required: bool = True) -> None:
    """Defines --vocab_file and --do_lower_case, with its alias --do_lower."""
    flags.DEFINE_string(
        "vocab_file",
        None,
        f"WordPiece vocabulary, one entry a line{'' if required else BESIDE}.",
        required=required,
    )
    flags.DEFINE_bool(
        "do_lower_case",
        True,
        "Lower-case the text and strip accents: true for uncased models, false for cased ones.",
    )
    # The original's README tells users of cased models to pass --do_lower=False.
    flags.DEFINE_alias("do_lower", "do_lower_case")


def define_length_flags() -> None:
    """Defines --max_seq_length and --max_predictions_per_seq, which data and training share."""
    flags.DEFINE_integer(
        "max_seq_length",
        128,
        "Tokens per sequence, [CLS] and [SEP] included; the same for the data and for training.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "max_predictions_per_seq",
        20,
        "Masked tokens per sequence at most, about max_seq_length * masked_lm_prob; the same for "
        "the data and for training.",
        lower_bound=1,
    )


def define_model_flags() -> None:
    """Defines --bert_config_file and --init_checkpoint."""
    flags.DEFINE_string(
        "bert_config_file",
        None,
        f"The bert_config.json that gives the model's shape{BESIDE}.",
    )
    flags.DEFINE_string(
        "init_checkpoint",
        None,
        "Checkpoint to start from: its prefix (.../bert_model.ckpt), its .index file or its "
        "folder, which may also be that of a Hugging Face model; or the name of one on the hub, "
        "owner/model. Not read where --output_dir "
        "already holds a checkpoint of this run.",
    )


def define_fine_tuning_flags(max_seq_length: int = 128) -> None:
    """Defines the flags of every script that fine-tunes; its own come on top."""
    define_model_flags()
    define_vocabulary_flags(required=False)
    flags.DEFINE_integer(
        "max_seq_length",
        max_seq_length,
        "Tokens per sequence at most, with [CLS] and [SEP]; what is longer is cut.",
        lower_bound=4,
    )
    flags.DEFINE_bool("do_train", False, "Train.")
    flags.DEFINE_bool("do_predict", False, "Predict, after training where both are asked for.")
    flags.DEFINE_bool(
        "do_export", False, "Write a SavedModel to <output_dir>/saved_model, which takes raw text."
    )
    flags.DEFINE_integer(
        "train_batch_size", 32, "Examples per training step, over all devices.", lower_bound=1
    )
    flags.DEFINE_integer("predict_batch_size", 8, "Examples per prediction step.", lower_bound=1)
    flags.DEFINE_float("learning_rate", 5e-5, "Peak of the learning rate.", lower_bound=0.0)
    flags.DEFINE_float(
        "num_train_epochs", 3.0, "How often each training example is seen.", lower_bound=0.0
    )
    flags.DEFINE_float(
        "warmup_proportion",
        0.1,
        "Part of the training over which the learning rate rises.",
        lower_bound=0.0,
        upper_bound=1.0,
    )
    _define_regularization_flags()
    flags.DEFINE_integer(
        "num_runs",
        1,
        "Runs with seeds --seed, --seed + 1 and so on, each in a folder of its own; reports mean "
        "and standard deviation.",
        lower_bound=1,
    )
    flags.DEFINE_bool(
        "pad_to_max_length",
        False,
        "Pad every batch to --max_seq_length rather than to its longest sequence: the same "
        "results, but slower.",
    )
    flags.DEFINE_bool(
        "overwrite_output_dir",
        False,
        "Delete what an earlier run left in --output_dir, and begin anew.",
    )
    define_training_flags()
    define_device_flags()


def _define_regularization_flags() -> None:
    flags.DEFINE_integer(
        "early_stopping_patience",
        0,
        "Stop after so many evaluations without a better score, and go on with the best weights; "
        "0 trains to the end. There is an evaluation every --save_checkpoints_steps.",
        lower_bound=0,
    )
    flags.DEFINE_integer(
        "freeze_layers",
        None,
        "Train neither the embeddings nor the first so many layers; absent, train everything.",
        lower_bound=0,
    )
    flags.DEFINE_float(
        "layerwise_lr_decay",
        1.0,
        "What the learning rate is multiplied by from one layer to the one below it.",
        lower_bound=0.0,
        upper_bound=1.0,
    )


def define_training_flags() -> None:
    """Defines the flags of every script that trains."""
    flags.DEFINE_string(
        "output_dir", None, "Folder for checkpoints, logs and results.", required=True
    )
    flags.DEFINE_integer(
        "save_checkpoints_steps", 1000, "Steps between checkpoints.", lower_bound=1
    )
    flags.DEFINE_integer(
        "keep_checkpoint_max", 5, "Checkpoints to keep, the latest ones; 0 for all.", lower_bound=0
    )
    flags.DEFINE_integer(
        "log_every_steps", 100, "Steps between lines of the training log.", lower_bound=1
    )
    flags.DEFINE_integer(
        "gradient_accumulation_steps",
        1,
        "Parts into which a batch is cut to save memory; neither the result nor the step count "
        "changes.",
        lower_bound=1,
    )
    flags.DEFINE_integer(
        "seed", 12345, "Seed of the initial weights, the order of the data and dropout."
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        ["float32", "mixed_bfloat16", "mixed_float16"],
        "Arithmetic of the network; weights, losses and the optimizer stay float32. float16 uses "
        "loss scaling.",
    )


def define_device_flags() -> None:
    """Defines --strategy and the original's TPU flags."""
    flags.DEFINE_enum(
        "strategy",
        "one_device",
        ["one_device", "mirrored", "multi_worker"],
        "Devices to train on: one; all of this machine; or all of the machines in TF_CONFIG. Batch "
        "sizes are totals over all devices.",
    )
    flags.DEFINE_bool("use_tpu", False, "Train on the TPU named by --tpu_name.")
    flags.DEFINE_string("tpu_name", None, "Name or grpc:// address of the TPU.")
    for name in ("tpu_zone", "gcp_project", "master"):
        flags.DEFINE_string(name, None, "Accepted for old commands; without effect.")
    flags.DEFINE_integer("num_tpu_cores", 8, "Accepted for old commands; without effect.")
    flags.DEFINE_integer("iterations_per_loop", 1000, "Accepted for old commands; without effect.")
