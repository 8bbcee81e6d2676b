import random

import numpy as np
import pytest
import tensorflow as tf
from conftest import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenization
from bert.files import display
from bert.original import squad as original_squad
from bert.tasks.examples import Part
from bert.tasks.squad import questions as squad_questions
from bert.tasks.squad import windows as squad_windows
from bert.tasks.squad.options import DecodingOptions
from bert.tasks.squad.question_answering import QuestionAnswering
from bert.tasks.squad.questions import SquadExample
from bert.tasks.task import ExampleFile

WORDS = "un able ##able running the leader smith ( ) - , . 1895 1943 john was born in ##ing run"
VOCAB = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS.split()])}
TOKENIZER = tokenization.FullTokenizer.from_vocab(VOCAB)

texts = st.lists(
    st.sampled_from(
        ["unable", "running", "(1895-1943).", "John", "the", "Smith,", "zzz", "\u200b"]
    ),
    max_size=30,
)


def make(examples, max_seq_length=16, doc_stride=4, max_query_length=5, is_training=False):
    return squad_windows.make_features(
        examples, TOKENIZER, max_seq_length, doc_stride, max_query_length, is_training
    )


def convert(examples, max_seq_length=16, doc_stride=4, max_query_length=5, is_training=False):
    features = []
    original_squad.convert_examples_to_features(
        examples,
        TOKENIZER,
        max_seq_length,
        doc_stride,
        max_query_length,
        is_training,
        features.append,
    )
    return features


def answered(context, text, question="was john born"):
    """Returns an example to train on, with the first place of a text in a context as its answer."""
    words = context.split()
    place = context.index(text)
    first = len(context[: place + 1].split()) - 1
    last = len(context[: place + len(text)].split()) - 1
    return SquadExample("q", question, words, text, first, last)


def expected_features(example, max_seq_length, doc_stride, max_query_length):
    """Returns tokens, words and context of each window, step by step as the paper describes it."""
    query = TOKENIZER.tokenize(example.question_text)[:max_query_length]
    document = [
        (piece, index)
        for index, word in enumerate(example.doc_tokens)
        for piece in TOKENIZER.tokenize(word)
    ]
    room = max_seq_length - len(query) - 3
    spans = []
    start = 0
    while document and (not spans or spans[-1][1] < len(document)):
        spans.append((start, min(start + room, len(document))))
        start += min(doc_stride, room)
    windows = []
    for span in spans:
        tokens = ["[CLS]", *query, "[SEP]"]
        words, is_max = {}, {}
        for place in range(*span):
            scores = [
                min(place - begin, end - 1 - place) + 0.01 * (end - begin)
                if begin <= place < end
                else -1
                for begin, end in spans
            ]
            words[len(tokens)] = document[place][1]
            is_max[len(tokens)] = scores.index(max(scores)) == spans.index(span)
            tokens.append(document[place][0])
        windows.append(([*tokens, "[SEP]"], words, is_max))
    return windows


@given(
    texts,
    texts | st.integers(0, 60).map(lambda count: ["the"] * count),
    st.integers(9, 24),
    st.integers(1, 25),
    st.integers(1, 5),
)
def test_windows_are_those_of_the_definition(question, context, length, stride, longest):
    example = SquadExample("q", " ".join(question), context)
    windows = convert([example], length, stride, longest)
    expected = expected_features(example, length, stride, longest)
    assert [(w.tokens, w.token_to_orig_map, w.token_is_max_context) for w in windows] == expected
    assert [w.doc_span_index for w in windows] == list(range(len(windows)))
    assert [w.unique_id for w in windows] == [1000000000 + i for i in range(len(windows))]
    for window in windows:
        count = len(window.tokens)
        padding = [0] * (length - count)
        begin = window.tokens.index("[SEP]") + 1
        assert window.input_ids == [*map(VOCAB.get, window.tokens), *padding]
        assert window.input_mask == [1] * count + padding
        assert window.segment_ids == [0] * begin + [1] * (count - begin) + padding
        assert (window.start_position, window.end_position, window.is_impossible) == (
            None,
            None,
            False,
        )


PIECES = "the leader was running unable John Smith (1895-1943). Smith"


@pytest.mark.parametrize(
    ("context", "text", "tokens"),
    [
        (PIECES, "1895", "1895"),
        (PIECES, "(1895", "( 1895"),
        (PIECES, "(1895-1943).", "( 1895 - 1943 ) ."),
        (PIECES, "1895-1943", "1895 - 1943"),
        # If pieces do not match, the words are the answer.
        (PIECES, "abl", "un ##able"),
        (PIECES, "nable", "un ##able"),
        (PIECES, "running unable", "running un ##able"),
        ("the unable leader", "un", "un"),
        # The first of several matches in the words.
        ("the 1895-1895-1895 was", "1895", "1895"),
    ],
)
def test_an_answer_is_the_pieces_that_it_needs(context, text, tokens):
    (window,) = convert([answered(context, text)], max_seq_length=40, is_training=True)
    assert window.tokens[window.start_position : window.end_position + 1] == tokens.split()
    assert window.start_position == window.tokens.index(tokens.split()[0])
    assert window.is_impossible is False


