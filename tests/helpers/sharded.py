"""Inputs for tiny models of every kind, of which no chunk is like the next, to be answered."""

import functools
import json
import random

import pytest

import predict
from helpers import served_models

# Inputs of the file, and of a chunk of it.
COUNT, CHUNK = 70, 32


def write_inputs(name, path):
    """Writes inputs of a model as JSON lines."""
    rng = random.Random(5)
    with open(path, "w") as file:
        for number in range(COUNT):
            row = {"id": number}
            for field in served_models.TASKS[name].fields:
                texts = [
                    " ".join(rng.choices(served_models.WORDS[5:], k=rng.randint(1, 12)))
                    for _ in range(2 + number % 3)
                ]
                row[field] = texts if field == "endings" else texts[0]
            file.write(json.dumps(row) + "\n")
    return str(path)


class World:
    """A model in a folder, inputs for it, and what a single process makes of them."""

    def __init__(self, name, folder):
        self.folder = folder
        self.given = {
            "model_dir": served_models.save_model(name, folder / "model"),
            "input_file": write_inputs(name, folder / "in.jsonl"),
            "batch_size": CHUNK // 16,
        }

    def run(self, output, **changes):
        """Runs predict.py, and returns what it has written."""
        path = self.folder / output
        given = {**self.given, "output_file": str(path), **changes}
        predict.run(predict.Settings(**given))
        return path.read_bytes()


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    return functools.cache(lambda name: World(name, tmp_path_factory.mktemp(name)))
