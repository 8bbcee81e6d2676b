import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import same_bytes


def write(folder, weights=b"1", commit="a", events="1", megabytes=4.38765):
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "model.ckpt").write_bytes(weights)
    (folder / "run" / "run.json").write_text(f'{{"commit": "{commit}", "seed": 1}}')
    (folder / "run" / f"events.out.tfevents.{events}.v2").write_text(events)
    (folder / "run" / ".own_files.json").write_text(f'["events.out.tfevents.{events}.v2"]')
    row = f'"rows":[["saved_model",0.3,0.25,1e-08,{megabytes},""],["tflite",0.3,0.25,null,1.5,""]]'
    (folder / "run" / "report.html").write_text(f"<script>{row}</script>")
    return same_bytes.digests(folder)


def test_only_what_each_process_writes_anew_may_differ(tmp_path):
    first = write(tmp_path / "first")
    files = {"run/model.ckpt", "run/report.html", "run/run.json", "run/.own_files.json"}
    assert set(first) == files
    assert write(tmp_path / "again", commit="b", events="2", megabytes=4.38766) == first
    assert write(tmp_path / "other", weights=b"2") != first


def test_a_command_runs_after_those_whose_output_it_reads():
    order = same_bytes.in_order(reversed(same_bytes.COMMANDS))
    assert sorted(order) == sorted(same_bytes.COMMANDS)
    for name, (needed, _) in same_bytes.COMMANDS.items():
        assert all(order.index(other) < order.index(name) for other in needed)
