"""A comparison of runs of one task: their options, their scores, and the examples that differ."""

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert.files.paths import describe_folder, find_json_object, list_folder, read_json_object
from bert.files.rows import open_table, text_lines
from bert.files.stored_models import TASK_FILE
from bert.options import MessageError, Option
from bert.reports import page
from bert.reports.run import name_score
from bert.tasks.tagging.sentences import Columns
from bert.training.options import RUNS
from bert.weights import provenance

_RESULTS = re.compile(r"(eval|test)_results(.*)\.json")
_PREDICTIONS = re.compile(r"(?:(dev)_)?predictions(.*)\.(tsv|txt|json)")
# The endings of files of predictions by kind of task; others have tables.
_ENDINGS = {"tagging": "txt", "question_answering": "json"}
# The columns of an answer; others say what the example is.
_SAID, _PROBABILITY, _GOLD = "predicted_", "probability_", "gold"
Row = Mapping[str, Any]


class Run(NamedTuple):
    """What a folder says of its run, or of all seeds with the best values of its options.

    `answers` has rows of classifiers by part of the data, `examples` what they are answers to.
    """

    name: str
    task: Row
    options: Mapping[str, str]
    scores: Mapping[str, str]
    answers: Mapping[str, Sequence[Row]]
    examples: Mapping[str, Sequence[Any]]


def make_page(folders: Sequence[str]) -> page.Page:
    """Returns a page that compares runs of one task; raises `ValueError` where they are not."""
    names = [folder.rstrip("/") or folder for folder in folders]
    if len({*names}) < max(2, len(names)):
        raise ValueError(f"There must be two or more different folders of runs. Received {names}.")
    runs = [read_run(name) for name in names]
    for run in runs[1:]:
        _check_comparable(runs[0], run)
    options = [row for row in _tabulate([run.options for run in runs]) if len({*row[1:]}) > 1]
    scores = _tabulate([run.scores for run in runs])
    note = "±: the standard error of the mean over seeds." if "±" in str(scores) else ""
    note = note if scores else "None."
    sections: list[page.Section] = [
        page.Table("Options that differ", ["option", *names], options, "" if options else "None."),
        page.Table("Scores", ["score", *names], scores, note),
    ]
    is_several = runs[0].task.get("task_type") == "multi_label"
    for part in runs[0].answers:
        if all(part in run.answers for run in runs):
            answers = [run.answers[part] for run in runs]
            if is_several:
                answers = [[*map(_sort_labels, rows)] for rows in answers]
            sections += _compare_answers(part, names, answers, is_several=is_several)
    return page.Page("Comparison of runs", sections, subtitle=", ".join(names))


def read_run(folder: str) -> Run:
    """Returns the run in a folder; raises `ValueError` where there is none."""
    try:
        return _read(folder)
    except (AttributeError, KeyError, TypeError) as error:
        names = f"`run.json`, `{TASK_FILE}` and, of several runs, `{RUNS}`"
        text = f"{folder!r} must have the {names} of a training run. One is something else"
        raise ValueError(f"{text} ({error!r}).") from error


def _read(folder: str) -> Run:
    search = find_json_object(f"{folder}/{RUNS}")
    best = search.get("best", {})
    # The folder of the best run may be gone; its `run.json` was copied with its model.
    sources = [f"{folder}/{best.get('folder', '')}".rstrip("/"), folder]
    source = next((each for each in sources if provenance.read(each)), "")
    if not source:
        text = "%r must be the %s of a training run, with a `run.json`. Received %s."
        raise MessageError(text, folder, Option("output_dir"), describe_folder(folder))
    inputs = provenance.read(source)
    options = {**inputs.get("ran_with", {}).get("flags", {})}
    for name, value in inputs["made_of"].items():
        if isinstance(value, dict):
            options[f"{name}, content"] = value.get("sha256", "")[:8]
    scores: dict[str, str] = {}
    for match in filter(None, map(_RESULTS.fullmatch, list_folder(source))):
        form = "test_" * (match[1] == "test") + "{}" + match[2]
        scores |= _format_scores(form, read_json_object(f"{source}/{match[0]}"), {})
    for point in search.get("points", [search] if search else []):
        if point.get("point", {}).items() <= best.items():
            options["--seed"] = [run["seed"] for run in point["runs"]]
            root, deviations = math.sqrt(len(point["runs"])), point["standard_deviation"]
            errors = {name: sd / root for name, sd in deviations.items() if sd is not None}
            scores = _format_scores("{}", point["mean"], errors)
    stored = find_json_object(f"{source}/{TASK_FILE}")
    task = {"kind": stored.get("kind", "pre-training"), **stored.get("task", {}), "metric": ""}
    has_labels = task["kind"] == "classification" and task["task_type"] != "regression"
    answers, examples = _read_answers(source, task["kind"], options.get("--separator"))
    described = {name: json.dumps(options[name]) for name in options}
    return Run(folder, task, described, scores, answers if has_labels else {}, examples)


def _format_scores(form: str, values: Row, errors: Row) -> dict[str, str]:
    """Returns the texts of scores, with the standard errors of those that have one."""
    texts = {}
    for name, value in values.items():
        if isinstance(value, int | float) and name not in ("global_step", "baseline"):
            found = [each for each in (value, errors.get(name)) if each is not None]
            texts[name_score(form.format(name))] = " ± ".join(f"{each:.4f}" for each in found)
    return texts


