import json

import pytest
from conftest import GOLDEN

import tokenization
from bert.tasks.squad.answers import Decoding, Entry, Prediction, write_answers
from bert.tasks.squad.questions import Answer, SquadExample
from bert.tasks.squad.task import QuestionAnswering
from bert.training.task import Inputs, Part


def predict(qas_id, text):
    return Prediction(qas_id, text, (Entry(text, 0.0, 0.0, 1.0),))


def test_of_questions_with_the_same_id_the_last_counts(tmp_path, tiny_config):
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    task = QuestionAnswering(tiny_config, tokenizer, 16, 8, 4, Decoding())
    examples = [
        SquadExample(qas_id, "?", ["the", "old", "man"], answers=(Answer(text, 0),))
        for qas_id, text in (("a", "the"), ("b", "old"), ("a", "man"))
    ]
    predictions = [predict("a", "the"), predict("b", "old"), predict("a", "old")]
    assert task.golds(examples) == {"a": ["man"], "b": ["old"]}
    scores = task.score(Inputs(Part("dev"), examples, {}), predictions)
    assert scores["exact_match"] == pytest.approx(50.0)
    path = tmp_path / "predictions.json"
    write_answers(predictions, str(path), str(tmp_path / "nbest.json"), None)
    assert json.loads(path.read_text()) == {"a": "old", "b": "old"}
