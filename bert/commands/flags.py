"""Flags, made of the fields of a script's `Settings`, which `bert.options` describes.

`define` makes flags of the fields, `read_settings` fields of the flags. Nothing is defined on
import.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Mapping
from types import NoneType
from typing import Any, TypeVar, get_args

from absl import flags

from bert.options import (
    REQUIRED,
    Option,
    Received,
    changed_options,
    find_group,
    find_metadata,
    spell,
    typed_flags,
)

flags.disclaim_key_flags()

# What --help shows together, in this order.
GROUPS: Mapping[str, str] = {
    "steps": "What to do",
    "data": "Data",
    "model": "Model",
    "training": "Training and evaluation",
    "output": "Output",
    "server": "Server",
    "devices": "Devices, memory and parallelism",
}

WITHOUT_EFFECT = "Accepted for compatibility; without effect."
# Flags of the original that nothing here reads, with their defaults there.
_WITHOUT_EFFECT: Mapping[str, Any] = {
    "tpu_zone": None,
    "gcp_project": None,
    "master": None,
    "num_tpu_cores": 8,
    "use_one_hot_embeddings": False,
}
# Flags of the original's scripts that train.
TPU_FLAGS = ("tpu_zone", "gcp_project", "master", "num_tpu_cores")


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
        return tuple(map(self._one.parse, argument))


def takes_several(flag: flags.Flag[Any]) -> bool:
    """Returns whether a flag takes several values with commas between them."""
    return isinstance(flag.parser, _SeveralParser)


class _SeveralSerializer(flags.ArgumentSerializer):
    """Writes values as they are given on a command line."""

    def serialize(self, value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


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
    """What `option` says of a flag, which has it as `said`; flags of libraries have none."""

    group: str
    text: str
    choices: tuple[str, ...]
    is_required: bool
    alias: str | None


def define(kind: type, *, without_effect: Collection[str] = ()) -> None:
    """Defines a flag for each field of the data class `kind`, of its type and default.

    Args:
      kind: Its fields are made by `option`, or override the default of one that a base class made.
      without_effect: Names of flags that are accepted besides, for old commands.
    """
    for field in dataclasses.fields(kind):
        metadata = find_metadata(kind, field.name)
        # Other flags in a help are shown as they are typed.
        text = str(spell(metadata["help"], lambda option: option.as_flag().strip("`")))
        _define(field, metadata, text)
        flags.FLAGS[field.name].said = Said(
            group=find_group(kind, field.name),
            text=text,
            choices=tuple(metadata["options"].get("enum_values", ())),
            is_required=field.default is REQUIRED,
            alias=metadata["alias"],
        )
    for name in without_effect:
        default = _WITHOUT_EFFECT[name]
        _DEFINE[str if default is None else type(default)](name, default, WITHOUT_EFFECT)


def _define(field: dataclasses.Field[Any], metadata: Mapping[str, Any], text: str) -> None:
    is_required = field.default is REQUIRED
    default = None if is_required or field.default == "" else field.default
    options = metadata["options"]
    [kind] = {*get_args(field.type)} - {NoneType} or {field.type}
    define_one = flags.DEFINE_enum if "enum_values" in options else _DEFINE[kind]
    if metadata.get("several"):
        define_one = functools.partial(_define_several, kind)
    define_one(name=field.name, default=default, help=text, required=is_required, **options)
    if metadata["alias"]:
        flags.DEFINE_alias(metadata["alias"], field.name)


def as_typed(option: Option) -> str:
    """Returns an option as it is typed, or the value received, marked if it is the default."""
    if isinstance(option, Received) and option.name in flags.FLAGS:
        return f"{option}{'' if flags.FLAGS[option.name].present else ', the default'}"
    return option.as_flag()


SettingsType = TypeVar("SettingsType")


def read_settings(kind: type[SettingsType]) -> SettingsType:
    """Returns the values of the flags of `kind`; what is absent has the default of its field.

    Raises:
      ValueError: where the flags are not defined, or do not fit.
    """
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    if missing := [field.name for field in fields if field.name not in flags.FLAGS]:
        raise ValueError(
            f"The flags must be defined before they are read. `--{missing[0]}` is not: call "
            "`define_flags()` of the script, then `FLAGS(sys.argv)`."
        )
    values = {field.name: getattr(flags.FLAGS, field.name) for field in fields}
    return kind(**{name: value for name, value in values.items() if value is not None})


def changed_flags(settings: Any) -> list[str]:
    """Returns the flags whose values are not their defaults, as they are typed."""
    return typed_flags(changed_options(settings))
