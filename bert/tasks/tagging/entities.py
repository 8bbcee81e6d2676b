"""Entities as tags of words, in the schemes IOB1, IOB2, IOBES and BMES.

A tag is `O`, or a prefix and the type of an entity, such as `B-PER`. In IOB2, `B` begins an entity
and `I` goes on with it. In IOB1, `B` only begins an entity right after another of its type, `I` all
others. In IOBES, `E` ends an entity of several words, and `S` is one of a single word. BMES is the
same, but that `M` goes on; without types, and without `O`, it cuts characters into words.
"""

import collections
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

SCHEMES = ("iob2", "iob1", "iobes", "bmes")
# Tags that are no entities, such as parts of speech: each is a class of its own.
NONE = "none"
# Of models from elsewhere, such as those of parts of speech: each word has a label of any name, and
# is an entity of that type, unless it is O.
WORDS = "words"
# Where each word has a label of any name.
PLAIN = (NONE, WORDS)
OUTSIDE = "O"

_PREFIXES = {"iob1": "BI", "iob2": "BI", "iobes": "BIES", "bmes": "BMES"}
# Prefixes after which an entity may go on, and of a word that goes on with one.
_OPEN, _GOING_ON = "BIM", "IME"
# By scheme, the prefix of what is neither the first of an entity nor the last.
_INNER = dict.fromkeys(SCHEMES, "I") | {"bmes": "M"}
_TAG = re.compile(r"([BIMES])(?:-(.+))?", re.DOTALL)


class Entity(NamedTuple):
    """The words from `start` up to, without, `end`."""

    type: str
    start: int
    end: int


class Fault(NamedTuple):
    """What is wrong with the tag of a word."""

    word: int
    message: str


def split_tag(tag: str) -> tuple[str, str]:
    """Returns the prefix, one of BIMESO, and the type, which is empty for O and bare prefixes.

    Raises:
      ValueError: where it is no tag.
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
    """Returns what `split_tag` does, of a label of any scheme, those of `PLAIN` among them."""
    if scheme == NONE or (scheme == WORDS and label != OUTSIDE):
        return "S", label
    return split_tag(label)


def find_scheme(labels: Iterable[str]) -> str:
    """Returns a scheme that has all of a model's labels."""
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
    """Returns whether `split_tag` takes it."""
    return text == OUTSIDE or _TAG.fullmatch(text) is not None


def find_entities(tags: Sequence[str], scheme: str = "") -> list[Entity]:
    """Returns the entities, by rules that make sense of any order of tags of any scheme.

    They are those of conlleval: an entity goes on where I, M or E follows B, I or M of its type,
    and every other tag but O begins one. So predictions need not be valid. Only of `PLAIN` the
    scheme must be said.
    """
    entities: list[Entity] = []
    before = (OUTSIDE, "")
    for index, tag in enumerate(tags):
        prefix, kind = split_label(tag, scheme)
        if goes_on(before, (prefix, kind)):
            entities[-1] = entities[-1]._replace(end=index + 1)
        elif prefix != OUTSIDE:
            entities.append(Entity(kind, index, index + 1))
        before = (prefix, kind)
    return entities


def goes_on(before: tuple[str, str], tag: tuple[str, str]) -> bool:
    """Returns whether the entity of a word is that of the word before, as `split_tag` has both."""
    return before[1] == tag[1] and before[0] in _OPEN and tag[0] in _GOING_ON


