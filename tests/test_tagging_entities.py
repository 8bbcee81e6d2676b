import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert.tasks.tagging.entities import (
    NONE,
    SCHEMES,
    WORDS,
    Entity,
    convert,
    find_entities,
    find_fault,
    find_scheme,
    list_labels,
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
