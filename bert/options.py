"""Options: fields of groups with their help and bounds, and messages that name them.

A group is a frozen data class of the package that it concerns:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Schedule(OptionGroup):
        learning_rate: float = option(5e-5, "Peak learning rate.", low=0.0, shapes_training=True)

`bert/commands` makes a flag of each field. Below the commands, an error or a warning about an
option holds its name as an `Option`, which Python shows as `learning_rate` and a command as
`--learning_rate`.
"""

import dataclasses
import math
import operator
import os
import shlex
import sys
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from types import NoneType
from typing import Any, ClassVar, TypeVar, get_args

# The default of an option that must be given.
REQUIRED = dataclasses.MISSING

# How the names of options end that give a path or a model.
_PATHS = ("_checkpoint", "_dir", "_file", "_handle", "teacher", "word_vectors")

# The end of the help of an option that may have several values.
_SEVERAL = (
    "Several values, comma-separated, are all tried, in all combinations with those of other "
    "flags, and the best is kept."
)


class _Absent:
    """Stands for a value that was not given, also in another process."""


_ABSENT: Any = _Absent


class Option:
    """The name of an option within a message, alone or with a value.

    Args:
      name: The name of the field.
      value: A value of the option to show with the name.
    """

    def __init__(self, name: str, value: Any = _ABSENT) -> None:
        self.name = name
        self._value = value

    def __str__(self) -> str:
        """Returns the option as Python spells it."""
        return f"`{self.name}`" if self._value is _ABSENT else f"`{self.name}={self._value!r}`"

    def as_flag(self) -> str:
        """Returns the option as it is typed on a command line."""
        if self._value is _ABSENT or self._value is True:
            return f"`--{self.name}`"
        if self._value is False:
            return f"`--no{self.name}`"
        is_several = isinstance(self._value, tuple | list)
        text = ",".join(map(str, self._value)) if is_several else str(self._value)
        return f"`--{self.name}={shlex.quote(text)}`"


class Received(Option):
    """The value of an option that an error shows; a command adds whether it is the default."""

    def __str__(self) -> str:
        """Returns the value as Python writes it."""
        return repr(self._value)

    as_flag = __str__


Spelling = Callable[[Option], str]


class Message:
    """A text whose arguments, as those of `logging`, may be options or messages.

    Args:
      template: The text, with a %-format for each argument.
      *args: The arguments.
    """

    def __init__(self, template: str, *args: Any) -> None:
        self._template = template
        self._args = args

    def spell(self, spelling: Spelling) -> str:
        """Returns the text with its options as `spelling` gives them."""
        if not self._args:
            return self._template
        return self._template % tuple(spell(each, spelling) for each in self._args)

    def __str__(self) -> str:
        """Returns the text with its options as Python spells them."""
        return self.spell(str)


def spell(value: Any, spelling: Spelling) -> Any:
    """Returns an argument of a message; an option or a message becomes text."""
    if isinstance(value, Option):
        return spelling(value)
    if isinstance(value, Message | MessageError):
        return value.spell(spelling)
    return value


def joined(values: Collection[Any], separator: str = ", ") -> Message:
    """Returns a message of several options, messages or texts with a separator between them."""
    return Message(separator.replace("%", "%%").join(["%s"] * len(values)), *values)


class MessageError(ValueError):
    """A `ValueError` whose text names options; takes the arguments of `Message`."""

    def __init__(self, template: str, *args: Any) -> None:
        self.message = Message(template, *args)
        super().__init__(template, *args)

    def __reduce__(self) -> tuple[Any, ...]:
        # A subclass has arguments of its own.
        return _make_error, (type(self), self.args, self.__dict__)

    def spell(self, spelling: Spelling) -> str:
        """Returns the text with its options as `spelling` gives them."""
        return self.message.spell(spelling)

    def __str__(self) -> str:
        """Returns the text with its options as Python spells them."""
        return self.spell(str)


def _make_error(kind: type[MessageError], args: tuple[Any, ...], values: dict[str, Any]) -> Any:
    """Returns an error that another process has raised."""
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error


