import base64
import dataclasses
import hashlib
import json
import re

import pytest
from conftest import ROOT
from helpers.report_pages import Parsed, browse, needs_chromium

from bert.reports import page
from bert.reports.page import (
    Bar,
    Bars,
    Chart,
    Curves,
    Example,
    Figure,
    Link,
    Mark,
    Marked,
    Matrix,
    Page,
    Place,
    Places,
    Scatter,
    Series,
    Table,
    Text,
    embed,
    filter_link,
    format_page,
    show_page,
    to_json,
    worst_first,
    write_page,
)

HOSTILE = "</script><script>document.title='run'</script><!-- <b>&amp;'\" \u2028 %SCRIPT% \ud800"
PARTS = {name: (ROOT / f"bert/reports/page.{name}").read_text() for name in ("html", "css", "js")}
PARTS["js"] = (ROOT / "bert/reports/base.js").read_text() + PARTS["js"]


def full_page(text="text"):
    """A page with something of every kind."""
    answers = Bars([Bar(text, 0.75, is_said=True), Bar("other", 0.25, is_right=True)])
    places = Places([Place(text, 0.5, [Bar(text, 0.5, is_right=True)], text)])
    examples = [
        Example(
            number,
            float(number),
            number % 2 == 0,
            [f"fact {number}"],
            [
                Text(f"sentence {number}", text),
                Marked(["in ", Mark(text, "right", "LOC")]),
                *(answers, places),
            ],
            ["a"],
            ["ab"[number % 2]],
        )
        for number in range(30)
    ]
    points = [[1, 3.0, 2.0, 4.0], [2, 1.0, 0.5, 1.5]]
    return Page(
        text,
        [
            Curves(
                "Training",
                [Chart(text, [Series(text, points), Series("b", [[2, 1.5]], is_reference=True)])],
                text,
            ),
            Table("Table", [text, "b"], [[Link(text, "other.html"), 1.5], ["x", None]]),
            Table("Empty", ["a"], []),
            Matrix("Matrix", ["a", "b"], [[15, 15], [0, 0]], "dev"),
            Scatter("Scatter", [[1.0, 2.0, 0], [2.0, 2.5, 1]], "dev"),
            worst_first("dev", "Examples", examples, order="loss", labels=["a", "b"], note=text),
        ],
        [Figure(text, 0.5, text)],
        {text: text, "--seed": 1},
        text,
    )


def test_a_shown_page_is_the_file_whatever_becomes_of_it(tmp_path):
    path = tmp_path / "page.html"
    write_page(str(path), full_page(HOSTILE))
    written, shown = path.read_bytes(), show_page(path)
    path.unlink()
    [(tag, attributes)] = Parsed(shown._repr_html_()).tags
    kind, _, content = attributes["src"].partition(",")
    assert (tag, kind) == ("iframe", "data:text/html;base64")
    assert base64.b64decode(content) == written


def test_hostile_text_neither_ends_the_script_nor_becomes_a_tag():
    plain, page = Parsed(format_page(full_page())), Parsed(format_page(full_page(HOSTILE)))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.texts["title"] == f"{HOSTILE} ({HOSTILE})"
    assert page.content["sections"][1]["columns"][0] == HOSTILE
    assert page.texts["script"] == plain.texts["script"] == PARTS["js"]


def test_what_is_embedded_is_the_same_value_without_what_scripts_stumble_over():
    text = embed({"key": HOSTILE})
    assert json.loads(text) == {"key": HOSTILE}
    assert not set("<>&\u2028\u2029") & set(text)
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed(float("nan"))


def test_a_lone_surrogate_is_written_as_json_has_it(tmp_path):
    write_page(str(tmp_path / "page.html"), full_page("a\ud800b é 中"))
    page = Parsed((tmp_path / "page.html").read_bytes().decode())
    assert page.content["title"] == "a\ud800b é 中"


