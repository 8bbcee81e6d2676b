import dataclasses
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from bert.commands.console import explain
from bert.options import (
    Message,
    MessageError,
    Option,
    OptionError,
    OptionGroup,
    joined,
    option,
    plain_value,
    several,
    take,
    typed_flags,
)
from bert.tasks.classification.options import ClassificationData
from bert.tasks.options import DataFiles, Schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates(OptionGroup):
    learning_rate: float = several(option(5e-5, "Rate.", low=0.0, high=1.0))
    kind: str = option("a", "Kind.", choices=("a", "b"))
    steps: int = option(1, "Steps.", low=1)
    most: int | None = option(None, "Most.")
    overwrites: bool = option(False, "Overwrites.")
    verifies: bool = option(True, "Verifies.")
    path: str = option("", "Path.")
    column: str | None = option(None, "Column.")
    data_file: str | None = option(None, "File.")


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
    assert Option("labels", ["a", "b c"]).as_flag() == "`--labels='a,b c'`"
    values = {"learning_rate": (1e-5, 3e-5), "verify": False, "metric": "f1"}
    assert typed_flags(values) == ["--learning_rate=1e-05,3e-05", "--noverify", "--metric=f1"]
    assert joined([Option("a"), "b 5%"], " % ").spell(Option.as_flag) == "`--a` % b 5%"
    assert str(MessageError("Nothing at 5%")) == "Nothing at 5%"


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"learning_rate": -1.0}, "at least 0.0"),
        ({"learning_rate": (0.5, 2.0)}, "at most 1.0"),
        ({"learning_rate": math.nan}, "finite"),
        ({"learning_rate": 10**400}, "finite"),
        ({"learning_rate": "0.5"}, "be a number. Received '0.5'"),
        ({"kind": "c"}, "one of a, b"),
        ({"kind": 3}, "one of a, b"),
        ({"steps": "2"}, "`steps` must be a whole number. Received '2'."),
        ({"most": "2"}, "`most` must be a whole number. Received '2'."),
        ({"steps": 2.0}, "`steps` must be a whole number. Received 2.0."),
        ({"steps": True}, "`steps` must be a whole number. Received True."),
        ({"most": 2.5}, "`most` must be a whole number. Received 2.5."),
        ({"steps": None}, "`steps` must have a value. Received None."),
        ({"kind": None}, "`kind` must have a value. Received None."),
        ({"verifies": None}, "`verifies` must have a value. Received None."),
        ({"learning_rate": (None, 0.5)}, "`learning_rate` must be a number. Received None."),
        ({"learning_rate": []}, r"`learning_rate` must have at least one value, .* \[\]"),
        ({"learning_rate": (1, 1.0)}, r"must have at least one value, each once. .* \(1, 1\.0\)"),
        ({"learning_rate": {0.5}}, r"`learning_rate` must be a number. Received \{0.5\}."),
        ({"path": b"a"}, "`path` must be a text. Received b'a'."),
        ({"path": 0.5}, "`path` must be a text. Received 0.5."),
        ({"data_file": ""}, "`data_file` must not be empty. Received ''. Is the variable"),
        ({"column": True}, "`column` must be a text. Received True."),
        ({"overwrites": "False"}, "`overwrites` must be true or false. Received 'False'."),
        ({"kind": ["a", "b"]}, r"`kind` must be one of a, b. Received \['a', 'b'\]"),
        ({"path": ["a", "b"]}, r"`path` must be a text; commas .* Received \['a', 'b'\]"),
        # Only some options may have several values.
        ({"most": (1, 2)}, r"`most` must be a whole number. Received \(1, 2\)."),
    ],
)
def test_values_out_of_bounds_are_refused(options, fault):
    with pytest.raises(OptionError, match=fault):
        Rates(**options)


@pytest.mark.parametrize("value", ["0.1", None, [0.1]])
def test_a_value_of_another_kind_is_refused_before_it_is_compared(value):
    with pytest.raises(OptionError, match="`dev_fraction` must"):
        DataFiles(dev_fraction=value)
    with pytest.raises(OptionError, match="`num_train_epochs` must"):
        Schedule(num_train_epochs=[value])


def test_rows_and_labels_of_a_program_may_be_lists():
    rows = [{"text": "good", "label": "yes"}]
    data = ClassificationData(train_file=rows, dev_file=rows, labels=np.array(["no", "yes"]))
    assert (data.train_file, data.labels) == (rows, ["no", "yes"])
    # A set has no order.
    for labels in ({"no", "yes"}, b"no,yes"):
        with pytest.raises(OptionError, match="`labels` must be a text"):
            ClassificationData(labels=labels)


def test_a_group_is_taken_out_of_flat_options():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Flat(Rates):
        other: int = option(0, "Other.")

    assert take(Rates, Flat(learning_rate=1e-3, other=3)) == Rates(learning_rate=1e-3)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Path("a") / "b.txt", "a/b.txt"),
        (np.int64(4), 4),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        ((np.float64(0.5), 1.0), (0.5, 1.0)),
        ([np.int32(1), Path("a")], [1, "a"]),
        (np.array([0, 1]), [0, 1]),
    ],
)
def test_scalars_arrays_and_paths_become_plain_values(value, plain):
    assert repr(plain_value(value)) == repr(plain)


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({"learning_rate": np.float32(0.5)}, {"learning_rate": 0.5}),
        ({"learning_rate": 1}, {"learning_rate": 1.0}),
        ({"learning_rate": np.array([0, 0.5])}, {"learning_rate": (0.0, 0.5)}),
        ({"learning_rate": [0, 1]}, {"learning_rate": (0.0, 1.0)}),
        ({"steps": np.int64(2), "most": np.int32(3)}, {"steps": 2, "most": 3}),
        ({"overwrites": np.bool_(True), "verifies": 0}, {"overwrites": True, "verifies": False}),
        ({"overwrites": None, "path": None}, {}),
        ({"path": Path("a") / "b", "column": np.int64(1)}, {"path": "a/b", "column": "1"}),
        ({"column": -1, "kind": np.str_("b")}, {"column": "-1", "kind": "b"}),
    ],
)
def test_values_that_a_program_gives_become_those_of_a_command(given, typed):
    assert repr(Rates(**given)) == repr(Rates(**typed))


@pytest.mark.parametrize("value", [None, "a", (1, 2), [{"text": "a"}], Rates])
def test_values_that_a_command_has_stay_the_same_objects(value):
    assert plain_value(value) is value
