"""Tags of words: the units of text that have one, schemes, entities, tag sets, and scores.

A tag is `O`, or a prefix and the type of an entity, such as `B-PER`. In IOB2, `B` begins an entity
and `I` continues it. In IOB1, `I` does both, and `B` begins an entity only right after another one
of its type. In IOBES, `E` ends an entity of several words, and `S` is an entity of a single word.
BMES is IOBES with `M` in place of `I`; without types and `O`, it splits characters into words.
"""

import collections
import dataclasses
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bert.tasks.tagging.options import NONE, SCHEMES, UNITS

Span = tuple[int, int]
# Matches ASCII only, since `simplify` replaces other letters, digits and marks with a letter.
_WORD = re.compile(
    r"(?:[a-z]\.){2,}"  # U.S., e.g.
    r"|'s\b"
    # Punctuation within a word, except for the apostrophe of a possessive.
    r"|\w+(?:(?:[-&./@]|'(?!s\b)|(?<=\d)[,:](?=\d))\w+)*"
    r"|\S",
    re.ASCII | re.IGNORECASE,
)
# Names of characters whose scripts do not separate words.
_UNSPACED = re.compile(
    "CJK|(?:HALFWIDTH )?KATAKANA|HIRAGANA|BOPOMOFO|THAI|LAO|KHMER|MYANMAR|TIBETAN|YI "
)
_APOSTROPHES = "'’ʼ"  # noqa: RUF001

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


def find_spans(text: str, unit: str) -> list[Span]:
    """Returns the start and end (exclusive) of each word or character of a text.

    Rules, not a model, split text much as that of CoNLL-2003 is split. Details matter little, since
    word pieces are split at every punctuation mark anyway.

    Args:
      text: Any text; spans contain no whitespace.
      unit: "word", in which CJK characters are words; or "character", for languages that do not
        separate words.
    """
    return word_spans(text) if unit == "word" else character_spans(text)


def word_spans(text: str) -> list[Span]:
    """Returns the spans of words and of single punctuation marks."""
    return [match.span() for match in _WORD.finditer("".join(map(simplify, text)))]


@functools.lru_cache(maxsize=4096)
def simplify(char: str) -> str:
    """Returns an ASCII character that has the same role in the rules of words."""
    if char.isspace():
        return " "
    if char in _APOSTROPHES:
        return "'"
    if char.isascii():
        return char
    # Combining marks, and invisible signs that some scripts have within words, count as letters.
    category = unicodedata.category(char)
    is_letter = category[0] in "LNM" or category == "Cf"
    return "x" if is_letter and not unicodedata.name(char, "").startswith("CJK") else "|"


def character_spans(text: str) -> list[Span]:
    """Returns the spans of characters with their combining marks.

    Numbers, and words of scripts that separate words, are single spans.
    """
    spans: list[Span] = []
    before = " "
    for index, char in enumerate(text):
        is_joined = is_mark(char) or (is_spaced(char) and is_spaced(before))
        if is_joined and not before.isspace():
            spans[-1] = (spans[-1][0], index + 1)
        elif not char.isspace():
            spans.append((index, index + 1))
        before = char
    return spans


def is_mark(char: str) -> bool:
    """Returns whether a character is a combining mark or an invisible sign."""
    return unicodedata.category(char) in ("Mn", "Mc", "Me", "Cf")


def is_spaced(char: str) -> bool:
    """Returns whether a character is a letter or digit of a script that separates words."""
    return char.isalnum() and not _UNSPACED.match(unicodedata.name(char, ""))


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


