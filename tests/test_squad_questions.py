import codecs
import json
import re
import sys
from pathlib import Path

import pytest
import tensorflow as tf
from conftest import GOLDEN
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks.squad.questions import SquadExample, read_squad_examples, split_words

CONTEXT = "The leader was John Smith (1895-1943).\tHe  died\u202fin Paris\u00a0then."
WORDS = [
    "The", "leader", "was", "John", "Smith", "(1895-1943).", "He", "died", "in", "Paris\u00a0then.",
]  # fmt: skip


def question(qas_id="q", text="1895", start=None, **fields):
    """Returns a question with one answer, found in CONTEXT unless `start` says where."""
    start = CONTEXT.find(text) if start is None else start
    answers = [{"text": text, "answer_start": start}]
    return {"id": qas_id, "question": "When?", "answers": answers, **fields}


def write(folder, questions, context=CONTEXT, **fields):
    paragraphs = [{"context": context, "qas": questions}]
    path = folder / "own.json"
    path.write_text(
        json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}], **fields})
    )
    return str(path)


def test_a_paragraph_is_split_into_words_at_the_originals_spaces(tmp_path):
    (example,) = read_squad_examples(write(tmp_path, [question()]), is_training=False)
    assert example.doc_tokens == WORDS
    assert (example.qas_id, example.question_text) == ("q", "When?")
    assert example.context == CONTEXT
    assert example.answers == (("1895", CONTEXT.find("1895")),)
    assert (example.start_position, example.orig_answer_text) == (None, None)


@given(st.text(alphabet=st.sampled_from([*map(chr, range(0x3100)), *"ab " * 4000])))
def test_words_are_separated_by_four_spaces_and_the_narrow_one(text):
    words = [word for word in re.split("[ \t\r\n\u202f]+", text) if word]
    assert split_words(text) == words
    starts = SquadExample("q", "?", words, context=text).word_starts
    assert [text[start : start + len(word)] for start, word in zip(starts, words, strict=True)] == (
        words
    )


def test_equal_words_of_a_file_are_one_object_that_is_not_interned(tmp_path):
    paragraphs = [
        {"context": context, "qas": [question(str(number), start=0)]}
        for number, context in enumerate(["a \u5317word b", "\u5317word c"])
    ]
    (tmp_path / "own.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    one, other = read_squad_examples(str(tmp_path / "own.json"), is_training=False)
    assert one.doc_tokens[1] is other.doc_tokens[0]
    word = "".join(["\u5317", "word"])
    # Else it would be the one that was interned before.
    assert sys.intern(word) is word is not one.doc_tokens[1]


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("The", (0, 0)),
        ("1895", (5, 5)),
        ("John Smith (1895", (3, 5)),
        ("Smith ", (4, 4)),
        (" Smith", (3, 4)),
        ("mit", (4, 4)),
        ("Paris", (9, 9)),
    ],
)
def test_the_span_of_an_answer_is_the_words_that_contain_it(tmp_path, text, span):
    (example,) = read_squad_examples(write(tmp_path, [question(text=text)]), True)
    assert (example.start_position, example.end_position) == span
    assert example.orig_answer_text == text
    assert not example.is_impossible


def test_the_questions_about_a_paragraph_share_its_words(tmp_path):
    path = write(tmp_path, [question("a"), question("b")])
    first, second = read_squad_examples(path, is_training=False)
    assert first.doc_tokens is second.doc_tokens


@pytest.mark.parametrize(
    ("changed", "warning"),
    [
        ({"answers": []}, "have no answer"),
        ({"answers": [], "is_impossible": False}, "have no answer"),
        ({"answers": [{"text": "Smith", "answer_start": 0}]}, "is not in the words"),
        ({"answers": [{"text": "then. And", "answer_start": 57}]}, "is not in the words"),
        ({"answers": [{"text": "then.  ", "answer_start": 57}]}, "is not in the words"),
        ({"answers": [{"text": "died in", "answer_start": 43}]}, None),
        # Words are joined by spaces, and U+00A0 is none.
        ({"answers": [{"text": "Paris\u00a0then", "answer_start": 54}]}, "is not in the words"),
        ({"answers": [{"text": "  ", "answer_start": 41}]}, "is not in the words"),
    ],
)
def test_training_skips_and_counts_what_it_cannot_use(tmp_path, log, changed, warning):
    path = write(tmp_path, [question("good"), question("odd", **changed)])
    examples = read_squad_examples(path, is_training=True)
    kept = ["good"] if warning else ["good", "odd"]
    assert [example.qas_id for example in examples] == kept
    examples = ["1 example", "2 examples"][len(kept) - 1]
    assert f"2 questions about 1 paragraph of 1 article; {examples}, 0 of" in log.text
    assert any("skipped" in message for message in log.messages) == bool(warning)
    assert warning is None or re.search(f"1 training questions .*{warning}", log.text)
    # Nothing is skipped where no answer is needed.
    assert len(read_squad_examples(path, is_training=False)) == 2


