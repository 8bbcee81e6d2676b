"""Options: fields of groups with their help and bounds, and messages that name them.

A group is a frozen data class of the package that it concerns:

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Schedule:
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
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any, TypeVar, get_args

# The default of an option that must be given.
REQUIRED = dataclasses.MISSING

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


def check_several(values: Collection[Any]) -> None:
    """Checks the values of an option that has several."""
    if not values or len({*values}) < len(values):
        raise ValueError(f"there must be at least one value, each once. Received {[*values]}")


Group = TypeVar("Group")


def take(kind: type[Group], options: Any) -> Group:
    """Returns a group of options, taken from flat options that have its fields."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(options, name) for name in names})


def plain_value(value: Any) -> Any:
    """Returns the value of an option as a command has it; another than given only if it differs.

    Args:
      value: A path object becomes text; a scalar or an array of NumPy, Python's numbers or texts;
        in lists, tuples and groups of options, too.
    """
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple):
        items = [plain_value(item) for item in value]
        return value if all(map(operator.is_, items, value)) else type(value)(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        plain = {name: plain_value(each) for name, each in given.items()}
        changed = {name: each for name, each in plain.items() if each is not given[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value.tolist() if hasattr(value, "tolist") else value


def make_plain(options: Any) -> None:
    """Sets every field of an object of a frozen data class to its `plain_value`."""
    for name, value in vars(options).items():
        object.__setattr__(options, name, plain_value(value))


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


def whole_number(option: str, value: Any, low: int) -> int:
    """Returns the value of an option as an `int`; NumPy's integers are whole numbers, too.

    Raises:
      OptionError: where it is no whole number, or less than `low`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if number < low:
        raise OptionError(option, f"be a whole number of at least {low}", value)
    return number


def check_bounds(options: Any) -> None:
    """Checks the values of a group against the kinds, bounds and choices of its fields.

    Raises:
      OptionError: for the first value that does not fit.
    """
    for field in dataclasses.fields(options):
        value, metadata = getattr(options, field.name), find_metadata(type(options), field.name)
        kinds = get_args(field.type) or (field.type,)
        # For a text or a switch, None is as good as "" or false.
        is_number = type(None) not in kinds and (int in kinds or float in kinds)
        if value is None and field.default is not None and is_number:
            raise OptionError(field.name, "have a value", None)
        is_list = isinstance(value, tuple | list)
        takes_list = field.name in getattr(options, "LISTS", ())
        if {*kinds} <= {str, type(None)} and is_list and not takes_list:
            raise OptionError(field.name, "be a text, with commas between several values", value)
        for each in value if is_list and metadata.get("several") else [value]:
            fault = _kind_fault(each, kinds) or _bounds_fault(each, metadata["options"])
            if fault:
                raise OptionError(field.name, fault, each)


def _kind_fault(value: Any, kinds: Collection[Any]) -> str:
    """Returns what a value must be whose option is a number or a truth value."""
    if value is None:
        return ""
    if bool in kinds:
        return "" if value in (False, True) else "be true or false"
    # NumPy's numbers are of these kinds, too.
    for kind, needed, what in ((float, Real, "be a number"), (int, Integral, "be a whole number")):
        if kind in kinds:
            return "" if isinstance(value, needed) and not isinstance(value, bool) else what
    return ""


def _bounds_fault(value: Any, given: Mapping[str, Any]) -> str:
    choices = given.get("enum_values")
    if choices and value not in (None, *choices):
        return f"be one of {', '.join(choices)}"
    if isinstance(value, bool) or not isinstance(value, Real):
        return ""
    low, high = given.get("lower_bound"), given.get("upper_bound")
    if not math.isfinite(value):
        return "be a finite number"
    if low is not None and value < low:
        return f"be at least {low}"
    if high is not None and value > high:
        return f"be at most {high}"
    return ""
