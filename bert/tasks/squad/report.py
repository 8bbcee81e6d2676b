"""The answers as a page to look through: where the model errs, in the paragraphs themselves.

The page is one file that asks the network for nothing. It holds the questions as JSON and shows
them a few at a time, so that ten thousand are no burden.
"""

import collections
import html
import json
import math
from collections.abc import Sequence
from typing import Any

from absl import logging

from bert.files.paths import replace_files
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import scores as squad_scores

# About 15 MB of page.
MAX_QUESTIONS = 20_000
NUM_ENTRIES = 5
# Stands for the loss of an answer that is not among the n best.
LARGEST_LOSS = 20.0


def write_report(
    path: str,
    examples: Sequence[squad_questions.SquadExample],
    predictions: Sequence[squad_answers.Prediction],
    scores: dict[str, float] | None = None,
    *,
    version_2_with_negative: bool = False,
    max_questions: int = MAX_QUESTIONS,
) -> None:
    """Writes the page; where there are too many questions, those with the greatest loss.

    Args:
      path: The file, which appears when it is whole.
      examples: The questions. Those with gold answers are judged.
      predictions: The answers, in the same order.
      scores: Figures for the head of the page, by name.
      version_2_with_negative: Whether a question may have no answer.
      max_questions: How many questions the page holds at most.
    """
    rows = [
        _row(example, prediction, version_2_with_negative)
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    total = len(rows)
    if total > max_questions:
        # Those without gold answers come last.
        order = sorted(range(total), key=lambda i: -rows[i].get("loss", -1.0))[:max_questions]
        rows = [rows[index] for index in sorted(order)]
        examples = [examples[index] for index in sorted(order)]
        logging.info("%s holds the %d questions with the greatest loss.", path, max_questions)
    numbers: dict[str, int] = collections.defaultdict(lambda: len(numbers))
    for row, example in zip(rows, examples, strict=True):
        row["context"] = numbers[example.context]
    content = {"contexts": list(numbers), "questions": rows, "total": total}
    with replace_files([path]) as (file,):
        file.write(_page(content, scores or {}).encode(errors="replace"))


def _row(
    example: squad_questions.SquadExample, prediction: squad_answers.Prediction, version_2: bool
) -> dict[str, Any]:
    """Returns what the page holds of a question; `_PAGE` reads these names."""
    best = prediction.best
    row: dict[str, Any] = {
        "id": example.qas_id,
        "question": example.question_text,
        "text": prediction.text,
        "probability": best.probability,
        "nbest": [[entry.text, entry.probability] for entry in prediction.nbest[:NUM_ENTRIES]],
    }
    if example.context and best.span is not None:
        row["span"] = best.span.in_context(example)
    if prediction.null_odds is not None:
        row["null_odds"] = prediction.null_odds
    if example.answers is None or (not example.answers and not version_2):
        return row
    golds = [answer.text for answer in example.answers]
    compared = squad_scores.golds_to_compare(golds) if version_2 else golds
    measure = squad_scores.f1_or_none if version_2 else squad_scores.f1
    row |= {
        "golds": list(dict.fromkeys(golds)),
        "gold_spans": sorted(
            {
                (answer.start, answer.start + len(answer.text))
                for answer in example.answers
                if answer.start is not None
                and answer.start >= 0
                and example.context.startswith(answer.text, answer.start)
            }
        ),
        "exact": squad_scores.best_score(squad_scores.exact_match, prediction.text, compared),
        "f1": squad_scores.best_score(measure, prediction.text, compared),
        "loss": loss(prediction, compared),
    }
    return row


def loss(prediction: squad_answers.Prediction, golds: Sequence[str]) -> float:
    """Returns minus the logarithm of the probability that the n best give to right answers."""
    right = set(map(squad_scores.normalize_answer, golds))
    probability = math.fsum(
        entry.probability
        for entry in prediction.nbest
        if squad_scores.normalize_answer(entry.text) in right
    )
    return min(-math.log(probability), LARGEST_LOSS) if probability > 0 else LARGEST_LOSS


def _page(content: dict[str, Any], scores: dict[str, float]) -> str:
    # Within a script, nothing but "<" can end it; JSON has another way to write it.
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    figures = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(_figure(value))}</dd></div>"
        for name, value in scores.items()
    )
    return _PAGE.replace("%FIGURES%", figures).replace("%CONTENT%", text)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"


