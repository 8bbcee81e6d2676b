"""What tests of several modules share of `run_swag`."""

import json

import numpy as np
from conftest import write_model_files

import run_swag

# The right ending names what belongs to the animal of the context.
HOMES = {"bird": "nest", "bee": "hive", "dog": "kennel"}


FILLERS = ["old", "young"]


def settings_in(folder):
    """Writes a vocabulary and a configuration; returns a function that makes settings of them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *HOMES, *HOMES.values(), *FILLERS, "in"]
    write_model_files(folder, words, max_position_embeddings=32, num_hidden_layers=2)

    def make(**changes) -> run_swag.Settings:
        return run_swag.Settings(
            **{
                "bert_config_file": str(folder / "config.json"),
                "vocab_file": str(folder / "vocab.txt"),
                "data_dir": str(folder),
                "output_dir": str(folder / "out"),
                "max_seq_length": 16,
                "train_batch_size": 8,
                "eval_batch_size": 40,
                "predict_batch_size": 40,
                "learning_rate": 0.001,
                # A model as small as this soon stops learning where it begins too fast.
                "warmup_proportion": 0.4,
                **changes,
            }
        )

    return make


def make_rows(count, seed):
    """Returns texts about an animal with two or three endings, of which one is its home."""
    rng = np.random.RandomState(seed)
    rows = []
    for number in range(count):
        animals = [str(each) for each in rng.permutation(list(HOMES))[: rng.randint(2, 4)]]
        label = rng.randint(len(animals))
        fillers = [str(each) for each in rng.choice(FILLERS, rng.randint(0, 4))]
        endings = [f"in {HOMES[animal]}" for animal in animals]
        context = " ".join([*fillers, animals[label]])
        rows.append({"id": f"r{number}", "context": context, "endings": endings, "label": label})
    return rows


def write_rows(path, rows, *, with_labels=True):
    kept = [{k: v for k, v in row.items() if with_labels or k != "label"} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in kept))


def write_task(folder, count=160):
    write_rows(folder / "train.jsonl", make_rows(count, 0))
    write_rows(folder / "val.jsonl", make_rows(50, 1))
    tests = make_rows(20, 2)
    write_rows(folder / "test.jsonl", tests, with_labels=False)
    return tests


ROW = {"context": "old bird", "endings": ["in", "old"], "label": 0}
