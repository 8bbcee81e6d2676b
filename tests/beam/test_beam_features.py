"""Features made by Beam: those of a single process, whatever runs the pipeline."""

import itertools
import os

import pytest
from beam_modes import PROCESSES
from conftest import change
from helpers.feature_runs import LINES, WORDS, make_settings

import extract_features
from bert.files import durable
from bert.models import vectors as text_vectors
from bert.scale import batches as pipeline
from bert.scale.features import FeatureWork

DIRECT = {"runner": "DirectRunner"}


@pytest.fixture
def settings(tmp_path, still_config):
    return make_settings(tmp_path, change(still_config, vocab_size=len(WORDS)))


def run(settings):
    extract_features.run(settings)
    with open(settings.output_file, "rb") as file:
        return file.read()


def leftovers(folder):
    return [path for path in os.listdir(folder) if path.endswith(".parts")]


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("jsonl", {"pooling": "none"}),
        ("npz", {"pooling": "none", "layers": "-1"}),
        ("npz", {"pooling": "mean", "normalize": True}),
        ("npy", {"layers": "last"}),
    ],
)
def test_features_are_those_of_a_single_process(settings, monkeypatch, tmp_path, form, given):
    monkeypatch.setattr(text_vectors, "CHUNK_VALUES", 400)
    monkeypatch.setattr(text_vectors, "CHUNK_LINES", 3)
    whole = run(settings(output_file=str(tmp_path / f"whole.{form}"), **given))
    asked = {**given, **DIRECT}
    assert run(settings(output_file=str(tmp_path / f"beam.{form}"), **asked)) == whole
    # Several chunks in a file.
    monkeypatch.setattr(pipeline, "_FILES", 2)
    assert run(settings(output_file=str(tmp_path / f"few.{form}"), **asked)) == whole
    assert not leftovers(tmp_path)


def test_processes_make_the_same_together(settings, tmp_path):
    lines = itertools.islice(itertools.cycle(LINES[:4]), text_vectors.CHUNK_LINES + 700)
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    given = {"layers": "last", "batch_size": 32}
    whole = run(settings(output_file=str(tmp_path / "whole.npy"), **given))
    asked = {**given, **DIRECT, "beam_options": PROCESSES}
    assert run(settings(output_file=str(tmp_path / "beam.npy"), **asked)) == whole


def test_finished_features_of_an_earlier_run_are_not_computed_again(
    settings, monkeypatch, tmp_path
):
    monkeypatch.setattr(text_vectors, "CHUNK_VALUES", 400)
    monkeypatch.setattr(text_vectors, "CHUNK_LINES", 3)
    whole = run(settings(output_file=str(tmp_path / "whole.jsonl")))
    write, made = FeatureWork.write, []

    def stop(self, file, start, inputs):
        made.append(start)
        if len(made) == 2:
            raise ValueError("stopped here")
        write(self, file, start, inputs)

    monkeypatch.setattr(FeatureWork, "write", stop)
    asked = {"output_file": str(tmp_path / "again.jsonl"), **DIRECT}
    with pytest.raises(ValueError, match="stopped here"):
        run(settings(**asked))
    assert not (tmp_path / "again.jsonl").exists()
    # With another model or flag, nothing of it is taken.
    [folder] = leftovers(tmp_path)
    assert run(settings(**asked)) == whole
    first, *others = made
    assert first not in others
    assert others.count(made[1]) == 2
    assert not leftovers(tmp_path)
    made.clear()
    with pytest.raises(ValueError, match="stopped here"):
        run(settings(**asked, overwrite=True, layers="-2"))
    assert leftovers(tmp_path) != [folder]


def test_another_run_with_the_same_output_is_refused(settings, tmp_path, monkeypatch):
    def lock(work):
        return durable.open_locked(os.path.join(work, "lock"))

    make_folders = durable.make_folders
    held = []

    def make_and_lock(folder):
        make_folders(folder)
        held.append(lock(folder))

    monkeypatch.setattr(durable, "make_folders", make_and_lock)
    with pytest.raises(ValueError, match="`output_file` must be that of one run"):
        run(settings(output_file=str(tmp_path / "out.jsonl"), **DIRECT))
    held[0].close()


def test_parts_exclude_a_runner(settings):
    with pytest.raises(ValueError, match="`runner` divides the work itself"):
        run(settings(shard="1/2", **DIRECT))