# The script puts text on the page as text and never as HTML. Offsets count characters as Python
# does, so that the script takes paragraphs apart with `Array.from`.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Answers</title>
<style>
:root { color-scheme: light dark; --right: #2e7d32; --wrong: #c62828; --gold: #f9a825; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 1rem auto; padding: 0 1rem; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; }
dt { font-size: .8rem; opacity: .7; } dd { margin: 0; font-weight: 600; }
form { position: sticky; top: 0; background: Canvas; padding: .5rem 0; display: flex;
 flex-wrap: wrap; gap: .75rem; border-bottom: 1px solid; }
article { border-left: 4px solid gray; padding: 0 1rem; margin: 1.5rem 0; }
article.right { border-color: var(--right); } article.wrong { border-color: var(--wrong); }
h2 { font-size: 1.05rem; margin: 0; } p { margin: .3rem 0; overflow-wrap: anywhere; }
.context { white-space: pre-wrap; max-height: 20rem; overflow: auto; }
.facts { font-size: .85rem; opacity: .8; }
mark { color: inherit; background: none; border-radius: 3px; }
mark.predicted { background: color-mix(in srgb, var(--wrong) 30%, transparent); }
.right mark.predicted { background: color-mix(in srgb, var(--right) 30%, transparent); }
mark.gold { border-bottom: 3px solid var(--gold); }
ol { margin: .3rem 0; }
</style>
</head>
<body>
<h1>Answers</h1>
<dl>%FIGURES%</dl>
<p>In the paragraphs, the background marks the <mark class="predicted">prediction</mark>, green
where it is right, and a line marks the <mark class="gold">gold answers</mark>. The loss is minus
the logarithm of the probability of the right answers among the n best; 20 where there is none.</p>
<form>
<label>Show <select id="filter">
<option value="all">all</option><option value="wrong">wrong</option>
<option value="partly">partly right</option><option value="right">right</option>
<option value="null">predicted to have no answer</option>
</select></label>
<label>Order <select id="order">
<option value="file">as in the file</option><option value="loss">loss, greatest first</option>
<option value="f1">F1, least first</option>
<option value="probability">probability, least first</option>
</select></label>
<label>Containing <input id="search" type="search"></label>
<span id="count"></span>
</form>
<noscript><p>The questions are shown by a script in this page, which the browser does not run.</p>
</noscript>
<main id="list"></main>
<button id="more" type="button">More</button>
<script type="application/json" id="content">%CONTENT%</script>
<script>
"use strict";
const content = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
const pageSize = 50;
let chosen = [];
let shown = 0;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

const judged = (row) => row.exact !== undefined;
const filters = {
  all: () => true,
  wrong: (row) => judged(row) && row.f1 === 0 && !row.exact,
  partly: (row) => judged(row) && row.f1 > 0 && !row.exact,
  right: (row) => judged(row) && row.exact > 0,
  null: (row) => row.text === "",
};
const orders = {
  file: () => 0,
  loss: (a, b) => (b.loss ?? -1) - (a.loss ?? -1),
  f1: (a, b) => (a.f1 ?? 2) - (b.f1 ?? 2),
  probability: (a, b) => a.probability - b.probability,
};

function context(row) {
  const paragraph = element("p", "context");
  const characters = Array.from(content.contexts[row.context]);
  const spans = (row.gold_spans ?? []).map((span) => ["gold", span]);
  if (row.span) spans.push(["predicted", row.span]);
  const cuts = new Set([0, characters.length, ...spans.flatMap((each) => each[1])]);
  const places = Array.from(cuts).sort((a, b) => a - b);
  for (let i = 0; i + 1 < places.length; i++) {
    const text = characters.slice(places[i], places[i + 1]).join("");
    const covers = ([, [start, end]]) => start <= places[i] && places[i + 1] <= end;
    const classes = new Set(spans.filter(covers).map((each) => each[0]));
    paragraph.append(classes.size ? element("mark", Array.from(classes).join(" "), text) : text);
  }
  return paragraph;
}

function facts(row) {
  const found = ["probability " + row.probability.toFixed(3)];
  if (judged(row)) found.push("F1 " + row.f1.toFixed(3), "loss " + row.loss.toFixed(2));
  if (row.null_odds !== undefined) found.push("null odds " + row.null_odds.toFixed(2));
  return found.concat("id " + row.id).join(" · ");
}

function article(row) {
  const made = element("article", judged(row) ? (row.exact ? "right" : "wrong") : "");
  made.append(element("h2", "", row.question), context(row));
  made.append(element("p", "", "Predicted: " + (row.text || "(no answer)")));
  if (judged(row)) {
    made.append(element("p", "", "Gold: " + (row.golds.join(" | ") || "(no answer)")));
  }
  made.append(element("p", "facts", facts(row)));
  const details = element("details", "");
  const list = element("ol", "");
  for (const [text, probability] of row.nbest) {
    list.append(element("li", "", (text || "(no answer)") + " — " + probability.toFixed(3)));
  }
  details.append(element("summary", "", "Best answers"), list);
  made.append(details);
  return made;
}

function more() {
  byId("list").append(...chosen.slice(shown, shown + pageSize).map(article));
  shown = Math.min(shown + pageSize, chosen.length);
  byId("more").hidden = shown >= chosen.length;
}

function choose() {
  const wanted = byId("search").value.toLowerCase();
  const texts = (row) => [row.id, row.question, row.text, content.contexts[row.context]];
  const matches = (row) => texts(row).some((text) => text.toLowerCase().includes(wanted));
  chosen = content.questions.filter(filters[byId("filter").value]).filter(matches);
  chosen.sort(orders[byId("order").value]);
  const left = content.total > content.questions.length
    ? " in this page, those with the greatest loss of " + content.total : "";
  byId("count").textContent = chosen.length + " of " + content.questions.length + left;
  byId("list").replaceChildren();
  shown = 0;
  more();
}

for (const id of ["filter", "order", "search"]) byId(id).addEventListener("input", choose);
document.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
byId("more").addEventListener("click", more);
choose();
</script>
</body>
</html>
"""