@dataclasses.dataclass(frozen=True, kw_only=True)
class TagSet:
    """The tags that a model assigns to words.

    Attributes:
      labels: Tags, in the order of the model's outputs.
      scheme: The scheme of the labels, one of `SCHEMES` or `PLAIN`.
      unit: The unit of raw text that has a tag, one of `UNITS`.
    """

    labels: tuple[str, ...]
    scheme: str
    unit: str = "word"

    def __post_init__(self) -> None:
        for name, values in (("scheme", (*SCHEMES, *PLAIN)), ("unit", UNITS)):
            if getattr(self, name) not in values:
                raise ValueError(
                    f"`{name}` must be one of {list(values)}. Received {getattr(self, name)!r}."
                )
        if len(set(self.labels)) < max(len(self.labels), 2):
            raise ValueError(
                f"`labels` must be at least two, each once. Received {list(self.labels)}."
            )
        for label in self.labels:
            split_label(label, self.scheme)

    @property
    def is_plain(self) -> bool:
        """Whether each label is a class, not a part of an entity."""
        return self.scheme in PLAIN

    @property
    def is_segmentation(self) -> bool:
        """Whether the complete text is split into words, as no label means "outside"."""
        return not self.is_plain and OUTSIDE not in self.labels

    @property
    def answers_with_words(self) -> bool:
        """Whether an answer lists all words of a text with their tags, not entities."""
        return self.is_segmentation or self.scheme == NONE

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as values of JSON."""
        return {**dataclasses.asdict(self), "labels": list(self.labels)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TagSet":
        """Returns the tag set with the fields of `to_dict`, all of which are required."""
        names = [field.name for field in dataclasses.fields(cls)]
        if sorted(values) != sorted(names):
            raise ValueError(f"A task must have the keys {names}. Received {list(values)}.")
        labels = values["labels"]
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise ValueError(f"`labels` of a task must be a list of tags. Received {labels!r:.80}.")
        return cls(**{**values, "labels": tuple(labels)})

    @classmethod
    def from_tags(cls, tags: Sequence[Sequence[str]], scheme: str, unit: str = "word") -> "TagSet":
        """Returns the tag set of the entities, or plain tags, in a training set.

        Args:
          tags: The tags of each sentence, of any scheme.
          scheme: The scheme of the model's labels.
          unit: The unit of raw text that has a tag.

        Raises:
          ValueError: if there is no entity, or fewer than two tags.
        """
        found = {*itertools.chain.from_iterable(tags)}
        if scheme in PLAIN:
            return cls(labels=tuple(sorted(found)), scheme=scheme, unit=unit)
        types = {entity.type for sentence in tags for entity in find_entities(sentence)}
        if not types:
            raise ValueError("The sentences to train on must have entities. All tags are O.")
        labels = list_labels(types, scheme)
        if scheme == "bmes" and OUTSIDE not in found:
            labels.remove(OUTSIDE)
        return cls(labels=tuple(labels), scheme=scheme, unit=unit)


_RATES = ("precision", "recall", "f1")


def score_entities(
    gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> dict[str, Any]:
    """Returns the scores of the tags of sentences; the accuracy requires that schemes are equal.

    Returns:
      `precision`, `recall`, `f1`, and the numbers `num_gold`, `num_found` and `num_correct` of
      entities; `accuracy` of the tags of words, and `num_words`; and `types`, which has the rates
      and numbers of the entities of each type.
    """
    counts = {name: collections.Counter[str]() for name in ("gold", "found", "correct")}
    num_words = num_right = 0
    for gold_tags, tags in zip(gold, predicted, strict=True):
        num_words += len(tags)
        num_right += sum(map(str.__eq__, gold_tags, tags))
        expected, found = set(find_entities(gold_tags)), set(find_entities(tags))
        for name, entities in zip(counts, (expected, found, expected & found), strict=True):
            counts[name].update(entity.type for entity in entities)
    types = sorted(counts["gold"] | counts["found"])
    return {
        **_rates(*(counter.total() for counter in counts.values())),
        "accuracy": num_right / num_words if num_words else 0.0,
        "num_words": num_words,
        "types": {kind: _rates(*(counter[kind] for counter in counts.values())) for kind in types},
    }


def _rates(num_gold: int, num_found: int, num_correct: int) -> dict[str, float]:
    # Faithful: conlleval gives 0 for a division by 0.
    return {
        "precision": num_correct / num_found if num_found else 0.0,
        "recall": num_correct / num_gold if num_gold else 0.0,
        "f1": 2 * num_correct / (num_gold + num_found) if num_correct else 0.0,
        "num_gold": num_gold,
        "num_found": num_found,
        "num_correct": num_correct,
    }


def score_tags(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Any]:
    """Returns the scores of the tags of words, each tag being a class.

    Returns:
      `accuracy`; `macro_f1`, the mean F1 of the gold tags; `num_words`; `baseline`, the accuracy of
      always predicting the most frequent tag; and `tags`, which has the `precision`, `recall`, `f1`
      and `support`, the number of words, of each tag.
    """
    from sklearn import metrics  # noqa: PLC0415

    tags = sorted({*gold, *predicted})
    columns = metrics.precision_recall_fscore_support(
        gold, predicted, labels=tags, average=None, zero_division=0
    )
    rates = {
        tag: {**dict(zip(_RATES, map(float, row), strict=True)), "support": int(support)}
        for tag, *row, support in zip(tags, *columns, strict=True)
    }
    counts = collections.Counter(gold)
    return {
        "accuracy": sum(map(str.__eq__, gold, predicted)) / len(gold),
        "macro_f1": sum(rates[tag]["f1"] for tag in counts) / len(counts),
        "num_words": len(gold),
        "tags": rates,
        "baseline": max(counts.values()) / len(gold),
    }


def format_report(scores: Mapping[str, Any]) -> str:
    """Returns scores as lines: of entities as conlleval prints them; else a table of tags."""
    lines = _format_tags(scores) if "tags" in scores else _format_entities(scores)
    return "\n".join(lines) + "\n"


def _format_entities(scores: Mapping[str, Any]) -> list[str]:
    return [
        f"processed {scores['num_words']} tokens with {scores['num_gold']} phrases; "
        f"found: {scores['num_found']} phrases; correct: {scores['num_correct']}.",
        f"accuracy: {100 * scores['accuracy']:6.2f}%; {_format_rates(scores)}",
        *(
            f"{kind:>17}: {_format_rates(rates)}  {rates['num_found']}"
            for kind, rates in scores["types"].items()
        ),
    ]


def _format_rates(rates: Mapping[str, Any]) -> str:
    precision, recall, f1 = (100 * rates[name] for name in _RATES)
    return f"precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}"


def _format_tags(scores: Mapping[str, Any]) -> list[str]:
    width = max(map(len, scores["tags"]))
    lines = [
        f"{scores['num_words']} words; accuracy: {100 * scores['accuracy']:.2f}%, macro F1: "
        f"{100 * scores['macro_f1']:.2f}; always giving the most frequent tag: "
        f"{100 * scores['baseline']:.2f}%.",
        f"{'':{width}}  {'precision':>9}  {'recall':>6}  {'F1':>6}  {'words':>7}",
    ]
    for tag, rates in sorted(scores["tags"].items(), key=lambda item: -item[1]["support"]):
        precision, recall, f1 = (100 * rates[name] for name in _RATES)
        lines.append(
            f"{tag:{width}}  {precision:9.2f}  {recall:6.2f}  {f1:6.2f}  {rates['support']:7d}"
        )
    return lines
