import dataclasses
import datetime
import json
import re

from bert.commands.fine_tuning import EvaluatedSettings
from bert.files.owned import read_names
from bert.options import option
from bert.reports.figures import make_figures
from bert.reports.run import REPORT, title_of, write_report, write_runs_report
from bert.reports.sections import Table, worst_first
from bert.training.options import TRAIN_LOG


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
    write_report(str(folder), title, vars(settings), 12, figures, sections)


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
        {"seed": 10_000 + index, "folder": f"{rate}-run_{index}", "scores": {"loss": 1.0, "f1": f1}}
        for index, f1 in enumerate(scores)
    ]
    several = {"loss": 0.0, "f1": 0.1} if len(scores) > 1 else {}
    return {
        "point": {"learning_rate": rate} if rate else {},
        "runs": runs,
        "mean": {"loss": 1.0, "f1": 0.6},
        "standard_deviation": several,
        "failed": list(failed),
    }


def test_several_runs_have_a_page_with_ways_to_theirs(tmp_path):
    point = make_point(0, [0.5, 0.7], failed=[10_000])
    write_runs_report(str(tmp_path), "f1", [point], {"folder": "0-run_1"})
    content = content_of(tmp_path)
    means, runs = content["sections"]
    assert (means["columns"], means["rows"]) == (
        ["F1", "loss"],
        [["0.6000 ± 0.1000", "1.0000 ± 0.0000"]],
    )
    assert runs["columns"] == ["run", "seed", "", "F1", "loss"]
    link = {"kind": "link", "text": "0-run_1", "target": "0-run_1/report.html"}
    assert runs["rows"][1] == [link, "10001", "the best", 0.7, 1.0]
    assert runs["rows"][0][2] == "no better than one answer for all"
    assert content["figures"][0]["value"] == 0.7


def test_points_of_a_grid_have_their_means_and_runs(tmp_path):
    points = [make_point(rate, [score]) for rate, score in ((2e-5, 0.5), (5e-5, 0.7))]
    write_runs_report(str(tmp_path), "f1", points, {"folder": "5e-05-run_0"})
    means, runs = content_of(tmp_path)["sections"]
    assert means["columns"] == ["learning_rate", "F1", "loss"]
    assert means["rows"] == [[rate, "0.6000", "1.0000"] for rate in ("2e-05", "5e-05")]
    assert [row[1] for row in runs["rows"]] == ["2e-05", "5e-05"]
