import json
import math
import shutil

import pytest
from helpers.report_pages import browse, needs_chromium

from bert.commands import compare
from bert.commands.checks import call
from bert.files import owned
from bert.reports.comparison import make_page
from bert.reports.page import Table

LABELS = ("bad", "good")
GOLD = ["good", "bad", "good", "bad", "good"]


def write_run(folder, said=GOLD, texts="abcde", task=None, **flags):
    """Writes what a run of a classifier leaves; its probabilities are 0.75 for what it said."""
    folder.mkdir(parents=True)
    made_of = {"the train set": {"records": "5", "sha256": f"{len(texts)}" * 64}}
    flags = {f"--{name}": value for name, value in {"seed": 1, **flags}.items()}
    (folder / "run.json").write_text(
        json.dumps({"made_of": made_of, "ran_with": {"flags": flags}, "ended": True})
    )
    described = {"task_type": "classification", "labels": LABELS, "metric": "f1", **(task or {})}
    (folder / "task.json").write_text(json.dumps({"kind": "classification", "task": described}))
    right = sum(each == gold for each, gold in zip(said, GOLD, strict=False)) / len(said)
    scores = {"global_step": 7, "accuracy": right, "per_class": {}, "baseline": 0.6}
    (folder / "eval_results.json").write_text(json.dumps(scores))
    header = ["id", "text_a", "predicted_label", "probability_bad", "probability_good", "gold"]
    lines = ["\t".join(header)]
    for number, (text, label, gold) in enumerate(zip(texts, said, GOLD, strict=False)):
        chances = ["0.75" if each == label else "0.25" for each in LABELS]
        lines.append("\t".join([f"dev-{number}", text, label, *chances, gold]))
    (folder / "dev_predictions.tsv").write_text("\n".join(lines) + "\n")
    return str(folder)


def write_search(folder):
    """Writes what a search over two learning rates with two seeds leaves."""
    # The model of the best, with the flags of the search.
    write_run(folder, learning_rate=[0.1, 0.2])
    points = []
    for rate, accuracies in ((0.1, (0.5, 0.7)), (0.2, (0.6, 1.0))):
        runs = []
        for seed, accuracy in enumerate(accuracies):
            name = f"learning_rate_{rate}-run_{seed}"
            write_run(folder / name, learning_rate=rate, seed=seed)
            runs.append({"seed": seed, "folder": name, "scores": {"accuracy": accuracy}})
        deviation = abs(accuracies[0] - accuracies[1]) / math.sqrt(2)
        points.append(
            {
                "point": {"learning_rate": rate},
                "runs": runs,
                "mean": {"accuracy": sum(accuracies) / 2, "baseline": 0.6},
                "standard_deviation": {"accuracy": deviation, "baseline": 0.0},
            }
        )
    best = {"learning_rate": 0.2, "folder": "learning_rate_0.2-run_1", "seed": 1}
    (folder / "runs.json").write_text(json.dumps({"metric": "f1", "points": points, "best": best}))
    return str(folder)


def rows_of(page):
    return [section.rows for section in page.sections if isinstance(section, Table)]


def test_options_scores_and_examples_that_differ_are_shown(tmp_path):
    first = write_run(tmp_path / "a", ["bad", "good", "good", "bad", "good"], learning_rate=0.1)
    second = write_run(tmp_path / "b", ["good", "bad", "good", "bad", "bad"], learning_rate=0.2)
    page = make_page([first, f"{second}/"])
    options, scores, counts = rows_of(page)
    assert options == [["--learning_rate", "0.1", "0.2"]]
    assert scores == [["accuracy", "0.6000", "0.8000"]]
    # Of three changes, one is worse: the probability of 0, 1, 2 or 3 of them.
    assert counts == [[second, 2, 1, "1"]]
    examples = page.sections[-1]
    shown = {each.number: (each.is_right, each.right, each.said) for each in examples.examples}
    assert shown == {
        0: (True, ["good"], ["bad", "good"]),
        1: (True, ["bad"], ["good", "bad"]),
        4: (False, ["good"], ["good", "bad"]),
    }
    assert {each.rank for each in examples.examples} == {0.5}


