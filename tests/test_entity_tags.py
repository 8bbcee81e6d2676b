import pytest
from hypothesis import given
from hypothesis import strategies as st

import entity_tags
from entity_tags import Entity

SAME = {
    "iob2": ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "B-PER", "O"],
    "iob1": ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-LOC", "I-PER", "O"],
    "iobes": ["B-PER", "E-PER", "O", "S-LOC", "B-LOC", "E-LOC", "S-PER", "O"],
}
ENTITIES = [Entity("PER", 0, 2), Entity("LOC", 3, 4), Entity("LOC", 4, 6), Entity("PER", 6, 7)]

any_tags = st.lists(
    st.sampled_from(["O", *(f"{prefix}-{kind}" for prefix in "BIES" for kind in ("A", "B-C"))])
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
    assert entity_tags.find_entities(SAME[scheme]) == ENTITIES
    assert entity_tags.to_tags(ENTITIES, 8, scheme) == SAME[scheme]
    for other, tags in SAME.items():
        assert entity_tags.convert(tags, scheme) == SAME[scheme], other


@given(entities_and_length(), st.sampled_from(entity_tags.SCHEMES))
def test_entities_come_back_from_valid_tags(drawn, scheme):
    entities, length = drawn
    tags = entity_tags.to_tags(entities, length, scheme)
    assert len(tags) == length
    assert entity_tags.find_entities(tags) == entities
    assert entity_tags.find_fault(tags, scheme) is None
    others = set(entity_tags.SCHEMES) - {scheme}
    if entities:
        assert all(entity_tags.find_fault(tags, other) for other in others)


@given(any_tags, st.sampled_from(entity_tags.SCHEMES))
def test_any_tags_have_entities_that_a_scheme_can_hold(tags, scheme):
    converted = entity_tags.convert(tags, scheme)
    assert entity_tags.find_entities(converted) == entity_tags.find_entities(tags)
    assert entity_tags.find_fault(converted, scheme) is None
    assert [tag == "O" for tag in converted] == [tag == "O" for tag in tags]


@given(any_tags, st.sampled_from(entity_tags.SCHEMES))
def test_tags_without_fault_are_those_that_conversion_leaves(tags, scheme):
    is_valid = entity_tags.find_fault(tags, scheme) is None
    assert is_valid == (entity_tags.convert(tags, scheme) == tags)


def test_types_are_optional_and_may_hold_hyphens():
    assert entity_tags.split_tag("I-a-b") == ("I", "a-b")
    assert entity_tags.find_entities(["B", "I", "O", "B-a-b"]) == [
        Entity("", 0, 2),
        Entity("a-b", 3, 4),
    ]
    assert entity_tags.convert(["B", "I", "B"], "iobes") == ["B", "E", "S"]


@pytest.mark.parametrize("tag", ["", "PER", "X-PER", "b-PER", "B-", "BPER", "o"])
def test_what_is_no_tag_is_an_error(tag):
    with pytest.raises(ValueError, match=f"Received '{tag}'"):
        entity_tags.split_tag(tag)
    assert entity_tags.find_fault(["O", tag], "iob2").word == 1


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
    ],
)
def test_a_fault_tells_the_word_and_the_rule(tags, scheme, word, message):
    fault = entity_tags.find_fault(tags, scheme)
    assert fault.word == word
    assert message in fault.message


def test_labels_are_all_tags_of_a_scheme():
    assert entity_tags.list_labels(["PER", "LOC", "PER"], "iob2") == [
        "O",
        "B-LOC",
        "I-LOC",
        "B-PER",
        "I-PER",
    ]
    assert entity_tags.list_labels(["X"], "iobes") == ["O", "B-X", "I-X", "E-X", "S-X"]
