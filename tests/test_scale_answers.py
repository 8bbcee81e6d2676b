import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from conftest import exhaustive
from helpers.served_models import make_model
from helpers.sharded import CHUNK, COUNT, world  # noqa: F401

import join_shards
import predict
from bert.files.parquet import write_parquet
from bert.files.paths import part_path
from bert.files.row_writer import JsonLines, Names, ResumableFile
from bert.files.texts import Input
from bert.inspection.look import look, read
from bert.scale.answers import Answerer, AnswerWork
from bert.scale.options import Answering, Part, PartOptions
from bert.scale.predictions import AnswerFile
from bert.serving.served import DEFAULT, serve
from bert.weights import checkpoint, saving


@pytest.mark.parametrize(
    ("name", "ending", "count"),
    [
        ("pairs", "csv", 2),
        ("answers", "jsonl", 3),
        ("answers", "parquet", 2),
        ("entities", "tsv", 5),
        *exhaustive(("choices", "jsonl", 2), ("several", "csv", 4), ("pairs", "parquet", 4)),
    ],
)
def test_joined_shards_equal_the_output_of_a_single_process(world, name, ending, count):  # noqa: F811
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    made = world(name)
    whole = made.run(f"whole.{ending}", overwrite=True)
    folder = made.folder / f"{ending}-{count}"
    folder.mkdir()
    parts = [
        made.run(folder / f"part-{k}.{ending}", shard=f"{k}/{count}") for k in range(1, count + 1)
    ]
    joined = folder / f"joined.{ending}"
    join_shards.run(
        join_shards.Settings(input_file=str(folder / f"part-*.{ending}"), output_file=str(joined))
    )
    assert joined.read_bytes() == whole
    if ending != "parquet":
        assert b"".join(parts) == whole
        assert len(parts[0]) < len(whole)


def test_a_part_of_parquet_has_the_columns_of_its_own_inputs(world, tmp_path):  # noqa: F811
    parquet = pytest.importorskip("pyarrow.parquet")
    made, given = world("pairs"), str(tmp_path / "in.parquet")
    lines = Path(made.given["input_file"]).read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    with open(given, "wb") as file:
        write_parquet(file, rows, [*rows[0]], "in.jsonl")
    for number in (1, 2):
        path, span = tmp_path / "out.parquet", Part(number, 2).of(COUNT, CHUNK)
        made.run(path, shard=f"{number}/2", input_file=given, overwrite=True)
        assert parquet.read_table(path).select([*rows[0]]).to_pylist() == [rows[n] for n in span]


def test_an_interrupted_shard_resumes_to_the_same_bytes(world, monkeypatch):  # noqa: F811
    made = world("pairs")
    whole = made.run("whole.jsonl", overwrite=True)
    part = made.run("part.jsonl", shard="1/2")
    assert whole.startswith(part)
    # Within a chunk, after which no answer is rounded as if it began a batch.
    lines = part.splitlines(keepends=True)
    for kept in (5, 40):
        asked = predict.Settings(
            **made.given, output_file=str(made.folder / "cut.jsonl"), shard="1/2", overwrite=True
        )
        with monkeypatch.context() as patched:
            patched.setattr(AnswerFile, "_report", lambda *_: None)
            stop_behind(kept, patched)
            with pytest.raises(KeyboardInterrupt):
                predict.run(asked)
        [unfinished] = made.folder.glob("cut.jsonl.*.unfinished")
        assert unfinished.read_bytes() == b"".join(lines[:kept])
        # Another part does not go on with it.
        assert made.run("cut.jsonl", shard="2/2", overwrite=True) == whole[len(part) :]
        predict.run(asked)
        assert (made.folder / "cut.jsonl").read_bytes() == part
        os.remove(made.folder / "cut.jsonl")


def stop_behind(count, patched):
    write = ResumableFile.write

    def stop(self, line):
        if self.count == count:
            raise KeyboardInterrupt
        write(self, line)

    patched.setattr(ResumableFile, "write", stop)


def test_a_retrained_model_is_loaded_again(world):  # noqa: F811
    settings = Answering(**world("pairs").given)
    form = JsonLines(Names.of([], []))
    # The folder's name tells the model of that time.
    works = [AnswerWork(folder, settings, [0, 1], form, 1, "x") for folder in ("1", "1", "2")]
    first, again, other = (work.model() for work in works)
    assert first is again
    assert other is not first