@given(st.lists(st.sampled_from([0, 1, 255, 256, 257, 65536]), max_size=9), st.data())
def test_an_answer_is_found_at_whole_tokens_only(tokens, data):
    begin = data.draw(st.integers(0, len(tokens)))
    answer = tokens[begin : data.draw(st.integers(begin, len(tokens)))]
    answer = data.draw(st.sampled_from([answer, [1], [256, 1], [1, 0]]))
    places = [i for i in range(len(tokens)) if tokens[i : i + len(answer)] == answer and answer]
    found = squad_windows.improve_answer_span(
        np.array(tokens, np.int32), np.array(answer, np.int32)
    )
    assert found == ((places[0], len(answer)) if places else (0, len(tokens)))


def test_an_answer_is_found_right_behind_its_bytes_in_other_tokens():
    tokens, answer = np.array([65536, 256], np.int32), np.array([256], np.int32)
    assert tokens.tobytes().find(answer.tobytes()) == 1
    assert squad_windows.improve_answer_span(tokens, answer) == (1, 1)


@pytest.mark.parametrize("position", [-1, None, 1])
def test_impossible_questions_have_cls_for_an_answer(position):
    example = SquadExample("q", "was john born", ["the", "leader"], "", position, position, True)
    (window,) = convert([example], is_training=True)
    assert (window.start_position, window.end_position, window.is_impossible) == (0, 0, True)


def test_an_answer_without_tokens_has_cls_and_is_counted(log):
    example = SquadExample("q", "was", ["the", "\u200b", "leader"], "\u200b", 1, 1)
    table = make([example], is_training=True)
    table.log_summary()
    assert table.features(0, 1)["start_positions"].tolist() == [[0]]
    assert any("1 training questions" in message for message in log.messages)


def test_long_questions_are_truncated_and_counted(log):
    (window,) = convert([SquadExample("q", "the leader was born in", ["john"])], 16, 4, 3)
    assert window.tokens == ["[CLS]", "the", "leader", "was", "[SEP]", "john", "[SEP]"]
    assert any("1 questions are truncated" in message for message in log.messages)


def test_unknown_words_are_a_warning(log):
    convert([SquadExample("q", "the", ["the"] * 30)], 16, 4, 3)
    assert not any("[UNK]" in message for message in log.messages)
    convert([SquadExample("q", "the", ["the", "海", "淀"])], 16, 4, 3)
    assert any("66.7 % of the tokens of the paragraphs are" in each for each in log.messages)


@settings(max_examples=25)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6), st.randoms())
def test_the_windows_of_an_example_do_not_depend_on_other_examples(pairs, rng):
    examples = [
        SquadExample(str(i), " ".join(question), context)
        for i, (question, context) in enumerate(pairs)
    ]
    # Questions that share a paragraph, and a paragraph that only looks the same.
    examples += [SquadExample("more", "was the", pairs[0][1]), examples[0]]
    rng.shuffle(examples)
    together = convert(examples)
    alone = [window for example in examples for window in convert([example])]
    for ours, other in zip(together, alone, strict=True):
        other.unique_id, other.example_index = ours.unique_id, ours.example_index
        assert ours == other


def test_the_number_of_processes_changes_nothing(tmp_path):
    path = str(GOLDEN / "squad_v1.json")
    examples = squad_questions.read_squad_examples(path, is_training=True)
    random.Random(12345).shuffle(examples)
    tokenizer = tokenization.FullTokenizer(str(GOLDEN / "vocab.txt"))
    contents = []
    for num_processes in (1, 2):
        table = squad_windows.make_features(examples, tokenizer, 48, 16, 12, True, num_processes)
        file = tmp_path / str(num_processes)
        squad_windows.write_features(str(file), table, num_processes)
        contents.append(file.read_bytes())
    assert contents[0] == contents[1]


@pytest.mark.parametrize("is_training", [False, True])
def test_records_have_the_originals_features(tmp_path, is_training):
    examples = [answered("the leader was born in 1895 - 1943", "1895 -")] * 3
    table = make(examples, 12, 2, 3, is_training)
    whole, single = tmp_path / "whole", tmp_path / "single"
    squad_windows.write_features(str(whole), table)
    writer = original_squad.FeatureWriter(str(single), is_training)
    windows = convert(examples, 12, 2, 3, is_training)
    for window in windows:
        writer.process_feature(window)
    assert not single.exists()
    writer.close()
    assert writer.num_features == len(table) == len(windows)
    assert single.read_bytes() == whole.read_bytes()
    names = ["input_ids", "input_mask", "segment_ids", "unique_ids"]
    if is_training:
        names += ["end_positions", "is_impossible", "start_positions"]
    for record, window in zip(tf.data.TFRecordDataset(str(whole)), windows, strict=True):
        stored = tf.train.Example.FromString(record.numpy()).features.feature
        assert sorted(stored) == sorted(names)
        assert stored["unique_ids"].int64_list.value == [window.unique_id]
        assert stored["input_ids"].int64_list.value == window.input_ids
        if is_training:
            assert stored["end_positions"].int64_list.value == [window.end_position]
            assert stored["is_impossible"].int64_list.value == [0]


