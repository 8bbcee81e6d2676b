import dataclasses
import re

import pytest
from conftest import ROOT

from bert.reports import page, sections
from bert.reports.sections import Example, Link, Text, filter_link, to_json, worst_first

SCRIPT = "".join(
    (ROOT / "bert/reports" / name).read_text(encoding="utf-8") for name in ("base.js", "page.js")
)
KINDS = [
    *(each for each in vars(sections).values() if dataclasses.is_dataclass(each)),
    *(page.Page, page.Figure),
]


def make_examples(ranks):
    return [
        Example(number, rank, None, [], [Text(str(number))]) for number, rank in enumerate(ranks)
    ]


def test_the_worst_examples_come_first_and_equal_ones_in_their_order():
    shown = worst_first("dev", "Dev", make_examples([1.0, 3.0, 1.0, 2.0]), order="loss")
    assert [example.number for example in shown.examples] == [1, 3, 0, 2]
    assert shown.total == 4


def test_of_too_many_examples_the_worst_are_kept_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(sections, "MAX_EXAMPLES", 2)
    shown = worst_first("dev", "Dev", make_examples([1.0, 3.0, 2.0]), order="loss")
    assert [example.number for example in shown.examples] == [1, 2]
    assert shown.total == 3


def test_numbers_have_six_digits_and_what_is_no_number_is_nothing():
    values = [0.123456789, 1234567, float("nan"), float("-inf"), True, "0.123456789"]
    assert to_json(values) == [0.123457, 1234567, None, None, True, "0.123456789"]


def test_a_link_carries_labels_of_any_characters():
    link = filter_link("7", "dev", right="a&b=c #d", said="é +%")
    assert link == Link("7", "#dev.right=a%26b%3Dc%20%23d&dev.said=%C3%A9%20%2B%25")


def test_sections_have_the_names_that_the_script_draws():
    assert to_json(Link("a", "b")) == {"kind": "link", "text": "a", "target": "b"}
    tables = re.findall(r"^const (?:kinds|blocks) = \{(.*?)\};\n", SCRIPT, re.DOTALL | re.M)
    drawn = set(re.findall(r"\b([a-z]+): (?:\(block\)|show)", "".join(tables)))
    shown = (*sections.Section.__args__, *sections.Block.__args__)
    assert drawn == {kind.__name__.lower() for kind in shown}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_script_reads_every_field(kind):
    # By their rank, examples have been sorted already.
    for field in (each for each in dataclasses.fields(kind) if each.name != "rank"):
        assert re.search(rf"\.{field.name}\b", SCRIPT), field.name


def test_long_texts_are_cut():
    assert sections.shorten("a" * 2_000) == "a" * 2_000
    assert sections.shorten("a" * 2_001) == "a" * 2_000 + " …"