def test_training_without_the_flag_refuses_unanswerable_questions(tmp_path):
    path = write(tmp_path, [question("good"), question("odd", answers=[], is_impossible=True)])
    message = r"qas\[1\] \(id 'odd'\) has no answer .* Train with `version_2_with_negative`"
    with pytest.raises(ValueError, match=message):
        read_squad_examples(path, is_training=True)
    assert len(read_squad_examples(path, is_training=False)) == 2


@pytest.mark.parametrize(
    "changed",
    [
        {"answers": None},
        {"answers": [{"text": "", "answer_start": -1}]},
        {"answers": [{"text": "Paris", "answer_start": None}]},
        {"answers": [{"text": "", "answer_start": ""}]},
    ],
)
def test_unused_answers_may_be_malformed(tmp_path, changed):
    path = write(tmp_path, [question("good"), question("odd", is_impossible=True, **changed)])
    trained = read_squad_examples(path, True, version_2_with_negative=True)
    assert [each.is_impossible for each in trained] == [False, True]
    predicted = read_squad_examples(path, is_training=False)
    assert [each.qas_id for each in predicted] == ["good", "odd"]


def test_a_file_without_usable_questions_is_an_error_with_the_reason(tmp_path, log):
    path = write(tmp_path, [question("odd", answers=[{"text": "Smith", "answer_start": 0}])])
    with pytest.raises(ValueError, match="none can be used"):
        read_squad_examples(path, is_training=True)
    assert "their answer is not in the words" in log.text


def test_training_takes_the_first_of_several_answers(tmp_path, log):
    answers = [{"text": text, "answer_start": CONTEXT.find(text)} for text in ("John", "Paris")]
    path = write(tmp_path, [question(answers=answers)])
    (example,) = read_squad_examples(path, is_training=True)
    assert (example.orig_answer_text, example.start_position) == ("John", 3)
    assert "1 training questions have several answers" in log.text


def test_training_includes_questions_without_an_answer_on_request(tmp_path, log):
    questions = [
        question("impossible", is_impossible=True),
        question("no answers", is_impossible=True, answers=[]),
        question("possible", is_impossible=False),
        question("SQuAD 1.1"),
        {"id": "bare", "question": "?", "is_impossible": True},
        question("does not say", answers=[]),
    ]
    path = write(tmp_path, questions)
    examples = read_squad_examples(path, True, version_2_with_negative=True)
    positions = {each.qas_id: (each.start_position, each.end_position) for each in examples}
    assert positions == {
        "impossible": (-1, -1),
        "no answers": (-1, -1),
        "possible": (5, 5),
        "SQuAD 1.1": (5, 5),
        "bare": (-1, -1),
        "does not say": (-1, -1),
    }
    assert [each.is_impossible for each in examples] == [True, True, False, False, True, True]
    assert {each.orig_answer_text for each in examples if each.is_impossible} == {""}
    assert "4 of them without an answer" in log.text


def test_a_file_without_answers_can_be_predicted_on(tmp_path):
    path = write(tmp_path, [{"id": 7, "question": "?"}, question(answers=[{"text": "John"}])])
    first, second = read_squad_examples(path, is_training=False)
    assert (first.qas_id, first.answers) == ("7", None)
    assert second.answers == (("John", None),)


def test_questions_about_blank_paragraphs_are_predicted_and_counted(tmp_path, log):
    path = write(tmp_path, [{"id": "q", "question": "?"}], context=" \n")
    (example,) = read_squad_examples(path, is_training=False)
    assert example.doc_tokens == []
    assert any("1 paragraphs are blank" in message for message in log.messages)


