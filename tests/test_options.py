import dataclasses
import math
import pickle

import pytest

from bert.commands.console import explain
from bert.options import (
    Message,
    MessageError,
    Option,
    OptionError,
    check_bounds,
    joined,
    option,
    several,
    take,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates:
    learning_rate: float = several(option(5e-5, "Rate.", low=0.0, high=1.0))
    kind: str = option("a", "Kind.", choices=("a", "b"))


def test_an_error_names_options_as_python_does_and_a_command_as_flags():
    error = OptionError(
        "max_seq_length",
        Message("be at most %d, as %s says", 8, Option("bert_config_file")),
        9,
        Message("Give %s or %s.", Option("do_train"), Option("strategy", "mirrored")),
    )
    assert str(error) == (
        "`max_seq_length` must be at most 8, as `bert_config_file` says. Received 9. Give "
        "`do_train` or `strategy='mirrored'`."
    )
    assert explain(error) == (
        "`--max_seq_length` must be at most 8, as `--bert_config_file` says. Received 9. Give "
        "`--do_train` or `--strategy=mirrored`."
    )
    assert isinstance(error, ValueError) and error.option == "max_seq_length"


def test_what_was_received_is_shown_by_repr_or_as_a_message():
    assert str(OptionError("name", "be a text", 3)) == "`name` must be a text. Received 3."
    error = OptionError("name", "be a text", Message("%s alone", Option("other")))
    assert str(error) == "`name` must be a text. Received `other` alone."
    assert str(OptionError("name", "be a 100 % text")) == "`name` must be a 100 % text."


def test_an_error_of_another_process_is_the_same():
    for error in (
        OptionError("name", "be a text", 3, Message("Give %s.", Option("other"))),
        OptionError("name", "be a text"),
        MessageError("%s needs %s.", Option("one"), Option("other", False)),
    ):
        found = pickle.loads(pickle.dumps(error))
        assert type(found) is type(error)
        assert (str(found), explain(found)) == (str(error), explain(error))


def test_switches_are_spelled_as_they_are_typed():
    assert Option("verify", False).as_flag() == "`--noverify`"
    assert Option("verify", True).as_flag() == "`--verify`"
    assert joined([Option("a"), "b 5%"], " % ").spell(Option.as_flag) == "`--a` % b 5%"
    assert str(MessageError("Nothing at 5%")) == "Nothing at 5%"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"learning_rate": -1.0}, "at least 0.0"),
        ({"learning_rate": (0.5, 2.0)}, "at most 1.0"),
        ({"learning_rate": math.nan}, "finite"),
        ({"learning_rate": "0.5"}, "be a number. Received '0.5'"),
        ({"kind": "c"}, "one of a, b"),
    ],
)
def test_values_out_of_bounds_are_refused(options, fault):
    check_bounds(Rates())
    with pytest.raises(OptionError, match=fault):
        check_bounds(Rates(**options))


def test_a_group_is_taken_out_of_flat_options():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Flat(Rates):
        other: int = 0

    assert take(Rates, Flat(learning_rate=1e-3, other=3)) == Rates(learning_rate=1e-3)