def test_an_improbable_answer_has_neither_text_nor_place():
    model = make_model("answers")
    row = {"question": "red ?", "context": "a red b green"}
    [expected] = model.predict([row])
    form = JsonLines(Names.of([*row], model.task.answer_names))
    for least, is_empty in ((expected["probability"], False), (1.0, True)):
        [answer] = Answerer(model, "in.jsonl", form, least)([Input(1, 0.0, row, row)])
        found = json.loads(answer.text)
        changed = {name for name, value in expected.items() if found[name] != value}
        assert answer.is_empty == is_empty
        assert changed == ({"answer", "start", "end"} if is_empty else set())
    assert (found["answer"], found["start"], found["end"]) == ("", None, None)


def test_columns_of_the_training_that_have_the_names_of_each_other_exchange_no_texts():
    model = make_model("pairs")
    row = {"text_a": "a b", "text_b": "red"}
    [expected] = model.predict([row])
    columns = {"text_a_column": "text_b", "text_b_column": "text_a"}
    model.task = dataclasses.replace(model.task, columns=columns)
    assert model.predict([dict(zip(row, ("red", "a b"), strict=True))]) == [expected]
    form = JsonLines(Names.of([*row], model.task.answer_names))
    [answer] = Answerer(model, "in.txt", form)([Input(1, 0.0, row, row)])
    assert json.loads(answer.text) == {**row, **expected}
    assert serve(model, "m", 1).answer(DEFAULT, [row], lambda: None) == [expected]
    assert look(model, read(model, (*row.values(),))).answer == expected


def test_a_part_without_a_chunk_is_empty_and_logged(world, log):  # noqa: F811
    made = world("pairs")
    assert made.run("empty.csv", shard="9/9") == b""
    assert f"Part 9/9 is empty: {COUNT} inputs, 32 at a time." in log.messages


def join_into(output, *paths, **given):
    """Joins files; returns the bytes of the output, or why there is none."""
    names = ",".join(map(str, paths))
    asked = {"input_file": names, "output_file": str(output), "overwrite": True, **given}
    output.unlink(missing_ok=True)
    told = ""
    try:
        join_shards.run(join_shards.Settings(**asked))
    except ValueError as error:
        told = str(error)
    assert output.exists() == (not told) and "\n" not in told
    return told or output.read_bytes()


@pytest.fixture
def two_parts(world, tmp_path):  # noqa: F811
    """A model, and a function that makes the parts of its answers in a folder of this test."""
    made = world("pairs")

    def make(name, count=2, ending="csv", **given):
        paths = [tmp_path / f"{name}{number}.{ending}" for number in range(1, count + 1)]
        for number, path in enumerate(paths, start=1):
            made.run(path, shard=f"{number}/{count}", overwrite=True, **given)
        return paths

    return made, make


