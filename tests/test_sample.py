import json
from pathlib import Path

import pytest

import tokenization
from bert.tasks.squad import questions as squad_questions
from bert.tasks.swag import examples as swag_examples
from bert.tasks.tagging import sentences as tagging_sentences

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


@pytest.mark.parametrize(("name", "count"), [("train", 16), ("dev", 6)])
def test_sample_answers_are_in_their_paragraphs(log, name, count):
    path = ROOT / f"sample/questions/{name}.json"
    examples = squad_questions.read_squad_examples(str(path), True)
    assert len(examples) == count
    assert "skipped" not in log.text and "answer_start" not in log.text
    tokenizer = tokenization.FullTokenizer(str(ROOT / "sample/vocab.txt"))
    for example in examples:
        assert "[UNK]" not in tokenizer.tokenize(f"{example.question_text} {example.context}")


@pytest.mark.parametrize(("name", "count"), [("train", 16), ("val", 6)])
def test_sample_endings_cannot_be_told_by_their_number(name, count):
    examples = swag_examples.read(str(ROOT / f"sample/endings/{name}.jsonl"))
    labels = [example.label for example in examples]
    assert len(examples) == count
    assert max(map(labels.count, labels)) <= count / 2
    tokenizer = tokenization.FullTokenizer(str(ROOT / "sample/vocab.txt"))
    for example in examples:
        assert "[UNK]" not in tokenizer.tokenize(" ".join([example.context, *example.endings]))


@pytest.mark.parametrize(("name", "count"), [("train", 40), ("dev", 10), ("test", 8)])
def test_sample_entities_are_tagged_in_one_scheme_with_known_words(name, count):
    sentences = tagging_sentences.read(
        str(ROOT / f"sample/entities/{name}.txt"), tagging_sentences.Columns()
    )
    assert len(sentences) == count
    assert len({sentence.document for sentence in sentences}) > 1
    assert tagging_sentences.detect_scheme(sentences) == "iob2"
    tags = {tag for sentence in sentences for tag in sentence.tags}
    assert {"B-PER", "B-LOC", "B-ORG"} <= tags
    tokenizer = tokenization.FullTokenizer(str(ROOT / "sample/vocab.txt"))
    words = " ".join(word for sentence in sentences for word in sentence.words)
    assert "[UNK]" not in tokenizer.tokenize(words)
