"""The report of a part of a data set, by the kind of the task."""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from bert.files.owned import claim
from bert.reports.sections import Cell, Link, Section, Table

# The page of a task's answers, beside the run's page.
SQUAD_PAGE = "predictions.html"


def report_part(
    task: Any, folder: str, inputs: Any, predictions: Any, scores: Mapping[str, Any]
) -> list[Section]:
    """Returns what the page of a run shows of a part.

    Args:
      task: The task of the model.
      folder: The folder of the run, in which question answering has a page of its own.
      inputs: The inputs of the part, as the task makes them.
      predictions: As the task decodes them.
      scores: As the task computes them.
    """
    # A run loads the pages of its own kind alone.
    if task.kind == "question_answering":
        return _report_answers(task, folder, inputs.examples, predictions, scores)
    if not scores:
        return []
    name, examples, arrays = inputs.part.name, inputs.examples, inputs.arrays
    if task.kind == "classification":
        from bert.reports import classification  # noqa: PLC0415

        labels = arrays["label_ids"]
        return classification.make_sections(task.task, name, examples, labels, predictions, scores)
    if task.kind == "multiple_choice":
        from bert.reports import swag  # noqa: PLC0415

        return swag.make_sections(name, examples, arrays, predictions)
    from bert.reports import tagging  # noqa: PLC0415

    return tagging.make_sections(task.tag_set, name, examples, predictions.sentences, scores)


def _report_answers(
    task: Any,
    folder: str,
    questions: Sequence[Any],
    predictions: Sequence[Any],
    scores: Mapping[str, Any],
) -> list[Section]:
    """Writes the page of the answers; returns a link to it, and the scores."""
    from bert.reports.squad import write_report  # noqa: PLC0415
    from bert.tasks.squad.scores import without_baseline  # noqa: PLC0415

    page, is_v2 = claim(folder, SQUAD_PAGE), task.decoding.version_2_with_negative
    official = without_baseline(scores)
    write_report(page, questions, predictions, official, version_2_with_negative=is_v2)
    logging.info("Wrote %s, to look through the answers.", page)
    link = Link(f"{len(questions):,} questions in their paragraphs", SQUAD_PAGE)
    rows: list[list[Cell]] = [[name, value] for name, value in scores.items()]
    sections: list[Section] = [Table("Answers", ["page"], [[link]])]
    return [*sections, Table("Scores", ["score", "value"], rows)] if scores else sections