def test_parts_of_one_output_are_joined_and_no_other_files(two_parts, tmp_path):
    made, make = two_parts
    a, b = make("a")
    whole = made.run(tmp_path / "whole.csv")
    out = tmp_path / "out.csv"
    (tmp_path / "moved").mkdir()
    for path in (a, b):
        for each in (path, Path(part_path(str(path)))):
            shutil.copy(each, tmp_path / "moved" / each.name)
    assert join_into(out, a, b) == whole
    assert join_into(out, tmp_path / "moved" / "a*.csv") == whole
    # Neither paths nor what only concerns the run itself make another output.
    copied = Path(shutil.copytree(made.given["model_dir"], tmp_path / "model"))
    text = shutil.copy(made.given["input_file"], tmp_path / "text.jsonl")
    [c, _] = make("c", model_dir=str(copied), input_file=str(text))
    assert join_into(out, c, b) == whole

    one_of_three = make("d", 3)
    input_file = tmp_path / "other.jsonl"
    input_file.write_bytes(Path(made.given["input_file"]).read_bytes() + b"\n")
    [_, other_input] = make("e", input_file=str(input_file))
    weights = checkpoint.Stored.open(str(copied / "bert_model.ckpt")).read()
    weights["output_bias"] += 1
    saving.save_tensors(str(copied / "bert_model.ckpt"), weights)
    [_, other_model] = make("f", model_dir=str(copied))
    [_, other_flag] = make("g", batch_size=1)
    [_, other_column] = make("h", on_error="skip")
    # Of every table, not of .csv alone.
    tables = [tmp_path / name for name in ("j1.tsv", "j2.tsv")]
    for path, shard, on_error in zip(tables, ("1/2", "2/2"), ("stop", "skip"), strict=True):
        made.run(path, shard=shard, on_error=on_error)
    json_lines = make("i", ending="jsonl")
    for paths, message in (
        ([a], "All 2 parts must be there. Of .*, 2/2 is missing"),
        ([b], "1/2 is missing"),
        ([b, a], "must be in their order, each once.* 2/2, 1/2"),
        ([a, c], "2/2 is missing"),
        ([a, c, b], "must be in their order, each once.* 1/2, 1/2, 2/2"),
        ([a, one_of_three[1]], "differ: of 2 parts and of 3"),
        ([one_of_three[0], one_of_three[2]], "2/3 is missing"),
        ([a, other_input], "differ: the input is another one"),
        ([a, other_model], "differ: the model is another one"),
        ([a, other_flag], "differ: `batch_size` is 2 and 1"),
        ([a, other_column], "differ: `on_error` is stop and skip"),
        (tables, "differ: `on_error` is stop and skip"),
        ([a, json_lines[1]], "differ: .*`form` is csv and jsonl"),
        ([tmp_path / "whole.csv", b], "There must be '.*whole.csv.part' beside"),
    ):
        assert re.search(message, str(join_into(out, *paths))), (paths, message)
    for name in ("out.jsonl", "out.tsv", "out", "out.csv.gz"):
        assert "which is 'csv'" in str(join_into(tmp_path / name, a, b))
    assert join_into(tmp_path / "out.csv", *json_lines).endswith("which is 'jsonl'.")
    # As they are.
    assert join_into(out, b, a, unverified=True) == b.read_bytes() + a.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content[: len(content) // 2], "must be as it was written. It had"),
        (lambda content: b"", "and has 0 now"),
        (lambda content: content.replace(b"0", b"1", 1), "and holds others now"),
        (lambda content: content + b"\n", "must be as it was written"),
    ],
)
@pytest.mark.parametrize("number", [0, 1])
def test_a_part_that_is_not_as_it_was_written_is_named(two_parts, tmp_path, spoil, message, number):
    _, make = two_parts
    paths = make("a")
    content = paths[number].read_bytes()
    paths[number].write_bytes(spoil(content))
    assert paths[number].read_bytes() != content
    told = str(join_into(tmp_path / "out.csv", *paths))
    assert message in told and paths[number].name in told


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"{}", b"[]", b"7", b"\xff", b"[" * 100_000, b'{"form": 2}', b'{"form": 1}'),
        *(
            b'{"form": 1, "number": %s, "count": %s, "made_of": %s, "size": 1, "digest": ""}' % each
            for each in (
                (b"3", b"2", b"{}"),
                (b'"1"', b"2", b"{}"),
                (b"1", b"1e999", b"[]"),
                (b"1", b"1", b"[]"),
                (b"1", b"99999999999999", b"{}"),
            )
        ),
    ],
)
def test_a_description_of_anybody_ends_in_a_line(tmp_path, content):
    (tmp_path / "a.csv").write_text("a\n")
    Path(part_path(str(tmp_path / "a.csv"))).write_bytes(content)
    told = str(join_into(tmp_path / "out.csv", tmp_path / "a.csv"))
    assert "\n" not in told
    assert ".a.csv.part' must be as" in told or "All 99999999999999 parts must be there" in told


@pytest.mark.parametrize(
    "text", ["3/2", "0/2", "x", "1/2/3", "1", "-1/2", "1/0", "\u0663/4", " 1/2"]
)
def test_malformed_parts_are_refused(text):
    with pytest.raises(ValueError, match=r"`shard` must be k/n, the k-th of n parts.*Received"):
        _ = PartOptions(shard=text).part


def test_standard_input_has_no_parts(world):  # noqa: F811
    given = {**world("pairs").given, "input_file": "-"}
    with pytest.raises(ValueError, match="`input_file` must be a file for `shard='1/2'`"):
        predict.run(predict.Settings(**given, shard="1/2"))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize(("num_items", "size"), [(0, 4), (1, 4), (8, 4), (9, 4), (30, 1)])
def test_parts_are_whole_chunks_in_order_and_all_there_is(num_items, size, count):
    spans = [Part(k, count).of(num_items, size) for k in range(1, count + 1)]
    assert [item for span in spans for item in span] == [*range(num_items)]
    assert all(span.start % size == 0 or span.start == num_items for span in spans)
    lengths = [-(-len(span) // size) for span in spans]
    assert max(lengths) - min(lengths) <= 1
    assert num_items == 0 or lengths[0] == max(lengths)
