"""What tests of several modules share of `run_ner_word_vectors`."""

import numpy as np

WORDS = ["Ada", "Bo", "Lind", "Falkner", "Oslo", "rome", "New", "York", "saw", "in", "quickly", "."]


def write_vectors(path, words=WORDS):
    rng = np.random.RandomState(0)
    lines = [" ".join([word, *map(str, rng.normal(size=8).round(3))]) for word in words]
    path.write_text("\n".join(lines) + "\n")
    return str(path)
