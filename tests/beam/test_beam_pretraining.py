"""Records of pre-training made by Beam: those of --streaming, whatever runs the pipeline."""

import gzip
import os

import pytest
from beam_modes import PROCESSES
from conftest import GOLDEN

import create_pretraining_data as data
from bert.files.paths import match_files
from bert.pretraining import corpus
from bert.scale import record_pipeline as pipeline

TEXT = GOLDEN / "corpus.txt"
# A runner elsewhere, as Flink's and Spark's are spoken to.
SERVER = "--job_endpoint=embed --environment_type=LOOPBACK"


@pytest.fixture
def text(tmp_path):
    """Several files, some packed, some without text, and a document that a chunk does not hold."""
    documents = TEXT.read_text().split("\n\n")
    (tmp_path / "a.txt").write_text("\n\n".join(documents[:5]))
    (tmp_path / "b.txt").write_bytes(gzip.compress("\n\n\n".join(documents[5:]).encode()))
    (tmp_path / "c.txt").write_text(" \n\n")
    (tmp_path / "d.txt").write_text("The sea.\n" * 300 + "\n\nThe man.\n\n")
    return tmp_path / "?.txt"


@pytest.fixture
def make(tmp_path):
    """A function that makes records, and returns the content of all files by name."""

    def run(input_file, runner=None, options="", **changes):
        values = {
            "output_file": str(tmp_path / "out"),
            "num_shards": 3,
            "vocab_file": str(GOLDEN / "vocab.txt"),
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "dupe_factor": 2,
            "streaming": runner is None,
            **changes,
        }
        settings = data.Settings(
            input_file=str(input_file), runner=runner, beam_options=options, **values
        )
        data.run(settings)
        paths = [*tmp_path.glob("out*"), *tmp_path.glob(".out*")]
        contents = {path.name: path.read_bytes() for path in paths}
        for path in paths:
            path.unlink()
        return contents

    return run


@pytest.mark.parametrize(
    ("runner", "options"),
    [("DirectRunner", ""), ("DirectRunner", PROCESSES), ("PortableRunner", SERVER)],
)
def test_records_are_those_of_streaming_for_any_runner(make, text, log, runner, options):
    expected = make(text)
    told = [message for message in log.messages if message.startswith(("Read ", "Made "))]
    log.clear()
    assert make(text, runner, options) == expected
    assert len(expected) == 6 and all(expected.values())
    assert told == [each for each in log.messages if each.startswith(("Read ", "Made "))]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"words": "spaces", "mask_ratios": "0,20,80"},
        {"mask_at_training": True},
        {"next_sentence": False},
    ],
)
def test_records_do_not_depend_on_what_is_done_together(make, text, monkeypatch, changes):
    changes |= {"num_shards": None, "dupe_factor": 3, "do_whole_word_mask": True}
    expected = make(text, **changes)
    monkeypatch.setattr(corpus, "_BATCH", 100)
    monkeypatch.setattr(pipeline, "_PART", 1000)
    monkeypatch.setattr(pipeline, "_TOGETHER", 2)
    monkeypatch.setattr(pipeline, "_BATCH", 5)
    assert make(text, "DirectRunner", **changes) == expected


def test_a_shard_without_records_is_a_file_too(make, tmp_path):
    (tmp_path / "a.txt").write_text("the cat\n")
    expected = make(tmp_path / "a.txt", dupe_factor=1)
    assert make(tmp_path / "a.txt", "DirectRunner", dupe_factor=1) == expected
    assert len(expected) == 6


def test_a_bad_file_is_named_and_what_was_there_stays(make, text, tmp_path):
    (tmp_path / "e.txt").write_bytes(gzip.compress(TEXT.read_bytes())[:500])
    before = data.Settings(
        input_file=str(TEXT),
        output_file=str(tmp_path / "out"),
        vocab_file=str(GOLDEN / "vocab.txt"),
        dupe_factor=1,
    )
    data.run(before)
    kept = (tmp_path / "out").read_bytes()
    with pytest.raises(ValueError, match=r"to its end\. '.*e\.txt' must be a complete gzip file"):
        make(text, "DirectRunner", num_shards=None, overwrite=True)
    assert (tmp_path / "out").read_bytes() == kept
    names = sorted(path.name for path in tmp_path.iterdir() if "out" in path.name)
    assert names == [".out.index", "out"]
    (tmp_path / "c.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match="The input files must hold text"):
        make(tmp_path / "c.txt", "DirectRunner")
    assert sorted(path.name for path in tmp_path.iterdir() if "out" in path.name) == names


def test_text_that_changes_and_records_of_another_seed_are_refused(
    make, text, tmp_path, monkeypatch
):
    values = {"output_file": str(tmp_path / "out"), "vocab_file": str(GOLDEN / "vocab.txt")}
    made = data.Settings(input_file=str(text), runner="DirectRunner", dupe_factor=1, **values)
    data.run(made)
    before = (tmp_path / "out").read_bytes()
    with pytest.raises(ValueError, match="`random_seed` is 12345, not 1"):
        make(text, "DirectRunner", dupe_factor=1, num_shards=None, random_seed=1)
    data.run(made)
    run_pipeline = pipeline.run_pipeline

    def run_and_change(*arguments):
        counters = run_pipeline(*arguments)
        (tmp_path / "a.txt").write_text("The sea.\n")
        return counters

    monkeypatch.setattr(pipeline, "run_pipeline", run_and_change)
    with pytest.raises(ValueError, match=r"a\.txt' must stay as it is while it is read"):
        data.run(made)
    assert (tmp_path / "out").read_bytes() == before


def test_shards_appear_all_or_none(make, text, tmp_path, monkeypatch):
    write = pipeline._write

    def write_all_but_one(shard, *others):
        if shard[0] != 1:
            write(shard, *others)

    before = tmp_path / "out-00000-of-00003"
    before.write_bytes(b"before")
    # Of another run, or of nobody's.
    other = tmp_path / "out-00002-of-00003.shard.partial"
    other.touch()
    monkeypatch.setattr(pipeline, "_write", write_all_but_one)
    with pytest.raises(ValueError, match=r"All machines must write into .*out-00001-of-00003\."):
        make(text, "DirectRunner", overwrite=True)
    names = sorted(path.name for path in tmp_path.iterdir() if "out" in path.name)
    assert names == [before.name, other.name]
    assert before.read_bytes() == b"before"


def test_no_pattern_matches_what_a_killed_run_leaves(make, text, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "_put_in_place", stop)
    monkeypatch.setattr(pipeline, "_clear", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        make(text, "DirectRunner")
    left = [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")]
    assert len(left) == 3
    with pytest.raises(ValueError, match="matches none"):
        match_files(f"{tmp_path}/out*", "input_file")


def test_links_stay_links_and_paths_may_be_relative(make, text, tmp_path, monkeypatch):
    expected = make(text, num_shards=None)
    (tmp_path / "disk").mkdir()
    link = tmp_path / "out"
    link.symlink_to("disk/records")
    seen = []
    run_pipeline = pipeline.run_pipeline

    def run_elsewhere(*arguments):
        seen.append(os.getcwd())
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "disk")
            return run_pipeline(*arguments)

    monkeypatch.setattr(pipeline, "run_pipeline", run_elsewhere)
    monkeypatch.chdir(tmp_path)
    names = {"output_file": "out", "num_shards": None}
    assert make("?.txt", "DirectRunner", **names) == expected
    assert seen == [str(tmp_path)]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["records"]
