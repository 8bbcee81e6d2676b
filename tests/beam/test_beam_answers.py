"""Answers of Beam: those of a single process, whatever runs the pipeline."""

import json
import os

import pytest
from beam_modes import PROCESSES
from helpers.sharded import world  # noqa: F401

import predict
from bert.files import fingerprints
from bert.scale import batches as pipeline
from bert.scale.answers import AnswerWork

# A runner elsewhere, as Flink's and Spark's are spoken to.
SERVER = {
    "runner": "PortableRunner",
    "beam_options": "--job_endpoint=embed --environment_type=LOOPBACK",
}
DIRECT = {"runner": "DirectRunner"}


@pytest.mark.parametrize(
    ("name", "ending", "given"),
    [
        ("answers", "jsonl", {**DIRECT, "beam_options": PROCESSES}),
        ("pairs", "csv", DIRECT),
        ("entities", "parquet", SERVER),
    ],
)
def test_answers_are_those_of_a_single_process(world, monkeypatch, name, ending, given):  # noqa: F811
    made = world(name)
    whole = made.run(f"whole.{ending}", overwrite=True)
    assert made.run(f"{given['runner']}.{ending}", **given) == whole
    # Several chunks in a file.
    monkeypatch.setattr(pipeline, "_FILES", 2)
    if given == DIRECT:
        assert made.run(f"few.{ending}", **given) == whole
    assert not [
        path for path in os.listdir(made.folder) if path.endswith((".parts", ".unfinished"))
    ]


def test_inputs_without_answer_are_named_as_by_a_single_process(world, tmp_path, monkeypatch):  # noqa: F811
    made = world("pairs")
    lines = (made.folder / "in.jsonl").read_text().splitlines()
    # The model refuses the one, and the other is no input.
    lines[40:42] = [json.dumps({"text_a": 7, "text_b": "a"}), "{}"]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.chdir(tmp_path)
    asked = {"input_file": "in.jsonl"}
    for given in ({}, DIRECT):
        with pytest.raises(ValueError, match=r"^in\.jsonl:41: .*text_a.*'skip'. continues"):
            made.run(tmp_path / "stopped.jsonl", **asked, **given)
    asked["on_error"] = "skip"
    whole = made.run(tmp_path / "whole.jsonl", **asked)
    assert b'"in.jsonl:42: must be ' in whole
    assert made.run(tmp_path / "beam.jsonl", **asked, **DIRECT) == whole


def test_finished_answers_of_an_earlier_run_are_not_computed_again(world, monkeypatch):  # noqa: F811
    made = world("pairs")
    whole = made.run("whole.jsonl", overwrite=True)
    write = AnswerWork.write
    asked = []

    def stop(self, file, start, inputs):
        asked.append(inputs[0].line)
        if inputs[0].line == 33 and asked.count(33) == 1:
            raise ValueError("stopped here")
        write(self, file, start, inputs)

    monkeypatch.setattr(AnswerWork, "write", stop)
    with pytest.raises(ValueError, match="stopped here"):
        made.run("again.jsonl", **DIRECT)
    assert not (made.folder / "again.jsonl").exists()
    assert made.run("again.jsonl", **DIRECT) == whole
    assert asked == [1, 33, 33, 65]


def test_answers_of_an_earlier_input_are_not_used(world, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setattr(fingerprints, "_WHOLE_BYTES", 0)
    monkeypatch.setattr(fingerprints, "_BLOCK_BYTES", 1)
    made = world("pairs")
    path = tmp_path / "in.jsonl"
    content = (made.folder / "in.jsonl").read_bytes()
    path.write_bytes(content.replace(b'"text_a"', b'"text_z"', 1))
    asked = {"input_file": str(path)}
    with pytest.raises(ValueError, match="text_a"):
        made.run(tmp_path / "out.jsonl", **asked, **DIRECT)
    path.write_bytes(content)
    mended = made.run(tmp_path / "out.jsonl", **asked, **DIRECT)
    assert mended == made.run(tmp_path / "whole.jsonl", **asked)


def test_files_of_a_single_process_stay(world, monkeypatch, tmp_path):  # noqa: F811
    made = world("pairs")
    lines = (made.folder / "in.jsonl").read_text().splitlines()
    lines[40] = json.dumps({"text_a": 7, "text_b": "a"})
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    asked = {"input_file": str(tmp_path / "in.jsonl")}
    with pytest.raises(ValueError, match="on_error"):
        made.run(tmp_path / "out.jsonl", **asked)
    [kept] = tmp_path.glob("*.unfinished")
    content = kept.read_bytes()
    assert content.count(b"\n") == 40

    def stop(*_):
        raise ValueError("stopped here")

    monkeypatch.setattr(AnswerWork, "write", stop)
    with pytest.raises(ValueError, match="stopped here"):
        made.run(tmp_path / "out.jsonl", **asked, **DIRECT)
    assert [*tmp_path.glob("*.unfinished")] == [kept]
    assert kept.read_bytes() == content


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"shard": "1/2"}, "`runner` divides the work itself"),
        ({"input_file": "-"}, "must be files with `runner`"),
    ],
)
def test_options_that_exclude_a_runner_are_refused(world, given, message):  # noqa: F811
    made = world("pairs")
    asked = {**made.given, "output_file": str(made.folder / "out"), **DIRECT, **given}
    with pytest.raises(ValueError, match=message):
        predict.run(predict.Settings(**asked))
