import dataclasses
import datetime
import json
import math
import re
from types import SimpleNamespace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bert.commands.training import EvaluatedSettings
from bert.files.owned import read_names
from bert.options import option
from bert.reports.page import Table, worst_first
from bert.reports.parts import report_part
from bert.reports.run import (
    REPORT,
    make_figures,
    read_curves,
    thin,
    title_of,
    write_report,
    write_runs_report,
)
from bert.training.options import EVALUATIONS, TRAIN_LOG


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(EvaluatedSettings):
    data_dir: str = option("glue/MRPC/", "Data.")


def content_of(folder):
    text = (folder / REPORT).read_text()
    return json.loads(re.search(r'id="content">(.*?)</script>', text, re.DOTALL)[1])


def write(folder, results=None, **changes):
    settings = Settings(output_dir=str(folder), do_train=True, seed=3, **changes)
    scores = results or {"loss": 0.5, "f1": 0.75, "baseline": 0.25, "total": 9, "test_f1": 0.7}
    title = title_of("multiple_choice", settings.data_dir)
    figures = make_figures(scores, "f1", {"f1": "macro F1"}, {"f1": 0.25})
    sections = [worst_first("dev", "E", [], order="loss"), Table("T", ["a"], [[1]])]
    write_report(str(folder), title, vars(settings), 12, figures, sections, {"f1": 0.25})


def test_the_page_has_the_metric_first_with_its_name_scale_and_baseline(tmp_path):
    write(tmp_path)
    content = content_of(tmp_path)
    assert content["title"] == "Multiple choice: MRPC"
    assert content["subtitle"] == f"{tmp_path.name}, {datetime.date.today().isoformat()}"
    figures = [(each["name"], each["value"], each["note"]) for each in content["figures"]]
    assert figures == [
        ("macro F1", 0.75, "of 1; one answer for all: 0.25"),
        ("macro F1, test set", 0.7, "of 1"),
        ("loss", 0.5, "less is better"),
    ]
    assert content["facts"]["--seed"] == 3
    assert content["facts"]["step of the weights"] == 12


def test_scores_in_percent_and_correlations_say_their_scale():
    percent = make_figures({"exact_match": 80.5, "f1": 88.0}, "f1")
    assert [(each.name, each.note) for each in percent] == [
        ("F1", "of 100"),
        ("exact match", "of 100"),
    ]
    [figure] = make_figures({"matthews": 0.5}, "matthews")
    assert figure.note.startswith("from ") and figure.note.endswith(" to 1")


def test_results_are_before_the_curves_and_examples_after_them(tmp_path):
    (tmp_path / TRAIN_LOG).write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n')
    write(tmp_path)
    assert [section["title"] for section in content_of(tmp_path)["sections"]] == [
        *("T", "Training", "E")
    ]