def test_the_browser_may_run_the_own_script_alone_and_ask_nobody():
    page = Parsed(format_page(full_page(HOSTILE)))
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        digest = hashlib.sha256(page.texts[kind].encode()).digest()
        assert rules[f"{kind}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    links = [value for _, a in page.tags for name, value in a.items() if name in ("src", "href")]
    assert links == ["data:,"]
    own = "".join(PARTS.values()).replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|url\(|@import|innerHTML|outerHTML|insertAdjacent|eval", own)


def test_equal_pages_have_equal_bytes():
    assert format_page(full_page()) == format_page(full_page())


def test_placeholders_are_all_filled():
    assert set(re.findall(r"%([A-Z_]+)%", PARTS["html"])) == {
        *("TITLE", "STYLE", "SCRIPT", "STYLE_HASH", "SCRIPT_HASH", "CONTENT")
    }
    assert not re.search(r"%[A-Z_]+%", format_page(full_page()))


@needs_chromium
def test_in_a_browser_all_is_drawn_nothing_fails_and_nothing_is_asked_for(tmp_path):
    path = tmp_path / "page.html"
    write_page(str(path), full_page(HOSTILE.replace("\ud800", "")))
    shown, console = browse(path)
    assert console == []
    assert len(shown.articles) == 25
    assert "sentence 29" in shown.articles[0]
    assert "30 of 30" in shown.words
    assert {
        "line",
        "band",
        "reference",
        "dot",
        "matrix",
        "point",
        "bars",
        "places",
        "guess",
    } <= shown.classes
    assert shown.words.count("document.title='run'") > 10


@needs_chromium
def test_in_a_browser_points_are_right_on_the_diagonal_and_without_error_on_a_level_line(tmp_path):
    path = tmp_path / "page.html"
    # As right, too small by 1, too large by 1.
    numbers = [[1.0, 1.0, 0], [3.0, 2.0, 1], [2.0, 3.0, 2]]
    write_page(str(path), Page("Numbers", [Scatter("Numbers", numbers, "dev")]))
    shown, console = browse(path)
    assert console == []
    lines = [[float(line[name]) for name in ("y1", "y2")] for line in shown.drawn["diagonal"]]
    (start, end), (level, same) = lines
    assert start > end and level == same
    heights = [float(point["cy"]) for point in shown.drawn["point"]]
    assert len(heights) == 6
    assert heights[3] == pytest.approx(level, abs=0.1)
    # The y of a drawing grows downwards.
    assert heights[5] < level < heights[4]
    assert heights[4] - level == pytest.approx(level - heights[5], abs=0.2)


@needs_chromium
def test_in_a_browser_the_numbers_of_a_column_have_as_many_digits(tmp_path):
    path = tmp_path / "page.html"
    rows = [["x", 0.5, 1, "0.5 ± 0.1", 2e-5], ["y", 0.08571, 2000, None, 1.0]]
    columns = ["name", "score", "count", "mean", "rate"]
    write_page(str(path), Page("Numbers", [Table("Numbers", columns, rows)]))
    shown, console = browse(path)
    assert console == []
    assert "x0.500010.5 ± 0.12e-5y0.08572,000\u20131" in shown.words
    # All columns but the names are at the right, with their heads.
    assert len(shown.drawn["number"]) == 4 + 2 * 4


def test_texts_have_the_contrast_that_the_accessibility_guidelines_demand():
    """4.5 to 1 (WCAG 2, AA) of all colors of texts on all backgrounds; lines have 3 to 1."""
    light, dark = re.findall(r":root \{\s+(?:color-scheme[^;]*;)?(.*?)\}", PARTS["css"], re.S)[:2]
    for colors in (light, f"{light}{dark}"):
        values = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", colors))
        for back in ("page", "card", "accent-soft", "right-soft", "wrong-soft", "line"):
            for text in ("text", "quiet", "accent", "right", "wrong"):
                assert contrast(values[text], values[back]) >= 4.5, (text, back)
        for line in ("s0", "s1", "s2", "s3", "s4", "s5"):
            assert contrast(values[line], values["card"]) >= 3, line


def test_an_answer_is_in_the_color_of_a_wrong_one_only_beside_a_right_one():
    rules = re.findall(r"([^{};]*)\{([^{}]*)\}", PARTS["css"])
    selectors = [each.strip() for each, style in rules if "--wrong" in style and ".said" in each]
    assert len(selectors) == 2
    # An example without a known answer has neither class.
    assert all(each.startswith("article:is(.right, .wrong) ") for each in selectors)


def contrast(one, other):
    """Returns the contrast ratio of two colors."""
    dim, bright = sorted(map(luminance, (one, other)))
    return (bright + 0.05) / (dim + 0.05)


def luminance(color):
    parts = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@needs_chromium
def test_in_a_browser_the_address_filters_the_examples(tmp_path):
    path = tmp_path / "page.html"
    write_page(str(path), full_page())
    link = filter_link("", "dev", right="a", said="b", show="wrong", search="SENTENCE 1")
    shown, console = browse(path, link.target)
    assert console == []
    # The odd ones are wrong.
    found = [re.search(r"sentence (\d+)", text)[1] for text in shown.articles]
    assert found == ["19", "17", "15", "13", "11", "1"]
    assert "6 of 30" in shown.words
    # What a part of an example is called in the page's content is no text of it.
    shown, _ = browse(path, filter_link("", "dev", search="bar").target)
    assert shown.articles == [] and "0 of 30" in shown.words


SCRIPT = "".join(
    (ROOT / "bert/reports" / name).read_text(encoding="utf-8") for name in ("base.js", "page.js")
)
KINDS = [each for each in vars(page).values() if dataclasses.is_dataclass(each)]


def make_examples(ranks):
    return [
        Example(number, rank, None, [], [Text(str(number))]) for number, rank in enumerate(ranks)
    ]


def test_the_worst_examples_come_first_and_equal_ones_in_their_order():
    shown = worst_first("dev", "Dev", make_examples([1.0, 3.0, 1.0, 2.0]), order="loss")
    assert [example.number for example in shown.examples] == [1, 3, 0, 2]
    assert shown.total == 4


def test_of_too_many_examples_the_worst_are_kept_and_all_are_counted(monkeypatch):
    monkeypatch.setattr(page, "MAX_EXAMPLES", 2)
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
    shown = (*page.Section.__args__, *page.Block.__args__)
    assert drawn == {kind.__name__.lower() for kind in shown}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_script_reads_every_field(kind):
    # By their rank, examples have been sorted already.
    for field in (each for each in dataclasses.fields(kind) if each.name != "rank"):
        assert re.search(rf"\.{field.name}\b", SCRIPT), field.name


def test_long_texts_are_cut():
    assert page.shorten("a" * 2_000) == "a" * 2_000
    assert page.shorten("a" * 2_001) == "a" * 2_000 + " …"
