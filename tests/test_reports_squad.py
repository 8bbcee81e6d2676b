import dataclasses
import math
import re

import pytest
from conftest import ROOT
from helpers.report_pages import Parsed, browse, needs_chromium

from bert.reports.squad import LARGEST_LOSS, by_question_word, loss, write_report
from bert.tasks.squad.answers import Entry, Prediction, Span
from bert.tasks.squad.questions import Answer, SquadExample

SCRIPT = (ROOT / "bert/reports/squad.js").read_text(encoding="utf-8")
SHARED = (ROOT / "bert/reports/base.js").read_text(encoding="utf-8")
HOSTILE = "</script><script>alert(1)</script><!-- <b>&amp;'\" \U0001f600 \ud800"
CONTEXT = f"{HOSTILE} The leader was John Smith."


def example(qas_id="q", golds=("John Smith",), question="Who?"):
    return SquadExample(
        qas_id,
        question,
        CONTEXT.split(),
        context=CONTEXT,
        answers=None
        if golds is None
        else tuple(Answer(text, CONTEXT.find(text)) for text in golds),
    )


def prediction(text="John", qas_id="q", probability=0.5, null_odds=None):
    words = CONTEXT.split()
    first, last = (words.index(word) for word in (text.split()[0], text.split()[-1].strip(".")))
    span = Span(first, last, 0, len(text))
    entries = (Entry(text, 3.0, 2.0, probability, span), Entry("", 1.0, 1.0, 0.25))
    return Prediction(qas_id, text, entries, null_odds)


def write(folder, examples, predictions, scores=None, **kwargs):
    path = folder / "predictions.html"
    write_report(str(path), examples, predictions, scores, **kwargs)
    return Parsed(path.read_text(encoding="utf-8"))


def test_a_question_is_there_with_its_paragraph_spans_and_scores(tmp_path):
    golds = ["John Smith", "Smith", "John Smith", "nowhere"]
    asked = example(golds=golds)
    # An answer that is not where its offset says has no place.
    asked.answers = (*asked.answers, Answer("Smith", 1))
    page = write(tmp_path, [asked], [prediction("John")])
    (row,) = page.content["questions"]
    context = page.content["contexts"][row["context"]]
    begin, end = row["span"]
    assert context[begin:end] == row["text"] == "John"
    assert [context[begin:end] for begin, end in row["gold_spans"]] == ["John Smith", "Smith"]
    assert row["golds"] == ["John Smith", "Smith", "nowhere"]
    assert (row["id"], row["question"]) == ("q", "Who?")
    assert row["nbest"] == [["John", 0.5, True, False], ["", 0.25, False, False]]
    assert (row["exact"], row["f1"]) == (0, pytest.approx(2 / 3))
    assert row["loss"] == LARGEST_LOSS


def test_hostile_text_neither_ends_the_script_nor_becomes_a_tag(tmp_path):
    examples = [example(HOSTILE, golds=[HOSTILE], question=HOSTILE)]
    plain = write(tmp_path, [example()], [prediction()])
    page = write(tmp_path, examples, [prediction(qas_id=HOSTILE)], {HOSTILE: 1.0})
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    (row,) = page.content["questions"]
    assert (row["id"], row["question"], row["golds"]) == (HOSTILE, HOSTILE, [HOSTILE])
    assert [figure["name"] for figure in page.content["figures"]] == [HOSTILE]
    assert page.texts["script"] == SHARED + SCRIPT


def test_the_page_asks_the_network_for_nothing(tmp_path):
    page = write(tmp_path, [example()], [prediction()])
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv")]
    assert policy.startswith("default-src 'none';")
    links = [value for _, a in page.tags for name, value in a.items() if name in ("src", "href")]
    assert links == ["data:,"]
    assert not re.search(r"https?://|url\(|@import|innerHTML", SCRIPT)


def test_the_script_reads_the_names_that_are_written(tmp_path):
    page = write(tmp_path, [example()], [prediction(null_odds=1.5)], version_2_with_negative=True)
    used = set(re.findall(r"\brow\.(\w+)", SCRIPT))
    assert used == set(page.content["questions"][0])
    read = set(re.findall(r"\bpage\.(\w+)", SHARED + SCRIPT))
    assert read == page.content.keys() - {"kind", "sections"}
    ids = {attributes["id"] for _, attributes in page.tags if "id" in attributes}
    assert set(re.findall(r"(?:byId|getElementById)\(\"(\w+)\"\)", SHARED + SCRIPT)) <= ids


def test_questions_about_a_paragraph_share_it(tmp_path):
    other = SquadExample("r", "?", ["else"], context="else", answers=())
    predictions = [prediction(), prediction(), Prediction("r", "empty", (Entry("empty", 0, 0, 1),))]
    page = write(tmp_path, [example(), example(), other], predictions)
    assert len(page.content["contexts"]) == 2
    assert [row["context"] for row in page.content["questions"]] == [0, 0, 1]
    assert "span" not in page.content["questions"][2]