def test_pages_in_other_folders_differ_in_the_folder_alone_and_are_files_of_the_run(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        write(folder)
    page = (other / REPORT).read_text()
    assert (one / REPORT).read_text() == page.replace("other, ", "one, ")
    assert read_names(str(one)) == [REPORT]


def make_point(rate, scores, failed=()):
    runs = [
        {
            "seed": 10_000 + index,
            "folder": f"{rate}-run_{index}",
            "scores": {"accuracy": 1.0, "f1": f1},
        }
        for index, f1 in enumerate(scores)
    ]
    several = {"accuracy": 0.0, "f1": 0.1} if len(scores) > 1 else {}
    return {
        "point": {"learning_rate": rate} if rate else {},
        "runs": runs,
        "mean": {"accuracy": 1.0, "f1": 0.6},
        "standard_deviation": several,
        "failed": list(failed),
    }


def test_several_runs_have_a_page_with_ways_to_theirs(tmp_path):
    point = make_point(0, [0.5, 0.7], failed=[10_000])
    write_runs_report(str(tmp_path), "f1", [point], {"folder": "0-run_1"})
    content = content_of(tmp_path)
    means, runs = content["sections"]
    assert (means["columns"], means["rows"]) == (
        ["F1", "accuracy"],
        [["0.6000 ± 0.1000", "1.0000 ± 0.0000"]],
    )
    assert runs["columns"] == ["run", "seed", "", "F1", "accuracy"]
    link = {"kind": "link", "text": "0-run_1", "target": "0-run_1/report.html"}
    assert runs["rows"][1] == [link, "10001", "the best", 0.7, 1.0]
    assert runs["rows"][0][2] == "no better than one answer for all"
    assert content["figures"][0]["value"] == 0.7
    # The best of runs that learned nothing has learned nothing, either.
    point["failed"].append(10_001)
    write_runs_report(str(tmp_path), "f1", [point], {"folder": "0-run_1"})
    _, runs = content_of(tmp_path)["sections"]
    assert {row[2] for row in runs["rows"]} == {"no better than one answer for all"}


def test_points_of_a_grid_have_their_means_and_runs(tmp_path):
    points = [make_point(rate, [score]) for rate, score in ((2e-5, 0.5), (5e-5, 0.7))]
    write_runs_report(str(tmp_path), "f1", points, {"folder": "5e-05-run_0"})
    means, runs = content_of(tmp_path)["sections"]
    assert means["columns"] == ["learning_rate", "F1", "accuracy"]
    assert means["rows"] == [[rate, "0.6000", "1.0000"] for rate in ("2e-05", "5e-05")]
    assert [row[1] for row in runs["rows"]] == ["2e-05", "5e-05"]


def write_lines(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def charts_of(folder):
    return {
        chart.title: {series.name: series.points for series in chart.series}
        for curves in read_curves(str(folder), {})
        for chart in curves.charts
    }


def test_losses_share_a_chart_and_every_other_number_has_its_own(tmp_path):
    steps = [
        {"step": step, "loss": 3.0 / step, "a_loss": 1.0, "grad_norm": 2.0, "learning_rate": 0.1}
        for step in (1, 2)
    ]
    write_lines(tmp_path / TRAIN_LOG, steps)
    write_lines(
        tmp_path / EVALUATIONS,
        [
            {"step": step, "loss": 2.5, "f1": 0.5, "num_words": 1.0, "perplexity": 40.0}
            for step in (1, 2)
        ],
    )
    charts = charts_of(tmp_path)
    assert list(charts) == ["Loss", "Scores on the dev set", "Learning rate", "Gradient norm"]
    assert charts["Loss"] == {
        "loss in training": [[1, 3.0], [2, 1.5]],
        "a loss": [[1, 1.0], [2, 1.0]],
        "loss on the dev set": [[1, 2.5], [2, 2.5]],
    }
    assert charts["Scores on the dev set"] == {"f1": [[1, 0.5], [2, 0.5]]}


def test_scores_in_percent_are_shown_without_counts(tmp_path):
    score = {"exact": 50.0, "f1": 0.8, "total": 10.0, "best_exact_thresh": -1.0, "NoAns_total": 3.0}
    write_lines(tmp_path / EVALUATIONS, [{"step": 1, **score}, {"step": 2, **score}])
    assert charts_of(tmp_path)["Scores on the dev set"].keys() == {"exact", "f1"}


def test_the_baseline_is_a_line_beside_its_score_alone(tmp_path):
    lines = [{"step": step, "loss": 2.0, "macro_f1": step / 10} for step in (3, 6, 9)]
    write_lines(tmp_path / EVALUATIONS, lines)
    [curves] = read_curves(str(tmp_path), {"macro_f1": 0.25, "accuracy": 0.5})
    score, baseline = curves.charts[-1].series
    assert (score.is_reference, baseline.is_reference) == (False, True)
    assert baseline.name == "macro f1 of one answer for all"
    assert baseline.points == [[3.0, 0.25], [9.0, 0.25]]


def test_what_is_no_number_and_no_line_of_a_log_is_left_out(tmp_path, log):
    lines = ['{"step": 1, "loss": 1.0}', '{"step": 2, "loss": NaN}', '{"step": 3, "loss": null}']
    (tmp_path / TRAIN_LOG).write_text("\n".join([*lines, "[1]", "{", '{"step": 6, "loss": 2}']))
    assert charts_of(tmp_path)["Loss"] == {"loss in training": [[1, 1.0], [6, 2]]}
    told = [message for message in log.messages if "no curve shows it" in message]
    assert [message.split(" ")[0].rpartition(":")[2] for message in told] == ["4", "5"]


def test_a_folder_without_a_training_has_no_curves(tmp_path):
    assert read_curves(str(tmp_path), {"f1": 0.5}) == []


@given(st.lists(st.floats(-1e6, 1e6), max_size=60), st.integers(1, 20))
def test_thinned_points_keep_the_mean_the_extremes_and_the_last_step(values, most):
    points = list(enumerate(values, start=1))
    thinned = thin(points, most)
    assert len(thinned) == min(len(points), most)
    if len(points) <= most:
        assert thinned == [list(point) for point in points]
        return
    steps = [point[0] for point in thinned]
    assert steps == sorted(set(steps))
    assert steps[-1] == len(values)
    counts = [after - before for before, after in zip([0, *steps], steps, strict=False)]
    total = math.fsum(point[1] * count for point, count in zip(thinned, counts, strict=True))
    assert total == pytest.approx(math.fsum(values), abs=1e-3)
    assert max(counts) - min(counts) <= 1
    assert min(point[2] for point in thinned) == min(values)
    assert max(point[3] for point in thinned) == max(values)


def test_a_long_training_is_thinned_and_says_so(tmp_path):
    write_lines(tmp_path / TRAIN_LOG, [{"step": step, "loss": 1.0} for step in range(1, 1000)])
    [curves] = read_curves(str(tmp_path), {})
    assert len(curves.charts[0].series[0].points) == 300
    assert "mean of several steps" in curves.note
    write_lines(tmp_path / TRAIN_LOG, [{"step": step, "loss": 1.0} for step in range(1, 300)])
    assert not read_curves(str(tmp_path), {})[0].note
    write_lines(tmp_path / EVALUATIONS, [{"step": step, "f1": 0.5} for step in range(1, 1000)])
    assert read_curves(str(tmp_path), {})[0].note == curves.note


def test_a_task_without_a_page_of_its_own_adds_nothing_to_that_of_its_run(tmp_path):
    task = SimpleNamespace(kind="my_task")
    inputs = SimpleNamespace(part=SimpleNamespace(name="dev"), examples=[], arrays={})
    assert report_part(task, str(tmp_path), "Mine", inputs, [], {"f1": 1.0}) == []
