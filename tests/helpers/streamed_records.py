"""What tests of several modules share of `pretraining_streaming`."""

import random

import pytest
from conftest import GOLDEN

import create_pretraining_data as data

VOCAB = GOLDEN / "vocab.txt"


WORDS = [word for word in VOCAB.read_text().split("\n") if word.isalpha()]


def write_text(path, *, num_documents=30, seed=0):
    """Writes documents of a few sentences, and returns them."""
    rng = random.Random(seed)
    documents = [
        [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(rng.randint(1, 12))]
        for _ in range(num_documents)
    ]
    path.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    return documents


@pytest.fixture
def make(tmp_path):
    """A function that makes records of a small text, and returns their bytes, joined."""
    write_text(tmp_path / "text.txt")

    def run(**changes):
        values = {
            "input_file": str(tmp_path / "text.txt"),
            "output_file": str(tmp_path / "out"),
            "vocab_file": str(VOCAB),
            "max_seq_length": 24,
            "max_predictions_per_seq": 4,
            "dupe_factor": 4,
            "streaming": True,
            **changes,
        }
        for path in tmp_path.glob("out*"):
            if path.is_file():
                path.unlink()
        data.run(data.Settings(**values))
        return b"".join(path.read_bytes() for path in sorted(tmp_path.glob("out*")))

    return run
