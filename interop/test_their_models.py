"""Holds models that transformers has saved to what it computes with their weights."""

import pytest
from peers import CASES, NUM_LABELS, SHAPES, assert_equal, compute, convert, run_job, theirs, work


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """A folder of models that transformers has saved, with their outputs."""
    folder = tmp_path_factory.mktemp("saved")
    jobs = []
    for number, (shape, architecture) in enumerate(CASES):
        model = folder / f"{shape}-{architecture}"
        labels = {} if architecture == "BertForQuestionAnswering" else {"num_labels": NUM_LABELS}
        job = {
            "kind": "make",
            "folder": str(model),
            "architecture": architecture,
            "config": {**SHAPES[shape], **labels},
            "seed": number,
            # The models of one shape are saved in several files.
            "max_shard_size": "20KB" if shape == "tanh" else "1GB",
        }
        jobs += [job, run_job(model, model, shape, architecture)]
    work(folder, jobs)
    return folder


@pytest.mark.parametrize(("shape", "architecture"), CASES)
def test_their_models_compute_the_same_here(saved, tmp_path, shape, architecture):
    folder = saved / f"{shape}-{architecture}"
    expected = theirs(folder)
    ours = compute(folder / "config.json", folder, architecture, shape)
    assert_equal(ours, expected, architecture, shape)
    report = convert(folder, tmp_path, "tf")
    assert report.left_out == []
    ours = compute(tmp_path / "bert_config.json", tmp_path, architecture, shape)
    assert_equal(ours, expected, architecture, shape)
