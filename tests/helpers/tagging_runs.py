"""What tests of several modules share of `run_ner`."""

import numpy as np
from conftest import write_model_files

import run_ner
from bert.tasks.tagging import sentences as tagging_sentences
from bert.tasks.tagging import tags as tagging_entities

# A word's tag follows from the word.
TAGS = {
    **{"Ada": "B-PER", "Bo": "B-PER", "Lind": "I-PER", "Falkner": "I-PER"},
    **{"Oslo": "B-LOC", "Rome": "B-LOC", "New": "B-LOC", "York": "I-LOC"},
    **{"ada": "O", "saw": "O", "in": "O", "quickly": "O", ".": "O"},
}


ENTITIES = [["Ada"], ["Bo", "Lind"], ["Ada", "Falkner"], ["Oslo"], ["Rome"], ["New", "York"]]


# Some words have several pieces.
PIECES = ["Ada", "Bo", "Lin", "##d", "Fal", "##k", "##ner", "Oslo", "Rome", "New", "York", "ada"]


CHINESE = ["我", "在", "北", "京", "上", "海", "李", "明"]


def settings_in(folder, **sizes):
    """Writes a vocabulary and a configuration; returns a function that makes settings of them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES, *CHINESE]
    write_model_files(folder, words, max_position_embeddings=64, **sizes)

    def make(**changes) -> run_ner.Settings:
        return run_ner.Settings(
            **{
                "bert_config_file": str(folder / "config.json"),
                "vocab_file": str(folder / "vocab.txt"),
                "data_dir": str(folder),
                "output_dir": str(folder / "out"),
                "max_seq_length": 32,
                "train_batch_size": 8,
                "eval_batch_size": 40,
                "predict_batch_size": 40,
                "learning_rate": 0.003,
                **changes,
            }
        )

    return make


def make_sentences(count, seed, longest=4):
    """Returns sentences of names among other words; no two names meet."""
    rng = np.random.RandomState(seed)
    others = [word for word, tag in TAGS.items() if tag == "O"]
    sentences = []
    for _ in range(count):
        words = []
        for _ in range(rng.randint(1, longest + 1)):
            words += ENTITIES[rng.randint(len(ENTITIES))]
            words += [str(each) for each in rng.choice(others, rng.randint(1, 3))]
        sentences.append([(word, TAGS[word]) for word in words])
    return sentences


def write_conll(path, sentences, with_tags=True, scheme="iob2"):
    """Writes words, a column to skip, and tags."""
    lines = ["-DOCSTART- -X-" + " O" * with_tags, ""]
    for number, sentence in enumerate(sentences):
        if number == 5:
            lines += ["-DOCSTART- -X-" + " O" * with_tags, ""]
        tags = tagging_entities.convert([tag for _, tag in sentence], scheme)
        for (word, _), tag in zip(sentence, tags, strict=True):
            lines.append(f"{word} NN" + f" {tag}" * with_tags)
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")


def write_task(folder, count=64, **test):
    write_conll(folder / "train.txt", make_sentences(count, 0))
    write_conll(folder / "dev.txt", make_sentences(40, 1))
    write_conll(folder / "test.txt", make_sentences(30, 2), **test)


def read_tags(path, column=-1):
    return [
        each.tags
        for each in tagging_sentences.read(str(path), tagging_sentences.Columns(tag=column))
    ]


GOOD = "Ada B-PER\nsaw O\n"


def write_texts(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
