import os

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers.power_loss import PowerLoss

import tokenization
from bert.export import saved_model
from bert.export.tokenizer import GraphTokenizer
from bert.network import heads


class Doubler(tf.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = tf.Variable(factor)
        self.run = tf.function(lambda x: x * self.factor, input_signature=[tf.TensorSpec([])])

    def save(self, folder):
        saved_model.save(str(folder), self, {"run": self.run})


def answer(folder):
    return float(tf.saved_model.load(str(folder)).signatures["run"](tf.constant(3.0))["output_0"])


def tree(folder, name):
    """Returns the files of a folder in another as `PowerLoss` does."""
    paths = [path for path in (folder / name).rglob("*")]
    return {f"{name}/": b""} | {
        str(path.relative_to(folder)) + "/" * path.is_dir(): path.read_bytes()
        if path.is_file()
        else b""
        for path in paths
    }


@pytest.mark.parametrize("again", [False, True])
def test_a_loss_of_power_leaves_a_whole_one_or_none(tmp_path, monkeypatch, again):
    folder = tmp_path / "model"
    before = {}
    if again:
        Doubler(1.0).save(folder)
        before = tree(tmp_path, "model")
    with monkeypatch.context() as patch, PowerLoss(tmp_path, patch) as power:
        Doubler(2.0).save(folder)
    after = tree(tmp_path, "model")
    assert after != before
    # For a moment, there is none.
    assert all(state in ({}, before, after) for state in power.states.values())
    assert power.last == [after]
    assert answer(folder) == 6.0
    assert os.listdir(tmp_path) == ["model"]


def test_a_link_to_an_old_one_is_removed_without_what_it_leads_to(tmp_path):
    disk, folder = tmp_path / "disk", tmp_path / "model"
    Doubler(1.0).save(disk)
    for name in ("model.old.tmp", "model.partial"):
        (tmp_path / name).symlink_to(disk)
    for factor in (2.0, 3.0):
        Doubler(factor).save(folder)
    assert answer(disk) == 3.0
    assert answer(folder) == 9.0
    assert sorted(os.listdir(tmp_path)) == ["disk", "model"]


def test_rows_of_about_one_length_go_through_the_model_together(tiny_config):
    keras.utils.set_random_seed(1)
    vocabulary = {token: number for number, token in enumerate(["[UNK]", "[CLS]", "[SEP]", "a"])}
    # A file with a blank line behind the model's last row.
    vocabulary[""] = tiny_config.vocab_size
    tokenizer = tokenization.FullTokenizer.from_vocab(vocabulary)
    rng = np.random.default_rng(0)
    lengths = rng.permutation([16, *range(2, 10), *range(2, 10), 5])
    mask = (np.arange(16) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(3, tiny_config.vocab_size, mask.shape).astype(np.int32)
    features = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask * 0}
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in features}
    for model in (heads.span_model(tiny_config), heads.classifier_model(tiny_config, 3)):
        exported = saved_model.ExportedModel(model, GraphTokenizer(tokenizer), 16)
        run = tf.function(exported.run_in_batches, input_signature=[signature])
        # Which GPUs compute with other epsilons than a model's.
        assert "FusedBatchNorm" not in str(run.get_concrete_function().graph.as_graph_def())
        expected = model(features, training=False)
        for name, found in run(features).items():
            if found.shape[1] == 3:
                np.testing.assert_allclose(found, expected[name], rtol=0, atol=1e-5)
                continue
            np.testing.assert_allclose(found * mask, expected[name] * mask, rtol=0, atol=1e-5)
            # Of the eight shortest, none is longer than 8, and nothing behind that is computed.
            shortest = np.argsort(lengths, kind="stable")[:8]
            assert not found.numpy()[shortest, 8:].any()
            assert (np.abs(found.numpy()[lengths == 16]) > 0).all()
        empty = run({name: values[:0] for name, values in features.items()})
        assert all(len(each) == 0 for each in empty.values())
