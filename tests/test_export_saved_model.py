import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import tokenization
from bert.export import saved_model
from bert.tasks import heads


class Doubler(tf.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = tf.Variable(factor)
        self.run = tf.function(lambda x: x * self.factor, input_signature=[tf.TensorSpec([])])

    def save(self, folder):
        saved_model.save(str(folder), self, {"run": self.run})


def answer(folder):
    return float(tf.saved_model.load(str(folder)).signatures["run"](tf.constant(3.0))["output_0"])


def record(monkeypatch):
    """Returns a list that gets the paths of what is synchronized, renamed and removed."""
    events = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(descriptor):
        events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def watched_replace(old, new):
        events.append(("rename", old, new))
        replace(old, new)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "replace", watched_replace)
    return events


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="Looks up open files in /proc.")
@pytest.mark.parametrize("again", [False, True])
def test_all_files_are_on_the_disk_before_the_folder_appears(tmp_path, monkeypatch, again):
    folder = tmp_path / "model"
    if again:
        Doubler(1.0).save(folder)
    with monkeypatch.context() as patch:
        events = record(patch)
        Doubler(2.0).save(folder)
    renames = [event for event in events if event[0] == "rename"]
    partial = renames[-1][1]
    assert renames[-1] == ("rename", partial, str(folder))
    assert len(renames) == (2 if again else 1)
    first, last = (events.index(renames[index]) for index in (0, -1))
    written = [path for path in folder.rglob("*")] + [folder]
    before = {path for kind, path, *_ in events[:first] if kind == "sync"}
    assert before >= {str(path).replace(str(folder), partial) for path in written}
    assert ("sync", str(tmp_path)) in events[last:]
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
    tokenizer = tokenization.FullTokenizer.from_vocab(vocabulary)
    rng = np.random.default_rng(0)
    lengths = rng.permutation([16, *range(2, 10), *range(2, 10), 5])
    mask = (np.arange(16) < lengths[:, None]).astype(np.int32)
    ids = rng.integers(3, tiny_config.vocab_size, mask.shape).astype(np.int32)
    features = {"input_ids": ids * mask, "input_mask": mask, "segment_ids": mask * 0}
    signature = {name: tf.TensorSpec([None, None], tf.int32) for name in features}
    for model in (heads.span_model(tiny_config), heads.classifier_model(tiny_config, 3)):
        exported = saved_model.ExportedModel(model, tokenizer, 16)
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
