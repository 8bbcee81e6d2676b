"""What tests of several modules share of the description of records."""

import dataclasses

import pytest

import create_pretraining_data
import run_pretraining

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "##a", "##ö", "Ä"]


TEXT = "a b c d\ne f g\nh i j\n\nj i h g\nf e d\nc b a\n"


@pytest.fixture
def make(tmp_path):
    """A function that makes records `<name>.tfrecord`, in a folder with all that they need."""
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS) + "\n")

    def make(name="train", words=None, **changes):
        if words:
            (tmp_path / f"{name}.vocab").write_text("\n".join(words) + "\n")
            changes["vocab_file"] = str(tmp_path / f"{name}.vocab")
        values = {
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / f"{name}.tfrecord"),
            "vocab_file": str(tmp_path / "vocab.txt"),
            "do_lower_case": False,
            "max_seq_length": 12,
            "max_predictions_per_seq": 3,
            "overwrite": True,
            **changes,
        }
        create_pretraining_data.run(create_pretraining_data.Settings(**values))
        return values["output_file"]

    return make


@pytest.fixture
def train(pretraining_run, tmp_path, tiny_config):
    """A function that trains for a step on records, with no length given."""
    config = dataclasses.replace(tiny_config, vocab_size=len(WORDS))
    (tmp_path / "bert_config.json").write_text(config.to_json_string())

    def train(files, **changes):
        lengths = {"max_seq_length": None, "max_predictions_per_seq": None}
        values = {"input_file": files, "num_train_steps": 1, **lengths, **changes}
        return run_pretraining.run(pretraining_run(**values))

    return train