@pytest.mark.parametrize(
    ("task_type", "is_said"), [("multi_label", True), ("classification", False)]
)
def test_a_comma_parts_the_marks_of_several_labels_alone(tmp_path, task_type, is_said):
    task = {"task_type": task_type}
    answers = ["bad,good", *GOLD[1:]]
    runs = [
        write_run(tmp_path / "a", answers, task=task),
        write_run(tmp_path / "b", GOLD, task=task),
    ]
    *_, examples = make_page(runs).sections
    [example] = examples.examples
    bars = {bar.text: (bar.is_right, bar.is_said) for bar in example.blocks[-1].bars}
    assert {name: bars[f"{name}, {runs[0]}"] for name in LABELS} == {
        "bad": (False, is_said),
        "good": (True, is_said),
    }


def test_several_labels_are_right_in_any_order_and_none_is_an_answer(tmp_path):
    runs = {"a": ("bad", "bad,good", "good"), "b": ("bad,good", "good,bad", "")}
    for name, said in runs.items():
        path = tmp_path / write_run(tmp_path / name, task={"task_type": "multi_label"})
        lines = ["id\ttext_a\tpredicted_labels\tprobability_bad\tprobability_good\tgold"]
        for number, (answer, gold) in enumerate(
            zip(said, ("good,bad", "good,bad", ""), strict=True)
        ):
            chances = "0.5\t0.5" if name == "a" else "0.1\t0.3"
            lines.append(f"dev-{number}\ttext\t{answer}\t{chances}\t{gold}")
        (path / "dev_predictions.tsv").write_text("\n".join(lines) + "\n")
    page = make_page([str(tmp_path / name) for name in runs])
    *_, counts = rows_of(page)
    assert counts == [[str(tmp_path / "b"), 2, 0, "0.5"]]
    shown = {each.number: (each.is_right, each.said[-1]) for each in page.sections[-1].examples}
    assert shown == {0: (True, "bad,good"), 2: (True, "")}
    # They are ordered by the largest change, up or down.
    assert [each.rank for each in page.sections[-1].examples] == [pytest.approx(0.4)] * 2


def test_parts_of_a_set_are_compared_one_by_one(tmp_path):
    runs = [write_run(tmp_path / name) for name in ("a", "b")]
    for name, said in {"a": GOLD, "b": ["bad", *GOLD[1:]]}.items():
        write_run(tmp_path / "other" / name, said)
        for file in ("dev_predictions.tsv", "eval_results.json"):
            mismatched = file.replace(".", "_mismatched.")
            shutil.copy(tmp_path / "other" / name / file, tmp_path / name / mismatched)
    _, scores, *counts = rows_of(make_page(runs))
    assert sorted(scores) == [
        ["accuracy", "1.0000", "1.0000"],
        ["accuracy mismatched", "1.0000", "0.8000"],
    ]
    assert sorted(counts) == [[[runs[1], 0, 0, "1"]], [[runs[1], 0, 1, "1"]]]


def test_the_test_is_exact(tmp_path):
    wrong = write_run(tmp_path / "a", [each for gold in GOLD for each in LABELS if each != gold])
    *_, [[_, gained, lost, p]] = rows_of(make_page([wrong, write_run(tmp_path / "b")]))
    assert (gained, lost, float(p)) == (5, 0, pytest.approx(2 / 2**5, rel=1e-2))


def test_of_a_search_the_best_point_has_means_and_standard_errors(tmp_path):
    single, search = write_run(tmp_path / "a", learning_rate=0.1), write_search(tmp_path / "s")
    options, scores, counts = rows_of(make_page([single, search]))
    assert options == [["--seed", "1", "[0, 1]"], ["--learning_rate", "0.1", "0.2"]]
    # The deviation of 0.6 and 1.0 over the root of their number.
    assert scores == [["accuracy", "1.0000", "0.8000 ± 0.2000"]]
    assert counts == [[search, 0, 0, "1"]]


