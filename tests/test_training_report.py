import dataclasses
import json
import re

from bert.commands.settings import EvaluatedSettings
from bert.files.owned import read_names
from bert.options import option
from bert.reports.sections import Table
from bert.runs.report import REPORT, title_of, write_report, write_runs_report


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
    sections = [Table("T", ["a"], [[1]])]
    write_report(str(folder), vars(settings), title, 12, scores, sections, "f1")


def test_the_page_has_the_metric_first_with_what_guessing_reaches(tmp_path):
    write(tmp_path)
    content = content_of(tmp_path)
    assert content["title"] == "Multiple choice: MRPC"
    figures = [(each["name"], each["value"], each["note"]) for each in content["figures"]]
    assert figures == [
        *(("f1", 0.75, "one answer for all: 0.25"), ("test f1", 0.7, ""), ("loss", 0.5, ""))
    ]
    assert [section["title"] for section in content["sections"]] == ["T"]
    assert content["facts"]["--seed"] == 3
    assert content["facts"]["step of the weights"] == 12


def test_pages_in_other_folders_are_the_same_and_a_runs_own(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        write(folder)
    assert (one / REPORT).read_bytes() == (other / REPORT).read_bytes()
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
        ["f1", "loss"],
        [["0.6000 ± 0.1000", "1.0000 ± 0.0000"]],
    )
    assert runs["columns"] == ["run", "seed", "", "f1", "loss"]
    link = {"kind": "link", "text": "0-run_1", "target": "0-run_1/report.html"}
    assert runs["rows"][1] == [link, "10001", "the best", 0.7, 1.0]
    assert runs["rows"][0][2] == "no better than one answer for all"
    assert content["figures"][0]["value"] == 0.7


def test_points_of_a_grid_have_their_means_and_runs(tmp_path):
    points = [make_point(rate, [score]) for rate, score in ((2e-5, 0.5), (5e-5, 0.7))]
    write_runs_report(str(tmp_path), "f1", points, {"folder": "5e-05-run_0"})
    means, runs = content_of(tmp_path)["sections"]
    assert means["columns"] == ["learning_rate", "f1", "loss"]
    assert means["rows"] == [[rate, "0.6000", "1.0000"] for rate in ("2e-05", "5e-05")]
    assert [row[1] for row in runs["rows"]] == ["2e-05", "5e-05"]
