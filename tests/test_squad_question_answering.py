import json
import tracemalloc

import pytest
from conftest import GOLDEN

import tokenization
from bert.tasks.examples import Inputs, Part
from bert.tasks.squad.answers import Entry, Prediction, write_answers
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.question_answering import QuestionAnswering
from bert.tasks.squad.questions import Answer, SquadExample


def predict(qas_id, text):
    return Prediction(qas_id, text, (Entry(text, 0.0, 0.0, 1.0),))


@pytest.mark.parametrize(
    ("is_v2", "name", "count"), [(False, "exact_match", 3), (True, "exact", 2)]
)
def test_questions_with_the_same_id_count_as_in_the_official_script(
    tmp_path, tiny_config, is_v2, name, count
):
    """That of SQuAD 1.1 counts each of them, that of SQuAD 2.0 the last; the last one answers."""
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    decoding = DecodingOptions(version_2_with_negative=is_v2)
    task = QuestionAnswering(tiny_config, tokenizer, 16, 8, 4, decoding)
    examples = [
        SquadExample(qas_id, "?", ["the", "old", "man"], answers=(Answer(text, 0),))
        for qas_id, text in (("a", "the"), ("b", "old"), ("a", "man"))
    ]
    predictions = [predict("a", "the"), predict("b", "old"), predict("a", "old")]
    assert task.golds(examples) == {"a": ["man"], "b": ["old"]}
    scores = task.score(Inputs(Part("dev"), examples, {}), predictions)
    assert scores[name] == pytest.approx(100 / count)
    path = tmp_path / "predictions.json"
    write_answers(predictions, str(path), str(tmp_path / "nbest.json"), None)
    assert json.loads(path.read_text()) == {"a": "old", "b": "old"}


@pytest.mark.parametrize("threshold", [-9.0, 0.0, 1.0, 9.0])
def test_the_best_threshold_does_not_depend_on_that_of_the_run(tiny_config, threshold):
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    decoding = DecodingOptions(version_2_with_negative=True, null_score_diff_threshold=threshold)
    task = QuestionAnswering(tiny_config, tokenizer, 16, 8, 4, decoding)
    examples, predictions = [], []
    for qas_id, odds, golds in (("a", -1.0, ["man"]), ("b", 2.0, ["man"]), ("c", 3.0, [])):
        answers = tuple(Answer(text, 0) for text in golds)
        examples.append(SquadExample(qas_id, "?", ["old", "man"], answers=answers))
        nbest = (Entry("", odds, 0.0), Entry("man", 0.0, 0.0))
        predictions.append(Prediction(qas_id, "" if odds > threshold else "man", nbest, odds))
    scores = task.score(Inputs(Part("dev"), examples, {}), predictions)
    assert (scores["best_f1"], scores["best_f1_thresh"]) == (100.0, 2.0)
    # As they are given: a right one, none, or one that is wrong.
    expected = {-9.0: 1, 0.0: 2, 1.0: 2, 9.0: 2}[threshold]
    assert scores["exact"] == pytest.approx(100 * expected / 3)


def test_the_arrays_of_all_windows_do_not_stay_in_memory_for_a_training_run(tiny_config):
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    task = QuestionAnswering(tiny_config, tokenizer, 64, 1, 4, DecodingOptions())
    words = ["the", "old", "man"] * 400
    example = SquadExample("a", "?", words, "the", 0, 0, context=" ".join(words))
    inputs = task.make_inputs(Part("train"), [example])
    tracemalloc.start()
    try:
        records = inputs.describe()["the train set"]["records"]
        assert (records, inputs.num_sequences) == (f"{inputs.num_rows} records", 1)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Three arrays of four bytes for each token.
    assert inputs.num_rows > 1000 and kept < inputs.num_rows * 3 * 4 * 64 / 4


@pytest.mark.parametrize("is_v2", [False, True])
def test_questions_that_cannot_be_scored_are_counted_when_they_are_read(
    tmp_path, tiny_config, log, is_v2
):
    impossible = {"is_impossible": True}
    answers = [{"answers": [{"text": "man", "answer_start": 4}]}, {"answers": []}]
    answers += [impossible, {**impossible, "answers": None}, {}]
    questions = [{"id": str(i), "question": "?", **each} for i, each in enumerate(answers)]
    path = tmp_path / "dev.json"
    paragraph = {"context": "old man", "qas": questions}
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": [paragraph]}]}))
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    decoding = DecodingOptions(version_2_with_negative=is_v2)
    task = QuestionAnswering(tiny_config, tokenizer, 16, 8, 4, decoding, {"dev": str(path)})
    read = task.read(["dev"])[Part("dev")]
    assert len(read) == 5
    assert task.golds(read) == {"0": ["man"], **({"1": [], "2": [], "3": []} if is_v2 else {})}
    [warned] = [line for line in log.messages if "not scored" in line]
    assert warned.split()[0] == ("1" if is_v2 else "4")
    assert ("`is_impossible`" in warned) == is_v2
