"""What a page shows of tagged sentences: entities in their places, right and predicted ones."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bert.reports.page import (
    Chart,
    Curves,
    Example,
    Mark,
    Marked,
    Section,
    Series,
    Table,
    filter_link,
    worst_first,
)
from bert.tasks.tagging.sentences import Sentence
from bert.tasks.tagging.tags import Entity, TagSet, convert, find_entities
from bert.tasks.tagging.windows import Prediction

# Longer sentences are cut, in words.
_MAX_WORDS = 400
_COLUMNS = {
    "precision": "precision",
    "recall": "recall",
    "f1": "F1",
    "num_gold": "there",
    "num_found": "found",
    "num_correct": "of them right",
}
_TAG_COLUMNS = {"precision": "precision", "recall": "recall", "f1": "F1", "support": "words"}
_NOTE = (
    "Green is right, red is said but wrong, and a dashed line is missed. Of a sentence without a "
    "mistake there is one line; else the first has what is right, and the second what was said."
)


def make_sections(
    tag_set: TagSet,
    part: str,
    sentences: Sequence[Sentence],
    predictions: Sequence[Prediction],
    scores: Mapping[str, Any],
) -> list[Section]:
    """Returns what a page shows.

    Args:
      tag_set: The tags of the model.
      part: Whose the sentences are, such as "dev".
      sentences: With their tags.
      predictions: Of the same words.
      scores: As `windows.score` gives them.
    """
    types = scores["tags" if tag_set.is_plain else "types"]
    columns = _TAG_COLUMNS if tag_set.is_plain else _COLUMNS
    rows = [
        [filter_link(kind, part, right=kind), *(rates[name] for name in columns)]
        for kind, rates in types.items()
    ]
    shown = [
        _example(tag_set, number, sentence, prediction)
        for number, (sentence, prediction) in enumerate(zip(sentences, predictions, strict=True))
    ]
    shares = scores.get("layer_weights")
    noun = "tag" if tag_set.is_plain else "type"
    return [
        Table(f"{noun.capitalize()}s of the {part} set", [noun, *columns.values()], rows),
        *([mix_section(shares)] if shares else []),
        worst_first(
            part,
            f"Sentences of the {part} set",
            shown,
            order="mistakes",
            labels=list(types),
            note=_NOTE,
        ),
    ]


def mix_section(shares: Sequence[float]) -> Section:
    """Returns what shows the weights that a tagger has learned for the layers, the lowest first."""
    points = [[number, share] for number, share in enumerate(shares)]
    note = "The share of each layer, counted from 0, in what the tagger reads."
    return Curves(
        "Layers",
        [Chart("Weight by layer", [Series("weight", points)], "weight, of 1", "layer")],
        note,
    )


def _example(tag_set: TagSet, number: int, sentence: Sentence, prediction: Prediction) -> Example:
    tags = convert(sentence.tags or (), tag_set.scheme)
    right, said = (find_entities(each, tag_set.scheme) for each in (tags, prediction.tags))
    both = set(right) & set(said)
    # A wrong tag is one mistake; of entities, one may be missed and another said in its place.
    num_wrong = len(set(right) - both if tag_set.is_plain else set(right) ^ set(said))
    lines = [_line(tag_set, sentence, right, both, ("missed", "right" * (num_wrong > 0)))]
    if num_wrong:
        lines.append(_line(tag_set, sentence, said, both, ("wrong", "said")))
    least = min(prediction.probabilities, default=1.0)
    facts = [f"{num_wrong} mistake{'s' * (num_wrong > 1)}"] * (num_wrong > 0)
    # Not the path of the file, of which the folder may be long.
    place = f"line {sentence.lines[0]}" if sentence.lines else ""
    facts += [f"least probability {least:.3f}", place]
    return Example(
        number,
        # Among sentences with as many mistakes, the one of which the model is least sure.
        num_wrong + 1 - least,
        not num_wrong,
        facts,
        lines,
        sorted({entity.type for entity in right}),
        sorted({entity.type for entity in said}),
    )


def _line(
    tag_set: TagSet,
    sentence: Sentence,
    entities: Sequence[Entity],
    both: Collection[Entity],
    names: tuple[str, str],
) -> Marked:
    """Returns the sentence with entities; `names` are the look of wrong ones, and the line's."""
    look, name = names
    space = "" if tag_set.unit == "character" else " "
    words = sentence.words[:_MAX_WORDS]
    pieces: list[str | Mark] = []
    end = 0
    for entity in entities:
        # Of tags of words, as parts of speech have, those that are right would hide the others.
        if (tag_set.is_plain and entity in both) or entity.end > len(words):
            continue
        pieces += _plain(words[end : entity.start], space)
        text = space.join(words[entity.start : entity.end])
        pieces += [Mark(text, "right" if entity in both else look, entity.type), space]
        end = entity.end
    pieces += _plain(words[end:], space)
    return Marked([*pieces, *["…"] * (len(words) < len(sentence.words))], name)


def _plain(words: Sequence[str], space: str) -> list[str | Mark]:
    return [space.join(words) + space] if words else []
