"""Flags, each said once: a field of a script's `Settings` carries its help, bounds and choices.

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Settings(FineTuningSettings):
        data_dir: str = flag(REQUIRED, "Folder with the task's files.")
        top_k: int = flag(5, "Tokens to show.", low=1)
        learning_rate: float = 2e-5

The last one is a field of the base class with another default. `define` makes flags of the fields,
`read_settings` fields of the flags. Nothing is defined on import.
"""

import dataclasses
import functools
import math
import shlex
from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args

from absl import flags

flags.disclaim_key_flags()

# In place of a default.
REQUIRED = dataclasses.MISSING

# What files that belong to a checkpoint are by default.
BESIDE = "; absent, the one in the folder of the checkpoint"

# What --help shows together, in this order.
GROUPS: Mapping[str, str] = {
    "steps": "What to do",
    "data": "Data",
    "model": "Model",
    "training": "Training and evaluation",
    "output": "Output",
    "devices": "Devices and memory",
}

WITHOUT_EFFECT = "Accepted for old commands; without effect."
# Flags of the original that nothing here reads, with their defaults there.
_WITHOUT_EFFECT: Mapping[str, Any] = {
    "tpu_zone": None,
    "gcp_project": None,
    "master": None,
    "num_tpu_cores": 8,
    "iterations_per_loop": 1000,
    "use_one_hot_embeddings": False,
}
# Those of its scripts that train.
TPU_FLAGS = ("tpu_zone", "gcp_project", "master", "num_tpu_cores", "iterations_per_loop")

# What the help of a flag ends with that takes several values.
_SEVERAL = (
    "Several, with commas between them, are all tried, with all of the other flags that have "
    "several, and the best is kept."
)

# How the names of flags end that give a path.
_PATHS = ("_checkpoint", "_dir", "_file")

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


class _FiniteParser(flags.FloatParser):
    """Takes numbers, and neither NaN, which no bound refuses, nor infinity."""

    def convert(self, argument: Any) -> float:
        value = super().convert(argument)
        if not math.isfinite(value):
            raise ValueError(f"it must be a finite number. Received {argument!r}")
        return value


def _define_float(
    name: str, default: Any, help: str, required: bool = False, **bounds: Any
) -> None:
    flags.DEFINE(_FiniteParser(**bounds), name, default, help, required=required)


class _SeveralParser(flags.ArgumentParser):
    """Takes what another parser does, or several such with commas between them, as a tuple."""

    def __init__(self, one: flags.ArgumentParser) -> None:
        super().__init__()
        self._one = one
        self.syntactic_help = (
            f"{one.syntactic_help}, or several different ones with commas between them"
        )

    def parse(self, argument: Any) -> Any:
        if isinstance(argument, str) and "," in argument:
            argument = argument.split(",")
        if not isinstance(argument, tuple | list):
            return self._one.parse(argument)
        values = tuple(map(self._one.parse, argument))
        _check_several(values)
        return values


