import dataclasses
import re

import numpy as np
import pytest
from conftest import ROOT
from helpers.report_pages import Parsed, browse, needs_chromium

from bert.inspection.look import Inspection, Reading, Word
from bert.inspection.page import format_page, is_inspection, make_content, write_inspection
from bert.models.pretrained import Guess

HOSTILE = "</script><script>document.title='run'</script><!--<b>&amp;'\"\u2028%SCRIPT%"
HEBREW = "שלום"
PARTS = {
    name: (ROOT / f"bert/inspection/page.{name}").read_text() for name in ("html", "css", "js")
}


def make_inspection(text="door", length=5, layers=2, heads=3, **changes):
    rng = np.random.RandomState(0)
    scores = rng.normal(0, 2, (layers, heads, length, length))
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    middle = [text, *[HEBREW] * (length - 3)]
    tokens = ["[CLS]", *middle, "[SEP]"]
    words = [
        Word("", "[CLS]", [], ["[CLS]"]),
        *(Word(f"{each}É", each, [each, "x"], [each]) for each in middle),
        Word("", "[SEP]", [], ["[SEP]"]),
    ]
    guesses = [[Guess(text, 0.5), Guess(f"{n}", 0.25)] for n in range(layers + 1)]
    found = Inspection(
        Reading((text, "second"), words, tokens, list(range(length)), [0] * length, "[UNK]"),
        {text: text, "layers": layers},
        weights.astype(np.float32),
        {1: guesses},
        0.75,
        {"label": text, "probabilities": {text: 0.75, "b": 0.25}, "entities": [{"text": text}]},
        [text],
    )
    return dataclasses.replace(found, **changes)


def test_hostile_text_neither_ends_the_script_nor_becomes_a_tag():
    plain = Parsed(format_page(make_inspection()))
    hostile = Parsed(format_page(make_inspection(HOSTILE)))
    assert [tag for tag, _ in hostile.tags] == [tag for tag, _ in plain.tags]
    assert hostile.content["tokens"][1] == HOSTILE
    assert hostile.texts["script"] == plain.texts["script"] == PARTS["js"]


def test_the_page_asks_nobody():
    for word in ("http://", "https://", "url(", "@import", "innerHTML", "insertAdjacent", "eval("):
        assert word not in "".join(PARTS.values())
    assert "default-src 'none'" in PARTS["html"]


def test_attention_is_kept_in_thousandths_row_by_row():
    inspection = make_inspection()
    kept = np.array(make_content(inspection)["attention"]).reshape(inspection.attention.shape)
    np.testing.assert_allclose(kept / 1000, inspection.attention, atol=0.0005001)


def test_base_with_64_tokens_makes_less_than_3_mb():
    text = format_page(make_inspection(length=64, layers=12, heads=12))
    assert len(text.encode()) < 3_000_000


def test_what_is_not_seen_is_spelled_in_what_was_typed():
    inspection = make_inspection("a\u202eb\ud800")
    assert make_content(inspection)["words"][1]["typed"] == r"a\u202eb\ud800É"
    format_page(inspection).encode(errors="backslashreplace")


def test_such_pages_are_told_from_other_files(tmp_path):
    path = tmp_path / "page.html"
    write_inspection(str(path), make_inspection("a\ud800"))
    assert is_inspection(str(path))
    path.write_text("<!DOCTYPE html>\n<p>mine")
    assert not is_inspection(str(path))


def bars(words, title):
    """Returns the names and numbers below a title."""
    text = words.partition(title)[2]
    return re.findall(r"(\S+? \(\d+\))(\d\.\d{3})", text.partition("attended")[0])


@needs_chromium
@pytest.mark.parametrize("view", ["lines", "map"])
def test_in_a_browser_the_numbers_of_what_is_chosen_are_shown(tmp_path, view):
    path = tmp_path / "page.html"
    inspection = make_inspection("door")
    write_inspection(str(path), inspection)
    shown, console = browse(path, f"#layer=1&head=2&token=1&view={view}")
    assert console == []
    row = np.rint(1000 * inspection.attention[1, 2, 1]) / 1000
    tokens = inspection.reading.tokens
    expected = [
        (f"{tokens[place]} ({place})", f"{row[place]:.3f}")
        for place in np.argsort(-row, kind="stable")
    ]
    assert bars(shown.words, "door (1) attends to") == expected
    assert "door (1) is attended to by" in shown.words
    assert {"thumb", "guessed", "changed", "tokens", "map"} <= shown.classes


@needs_chromium
def test_in_a_browser_hostile_text_is_text(tmp_path):
    path = tmp_path / "page.html"
    write_inspection(str(path), make_inspection(HOSTILE))
    shown, console = browse(path, "#token=9&layer=x&view=other")
    assert console == []
    # In the title, a word, its pieces, the table, both lists of tokens, guesses, answer and note.
    assert shown.words.count("document.title='run'") > 10
    assert HEBREW in shown.words
    assert "attends to" not in shown.words


@needs_chromium
def test_in_a_browser_a_model_without_attention_has_pieces_and_guesses(tmp_path):
    path = tmp_path / "page.html"
    write_inspection(str(path), make_inspection(attention=np.zeros((0, 0, 5, 5), np.float32)))
    shown, console = browse(path)
    assert console == []
    assert {"piece", "guessed"} <= shown.classes
    assert "thumb" not in shown.classes


@needs_chromium
def test_in_a_browser_answers_of_several_values_are_a_table_of_the_first(tmp_path):
    path = tmp_path / "page.html"
    best = [{"answer": f"answer {n}", "start": n, "probability": 0.5 / n} for n in range(1, 21)]
    best.insert(1, {"answer": "", "start": None, "probability": 0.25})
    answer = {"answer": "", "nbest": best, "empty": []}
    write_inspection(str(path), make_inspection(answer=answer))
    shown, console = browse(path)
    assert console == []
    assert "answerstartprobabilityanswer 110.500\u20130.250answer 220.250" in shown.words
    assert "answer 7" in shown.words and "answer 8" not in shown.words
    assert "answer(none)nbest" in shown.words and "empty[]" in shown.words