def test_lengths_count_tokens_without_padding():
    examples = [SquadExample("a", "was", ["the"] * n) for n in (1, 5, 30)]
    table = make(examples)
    masks = table.features(0, len(table))["input_mask"]
    assert table.lengths().tolist() == masks.sum(1).tolist()
    assert np.concatenate([table.features(i, i + 2)["input_mask"] for i in (0, 2)]).tolist() == (
        masks[:4].tolist()
    )


@pytest.mark.parametrize(
    ("lengths", "name"),
    [((8, 4, 5), "max_seq_length"), ((16, 0, 5), "doc_stride"), ((16, 4, 0), "max_query_length")],
)
def test_lengths_must_leave_room(lengths, name):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        make([SquadExample("q", "was", ["the"])], *lengths)


def test_training_without_the_position_of_an_answer_is_an_error():
    with pytest.raises(ValueError, match="question 'q7'"):
        make([SquadExample("q7", "was", ["the"])], is_training=True)


def test_the_vocabulary_must_hold_the_special_tokens():
    tokenizer = tokenization.FullTokenizer.from_vocab({"[UNK]": 0, "[CLS]": 1})
    with pytest.raises(ValueError, match=r"without \['\[SEP\]'\]"):
        squad_windows.make_features([], tokenizer, 16, 4, 5, False)


@given(
    st.integers(1, 40),
    st.integers(0, 39),
    st.integers(1, 12),
    st.integers(7, 16),
    st.integers(1, 9),
)
def test_a_window_has_the_answer_if_it_has_all_of_its_tokens(count, first, length, size, stride):
    first %= count
    last = min(first + length, count) - 1
    words = ["was"] * count
    example = SquadExample("q", "the", words, " ".join(words[first : last + 1]), first, last)
    table = make([example], size, stride, 2, is_training=True)
    features = table.features(0, len(table))
    for window, (begin, start, held) in enumerate(table.parts.tolist()):
        has_all = start <= first and last < start + held
        expected = [first - start + begin, last - start + begin] if has_all else [0, 0]
        found = [features[f"{name}_positions"][window, 0] for name in ("start", "end")]
        assert found == expected


def stored_ids(path):
    """Returns the ids in each record of a file."""
    feature = {"input_ids": tf.io.FixedLenFeature([16], tf.int64)}
    records = tf.data.TFRecordDataset(str(path)).batch(10_000)
    return np.concatenate([tf.io.parse_example(each, feature)["input_ids"] for each in records])


def test_no_text_and_no_window_is_lost_at_the_end_of_a_batch_of_work(tmp_path, log, monkeypatch):
    # Each line on the progress is due at once.
    monkeypatch.setattr(display, "_SECONDS_BETWEEN_LINES", 0)
    count = 2 * max(squad_windows._TEXTS_AT_ONCE, squad_windows._WINDOWS_AT_ONCE) + 1
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"0123456789", *(f"##{i}" for i in range(10))]
    tokenizer = tokenization.FullTokenizer.from_vocab({t: i for i, t in enumerate(tokens)})
    # Each has a question and a word of its own.
    texts = [f"{number:05}" for number in range(count)]
    examples = [SquadExample(text, text, [text[::-1]]) for text in texts]
    table = squad_windows.make_features(examples, tokenizer, 16, 4, 5, is_training=False)
    squad_windows.write_features(str(tmp_path / "all"), table)
    expected = []
    for text in texts:
        first, *others = [text[0], *(f"##{digit}" for digit in text[1:])]
        mirrored = [text[-1], *(f"##{digit}" for digit in text[-2::-1])]
        window = ["[CLS]", first, *others, "[SEP]", *mirrored, "[SEP]"]
        expected.append(tokenizer.convert_tokens_to_ids(window))
    assert stored_ids(tmp_path / "all")[:, :13].tolist() == expected
    told = [line.partition("  ETA")[0] for line in log.messages if "questions: " in line]
    assert told == ["Tokenizing questions: 50 %", "Tokenizing questions: 100 %"]


def test_windows_of_another_stride_are_never_read(tmp_path, tiny_config):
    """Their records have the name of the run's records."""
    examples = [SquadExample("q", "was the", ["was", "the", "leader"] * 9)]
    file = ExampleFile(str(tmp_path / "eval.tf_record"), batch_size=2)
    decoding = DecodingOptions()
    counts = []
    for stride in (2, 5, 2):
        task = QuestionAnswering(tiny_config, TOKENIZER, 16, stride, 6, decoding)
        inputs = task.make_inputs(Part("dev"), examples)
        opened = task.open_inputs(inputs, file)
        assert len(opened.batches.records) == len(make(examples, 16, stride, 6))
        np.testing.assert_array_equal(stored_ids(file.path), inputs.arrays["input_ids"])
        counts.append(len(stored_ids(file.path)))
    assert counts[0] == counts[2] > counts[1]