class _SeveralSerializer(flags.ArgumentSerializer):
    """Writes values as they are given on a command line."""

    def serialize(self, value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _check_several(values: Collection[Any]) -> None:
    if not values or len({*values}) < len(values):
        raise ValueError(f"there must be at least one value, each once. Received {[*values]}")


def _define_several(kind: type, name: str, default: Any, help: str, **options: Any) -> None:
    required = options.pop("required")
    one = {int: flags.IntegerParser, float: _FiniteParser}[kind](**options)
    parser = _SeveralParser(one)
    flags.DEFINE(parser, name, default, help, serializer=_SeveralSerializer(), required=required)


_DEFINE: Mapping[type, Callable[..., Any]] = {
    str: flags.DEFINE_string,
    int: flags.DEFINE_integer,
    float: _define_float,
    bool: flags.DEFINE_bool,
}


@dataclasses.dataclass(frozen=True)
class Said:
    """What `flag` says of a flag, which has it as `said`; flags of libraries have none."""

    group: str
    text: str
    choices: tuple[str, ...]
    is_required: bool
    alias: str | None


def flag(  # noqa: PLR0913
    default: Any,
    text: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Collection[str] | None = None,
    alias: str | None = None,
    shapes_training: bool = False,
    group: str | None = None,
) -> Any:
    """Returns a field of a data class that `define` makes a flag.

    Args:
      default: `REQUIRED` where the flag must be given. A text that is "" is absent by default.
      text: The help.
      low: The least that a number may be.
      high: The most that a number may be.
      choices: All that a text may be.
      alias: Another name of the flag.
      shapes_training: Whether another value makes another model of the same data, so that a
        training that goes on must have the same.
      group: One of `GROUPS`; absent, the `GROUP` of the class, or else "data".
    """
    assert group in (None, *GROUPS), group
    options: dict[str, Any] = {"lower_bound": low, "upper_bound": high, "enum_values": choices}
    options = {name: value for name, value in options.items() if value is not None}
    metadata = {"help": text, "options": options, "alias": alias, "shapes": shapes_training}
    metadata["group"] = group
    return dataclasses.field(default=default, metadata=metadata)


def several(field: Any) -> Any:
    """Returns a field of a number like this one that may also be a tuple of numbers.

    `read_grid` tells them, which make a grid: whatever else reads the field has one of them.
    """
    text = f"{field.metadata['help']} {_SEVERAL}"
    metadata = {**field.metadata, "help": text, "several": True}
    return dataclasses.field(default=field.default, metadata=metadata)


def define(kind: type, *, without_effect: Collection[str] = ()) -> None:
    """Defines a flag for each field of the data class `kind`, of its type and default.

    Args:
      kind: Its fields are made by `flag`, or override the default of one that a base class made.
      without_effect: Names of flags that are accepted besides, for old commands.
    """
    for field in dataclasses.fields(kind):
        metadata = _find_metadata(kind, field.name)
        _define(field, metadata)
        flags.FLAGS[field.name].said = Said(
            group=_find_group(kind, field.name),
            text=metadata["help"],
            choices=tuple(metadata["options"].get("enum_values", ())),
            is_required=field.default is REQUIRED,
            alias=metadata["alias"],
        )
    for name in without_effect:
        default = _WITHOUT_EFFECT[name]
        _DEFINE[str if default is None else type(default)](name, default, WITHOUT_EFFECT)


def _find_metadata(kind: type, name: str) -> Mapping[str, Any]:
    """Returns what `flag` said of a field, in the class that is nearest by the order of bases."""
    fields = [fields.get(name) for _, fields in _fields_by_class(kind)]
    return next(field.metadata for field in fields if field and field.metadata)


def _find_group(kind: type, name: str) -> str:
    metadata = _find_metadata(kind, name)
    # A class has the fields of its bases, so that the last one made it.
    *_, owner = (
        owner
        for owner, fields in _fields_by_class(kind)
        if name in fields and fields[name].metadata is metadata
    )
    return metadata["group"] or str(vars(owner).get("GROUP", "data"))


def _fields_by_class(kind: type) -> list[tuple[type, Mapping[str, dataclasses.Field[Any]]]]:
    owners = [owner for owner in kind.__mro__ if dataclasses.is_dataclass(owner)]
    return [(owner, owner.__dataclass_fields__) for owner in owners]


def _define(field: dataclasses.Field[Any], metadata: Mapping[str, Any]) -> None:
    is_required = field.default is REQUIRED
    default = None if is_required or field.default == "" else field.default
    options = metadata["options"]
    [kind] = {*get_args(field.type)} - {NoneType} or {field.type}
    define_one = flags.DEFINE_enum if "enum_values" in options else _DEFINE[kind]
    if metadata.get("several"):
        define_one = functools.partial(_define_several, kind)
    define_one(
        name=field.name, default=default, help=metadata["help"], required=is_required, **options
    )
    if metadata["alias"]:
        flags.DEFINE_alias(metadata["alias"], field.name)


SettingsType = TypeVar("SettingsType")


def read_settings(kind: type[SettingsType]) -> SettingsType:
    """Returns the values of the flags of `kind`; what is absent has the default of its field.

    Raises:
      ValueError: where a path is given that is empty.
    """
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    values = {field.name: getattr(flags.FLAGS, field.name) for field in fields}
    for field in fields:
        is_path = field.default is REQUIRED or field.name.endswith(_PATHS)
        if is_path and field.default != "" and values[field.name] == "":
            raise ValueError(
                f"`--{field.name}` must not be empty. Is the shell variable that gives it unset?"
            )
    return kind(**{name: value for name, value in values.items() if value is not None})


def read_grid(settings: Any) -> dict[str, tuple[Any, ...]]:
    """Returns the fields that have several values, by name, with these."""
    values = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)
        if _find_metadata(type(settings), field.name).get("several")
    }
    return {name: tuple(each) for name, each in values.items() if isinstance(each, tuple | list)}


def training_flags(settings: Any) -> dict[str, Any]:
    """Returns the values of the flags that shape a training, by name with dashes."""
    names = [field.name for field in dataclasses.fields(settings)]
    return {
        f"--{name}": getattr(settings, name)
        for name in names
        if _find_metadata(type(settings), name)["shapes"]
    }


def changed_flags(settings: Any) -> list[str]:
    """Returns the flags whose values are not their defaults, as they are typed."""
    fields = {field.name: field.default for field in dataclasses.fields(settings)}
    values = {name: getattr(settings, name) for name in fields}
    return [
        f"--{'' if value else 'no'}{name}"
        if isinstance(value, bool)
        else f"--{name}={shlex.quote(str(value))}"
        for name, value in values.items()
        if value not in (fields[name], None)
    ]


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
class LengthSettings:
    """The flags that the records of pre-training and the training on them share."""

    max_seq_length: int = flag(
        128,
        "Tokens per sequence, [CLS] and [SEP] included; the same for the data and for training.",
        low=1,
    )
    max_predictions_per_seq: int = flag(
        20,
        "Masked tokens per sequence at most, about max_seq_length * masked_lm_prob; the same for "
        "the data and for training.",
        low=1,
    )


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
    seed: int = flag(
        12345,
        "Seed of the initial weights, the order of the data and dropout.",
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
        "Devices to train on: one; all of this machine; or all of the machines in TF_CONFIG. Batch "
        "sizes are totals over all devices.",
        choices=("one_device", "mirrored", "multi_worker"),
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
        "Write a SavedModel to <output_dir>/saved_model, which takes raw text.",
        group="steps",
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
                _check_several(values)
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}.") from None

    def splits(self) -> dict[str, bool]:
        """Returns for each part of the data, by name, whether it is asked for."""
        return {"train": self.do_train, "dev": self.do_predict}

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
