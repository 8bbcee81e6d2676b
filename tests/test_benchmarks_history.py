import json
import re
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import history
from turns import format_table

PAGE = "\n".join(
    [
        "Medians of 3 rounds.",
        "### small: L=4 H=256",
        format_table(
            ("ids/full/1", "ms", "ratio"),
            [("torch/float32", "8", "1.00"), ("load/float32", "4", "2.00")],
        ),
        format_table(("model files", "MB"), [("load/float32", "45")]),
        format_table(("tokenizer", "MB/s", "times as long"), [("others", "1.0", "4.00")]),
    ]
)


def test_the_ratios_of_all_tables_are_read_and_none_of_the_peers_to_each_other():
    assert history.read_ratios(PAGE) == {
        "small ids/full/1 load/float32": 2.0,
        "small tokenizer others": 4.0,
    }
    assert history.read_ratios("Nothing | but | text\n") == {}


def test_a_run_adds_a_line_and_the_picture_shows_what_became_slower(tmp_path):
    path = tmp_path / "history.jsonl"
    history.append("memory", [], "No table.", path)
    assert not path.exists()
    history.append("prediction", ["--quick"], PAGE, path)
    history.append("prediction", ["--quick"], PAGE.replace("2.00", "1.00"), path)
    first, last = map(json.loads, path.read_text().splitlines())
    assert first["benchmark"] == "prediction --quick" and first["commit"] and first["processor"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", first["date"])
    assert last["ratios"]["small ids/full/1 load/float32"] == 1.0
    picture = history.draw(history.read_history(path))
    assert "1 (-50%)" in picture and "4 (+0%)" in picture
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture)]
    # One octave to the left of the run before; the other ratio stays.
    octave = history._x(2.0) - history._x(1.0)
    assert abs(places[0] - places[1] - octave) < 0.11 and places[2] == places[3]


def test_the_picture_is_of_the_history():
    assert history.PICTURE.read_text(encoding="utf-8") == history.draw(history.read_history())