def test_other_content_of_the_same_file_is_an_option_that_differs(tmp_path):
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", texts="abcdeX")]
    content = [row for row in rows_of(make_page(runs))[0] if row[0] == "the train set, content"]
    assert content == [["the train set, content", '"55555555"', '"66666666"']]


@pytest.mark.parametrize(
    ("other", "received"),
    [
        ({"texts": "abXde"}, "number 3 of the dev set is .*'c'.* and .*'X'"),
        ({"texts": "abcd", "said": GOLD[:4]}, "number 5 of the dev set is .*'e'.* and None"),
        ({"task": {"labels": ["bad", "fine"]}}, r"labels is .*'good'\] and .*'fine'\]"),
        ({"task": {"task_type": "multi_label"}}, "task_type is 'classification' and 'multi_label'"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_by_name(tmp_path, other, received):
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", **other)]
    with pytest.raises(ValueError, match=f"Received '.*a' and '.*b'.*{received}"):
        make_page(runs)


TAGGED = "Oslo NN LOC LOC\nis VB O O\n\nAda NN PER O\n"
ANSWERED = "id\tpredicted_label\tpredicted_ending\tprobability_0\tgold\n"
SCORED = "id\ttext_a\tpredicted_value\tgold\n"


@pytest.mark.parametrize(
    ("kind", "name", "text", "predicted", "other", "received"),
    [
        ("tagging", "predictions.txt", TAGGED, ("LOC LOC", "LOC O"), ("Ada", "Eva"), "4 .* test"),
        (
            "tagging",
            "dev_predictions.txt",
            TAGGED,
            ("O\n\n", "PER\n\n"),
            ("is VB O", "is VB PER"),
            "2",
        ),
        (
            "question_answering",
            "predictions.json",
            '{"q1": "a", "q2": ""}',
            ("a", "b"),
            ("q2", "q3"),
            "2",
        ),
        (
            "multiple_choice",
            "dev_predictions.tsv",
            f"{ANSWERED}r0\t1\tin\t0.5\t0\n",
            ("0.5", "0.1"),
            ("\t0\n", "\t1\n"),
            "1",
        ),
        (
            "classification",
            "dev_predictions.tsv",
            f"{SCORED}1\tGood.\t0.5\t3\n",
            ("0.5", "0.1"),
            ("Good", "Bad"),
            "1",
        ),
    ],
)
def test_answers_of_any_task_to_other_examples_are_refused(
    tmp_path, kind, name, text, predicted, other, received
):
    """Other answers to the same examples are compared."""
    runs = []
    for folder, (old, new) in {"a": ("", ""), "b": predicted, "c": other}.items():
        runs.append(write_run(tmp_path / folder, task={"task_type": "regression"}))
        (tmp_path / folder / "dev_predictions.tsv").unlink()
        stored = {"kind": kind, "task": {"task_type": "regression"}}
        (tmp_path / folder / "task.json").write_text(json.dumps(stored))
        (tmp_path / folder / name).write_text(text.replace(old, new, 1) if old else text)
    first, same, others = runs
    assert rows_of(make_page([first, same]))[1] == [["accuracy", "1.0000", "1.0000"]]
    with pytest.raises(ValueError, match=f"same examples.*a' and .*c': number {received}"):
        make_page([first, others])


def test_runs_without_scores_are_said_to_have_none(tmp_path):
    runs = [write_run(tmp_path / name) for name in "ab"]
    for name in "ab":
        (tmp_path / name / "eval_results.json").unlink()
    options, scores, *_ = make_page(runs).sections
    assert (options.note, scores.rows, scores.note) == ("None.", [], "None.")


def test_another_metric_is_no_other_task(tmp_path):
    make_page([write_run(tmp_path / "a"), write_run(tmp_path / "b", task={"metric": "accuracy"})])


def test_folders_without_a_run_and_too_few_folders_are_refused(tmp_path):
    run = write_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty' must be the `output_dir` .*, which is empty"):
        make_page([run, str(tmp_path / "empty")])
    for folders in ([], [run], [run, run], [run, f"{run}/"]):
        with pytest.raises(ValueError, match="two or more different folders"):
            make_page(folders)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("task.json", '{"kind": "classification"}'),
        ("task.json", '{"kind": "classification", "task": 5}'),
        ("run.json", '{"made_of": {}, "ran_with": {"flags": 5}}'),
        ("runs.json", '{"of": "another program"}'),
        ("runs.json", '{"best": 1}'),
    ],
)
def test_files_of_something_else_are_refused_by_name(tmp_path, name, content):
    first, second = (write_run(tmp_path / name) for name in "ab")
    (tmp_path / "b" / name).write_text(content)
    with pytest.raises(ValueError, match=f"b' must have the .*`{name}`"):
        make_page([first, second])
    (tmp_path / "b" / name).write_text("[]")
    with pytest.raises(ValueError, match=f"b/{name}' must hold"):
        make_page([first, second])


def test_tags_that_are_no_text_are_refused_by_file_and_line(tmp_path):
    runs = [write_run(tmp_path / name, task={"task_type": None}) for name in "ab"]
    for name in "ab":
        (tmp_path / name / "task.json").write_text('{"kind": "tagging", "task": {}}')
        (tmp_path / name / "dev_predictions.txt").write_bytes(b"a O O\ncaf\xe9 O O\n")
    with pytest.raises(ValueError, match=r"a/dev_predictions.txt:2: text must be UTF-8"):
        make_page(runs)


def test_answers_to_other_inputs_beside_a_run_are_left_out(tmp_path):
    runs = [write_run(tmp_path / name) for name in "ab"]
    for name in "ab":
        (tmp_path / name / "predictions.tsv").write_text(f"text\tlabel\tgold\n{name}\tbad\tbad\n")
    assert rows_of(make_page(runs))[1] == [["accuracy", "1.0000", "1.0000"]]


@pytest.mark.parametrize("name", ["run.json", "report.html"])
def test_the_page_replaces_no_file_of_a_run(tmp_path, name):
    runs = [write_run(tmp_path / folder) for folder in "ab"]
    (tmp_path / "b" / "report.html").write_text("of the run")
    owned.adopt(runs[1], ["run.json", "report.html"])
    given = tmp_path / "b" / name
    before = given.read_bytes()
    with pytest.raises(ValueError, match="not name a file of a run"):
        compare.run(compare.Settings(output_file=str(given), overwrite=True), runs)
    assert given.read_bytes() == before


def test_the_command_prints_the_tables_and_writes_the_page_only_where_it_may(tmp_path, capsys):
    runs = [write_run(tmp_path / name, learning_rate=0.1) for name in ("a", "b")]
    path = tmp_path / "page.html"
    compare.check(compare.Settings(output_file=str(path)), call, runs)
    assert (capsys.readouterr().out, path.exists()) == ("", False)
    compare.run(compare.Settings(output_file=str(path)), runs)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["accuracy", "1.0000", "1.0000"] in lines and ["None."] in lines
    with pytest.raises(ValueError, match="name a new file"):
        compare.run(compare.Settings(output_file=str(path)), runs)


@needs_chromium
def test_a_browser_shows_what_is_printed(tmp_path):
    first, second = write_run(tmp_path / "a", ["bad", *GOLD[1:]]), write_run(tmp_path / "b")
    compare.run(compare.Settings(output_file=str(tmp_path / "page.html")), [first, second])
    shown, console = browse(tmp_path / "page.html")
    assert console == []
    assert len(shown.articles) == 1 and f"{second}: good" in shown.articles[0]
    assert "1 of 5 examples of the dev set changed sides" in shown.words
