"""Entities as tags of words, in the schemes IOB1, IOB2, IOBES and BMES.

A tag is `O`, or a prefix and the type of an entity, such as `B-PER`. In IOB2, `B` begins an entity
and `I` continues it. In IOB1, `I` does both, and `B` begins an entity only right after another one
of its type. In IOBES, `E` ends an entity of several words, and `S` is an entity of a single word.
BMES is IOBES with `M` in place of `I`; without types and `O`, it splits characters into words.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SCHEMES = ("iob2", "iob1", "iobes", "bmes")
# The scheme of tags that are not entities, such as parts of speech: each tag is a class.
NONE = "none"
# The scheme of models from elsewhere whose labels have any name: each word with a label other than
# O is an entity of this type.
WORDS = "words"
# The schemes in which each word has a label of any name.
PLAIN = (NONE, WORDS)
OUTSIDE = "O"

_PREFIXES = {"iob1": "BI", "iob2": "BI", "iobes": "BIES", "bmes": "BMES"}
# The prefix of words within an entity.
_INNER = {"iob1": "I", "iob2": "I", "iobes": "I", "bmes": "M"}
# The prefixes that must follow a tag of the same entity or, in IOB1, of the same type.
_FOLLOWING = {"iob1": "B", "iob2": "I", "iobes": "IE", "bmes": "ME"}
# The schemes that mark the last word of an entity.
_CLOSED = ("iobes", "bmes")
# The prefixes that an entity may continue after, and the prefixes that continue one.
_OPEN, _CONTINUING = "BIM", "IME"
_TAG = re.compile(r"([BIMES])(?:-(.+))?", re.DOTALL)


class Entity(NamedTuple):
    """The words from `start` to `end` (exclusive)."""

    type: str
    start: int
    end: int


class Fault(NamedTuple):
    """The index of a word whose tag violates a scheme, and a message about it."""

    word: int
    message: str


def split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix, one of BIMESO, and the type, which is empty for O and bare prefixes.

    Raises:
      ValueError: for a text that is not a tag.
    """
    if tag == OUTSIDE:
        return OUTSIDE, ""
    match = _TAG.fullmatch(tag)
    if match is None:
        raise ValueError(
            f"A tag must be O, or B, I, M, E or S with the type of an entity, such as 'B-PER'. "
            f"Received {tag!r}."
        )
    return match[1], match[2] or ""


def split_label(label: str, scheme: str) -> tuple[str, str]:
    """Returns the prefix and type of a label of any scheme; a plain label has the prefix S."""
    if scheme == NONE or (scheme == WORDS and label != OUTSIDE):
        return "S", label
    return split_tag(label)


def find_scheme(labels: Iterable[str]) -> str:
    """Returns a scheme that allows all labels of a model."""
    labels = list(labels)
    if not all(map(is_tag, labels)):
        return WORDS
    prefixes = {split_tag(label)[0] for label in labels}
    if "M" in prefixes:
        return "bmes" if "I" not in prefixes else WORDS
    if prefixes & {"E", "S"}:
        return "iobes"
    return "iob2" if "B" in prefixes else "iob1"


def is_tag(text: str) -> bool:
    """Returns whether a text is a tag that `split_tag` accepts."""
    return text == OUTSIDE or _TAG.fullmatch(text) is not None


def find_entities(tags: Sequence[str], scheme: str = "") -> list[Entity]:
    """Returns the entities of tags in any order, which may be the predictions of a model.

    The rules are those of conlleval: an entity continues where I, M or E follows B, I or M of its
    type, and every other tag but O begins an entity. `scheme` is only needed for `PLAIN`.
    """
    entities: list[Entity] = []
    before = (OUTSIDE, "")
    for index, label in enumerate(tags):
        tag = split_label(label, scheme)
        if continues(before, tag):
            entities[-1] = entities[-1]._replace(end=index + 1)
        elif tag[0] != OUTSIDE:
            entities.append(Entity(tag[1], index, index + 1))
        before = tag
    return entities


def continues(before: tuple[str, str], tag: tuple[str, str]) -> bool:
    """Returns whether a tag continues the entity of the tag before, both from `split_tag`."""
    return before[1] == tag[1] and before[0] in _OPEN and tag[0] in _CONTINUING


def to_tags(entities: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of `length` words with these entities."""
    tags = [OUTSIDE] * length
    previous = Entity("", -1, -1)
    for entity in entities:
        prefixes = [_INNER[scheme]] * (entity.end - entity.start)
        is_adjacent = entity.start == previous.end and entity.type == previous.type
        if scheme != "iob1" or is_adjacent:
            prefixes[0] = "B"
        if scheme in _CLOSED:
            prefixes[-1] = "E" if len(prefixes) > 1 else "S"
        tags[entity.start : entity.end] = [_join(prefix, entity.type) for prefix in prefixes]
        previous = entity
    return tags


def _join(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns the tags of the same entities in another scheme."""
    if scheme in PLAIN:
        return list(tags)
    return to_tags(find_entities(tags), len(tags), scheme)


def list_labels(types: Iterable[str], scheme: str) -> list[str]:
    """Returns the tags of all entities of these types: O, then those of each type."""
    prefixes = _PREFIXES[scheme]
    return [OUTSIDE, *(_join(prefix, kind) for kind in sorted(set(types)) for prefix in prefixes)]


def find_fault(tags: Sequence[str], scheme: str) -> Fault | None:
    """Returns the first violation of a scheme; None if there is none."""
    before = OUTSIDE
    for index, tag in enumerate(tags):
        if message := _violation(tag, before, scheme):
            return Fault(index, message)
        before = tag
    if scheme in _CLOSED and before[0] in _OPEN:
        last = f"{before!r} must not be the last of a sentence in {scheme.upper()}"
        return Fault(len(tags) - 1, last)
    return None


def _violation(tag: str, before: str, scheme: str) -> str:
    """Returns a message if a tag violates a scheme after the tag before; else an empty text."""
    try:
        prefix, kind = split_tag(tag)
    except ValueError as error:
        return str(error)
    name = scheme.upper()
    if prefix not in _PREFIXES[scheme] + OUTSIDE:
        return f"{name} has no tag {tag!r}"
    if prefix in _FOLLOWING[scheme]:
        begin, inner = _join("B", kind), _join(_INNER[scheme], kind)
        if before not in (begin, inner):
            return f"{tag!r} must follow {begin!r} or {inner!r}, not {before!r}, in {name}"
    elif scheme in _CLOSED and before[0] in _OPEN:
        end = _join("E", split_tag(before)[1])
        return f"{tag!r} must not follow {before!r}, which {end!r} must end, in {name}"
    return ""
