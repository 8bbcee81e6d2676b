import json
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bert.reports.curves import read_curves, thin
from bert.training.options import EVALUATIONS, TRAIN_LOG


def write_lines(path, lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def charts_of(folder):
    return {
        chart.title: {series.name: series.points for series in chart.series}
        for curves in read_curves(str(folder))
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


def test_what_is_no_number_and_no_line_of_a_log_is_left_out(tmp_path, log):
    lines = ['{"step": 1, "loss": 1.0}', '{"step": 2, "loss": NaN}', '{"step": 3, "loss": null}']
    (tmp_path / TRAIN_LOG).write_text("\n".join([*lines, "[1]", "{", '{"step": 6, "loss": 2}']))
    assert charts_of(tmp_path)["Loss"] == {"loss in training": [[1, 1.0], [6, 2]]}
    told = [message for message in log.messages if "no curve shows it" in message]
    assert [message.split(" ")[0].rpartition(":")[2] for message in told] == ["4", "5"]


def test_a_folder_without_a_training_has_no_curves(tmp_path):
    assert read_curves(str(tmp_path)) == []


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
    [curves] = read_curves(str(tmp_path))
    assert len(curves.charts[0].series[0].points) == 300
    assert "mean of several steps" in curves.note