class OptionError(MessageError):
    """An option has a value that it must not have.

    The text is "`option` must `must`. Received `received`. `remedy`".

    Args:
      option: The name of the option.
      must: What must hold, after "must".
      received: The value that was received; left out where there is none to show.
      remedy: What to do, one or more sentences.
    """

    def __init__(
        self,
        option: str,
        must: str | Message,
        received: Any = _ABSENT,
        remedy: str | Message = "",
    ) -> None:
        parts: list[Any] = [Message("%s must %s.", Option(option), must)]
        if received is not _ABSENT:
            if not isinstance(received, Message):
                received = Received(option, received)
            parts.append(Message("Received %s.", received))
        if not isinstance(remedy, str) or remedy:
            parts.append(remedy)
        self.option = option
        super().__init__(" ".join(["%s"] * len(parts)), *parts)


def option(  # noqa: PLR0913
    default: Any,
    text: str | Message,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Collection[str] | None = None,
    alias: str | None = None,
    shapes_training: bool = False,
    group: str | None = None,
) -> Any:
    """Returns a field of a group of options.

    Args:
      default: `REQUIRED` where a value must be given. A text that is "" is absent by default.
      text: The help; a message where it refers to other options.
      low: The least that a number may be.
      high: The most that a number may be.
      choices: All that a text may be.
      alias: Another name of the flag.
      shapes_training: Whether another value makes another model of the same data, so that a
        training run that resumes must have the same.
      group: The heading of `--help` that shows the option; absent, the `GROUP` of the class.
    """
    options: dict[str, Any] = {"lower_bound": low, "upper_bound": high, "enum_values": choices}
    options = {name: value for name, value in options.items() if value is not None}
    metadata = {"help": text, "options": options, "alias": alias, "shapes": shapes_training}
    metadata["group"] = group
    return dataclasses.field(default=default, metadata=metadata)


def several(field: Any) -> Any:
    """Returns a field of a number like this one that may also be a tuple of numbers: a grid."""
    text = Message("%s %s", field.metadata["help"], _SEVERAL)
    metadata = {**field.metadata, "help": text, "several": True}
    return dataclasses.field(default=field.default, metadata=metadata)


Group = TypeVar("Group")