def test_answers_elsewhere_than_their_offset_are_counted(tmp_path, log):
    path = write(tmp_path, [question(text="John", start=3), question("r", text="John", start=-4)])
    read_squad_examples(path, is_training=False)
    assert any("2 answers are not where" in message for message in log.messages)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_repeated_id_is_a_warning(tmp_path, log, is_training):
    path = write(tmp_path, [question("a"), question("b"), question("a"), question("a")])
    read = read_squad_examples(path, is_training)
    assert [example.qas_id for example in read] == ["a", "b", "a", "a"]
    assert sum("2 questions have the id of an earlier one" in line for line in log.messages) == 1


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([{"question": "?"}], r"qas\[0\] must have `id`. It has \['question'\]"),
        ([{"id": None, "question": "?"}], r"qas\[0\] \(id None\): `id` must be text"),
        ([{"id": "q"}], r"qas\[0\] \(id 'q'\) must have `question`"),
        ([{"id": "q", "question": 5}], r"\(id 'q'\): `question` must be text. Received 5"),
        ([question(answers={})], r"\(id 'q'\): `answers` must be a list"),
        ([question(answers=["x"])], r"\(id 'q'\).answers\[0\] must be an object with `text`"),
        ([question(answers=[{"answer_start": 1}])], r"answers\[0\] must have `text`"),
        ([question(answers=[{"text": "x"}])], r"answers\[0\] must have `answer_start`"),
        ([question(start=5.0)], r"answers\[0\]: `answer_start` must be a whole number"),
        ([question(start=True)], r"answers\[0\]: `answer_start` must be a whole number"),
        ([question(start=-1)], r"`answer_start` must be from 0 to \d+, within `context`"),
        ([question(start=999)], r"`answer_start` must be from 0 to .* Received 999"),
        (
            [question(start=len(CONTEXT))],
            rf"must be from 0 to {len(CONTEXT) - 1}, .* Received {len(CONTEXT)}",
        ),
        ([question(is_impossible="no")], r"`is_impossible` must be true or false"),
        ([{"id": "q", "question": "?"}], r"\(id 'q'\) must have `answers`"),
        (["what?"], r"qas\[0\] must be an object"),
        # Those that are skipped count.
        ([question(answers=[]), "what?"], r"qas\[1\] must be an object"),
        ({}, r"paragraphs\[0\]: `qas` must be a list"),
        ([question(answers=[])], r"must hold questions to train on. It has 1"),
    ],
)
def test_malformed_questions_are_named_with_their_place(tmp_path, questions, message):
    path = write(tmp_path, questions)
    version_2 = "impossible" in message
    with pytest.raises(ValueError, match=message) as raised:
        read_squad_examples(path, True, version_2)
    assert repr(path) in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must be JSON: Expecting value: line 1 column 1"),
        ("[1]", r"must hold a JSON object. Received \[1\]"),
        ("{}", "must have `data`"),
        ('{"version": 1}', r"must have `data`.* has \['version'\]"),
        ('{"data": {}}', "`data` must be a list. Received {}"),
        ('{"data": [1]}', r"data\[0\] must be an object with `paragraphs`"),
        ('{"data": [{}]}', r"data\[0\] must have `paragraphs`"),
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', r"paragraphs\[0\] must have `context`"),
        ('{"data": []}', "must hold questions. It has 0"),
        ('{"data": [\n{"paragraphs": [', "must be JSON: Expecting value: line 2 column 17"),
        ('{"data": [{"paragraphs": []}], "x"', "Expecting ':' delimiter: line 1 column 35"),
        ('{"data": [{"paragraphs": []} 5]}', "Expecting ',' delimiter: line 1 column 30"),
        ('{"data": []}\n {}', "must be JSON: Extra data: line 2 column 2"),
        (b'{"data": ["\xff"]}', "must be UTF-8 text: 'utf-8' codec can't decode"),
        (b'{"data": ["\xed\xa0\x80"]}', "must be UTF-8 text"),
    ],
)
def test_malformed_files_are_errors_that_name_the_fault(tmp_path, content, message):
    path = tmp_path / "own.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as raised:
        read_squad_examples(str(path), is_training=False)
    assert repr(str(path)) in str(raised.value)


def test_a_file_may_be_remote_and_begin_with_a_byte_order_mark(tmp_path):
    path = write(tmp_path, [question()])
    content = codecs.BOM_UTF8 + Path(path).read_bytes()
    other = "ram://test_squad_questions/own.json"
    with tf.io.gfile.GFile(other, "wb") as file:
        file.write(content)
    expected = read_squad_examples(path, is_training=True)
    assert read_squad_examples(other, is_training=True) == expected


def test_the_golden_files_are_read_completely():
    for version, count in (("v1", 12), ("v2", 12)):
        path = str(GOLDEN / f"squad_{version}.json")
        examples = read_squad_examples(path, is_training=False)
        assert len(examples) == count
        trained = read_squad_examples(path, True, version_2_with_negative=version == "v2")
        assert [each.qas_id for each in trained] == [each.qas_id for each in examples]
