import pytest
import sklearn.metrics
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics

from bert.tasks.tagging.tags import (
    NONE,
    SCHEMES,
    UNITS,
    WORDS,
    Entity,
    TagSet,
    convert,
    find_entities,
    find_fault,
    find_scheme,
    find_spans,
    format_report,
    list_labels,
    score_entities,
    score_tags,
    split_tag,
    to_tags,
)

SAME = {
    "iob2": ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "B-PER", "O"],
    "iob1": ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-LOC", "I-PER", "O"],
    "iobes": ["B-PER", "E-PER", "O", "S-LOC", "B-LOC", "E-LOC", "S-PER", "O"],
    "bmes": ["B-PER", "E-PER", "O", "S-LOC", "B-LOC", "E-LOC", "S-PER", "O"],
}
ENTITIES = [Entity("PER", 0, 2), Entity("LOC", 3, 4), Entity("LOC", 4, 6), Entity("PER", 6, 7)]

any_tags = st.lists(
    st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIMES" for kind in ("A", "B-C"))])
)


@st.composite
def entities_and_length(draw):
    entities = []
    length = 0
    for gap, size, kind in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")))
    ):
        entities.append(Entity(kind, length + gap, length + gap + size))
        length += gap + size
    return entities, length + draw(st.integers(0, 2))


@pytest.mark.parametrize("scheme", SAME)
def test_the_same_entities_have_their_tags_in_each_scheme(scheme):
    assert find_entities(SAME[scheme]) == ENTITIES
    assert to_tags(ENTITIES, 8, scheme) == SAME[scheme]
    for other, tags in SAME.items():
        assert convert(tags, scheme) == SAME[scheme], other


@given(entities_and_length(), st.sampled_from(SCHEMES))
def test_entities_are_restored_from_valid_tags(drawn, scheme):
    entities, length = drawn
    tags = to_tags(entities, length, scheme)
    assert len(tags) == length
    assert find_entities(tags) == entities
    assert find_fault(tags, scheme) is None
    # Where no entity has three words, IOBES and BMES are the same.
    same = {"iobes": {"bmes"}, "bmes": {"iobes"}}.get(scheme, set())
    others = set(SCHEMES) - {scheme}
    if all(entity.end - entity.start < 3 for entity in entities):
        others -= same
    if entities:
        assert all(find_fault(tags, other) for other in others)


@given(any_tags, st.sampled_from(SCHEMES))
def test_entities_of_any_tags_can_be_tagged_in_each_scheme(tags, scheme):
    converted = convert(tags, scheme)
    assert find_entities(converted) == find_entities(tags)
    assert find_fault(converted, scheme) is None
    assert [tag == "O" for tag in converted] == [tag == "O" for tag in tags]


@given(any_tags, st.sampled_from(SCHEMES))
def test_tags_without_fault_are_those_that_conversion_does_not_change(tags, scheme):
    is_valid = find_fault(tags, scheme) is None
    assert is_valid == (convert(tags, scheme) == tags)


def test_types_are_optional_and_may_hold_hyphens():
    assert split_tag("I-a-b") == ("I", "a-b")
    assert find_entities(["B", "I", "O", "B-a-b"]) == [
        Entity("", 0, 2),
        Entity("a-b", 3, 4),
    ]
    assert convert(["B", "I", "B"], "iobes") == ["B", "E", "S"]


@pytest.mark.parametrize("tag", ["", "PER", "X-PER", "b-PER", "B-", "BPER", "o"])
def test_other_texts_are_not_tags(tag):
    with pytest.raises(ValueError, match=f"Received '{tag}'"):
        split_tag(tag)
    assert find_fault(["O", tag], "iob2").word == 1


@pytest.mark.parametrize(
    ("tags", "scheme", "word", "message"),
    [
        (["O", "I-A"], "iob2", 1, "'I-A' must follow 'B-A' or 'I-A', not 'O', in IOB2"),
        (["B-A", "I-B"], "iob2", 1, "not 'B-A'"),
        (["B-A", "E-A"], "iob2", 1, "IOB2 has no tag 'E-A'"),
        (["B-A"], "iob1", 0, "'B-A' must follow 'B-A' or 'I-A', not 'O', in IOB1"),
        (["I-B", "B-A"], "iob1", 1, "not 'I-B'"),
        (["S-A", "I-A"], "iobes", 1, "must follow 'B-A' or 'I-A', not 'S-A', in IOBES"),
        (["B-A", "O"], "iobes", 1, "'O' must not follow 'B-A', which 'E-A' must end, in IOBES"),
        (["O", "B-A"], "iobes", 1, "'B-A' must not be the last of a sentence in IOBES"),
        (["S-A", "M-A"], "bmes", 1, "must follow 'B-A' or 'M-A', not 'S-A', in BMES"),
        (["B", "S"], "bmes", 1, "'S' must not follow 'B', which 'E' must end, in BMES"),
        (["B", "I", "E"], "bmes", 1, "BMES has no tag 'I'"),
        (["B", "M"], "bmes", 1, "'M' must not be the last of a sentence in BMES"),
    ],
)
def test_a_fault_names_the_word_and_the_rule(tags, scheme, word, message):
    fault = find_fault(tags, scheme)
    assert fault.word == word
    assert message in fault.message