def to_tags(entities: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """Returns the tags of so many words."""
    tags = [OUTSIDE] * length
    previous = Entity("", -1, -1)
    for entity in entities:
        prefixes = [_INNER[scheme]] * (entity.end - entity.start)
        follows = entity.start == previous.end and entity.type == previous.type
        if scheme != "iob1" or follows:
            prefixes[0] = "B"
        if scheme in ("iobes", "bmes"):
            prefixes[-1] = "E" if len(prefixes) > 1 else "S"
        tags[entity.start : entity.end] = [_join(prefix, entity.type) for prefix in prefixes]
        previous = entity
    return tags


def _join(prefix: str, kind: str) -> str:
    return f"{prefix}-{kind}" if kind else prefix


def convert(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns tags of the same entities in another scheme."""
    if scheme in PLAIN:
        return list(tags)
    return to_tags(find_entities(tags), len(tags), scheme)


def list_labels(types: Iterable[str], scheme: str) -> list[str]:
    """Returns all tags of entities of these types: O, then type by type."""
    prefixes = _PREFIXES[scheme]
    return [OUTSIDE, *(_join(prefix, kind) for kind in sorted(set(types)) for prefix in prefixes)]


def find_fault(tags: Sequence[str], scheme: str) -> Fault | None:
    """Returns the first violation of a scheme, if there is one."""
    before = OUTSIDE
    for index, tag in enumerate(tags):
        try:
            prefix, kind = split_tag(tag)
        except ValueError as error:
            return Fault(index, str(error))
        if prefix not in _PREFIXES[scheme] + OUTSIDE:
            return Fault(index, f"{scheme.upper()} has no tag {tag!r}")
        if message := _RULES[scheme](prefix, kind, before):
            return Fault(index, f"{tag!r} {message} in {scheme.upper()}")
        before = tag
    if scheme in ("iobes", "bmes") and before[0] in _OPEN:
        named = scheme.upper()
        return Fault(len(tags) - 1, f"{before!r} must not be the last of a sentence in {named}")
    return None


def _iob1_fault(prefix: str, kind: str, before: str) -> str:
    if prefix == "B" and before not in {_join("B", kind), _join("I", kind)}:
        return f"must follow an entity of its type, not {before!r},"
    return ""


def _iob2_fault(prefix: str, kind: str, before: str) -> str:
    if prefix == "I" and before not in {_join("B", kind), _join("I", kind)}:
        return f"must follow {_join('B', kind)!r} or {_join('I', kind)!r}, not {before!r},"
    return ""


def _iobes_fault(prefix: str, kind: str, before: str, inner: str = "I") -> str:
    if prefix in _GOING_ON:
        begins, goes = _join("B", kind), _join(inner, kind)
        is_right = before in {begins, goes}
        return "" if is_right else f"must follow {begins!r} or {goes!r}, not {before!r},"
    if before[0] in _OPEN:
        _, open_kind = split_tag(before)
        return f"must not follow {before!r}, which {_join('E', open_kind)!r} must end,"
    return ""


def _bmes_fault(prefix: str, kind: str, before: str) -> str:
    return _iobes_fault(prefix, kind, before, inner="M")


_RULES = {
    "iob1": _iob1_fault,
    "iob2": _iob2_fault,
    "iobes": _iobes_fault,
    "bmes": _bmes_fault,
}


def score(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> dict[str, Any]:
    """Returns the scores of predicted tags, sentence by sentence.

    Both must be in one scheme for the accuracy to mean something; all else does not depend on it.

    Returns:
      `precision`, `recall`, `f1` over all entities, `accuracy` of the tags of words; their numbers
      `num_words`, `num_gold`, `num_found` and `num_correct`; and for each type in `types`, a
      dictionary of the same without accuracy and words.

    Raises:
      ValueError: where the two do not have the same words.
    """
    counts = {name: collections.Counter[str]() for name in ("gold", "found", "correct")}
    num_words = num_right = 0
    for truth, guess in zip(gold, predicted, strict=True):
        if len(truth) != len(guess):
            raise ValueError(
                f"Each word must have one tag. Received {len(guess)} for {len(truth)} words."
            )
        num_words += len(truth)
        num_right += sum(map(str.__eq__, truth, guess))
        true_entities = set(find_entities(truth))
        found_entities = set(find_entities(guess))
        for name, entities in (
            ("gold", true_entities),
            ("found", found_entities),
            ("correct", true_entities & found_entities),
        ):
            counts[name].update(entity.type for entity in entities)
    types = sorted(counts["gold"] | counts["found"])
    return {
        **_rates(*(sum(counter.values()) for counter in counts.values())),
        "accuracy": num_right / num_words if num_words else 0.0,
        "num_words": num_words,
        "types": {kind: _rates(*(counter[kind] for counter in counts.values())) for kind in types},
    }


def _rates(num_gold: int, num_found: int, num_correct: int) -> dict[str, float]:
    # Faithful: conlleval gives 0 where there is nothing to divide by.
    return {
        "precision": num_correct / num_found if num_found else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
        "f1": 2 * num_correct / (num_gold + num_found) if num_correct else 0.0,
        "num_gold": num_gold,
        "num_found": num_found,
        "num_correct": num_correct,
    }


def format_report(scores: dict[str, Any]) -> str:
    """Returns the scores as conlleval prints them; the last number of a type counts those found."""
    lines = [
        f"processed {scores['num_words']} tokens with {scores['num_gold']} phrases; "
        f"found: {scores['num_found']} phrases; correct: {scores['num_correct']}.",
        f"accuracy: {100 * scores['accuracy']:6.2f}%; {_format_rates(scores)}",
    ]
    for kind, rates in scores["types"].items():
        lines.append(f"{kind:>17}: {_format_rates(rates)}  {rates['num_found']}")
    return "\n".join(lines) + "\n"


def _format_rates(rates: dict[str, Any]) -> str:
    return (
        f"precision: {100 * rates['precision']:6.2f}%; recall: {100 * rates['recall']:6.2f}%; "
        f"FB1: {100 * rates['f1']:6.2f}"
    )
