import json
from pathlib import Path

import pytest

import tokenization

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("text", ["sample_text.txt", "sample/held_out_text.txt"])
def test_sample_vocabulary_covers_the_sample_texts(text):
    tokenizer = tokenization.FullTokenizer(str(ROOT / "sample/vocab.txt"))
    tokens = tokenizer.tokenize((ROOT / text).read_text(encoding="utf-8"))
    assert len(tokens) > 1000
    assert "[UNK]" not in tokens


def test_sample_vocabulary_is_as_long_as_the_sample_configuration_says():
    vocabulary = (ROOT / "sample/vocab.txt").read_text(encoding="utf-8").splitlines()
    config = json.loads((ROOT / "sample/bert_config.json").read_text(encoding="utf-8"))
    assert len(set(vocabulary)) == len(vocabulary) == config["vocab_size"]


def test_held_out_sentences_are_not_in_the_training_text():
    held_out = (ROOT / "sample/held_out_text.txt").read_text(encoding="utf-8").splitlines()
    training = (ROOT / "sample_text.txt").read_text(encoding="utf-8").splitlines()
    assert {line for line in held_out if line} & set(training) == set()
