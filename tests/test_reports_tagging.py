import pytest

from bert.reports import tagging as report
from bert.reports.page import Mark
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import TagSet
from bert.tasks.tagging.windows import Prediction, score

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def sections_of(sentences, predicted, task=None):
    task = task or TagSet(labels=LABELS, scheme="iob2")
    predictions = [Prediction(tags, [0.9, *[0.5] * (len(tags) - 1)]) for tags in predicted]
    scores = score(task, sentences, predictions)
    return report.make_sections(task, "dev", sentences, predictions, scores)


def shown_text(marked):
    return "".join(each.text if isinstance(each, Mark) else each for each in marked.pieces)


def test_entities_are_marked_in_their_places_right_wrong_and_missed():
    sentences = [
        Sentence(
            ["Ada", "saw", "New", "York"], ["B-PER", "O", "B-LOC", "I-LOC"], lines=[3, 4, 5, 6]
        ),
        Sentence(["in", "Oslo", "."], ["O", "B-LOC", "O"]),
    ]
    predicted = [["B-PER", "O", "B-LOC", "O"], ["O", "B-LOC", "O"]]
    table, examples = sections_of(sentences, predicted)
    assert [row[0].text for row in table.rows] == ["LOC", "PER"]
    assert table.rows[0][1:] == [0.5, 0.5, pytest.approx(0.5), 2, 2, 1]
    wrong, right = examples.examples
    assert (wrong.number, wrong.is_right, right.is_right) == (0, False, True)
    assert wrong.facts == ["2 mistakes", "least probability 0.500", "line 3"]
    gold, said = wrong.blocks
    assert [each for each in gold.pieces if isinstance(each, Mark)] == [
        *(Mark("Ada", "right", "PER"), Mark("New York", "missed", "LOC"))
    ]
    assert [each for each in said.pieces if isinstance(each, Mark)] == [
        *(Mark("Ada", "right", "PER"), Mark("New", "wrong", "LOC"))
    ]
    assert shown_text(gold).split() == shown_text(said).split() == ["Ada", "saw", "New", "York"]
    [line] = right.blocks
    assert [each for each in line.pieces if isinstance(each, Mark)] == [
        Mark("Oslo", "right", "LOC")
    ]
    assert shown_text(line) == "in Oslo . "
    assert (right.right, right.said, examples.labels) == (["LOC"], ["LOC"], ["LOC", "PER"])


def test_sentences_are_ordered_by_mistakes_and_then_by_how_unsure_the_model_is():
    sentences = [Sentence(["a"], ["O"]) for _ in range(3)] + [Sentence(["b"], ["B-LOC"])]
    task = TagSet(labels=LABELS, scheme="iob2")
    predictions = [Prediction(["O"], [probability]) for probability in (0.9, 0.4, 0.8, 0.99)]
    scores = score(task, sentences, predictions)
    *_, examples = report.make_sections(task, "dev", sentences, predictions, scores)
    assert [example.number for example in examples.examples] == [3, 1, 2, 0]


def test_characters_stand_together_and_long_sentences_are_cut():
    task = TagSet(labels=LABELS, scheme="iob2", unit="character")
    words = list("我在北京") * 200
    tags = ["O", "O", "B-LOC", "I-LOC"] * 200
    *_, examples = sections_of([Sentence(words, tags)], [tags], task)
    [line] = examples.examples[0].blocks
    assert shown_text(line) == "我在北京" * 100 + "…"
    # What is cut in its middle is no entity that one could judge.
    words, tags = ["在"] * 399 + ["北", "京"], ["O"] * 399 + ["B-LOC", "I-LOC"]
    *_, examples = sections_of([Sentence(words, tags)], [tags], task)
    [line] = examples.examples[0].blocks
    assert shown_text(line) == "在" * 399 + "北…"
    assert not any(isinstance(each, Mark) for each in line.pieces)


def test_of_tags_of_words_the_mistakes_alone_are_marked():
    task = TagSet(labels=("NN", "VB"), scheme="words")
    sentence = Sentence(["dogs", "bark"], ["NN", "VB"])
    predictions = [Prediction(["NN", "NN"], [0.9, 0.5])]
    *_, examples = report.make_sections(task, "dev", [sentence], predictions, {"tags": {}})
    marks = [
        [each for each in line.pieces if isinstance(each, Mark)]
        for line in examples.examples[0].blocks
    ]
    assert marks == [[Mark("bark", "missed", "VB")], [Mark("bark", "wrong", "NN")]]
