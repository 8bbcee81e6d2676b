"""`predictions.html`: the answers to questions, in their paragraphs.

The page contains the questions as JSON, and squad.js shows a few of them at a time, so that ten
thousand make no slow page.
"""

import collections
import math
import re
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

from bert.log import logger
from bert.reports.page import Cell, Page, Section, Table, write_page
from bert.reports.run import make_figures
from bert.tasks.squad import answers as squad_answers
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import scores as squad_scores

# About 15 MB of page.
MAX_QUESTIONS = 20_000
NUM_ENTRIES = 5
# With one of these words, a question says what it asks for.
_QUESTION_WORDS = re.compile(
    r"\b(how (?:many|much|long|old|far)|who|whom|whose|what|which|when|where|why|how)\b"
)
# The loss of an answer that is not among the n best.
LARGEST_LOSS = 20.0
_NOTE = (
    "In the paragraphs, the background marks what was said, green where it is right, and a line "
    "marks the right answers. The loss is minus the logarithm of the probability of the right "
    f"answers among the n best; {LARGEST_LOSS:g} where there is none."
)


def write_report(
    path: str,
    examples: Sequence[squad_questions.SquadExample],
    predictions: Sequence[squad_answers.Prediction],
    scores: Mapping[str, float] | None = None,
    *,
    heading: tuple[str, str] = ("Answers", ""),
    version_2_with_negative: bool = False,
    max_questions: int = MAX_QUESTIONS,
) -> list[Section]:
    """Writes the page; where there are too many questions, those with the greatest loss.

    Args:
      path: The file, which appears when it is complete.
      examples: The questions. Those with gold answers are judged.
      predictions: The answers, in the same order.
      scores: Figures for the head of the page, by name.
      heading: The title and the subtitle of the page.
      version_2_with_negative: Whether a question may have no answer.
      max_questions: How many questions the page holds at most.

    Returns:
      The table of `by_question_word`, for another page.
    """
    rows = [
        _row(example, prediction, version_2_with_negative)
        for example, prediction in zip(examples, predictions, strict=True)
    ]
    table = by_question_word(rows)
    total = len(rows)
    if total > max_questions:
        # Those without gold answers come last.
        order = sorted(range(total), key=lambda i: -rows[i].get("loss", -1.0))[:max_questions]
        rows = [rows[index] for index in sorted(order)]
        examples = [examples[index] for index in sorted(order)]
        logger.info("%s holds the %d questions with the greatest loss.", path, max_questions)
    numbers: dict[str, int] = collections.defaultdict(lambda: len(numbers))
    for row, example in zip(rows, examples, strict=True):
        row["context"] = numbers[example.context]
    title, subtitle = heading
    page = Page(title, figures=make_figures(scores or {}, "f1"), subtitle=subtitle)
    shown = {"note": _NOTE, "contexts": list(numbers), "questions": rows, "total": total}
    write_page(path, page, "squad.js", **shown)
    return table


def by_question_word(rows: Sequence[Mapping[str, Any]]) -> list[Section]:
    """Returns a table of scores by the first question word, such as "how many".

    Args:
      rows: The `question` of each, with `exact` and `f1` where it has gold answers.
    """
    groups: dict[str, list[Mapping[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        if "f1" in row:
            found = _QUESTION_WORDS.search(row["question"].lower())
            groups[found[1] if found else "another"].append(row)
    if groups.keys() <= {"another"}:
        return []
    cells: list[list[Cell]] = [
        [word, len(group), *(100 * fmean(row[name] for row in group) for name in ("exact", "f1"))]
        for word, group in sorted(groups.items(), key=lambda item: -len(item[1]))
    ]
    columns = ["question word", "questions", "exact match", "F1"]
    return [Table("Scores by question word", columns, cells)]


def _row(
    example: squad_questions.SquadExample, prediction: squad_answers.Prediction, version_2: bool
) -> dict[str, Any]:
    """Returns what the page holds of a question; squad.js reads these names."""
    best = prediction.best
    row: dict[str, Any] = {
        "id": example.qas_id,
        "question": example.question_text,
        "text": prediction.text,
        "probability": best.probability,
    }
    if example.context and best.span is not None:
        row["span"] = best.span.in_context(example)
    if prediction.null_odds is not None:
        row["null_odds"] = prediction.null_odds
    answers, normalize = example.answers or (), squad_scores.normalize_answer
    is_judged = bool(answers) or (example.answers == () and version_2)
    golds = [answer.text for answer in answers]
    compared = squad_scores.golds_to_compare(golds) if version_2 else golds
    right = set(map(normalize, compared)) if is_judged else set()
    # With a threshold, what was said may be far from the first.
    row["nbest"] = [
        [entry.text, entry.probability, entry is best, normalize(entry.text) in right]
        for number, entry in enumerate(prediction.nbest)
        if number < NUM_ENTRIES or entry is best
    ]
    if not is_judged:
        return row
    measure = squad_scores.f1_or_none if version_2 else squad_scores.f1
    row |= {
        "golds": list(dict.fromkeys(golds)),
        "gold_spans": sorted(
            {
                (answer.start, answer.start + len(answer.text))
                for answer in answers
                if answer.start is not None
                and answer.start >= 0
                and example.context.startswith(answer.text, answer.start)
            }
        ),
        "exact": squad_scores.best_score(squad_scores.exact_match, prediction.text, compared),
        "f1": squad_scores.best_score(measure, prediction.text, compared),
        "loss": loss(prediction, right),
    }
    return row


def loss(prediction: squad_answers.Prediction, right: Collection[str]) -> float:
    """Returns minus the logarithm of the probability that the n best give to normalized answers."""
    normalize = squad_scores.normalize_answer
    probability = math.fsum(
        entry.probability for entry in prediction.nbest if normalize(entry.text) in right
    )
    return min(-math.log(probability), LARGEST_LOSS) if probability > 0 else LARGEST_LOSS
