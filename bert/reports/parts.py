"""The report of a part of a data set, by the kind of the task."""

from collections.abc import Mapping, Sequence
from typing import Any

from bert.files.owned import claim
from bert.log import logger
from bert.reports.page import Cell, Link, Section, Table
from bert.reports.run import subtitle_of

# The page of the answers, beside the page of the run.
SQUAD_PAGE = "predictions.html"
# Of so many scores, the head of a page shows all.
_MOST_AT_HEAD = 2


def report_part(
    task: Any, folder: str, title: str, inputs: Any, predictions: Any, scores: Mapping[str, Any]
) -> list[Section]:
    """Returns the sections of a part of the data on the page of a run.

    Args:
      task: The task of the model.
      folder: The folder of the run; question answering writes a page of its own into it.
      title: The title of that page.
      inputs: The inputs of the part, as the task makes them.
      predictions: The predictions, as the task decodes them.
      scores: The scores, as the task computes them.
    """
    # A run loads the pages of its own kind alone.
    if task.kind == "question_answering":
        return _report_answers(task, folder, title, inputs.examples, predictions, scores)
    if not scores:
        return []
    name, examples, arrays = inputs.part.name, inputs.examples, inputs.arrays
    if task.kind == "classification":
        from bert.reports import classification  # noqa: PLC0415
        from bert.tasks.classification.inputs import count_windows  # noqa: PLC0415

        labels, windows = task.label_ids(inputs), count_windows(arrays)
        return classification.make_sections(
            task.task, name, examples, labels, predictions, scores, windows
        )
    if task.kind == "multiple_choice":
        from bert.reports import swag  # noqa: PLC0415

        return swag.make_sections(name, examples, arrays, predictions)
    if task.kind == "tagging":
        from bert.reports import tagging  # noqa: PLC0415

        return tagging.make_sections(task.tag_set, name, examples, predictions.sentences, scores)
    return []


def _report_answers(
    task: Any,
    folder: str,
    title: str,
    questions: Sequence[Any],
    predictions: Sequence[Any],
    scores: Mapping[str, Any],
) -> list[Section]:
    """Writes the page of the answers; returns a link to it, and the scores of SQuAD 2.0."""
    from bert.reports.squad import write_report  # noqa: PLC0415
    from bert.tasks.squad.scores import without_baseline  # noqa: PLC0415

    page, is_v2 = claim(folder, SQUAD_PAGE), task.decoding.version_2_with_negative
    official = without_baseline(scores)
    heading = (title, subtitle_of(folder))
    by_word = write_report(
        page, questions, predictions, official, heading=heading, version_2_with_negative=is_v2
    )
    logger.info("Wrote %s, to look through the answers.", page)
    link = Link(f"{len(questions):,} questions in their paragraphs", SQUAD_PAGE)
    sections: list[Section] = [Table("Answers", ["page"], [[link]]), *by_word]
    if len(official) <= _MOST_AT_HEAD:
        return sections
    rows: list[list[Cell]] = [[name, value] for name, value in official.items()]
    return [*sections, Table("Scores", ["score", "value"], rows)]


def names_of(task: Any) -> dict[str, str]:
    """Returns what the scores of a task are called, where that depends on the task."""
    if task.kind == "classification" and (labels := task.task.labels):
        from bert.tasks.classification.examples import positive_label  # noqa: PLC0415

        return {"f1": f"F1 of {positive_label(labels)!r}" if len(labels) == 2 else "macro F1"}
    return {"f1": "F1 of entities"} if task.kind == "tagging" else {}
