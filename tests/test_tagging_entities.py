import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval import metrics

from bert.tasks.tagging import entities as tagging_entities
from bert.tasks.tagging.entities import Entity

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
    assert tagging_entities.find_entities(SAME[scheme]) == ENTITIES
    assert tagging_entities.to_tags(ENTITIES, 8, scheme) == SAME[scheme]
    for other, tags in SAME.items():
        assert tagging_entities.convert(tags, scheme) == SAME[scheme], other


@given(entities_and_length(), st.sampled_from(tagging_entities.SCHEMES))
def test_entities_come_back_from_valid_tags(drawn, scheme):
    entities, length = drawn
    tags = tagging_entities.to_tags(entities, length, scheme)
    assert len(tags) == length
    assert tagging_entities.find_entities(tags) == entities
    assert tagging_entities.find_fault(tags, scheme) is None
    # Where no entity has three words, IOBES and BMES are the same.
    same = {"iobes": {"bmes"}, "bmes": {"iobes"}}.get(scheme, set())
    others = set(tagging_entities.SCHEMES) - {scheme}
    if all(entity.end - entity.start < 3 for entity in entities):
        others -= same
    if entities:
        assert all(tagging_entities.find_fault(tags, other) for other in others)


@given(any_tags, st.sampled_from(tagging_entities.SCHEMES))
def test_any_tags_have_entities_that_a_scheme_can_hold(tags, scheme):
    converted = tagging_entities.convert(tags, scheme)
    assert tagging_entities.find_entities(converted) == tagging_entities.find_entities(tags)
    assert tagging_entities.find_fault(converted, scheme) is None
    assert [tag == "O" for tag in converted] == [tag == "O" for tag in tags]


@given(any_tags, st.sampled_from(tagging_entities.SCHEMES))
def test_tags_without_fault_are_those_that_conversion_leaves(tags, scheme):
    is_valid = tagging_entities.find_fault(tags, scheme) is None
    assert is_valid == (tagging_entities.convert(tags, scheme) == tags)


def test_types_are_optional_and_may_hold_hyphens():
    assert tagging_entities.split_tag("I-a-b") == ("I", "a-b")
    assert tagging_entities.find_entities(["B", "I", "O", "B-a-b"]) == [
        Entity("", 0, 2),
        Entity("a-b", 3, 4),
    ]
    assert tagging_entities.convert(["B", "I", "B"], "iobes") == ["B", "E", "S"]


@pytest.mark.parametrize("tag", ["", "PER", "X-PER", "b-PER", "B-", "BPER", "o"])
def test_what_is_no_tag_is_an_error(tag):
    with pytest.raises(ValueError, match=f"Received '{tag}'"):
        tagging_entities.split_tag(tag)
    assert tagging_entities.find_fault(["O", tag], "iob2").word == 1


@pytest.mark.parametrize(
    ("tags", "scheme", "word", "message"),
    [
        (["O", "I-A"], "iob2", 1, "'I-A' must follow 'B-A' or 'I-A', not 'O', in IOB2"),
        (["B-A", "I-B"], "iob2", 1, "not 'B-A'"),
        (["B-A", "E-A"], "iob2", 1, "IOB2 has no tag 'E-A'"),
        (["B-A"], "iob1", 0, "'B-A' must follow an entity of its type, not 'O', in IOB1"),
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
def test_a_fault_tells_the_word_and_the_rule(tags, scheme, word, message):
    fault = tagging_entities.find_fault(tags, scheme)
    assert fault.word == word
    assert message in fault.message


def test_labels_are_all_tags_of_a_scheme():
    assert tagging_entities.list_labels(["PER", "LOC", "PER"], "iob2") == [
        "O",
        "B-LOC",
        "I-LOC",
        "B-PER",
        "I-PER",
    ]
    assert tagging_entities.list_labels(["X"], "iobes") == ["O", "B-X", "I-X", "E-X", "S-X"]
    assert tagging_entities.list_labels([""], "bmes") == ["O", "B", "M", "E", "S"]


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
    assert tagging_entities.find_scheme(labels.split()) == scheme


def test_tags_that_are_no_entities_are_each_one_of_a_word():
    tags = ["NN", "O", "NN", "B-X"]
    found = tagging_entities.find_entities(tags, tagging_entities.NONE)
    assert found == [Entity(tag, place, place + 1) for place, tag in enumerate(tags)]
    assert tagging_entities.convert(tags, tagging_entities.NONE) == tags


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
    scores = tagging_entities.score(gold, found)
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
    scores = tagging_entities.score([gold.split()], [found.split()])
    assert numbers(scores) == expected


def test_entities_end_with_their_sentence():
    assert numbers(tagging_entities.score([["B-X"], ["I-X"]], [["B-X"], ["I-X"]])) == (2, 2, 2)


def test_scores_add_up_over_sentences_and_types():
    gold = [["B-X", "O", "B-Y"], ["B-X", "I-X"]]
    found = [["B-X", "B-Y", "B-Y"], ["B-X", "B-X"]]
    scores = tagging_entities.score(gold, found)
    assert rates(scores) == {"precision": 2 / 5, "recall": 2 / 3, "f1": pytest.approx(0.5)}
    assert scores["accuracy"] == 3 / 5
    assert numbers(scores["types"]["X"]) == (2, 3, 1)
    assert numbers(scores["types"]["Y"]) == (1, 2, 1)


def test_the_report_is_that_of_conlleval():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC"]]
    found = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC"]]
    assert tagging_entities.format_report(tagging_entities.score(gold, found)) == (
        "processed 6 tokens with 3 phrases; found: 3 phrases; correct: 2.\n"
        "accuracy:  83.33%; precision:  66.67%; recall:  66.67%; FB1:  66.67\n"
        "              LOC: precision: 100.00%; recall:  50.00%; FB1:  66.67  1\n"
        "              PER: precision:  50.00%; recall: 100.00%; FB1:  66.67  2\n"
    )


def test_a_word_without_a_tag_is_an_error():
    with pytest.raises(ValueError, match="Received 1 for 2 words"):
        tagging_entities.score([["O", "O"]], [["O"]])


def test_labels_of_any_name_are_those_of_words():
    labels = ["NOUN", "O", "NOUN", "B-NP"]
    assert tagging_entities.find_entities(labels, tagging_entities.WORDS) == [
        ("NOUN", 0, 1),
        ("NOUN", 2, 3),
        ("B-NP", 3, 4),
    ]
    assert tagging_entities.convert(labels, tagging_entities.WORDS) == labels
    assert tagging_entities.find_scheme(labels) == tagging_entities.WORDS
    with pytest.raises(ValueError, match="A tag must be O"):
        tagging_entities.find_entities(labels)
