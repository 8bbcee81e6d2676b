"""The answers as a page to look through: where the model errs, in the paragraphs themselves.

The page is one file that asks the network for nothing. It holds the questions as JSON and shows
them a few at a time, so that ten thousand are no burden.
"""

import collections
import html
import json
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any

from absl import logging

from bert.files.durable import replace_files
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
    """Returns what the page holds of a question; squad.html reads these names."""
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
    # Its script puts text on the page as text and never as HTML. Offsets count characters as Python
    # does, so that the script takes paragraphs apart with `Array.from`.
    page = resources.files(__package__).joinpath("squad.html").read_text(encoding="utf-8")
    return page.replace("%FIGURES%", figures).replace("%CONTENT%", text)


def _figure(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.2f}"
