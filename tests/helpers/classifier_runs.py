"""What tests of several modules share of `run_classifier`."""

import csv

import numpy as np
from conftest import (
    write_model_files,
)

import run_classifier

COLORS = ["red", "green", "blue", "black"]


def settings_in(folder, **sizes):
    """Writes a vocabulary and a configuration; returns a function that makes settings of them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *COLORS, "a", "b", "c", "d"]
    write_model_files(folder, words, max_position_embeddings=16, **sizes)

    def make(**changes) -> run_classifier.Settings:
        return run_classifier.Settings(
            **{
                "bert_config_file": str(folder / "config.json"),
                "vocab_file": str(folder / "vocab.txt"),
                "data_dir": str(folder),
                "task_name": "custom",
                "output_dir": str(folder / "out"),
                "max_seq_length": 12,
                "train_batch_size": 8,
                "eval_batch_size": 40,
                "predict_batch_size": 40,
                "learning_rate": 0.003,
                **changes,
            }
        )

    return make


def make_rows(count, seed, label):
    """Returns texts of one color and some letters, each with what `label` makes of the color."""
    rng = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        color = COLORS[rng.randint(4)]
        letters = [str(each) for each in rng.choice(list("abcd"), rng.randint(0, 6))]
        place = rng.randint(len(letters) + 1)
        rows.append((" ".join([*letters[:place], color, *letters[place:]]), label(color)))
    return rows


def write_tsv(path, rows, header=("text", "label")):
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in [header, *rows]))


def write_task(folder, label, count=64):
    write_tsv(folder / "train.tsv", make_rows(count, 0, label))
    write_tsv(folder / "dev.tsv", make_rows(40, 1, label))
    tests = make_rows(20, 2, label)
    write_tsv(folder / "test.tsv", [(text,) for text, _ in tests], header=("text",))
    return tests


def read_tsv(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