def test_labels_are_all_tags_of_a_scheme():
    assert list_labels(["PER", "LOC", "PER"], "iob2") == [
        "O",
        "B-LOC",
        "I-LOC",
        "B-PER",
        "I-PER",
    ]
    assert list_labels(["X"], "iobes") == ["O", "B-X", "I-X", "E-X", "S-X"]
    assert list_labels([""], "bmes") == ["O", "B", "M", "E", "S"]


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("O B-X I-X", "iob2"),
        ("B M E S", "bmes"),
        ("O B-X M-X E-X S-X", "bmes"),
        ("B I M E S", "words"),
        ("NN VB", "words"),
    ],
)
def test_the_scheme_of_labels_is_found(labels, scheme):
    assert find_scheme(labels.split()) == scheme


def test_each_plain_tag_is_an_entity_of_a_word():
    tags = ["NN", "O", "NN", "B-X"]
    found = find_entities(tags, NONE)
    assert found == [Entity(tag, place, place + 1) for place, tag in enumerate(tags)]
    assert convert(tags, NONE) == tags


def test_labels_of_any_name_are_those_of_words():
    labels = ["NOUN", "O", "NOUN", "B-NP"]
    assert find_entities(labels, WORDS) == [
        ("NOUN", 0, 1),
        ("NOUN", 2, 3),
        ("B-NP", 3, 4),
    ]
    assert convert(labels, WORDS) == labels
    assert find_scheme(labels) == WORDS
    with pytest.raises(ValueError, match="A tag must be O"):
        find_entities(labels)


def test_a_tag_set_has_the_types_of_its_sentences_and_is_restored_from_a_dictionary():
    tags = [["I-LOC", "B-LOC"], ["S-PER"], []]
    tag_set = TagSet.from_tags(tags, "iobes", "character")
    assert tag_set.labels == (
        *("O", "B-LOC", "I-LOC", "E-LOC", "S-LOC"),
        *("B-PER", "I-PER", "E-PER", "S-PER"),
    )
    assert TagSet.from_dict(tag_set.to_dict()) == tag_set
    with pytest.raises(ValueError, match=r"must have entities. All tags are O"):
        TagSet.from_tags([["O"]], "iob2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme": "bio"}, "`scheme` must be one of .*'bio'"),
        ({"unit": "line"}, "`unit` must be one of .*'line'"),
        ({"labels": ["O"]}, "`labels` must be at least two"),
        ({"labels": ["O", "B-X", "B-X"]}, "`labels` must be at least two, each once"),
        ({"labels": ["O", "PER"]}, "Received 'PER'"),
        ({"extra": 1}, "must have the keys"),
    ],
)
def test_an_invalid_tag_set_is_an_error(changes, message):
    valid = TagSet(labels=("O", "B-X", "I-X"), scheme="iob2").to_dict()
    with pytest.raises(ValueError, match=message):
        TagSet.from_dict({**valid, **changes})


GOLD = ["NN", "NN", "VB", "NN", "DT", "VB"]
FOUND = ["NN", "VB", "VB", "NN", "NN", "JJ"]


def test_scores_of_tags_are_those_of_scikit_learn():
    scores = score_tags(GOLD, FOUND)
    report = sklearn.metrics.classification_report(GOLD, FOUND, output_dict=True, zero_division=0)
    assert scores["accuracy"] == pytest.approx(report["accuracy"]) == pytest.approx(0.5)
    assert scores["baseline"] == 0.5
    assert scores["tags"].keys() == {"DT", "JJ", "NN", "VB"}
    for tag, rates in scores["tags"].items():
        assert list(rates.values()) == pytest.approx(list(report[tag].values()))
    gold_tags = {"DT", "NN", "VB"}
    mean = sum(report[tag]["f1-score"] for tag in gold_tags) / 3
    assert scores["macro_f1"] == pytest.approx(mean)


def test_the_report_of_tags_lists_the_most_frequent_first():
    first, header, *lines = format_report(score_tags(GOLD, FOUND)).splitlines()
    assert first.startswith("6 words; accuracy: 50.00%, macro F1: ")
    assert "most frequent tag: 50.00%" in first
    assert header.split() == ["precision", "recall", "F1", "words"]
    assert [line.split()[0] for line in lines] == ["NN", "VB", "DT", "JJ"]
    assert lines[0].split() == ["NN", "66.67", "66.67", "66.67", "3"]


tags = st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in "XYZ")])
pairs = st.lists(st.lists(st.tuples(tags, tags), min_size=1), min_size=1)