def take(kind: type[Group], options: Any) -> Group:
    """Returns a group of options, taken from flat options that have its fields."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(options, name) for name in names})


def plain_value(value: Any) -> Any:
    """Returns the value of an option as a command has it; another than given only if it differs.

    Args:
      value: A path object becomes text; a scalar or an array of NumPy, Python's numbers or texts;
        in lists and tuples, too.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        items = [plain_value(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    return value.tolist() if hasattr(value, "tolist") else value


def fields_by_class(kind: type) -> list[tuple[type, Mapping[str, dataclasses.Field[Any]]]]:
    """Returns the fields of each data class among a class and its bases, nearest first."""
    owners = [owner for owner in kind.__mro__ if dataclasses.is_dataclass(owner)]
    return [(owner, owner.__dataclass_fields__) for owner in owners]


def find_metadata(kind: type, name: str) -> Mapping[str, Any]:
    """Returns the metadata of a field, from the nearest class that has any."""
    fields = [fields.get(name) for _, fields in fields_by_class(kind)]
    return next(field.metadata for field in fields if field and field.metadata)


def find_group(kind: type, name: str) -> str:
    """Returns the heading of `--help` under which an option is shown."""
    metadata = find_metadata(kind, name)
    # A class has the fields of its bases, so that the last one made it.
    *_, owner = (
        owner
        for owner, fields in fields_by_class(kind)
        if name in fields and fields[name].metadata is metadata
    )
    return metadata["group"] or str(vars(owner).get("GROUP", "data"))


def read_grid(options: Any) -> dict[str, tuple[Any, ...]]:
    """Returns by name the values of the options that have several."""
    values = {
        field.name: getattr(options, field.name)
        for field in dataclasses.fields(options)
        if find_metadata(type(options), field.name).get("several")
    }
    return {name: tuple(each) for name, each in values.items() if isinstance(each, tuple | list)}


def shaping_options(options: Any) -> dict[str, Any]:
    """Returns by name the options of a group that shape a training run."""
    names = [field.name for field in dataclasses.fields(options)]
    return {
        name: getattr(options, name)
        for name in names
        if find_metadata(type(options), name)["shapes"]
    }


def changed_options(options: Any) -> dict[str, Any]:
    """Returns by name the options of a group that have a value other than their default."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return {
        name: value
        for name, value in values.items()
        if value is not None and not _is_default(options, name, value)
    }


def _is_default(options: Any, name: str, value: Any) -> bool:
    """Returns whether a value is the default of an option.

    A class may override the default of its base class with None and complete it later. Then the
    value of the base class is the default, if None is completed to it.
    """
    fields = [each[name] for _, each in fields_by_class(type(options)) if name in each]
    if value != next((field.default for field in fields if field.default is not None), None):
        return False
    return fields[0].default is not None or value == getattr(
        dataclasses.replace(options, **{name: None}), name
    )


def typed_flags(values: Mapping[str, Any]) -> list[str]:
    """Returns options as they are typed in a command."""
    return [Option(name, value).as_flag().strip("`") for name, value in values.items()]


class OptionGroup:
    """The base of groups of options, whose values are checked when a group is made.

    A program may give path objects, NumPy's numbers, whole numbers for any number or text, and
    None for a text or a switch that is absent: they become what a command has.
    """

    # By name of a text, the classes of other objects that a program may give for it.
    OBJECTS: ClassVar[Mapping[str, Any]] = {}

    def __post_init__(self) -> None:
        """Checks the values against the kinds, bounds and choices of their fields.

        Raises:
          OptionError: for the first value that does not fit.
        """
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = plain_value(getattr(self, field.name))
            if isinstance(value, str) or not isinstance(value, self.OBJECTS.get(field.name, ())):
                value = _read_field(field, find_metadata(type(self), field.name), value)
            object.__setattr__(self, field.name, value)


def _read_field(field: dataclasses.Field[Any], metadata: Mapping[str, Any], value: Any) -> Any:
    """Returns the value that a flag has for what a program has given."""
    kinds = get_args(field.type) or (field.type,)
    if value is None:
        if field.default is None or NoneType in kinds:
            return None
        if field.default == "" or field.default is False:
            return field.default
        raise OptionError(field.name, "have a value", None)
    # Without a path, a file that has a name by default is not written.
    is_path = field.default in (None, "-") and field.name.endswith(_PATHS)
    if (is_path or field.default is REQUIRED) and isinstance(value, str) and not value:
        remedy = "Is the variable that gives it unset?"
        raise OptionError(field.name, "not be empty", value, remedy)
    [kind] = {*kinds} - {NoneType}
    if metadata.get("several") and isinstance(value, list | tuple):
        values = [typed_value(field.name, each, kind, **metadata["options"]) for each in value]
        if not values or len({*values}) < len(values):
            raise OptionError(field.name, "have at least one value, each once", value)
        return tuple(values)
    return typed_value(field.name, value, kind, **metadata["options"])


def typed_value(name: str, value: Any, kind: Any, **given: Any) -> Any:
    """Returns a value that Python has given as a flag would have it.

    Args:
      name: The name of the option, or of the argument of a function.
      value: The value.
      kind: The type of the flag: `str`, `bool`, `int` or `float`.
      **given: The bounds or choices of the flag.

    Raises:
      OptionError: where the flag would not take the value.
    """
    value = plain_value(value)
    if fault := _fault(value, kind, given):
        raise OptionError(name, fault, value)
    return value if isinstance(value, kind) else kind(value)


def _fault(value: Any, kind: Any, given: Mapping[str, Any]) -> str:
    """Returns what the value of an option of a kind must be, where it is not."""
    if (choices := given.get("enum_values")) and value not in choices:
        return f"be one of {', '.join(choices)}"
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    is_whole = is_number and isinstance(value, Integral)
    several = "; commas go between several" * isinstance(value, list | tuple)
    fits, must = {
        bool: (isinstance(value, Real) and value in (0, 1), "be true or false"),
        int: (is_whole, "be a whole number"),
        float: (is_number, "be a number"),
        str: (isinstance(value, str) or is_whole, f"be a text{several}"),
    }[kind]
    if not fits:
        return must
    return "" if kind is str else _bounds_fault(value, **given)


def _bounds_fault(value: Any, lower_bound: float = -math.inf, upper_bound: float = math.inf) -> str:
    if not abs(value) <= sys.float_info.max:
        return "be a finite number"
    if value < lower_bound:
        return f"be at least {lower_bound}"
    return f"be at most {upper_bound}" if value > upper_bound else ""