def _read_answers(
    folder: str, kind: str, separator: str | None
) -> tuple[dict[str, Sequence[Row]], dict[str, Sequence[Any]]]:
    """Returns by part the rows of tables of answers, and what is known of the examples."""
    answers: dict[str, Sequence[Row]] = {}
    examples: dict[str, Sequence[Any]] = {}
    for match in filter(None, map(_PREDICTIONS.fullmatch, list_folder(folder))):
        path, part, ending = f"{folder}/{match[0]}", (match[1] or "test") + match[2], match[3]
        if ending != _ENDINGS.get(kind, "tsv"):
            continue
        if ending == "tsv":
            table = open_table(path)
            if any(name.startswith(_SAID) for name in table.names):
                rows = [table.name_cells(f"{path}:{line}", cells) for line, cells in table.rows]
                answers[part], examples[part] = rows, [*map(_key, rows)]
        elif ending == "json":
            # The ids of questions; what is predicted is the dev set.
            examples["dev"] = [*read_json_object(path)]
        else:
            # The last column is the predicted tag.
            columns = Columns(separator=separator)
            examples[part] = [columns.split(line)[:-1] for _, line in text_lines(path)]
    return answers, examples


def _check_comparable(first: Run, other: Run) -> None:
    """Checks that two runs have one task, and that their answers are to the same examples."""
    names = f"{first.name!r} and {other.name!r}"
    for name in {**first.task, **other.task}:
        mine, theirs = first.task.get(name), other.task.get(name)
        if mine != theirs:
            text = f"Runs to compare must have one task. Received {names}, whose {name} is"
            raise ValueError(f"{text} {mine!r} and {theirs!r}.")
    for part in sorted(first.examples.keys() & other.examples.keys()):
        pairs = itertools.zip_longest(first.examples[part], other.examples[part])
        for number, (key, other_key) in enumerate(pairs, start=1):
            if key != other_key:
                text = f"Runs to compare must have answered the same examples. Received {names}:"
                shown = f"{key!r:.200} and {other_key!r:.200}. Evaluate both on the same file."
                raise ValueError(f"{text} number {number} of the {part} set is {shown}")


def _key(row: Row) -> list[str]:
    return [row[name] for name in row if not name.startswith((_SAID, _PROBABILITY))]


def _tabulate(values: Sequence[Mapping[str, str]]) -> list[list[page.Cell]]:
    names = {name: None for each in values for name in each}
    return [[name, *(each.get(name, "") for each in values)] for name in names]


def _sort_labels(row: Row) -> Row:
    """Returns a row with its several labels in one order: that of a file is not the model's."""
    several = {name: row[name] for name in row if name == _GOLD or name.startswith(_SAID)}
    return {**row, **{name: ",".join(sorted(several[name].split(","))) for name in several}}


def _compare_answers(
    part: str, names: Sequence[str], answers: Sequence[Sequence[Row]], *, is_several: bool
) -> list[page.Section]:
    """Returns how many answers became right and wrong since the first run, and which.

    Args:
      part: The part of the data.
      names: The names of the runs.
      answers: The rows of each run.
      is_several: Whether several labels with commas between them, or none, are an answer, too.
    """
    # The test sets of GLUE have no labels.
    unknown = (None,) if is_several else (None, "")
    numbers = [n for n, row in enumerate(answers[0]) if row.get(_GOLD) not in unknown]
    right = [{n: _said(rows[n]) == rows[n][_GOLD] for n in numbers} for rows in answers]
    counts: list[list[page.Cell]] = []
    for name, others in zip(names[1:], right[1:], strict=True):
        gained = sum(others[n] > right[0][n] for n in numbers)
        lost = sum(others[n] < right[0][n] for n in numbers)
        tail = sum(math.comb(gained + lost, n) for n in range(min(gained, lost) + 1))
        counts.append([name, gained, lost, f"{min(1.0, 2 * tail / 2 ** (gained + lost)):.3g}"])
    changed = [n for n in numbers if len({each[n] for each in right}) > 1]
    examples = [
        _make_example(n, names, [rows[n] for rows in answers], is_several=is_several)
        for n in changed
    ]
    note = "p: the exact test of McNemar. Of several seeds, the answers are those of the best."
    title = f"{len(changed)} of {len(numbers)} examples of the {part} set changed sides"
    labels = list({gold: None for n in numbers if (gold := answers[0][n][_GOLD])})
    listed = page.worst_first(part, "These examples", examples, order="change", labels=labels)
    columns = [f"beside {names[0]}", "became right", "became wrong", "p"]
    return [page.Table(title, columns, counts, note), listed] if numbers else []


def _make_example(
    number: int, names: Sequence[str], rows: Sequence[Row], *, is_several: bool
) -> page.Example:
    """Returns an example whose rank is the largest change of a probability."""

    def has(answer: str, label: str) -> bool:
        return label == answer or (is_several and label in answer.split(","))

    first, gold, said = rows[0], rows[0][_GOLD], [*map(_said, rows)]
    labels = {name: name[12:] for name in first if name.startswith(_PROBABILITY)}
    change = max(abs(float(row[name]) - float(first[name])) for row in rows for name in labels)
    bars = [
        page.Bar(f"{label}, {run}", float(row[name]), has(gold, label), has(_said(row), label))
        for name, label in labels.items()
        for run, row in zip(names, rows, strict=True)
    ]
    texts = [page.Text(page.shorten(first[name])) for name in first if name.startswith("text_")]
    facts = [first["id"], *map("{}: {}".format, names, said)]
    blocks: list[page.Block] = [*texts, page.Bars(bars)]
    return page.Example(number, change, said[-1] == gold, facts, blocks, [gold], said)


def _said(row: Row) -> str:
    return next(value for name, value in row.items() if name.startswith(_SAID))
