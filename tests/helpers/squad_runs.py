"""What tests of several modules share of `run_squad`."""

import json
from pathlib import Path

import numpy as np
from conftest import GOLDEN, LARGE_GOLDEN, write_model_files

import run_squad

COLORS = ["red", "green", "blue", "black"]


LETTERS = list("abcdefg")


def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def settings_in(folder):
    """Writes a vocabulary and a configuration; returns a function that makes settings of them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *COLORS, *LETTERS, "which", "."]
    write_model_files(folder, words, max_position_embeddings=16)

    def make(**changes) -> run_squad.Settings:
        return run_squad.Settings(
            **{
                "bert_config_file": str(folder / "config.json"),
                "vocab_file": str(folder / "vocab.txt"),
                "train_file": str(folder / "train.json"),
                "predict_file": str(folder / "dev.json"),
                "output_dir": str(folder / "out"),
                "max_seq_length": 16,
                "doc_stride": 4,
                "max_query_length": 4,
                "train_batch_size": 8,
                "predict_batch_size": 40,
                "learning_rate": 0.003,
                **changes,
            }
        )

    return make


def make_question(rng, name, has_answer=True):
    """Returns a paragraph of letters and, unless it has no answer, a color, which is asked for."""
    words = [str(each) for each in rng.choice(LETTERS, rng.randint(3, 30))]
    answers = []
    if has_answer:
        place, color = rng.randint(len(words)), COLORS[rng.randint(4)]
        start = len(" ".join([*words[:place], ""]))
        words.insert(place, f"{color}.")
        answers = [{"text": color, "answer_start": start}]
    question = {"id": name, "question": "Which?", "answers": answers}
    if not has_answer:
        question["is_impossible"] = True
    return {"context": " ".join(words), "qas": [question]}


def write_squad(path, paragraphs):
    path.write_text(json.dumps({"data": [{"title": "colors", "paragraphs": paragraphs}]}))


def write_task(folder, every=0, count=64):
    """Writes questions; every so many-th has no answer."""
    for name, seed, number in (("train", 0, count), ("dev", 1, 24)):
        rng = np.random.RandomState(seed)
        paragraphs = [
            make_question(rng, f"{name}-{i}", not every or i % every > 0) for i in range(number)
        ]
        write_squad(folder / f"{name}.json", paragraphs)


def golden_settings(golden, version, output_dir, **changes):
    flags = read_json(golden / f"squad_v{version}_flags.json")
    names = {"examples", "features"}
    vocab = golden / "vocab.txt"
    if golden != GOLDEN:
        vocab = LARGE_GOLDEN.parent / "data/vocab/bert-base-uncased-vocab.txt"
    return run_squad.Settings(
        **{
            **{name: value for name, value in flags.items() if name not in names},
            "vocab_file": str(vocab),
            "bert_config_file": str(golden / "bert_config.json"),
            "init_checkpoint": str(golden / f"squad_v{version}" / "model.ckpt"),
            "predict_file": str(golden / f"squad_v{version}.json"),
            "output_dir": str(output_dir),
            "do_predict": True,
            **changes,
        }
    )
