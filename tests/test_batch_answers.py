import os

import pytest
from conftest import exhaustive
from sharded import COUNT, world  # noqa: F401

import join_shards
import predict
from bert.batch.answering import AnswerWork
from bert.batch.settings import AnsweredSettings
from bert.command_line.shards import Shard, ShardSettings
from bert.files.answers import JsonLines, Names


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
def test_shards_joined_are_what_a_single_process_writes(world, name, ending, count):  # noqa: F811
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


def test_a_shard_that_was_stopped_goes_on_to_the_same_bytes(world, monkeypatch):  # noqa: F811
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
            patched.setattr(predict, "_report", lambda *_: None)
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
    write = predict.KeptLines.write

    def stop(self, line):
        if self.count == count:
            raise KeyboardInterrupt
        write(self, line)

    patched.setattr(predict.KeptLines, "write", stop)


def test_a_model_that_was_trained_anew_is_loaded_anew(world):  # noqa: F811
    settings = AnsweredSettings(**world("pairs").given)
    form = JsonLines(Names.of([], []))
    # The folder's name tells the model of that time.
    works = [AnswerWork(folder, settings, form, 1, 1, 1) for folder in ("1", "1", "2")]
    first, again, other = (each.open() for each in works)
    assert first is again
    assert other is not first


def test_a_part_without_a_chunk_is_empty_and_says_so(world, log):  # noqa: F811
    made = world("pairs")
    assert made.run("empty.csv", shard="9/9") == b""
    assert f"Part 9/9 is empty: {COUNT} inputs, 32 at a time." in log.messages


@pytest.mark.parametrize(
    "text", ["3/2", "0/2", "x", "1/2/3", "1", "-1/2", "1/0", "\u0663/4", " 1/2"]
)
def test_what_is_no_part_is_refused(text):
    with pytest.raises(ValueError, match=r"`--shard` must be k/n, the k-th of n parts.*Received"):
        _ = ShardSettings(shard=text).part


def test_standard_input_has_no_parts(world):  # noqa: F811
    given = {**world("pairs").given, "input_file": "-"}
    with pytest.raises(ValueError, match="`--input_file` must be a file for `--shard=1/2`"):
        predict.run(predict.Settings(**given, shard="1/2"))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize(("num_items", "size"), [(0, 4), (1, 4), (8, 4), (9, 4), (30, 1)])
def test_parts_are_whole_chunks_in_order_and_all_there_is(num_items, size, count):
    spans = [Shard(k, count).of(num_items, size) for k in range(1, count + 1)]
    assert [item for span in spans for item in span] == [*range(num_items)]
    assert all(span.start % size == 0 or span.start == num_items for span in spans)
    lengths = [-(-len(span) // size) for span in spans]
    assert max(lengths) - min(lengths) <= 1
    assert num_items == 0 or lengths[0] == max(lengths)
