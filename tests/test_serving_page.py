import json
import urllib.parse

import pytest
from conftest import ROOT
from helpers.report_pages import Parsed, browse_at, needs_chromium
from helpers.served_models import fetch, load_pretrained, make_model, served

from bert.serving.app import make_page
from bert.serving.served import DEFAULT, Served, Signature, serve

HOSTILE = "</script><script>document.title='run'</script><b onclick=x>&amp; \U0001f600 red"
PARTS = {name: (ROOT / f"bert/serving/page.{name}").read_text() for name in ("html", "css", "js")}


def test_hostile_names_neither_end_the_script_nor_become_tags():
    def page(name):
        signature = Signature(("text_a",), lambda rows, check: [])
        return Parsed(make_page(Served(name, 1, name, {DEFAULT: signature}, {}), 9))

    plain, hostile = page("m"), page(HOSTILE)
    assert [tag for tag, _ in plain.tags] == [tag for tag, _ in hostile.tags]
    assert hostile.content["name"] == HOSTILE


def test_the_page_asks_nobody_but_its_server():
    own = "".join(PARTS.values())
    for word in ("http://", "https://", "url(", "@import", "innerHTML", "insertAdjacent", "eval("):
        assert word not in own
    assert "default-src 'none'; connect-src 'self'" in PARTS["html"]
    # Every field has a label, and what comes is told to who cannot see it.
    assert {"aria-live", 'role="alert"', "aria-label"} <= {
        each for each in ("aria-live", 'role="alert"', "aria-label") if each in PARTS["html"]
    }


def test_it_is_served_with_what_keeps_it_from_being_framed():
    with served(make_model("labels")) as server:
        told = fetch(server, "/")
        assert told.headers["Content-Security-Policy"] == "frame-ancestors 'none'"
        assert told.headers["Content-Type"] == "text/html; charset=utf-8"
        fields = Parsed(told.body).content["fields"]
        assert fields == [{"name": "text_a", "is_list": False, "is_optional": False}]


def browse(server, *fields):
    """Returns what Chromium shows where these fields are asked, and its console."""
    return browse_at(f"{server.address}#{urllib.parse.urlencode(fields)}")


TEXT = "a red b \U0001f600 green c blue d"
# What is asked, and of the answer what is to be seen.
CASES = {
    "labels": ([("text_a", HOSTILE)], lambda a: [a["label"], *a["probabilities"]]),
    "pairs": ([("text_a", "a"), ("text_b", "b")], lambda a: [a["label"], *a["probabilities"]]),
    "several": ([("text_a", "a")], lambda a: a["labels"]),
    "number": ([("text_a", "a"), ("text_b", "b")], lambda a: [f"{a['score']:.4g}"]),
    "answers": ([("question", "red ?"), ("context", TEXT)], lambda a: [a["answer"]]),
    "entities": ([("text", TEXT)], lambda a: [each["text"] for each in a["entities"]]),
    "choices": ([("context", "a"), ("endings", "b"), ("endings", "c")], lambda a: [a["ending"]]),
}
# Each takes a second or two of a browser.
OFTEN = ("labels", "answers")


@needs_chromium
@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.exhaustive) for name in CASES],
)
def test_in_a_browser_the_answer_is_shown(name):
    asked, seen = CASES[name]
    model = make_model(name)
    row = {}
    for field, value in asked:
        row[field] = [*row.get(field, []), value] if field == "endings" else value
    (answer,) = model.predict([row])
    with served(serve(model, "a model? #1 of 50%", 1)) as server:
        shown, console = browse(server, *asked)
    assert console == []
    (article,) = shown.articles
    for each in seen(answer):
        assert each in article
    if "context" in row and name == "answers":
        assert shown.marks == [answer["answer"]]
    if name == "entities":
        assert shown.marks == [f"{each['text']}{each['type']}" for each in answer["entities"]]
    body = json.dumps({"instances": [row]}, ensure_ascii=False, separators=(",", ":"))
    assert body.replace("'", "'\\''") in shown.words


@needs_chromium
@pytest.mark.exhaustive
def test_in_a_browser_masks_are_filled():
    model = load_pretrained()
    ((first, second),) = model.fill_mask(["the [MASK] of [MASK]"])
    with served(model) as server:
        shown, console = browse(server, ("text_a", "the [MASK] of [MASK]"))
    assert console == []
    assert shown.marks == [first[0].token, second[0].token]
    assert all(guess.token in shown.articles[0] for guess in (*first, *second))


@needs_chromium
@pytest.mark.exhaustive
def test_in_a_browser_a_refusal_is_told():
    with served(make_model("choices")) as server:
        shown, _ = browse(server, ("context", "a"), ("endings", "b"))
    assert shown.articles == []
    assert "Input 0, counted from 0" in shown.words