def rates(scores):
    return {name: scores[name] for name in ("precision", "recall", "f1")}


def numbers(scores):
    return scores["num_gold"], scores["num_found"], scores["num_correct"]


@given(pairs)
def test_scores_equal_those_of_seqeval(sentences):
    gold = [[truth for truth, _ in sentence] for sentence in sentences]
    found = [[guess for _, guess in sentence] for sentence in sentences]
    scores = score_entities(gold, found)
    assert scores["precision"] == pytest.approx(
        metrics.precision_score(gold, found, zero_division=0)
    )
    assert scores["recall"] == pytest.approx(metrics.recall_score(gold, found, zero_division=0))
    assert scores["f1"] == pytest.approx(metrics.f1_score(gold, found, zero_division=0))
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(gold, found))
    if not scores["types"]:
        return
    report = metrics.classification_report(gold, found, output_dict=True, zero_division=0)
    assert scores["types"].keys() == report.keys() - {"micro avg", "macro avg", "weighted avg"}
    for kind, each in scores["types"].items():
        assert each["precision"] == pytest.approx(report[kind]["precision"])
        assert each["recall"] == pytest.approx(report[kind]["recall"])
        assert each["f1"] == pytest.approx(report[kind]["f1-score"])
        assert each["num_gold"] == report[kind]["support"]


@pytest.mark.parametrize(
    ("gold", "found", "expected"),
    [
        # Right; a border, a type, or both ends wrong; one too many and one too few.
        ("B-X I-X O", "B-X I-X O", (1, 1, 1)),
        ("B-X I-X O", "B-X O O", (1, 1, 0)),
        ("B-X I-X O", "B-Y I-Y O", (1, 1, 0)),
        ("B-X I-X O", "O B-X I-X", (1, 1, 0)),
        ("B-X I-X O", "B-X I-X B-X", (1, 2, 1)),
        ("B-X I-X B-X", "B-X I-X I-X", (2, 1, 0)),
        # What no scheme allows still is an entity, as conlleval has it.
        ("B-X I-X O", "I-X I-X O", (1, 1, 1)),
        ("B-X I-X O", "B-X I-Y O", (1, 2, 0)),
        ("B-X O", "S-X E-X", (1, 2, 1)),
        ("O O", "O O", (0, 0, 0)),
    ],
)
def test_an_entity_is_right_where_both_ends_and_its_type_are(gold, found, expected):
    scores = score_entities([gold.split()], [found.split()])
    assert numbers(scores) == expected


def test_the_report_of_entities_is_that_of_conlleval():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC"]]
    assert format_report(score_entities(gold, found)) == (
        "processed 6 tokens with 3 phrases; found: 3 phrases; correct: 2.\n"
        "accuracy:  83.33%; precision:  66.67%; recall:  66.67%; FB1:  66.67\n"
        "              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1\n"
        "              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2\n"
    )


def cut(text, unit):
    return [text[start:end] for start, end in find_spans(text, unit)]


@pytest.mark.parametrize(
    "words",
    [
        ["Paris", "'s", "mayor", ",", "Mr", ".", "O'Brien", ",", "is", "here", "."],
        ["He", "said", ":", '"', "It", "’s", "a", "U.S.", "plan", '"', "(", "e.g.", ")", "!"],  # noqa: RUF001
        ["On", "1996-08-22", ",", "10,000", "shares", "rose", "3.5", "%", "to", "$", "4.20", "."],
        ["Jean-Paul", "at", "AT&T", "wrote", "to", "a.b@c.org", "and", "x/y", "."],
        ["Ünïcödé", "cafe\u0301", "в", "Москве", ",", "हिन्दी"],
        ["北", "京", "市", "。"],
        ["don't", "we", "?", "Yes", "-", "no"],
    ],
)
def test_words_are_split_as_in_tagged_texts(words):
    text = ""
    for word in words:
        closes = word in {"'s", "’s", ",", ".", "%", "?", "!", ":", ")", "。"}  # noqa: RUF001
        opens = text.endswith(("$", "(", ' "'))
        text += word if closes or opens or not text else f" {word}"
    assert cut(text, "word") == words


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("我在iPhone 13上。", ["我", "在", "iPhone", "13", "上", "。"]),
        ("東京へ", ["東", "京", "へ"]),
        ("กำลัง", ["ก", "ำ", "ลั", "ง"]),
        ("naïve cafe\u0301!", ["naïve", "cafe\u0301", "!"]),
    ],
)
def test_characters_of_unspaced_scripts_stand_alone(text, characters):
    assert cut(text, "character") == characters


@given(st.text(), st.sampled_from(UNITS))
def test_spans_cover_all_but_whitespace_in_order(text, unit):
    spans = find_spans(text, unit)
    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    ends = [0, *(end for _, end in spans)]
    assert all(end <= start for end, (start, _) in zip(ends, spans, strict=False))
    assert all(start < end for start, end in spans)