def test_questions_without_gold_answers_are_not_judged(tmp_path):
    (row,) = write(tmp_path, [example(golds=None)], [prediction()]).content["questions"]
    assert not {"exact", "f1", "loss", "golds"} & set(row)
    # SQuAD 1.1 asks for an answer; SQuAD 2.0 knows that there may be none.
    (row,) = write(tmp_path, [example(golds=())], [prediction()]).content["questions"]
    assert "exact" not in row
    page = write(tmp_path, [example(golds=())], [prediction()], version_2_with_negative=True)
    (row,) = page.content["questions"]
    assert (row["exact"], row["f1"], row["golds"]) == (0, 0, [])
    assert row["loss"] == pytest.approx(-math.log(0.25), rel=1e-5)


@pytest.mark.parametrize(
    ("said", "num_before", "marked"),
    [("a cat", 0, "a cat"), ("", 0, ""), ("a cat", 7, "a cat")],
)
def test_what_was_said_and_every_right_answer_is_marked(tmp_path, said, num_before, marked):
    """With a threshold, what was said need not be the likeliest, nor among the first."""
    others = [Entry(f"dog {number}", 1.0, 1.0, 0.1) for number in range(num_before)]
    entries = (*others, Entry("a cat", 0.0, 0.0, 0.1), Entry("", 0.0, 0.0, 0.05))
    asked = example(golds=("The cat!",))
    page = write(tmp_path, [asked], [Prediction("q", said, entries, 1.0)])
    [row] = page.content["questions"]
    assert [text for text, _, is_said, _ in row["nbest"] if is_said] == [marked]
    assert [text for text, *_, is_right in row["nbest"] if is_right] == ["a cat"]


def test_the_loss_is_that_of_all_right_answers_among_the_n_best():
    entries = (
        Entry("cats", 0, 0, 0.5),
        Entry("The cat", 0, 0, 0.25),
        Entry("cat.", 0, 0, 0.15),
        Entry("dog", 0, 0, 0.1),
    )
    nbest = Prediction("q", "cats", entries)
    assert loss(nbest, ["cat"]) == pytest.approx(-math.log(0.4))
    assert loss(nbest, ["cat", "dog"]) == pytest.approx(-math.log(0.5))
    assert loss(nbest, ["bird"]) == LARGEST_LOSS
    unlikely = Prediction("q", "cats", (*entries, Entry("bird", 0, 0, 1e-12)))
    assert loss(unlikely, ["bird"]) == LARGEST_LOSS


def test_scores_are_counted_by_the_first_question_word():
    rows = [
        {"question": "How many were there?", "exact": 1, "f1": 1.0},
        {"question": "In which year, and when?", "exact": 0, "f1": 0.5},
        {"question": "WHICH one?", "exact": 1, "f1": 1.0},
        {"question": "Name the whole.", "exact": 0, "f1": 0.25},
        {"question": "Where?"},
    ]
    [table] = by_question_word(rows)
    assert table.rows == [
        ["which", 2, 50.0, 75.0],
        ["how many", 1, 100.0, 100.0],
        ["another", 1, 0.0, 25.0],
    ]
    assert by_question_word(rows[3:]) == []


def test_of_too_many_questions_those_with_the_greatest_loss_are_shown(tmp_path, log):
    probabilities = [0.2, 0.9, 0.1, 0.5, 0.1]
    # In the order of the file, and those first whose answers are known.
    examples = [example(str(i), golds=("John",) if i < 4 else None) for i in range(5)]
    predictions = [prediction("John", str(i), p) for i, p in enumerate(probabilities)]
    page = write(tmp_path, examples, predictions, max_questions=2)
    assert [row["id"] for row in page.content["questions"]] == ["0", "2"]
    assert page.content["total"] == 5
    assert any("2 questions with the greatest loss" in message for message in log.messages)


def test_the_head_has_the_scores_of_100_and_where_the_page_is_from(tmp_path):
    heading = ("Question answering: dev.json", "my_squad, 2020-01-31")
    scores = {"exact": 80.0, "f1": 88.5432, "total": 10570}
    page = write(tmp_path, [example()], [prediction()], scores, heading=heading)
    figures = [(each["name"], each["value"], each["note"]) for each in page.content["figures"]]
    assert figures == [("F1", 88.5432, "of 100"), ("exact match", 80.0, "of 100")]
    assert (page.content["title"], page.content["subtitle"]) == heading
    assert page.texts["title"] == "Question answering: dev.json (my_squad, 2020-01-31)"


@needs_chromium
def test_in_a_browser_answers_are_drawn_and_nothing_fails(tmp_path):
    examples = [example(), example("r", golds=("John",)), example("s", golds=None)]
    # Where Chromium prints a page, a lone surrogate ends it.
    plain = CONTEXT.replace("\ud800", "x")
    examples = [
        dataclasses.replace(each, context=plain, doc_tokens=plain.split()) for each in examples
    ]
    write(tmp_path, examples, [prediction()] * 3, {"f1": 50.0})
    shown, console = browse(tmp_path / "predictions.html")
    assert console == []
    assert ["partly right" in text for text in shown.articles] == [True, False, False]
    assert {"bars", "gold", "question"} <= shown.classes
    assert "3 of 3" in shown.words
