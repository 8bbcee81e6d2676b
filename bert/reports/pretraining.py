"""What a page shows of pre-training: sentences with what was masked in them, and the guesses."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert.pretraining.options import BERT, Goal
from bert.reports.page import (
    Bar,
    Block,
    Example,
    Mark,
    Marked,
    Matrix,
    Place,
    Places,
    Section,
    worst_first,
)

# By the label of the record.
_NEXT = ("follows", "is random")
_KEY = "records"
_NOTE = (
    "What was masked stands in its place: green where the model's first guess is right; else "
    "dashed, with that guess beside it."
)


_ALONE_NOTE = (
    "Every token stands there as it is, green where it was the model's first guess {seeing}; else "
    "dashed, with that guess beside it."
)
# By the directions of a goal.
_NOTES = {
    (): _NOTE,
    (1,): _ALONE_NOTE.format(seeing="from those before it"),
    (1, -1): _ALONE_NOTE.format(
        seeing="from those before it (forward), or from those after it (backward)"
    ),
}


def make_sections(
    records: Mapping[str, np.ndarray],
    tokens: Mapping[int, str] | None,
    goal: Goal = BERT,
) -> list[Section]:
    """Returns what a page shows.

    Args:
      records: What `guesses.guess` gives.
      tokens: The vocabulary, by id; None where it is not known.
      goal: What the model has learned.
    """
    count = len(records["input_ids"])
    names = tokens or {}
    shown = [
        _example(number, {name: values[number] for name, values in records.items()}, names, goal)
        for number in range(count)
    ]
    whose = f"Of the first {count:,} records that were evaluated"
    note = f"{whose}, in their order by loss. {_NOTES[goal.directions]}"
    if not tokens:
        note += " Without a vocabulary in the folder, tokens are numbers."
    title = "Sentences, token by token" if goal.directions else "Masked sentences"
    labels = _NEXT if goal.has_next_sentence else ()
    sentences = worst_first(_KEY, title, shown, order="loss", labels=labels, note=note)
    if not goal.has_next_sentence:
        return [sentences]
    right = records["next_sentence_labels"][:, 0]
    said = records["next_sentence_probabilities"].argmax(axis=1)
    counts = np.bincount(2 * right + said, minlength=4).reshape(2, 2).tolist()
    title = "Whether the second part follows the first"
    return [Matrix(title, _NEXT, counts, _KEY, f"{whose}."), sentences]


def _example(
    number: int,
    record: Mapping[str, np.ndarray],
    tokens: Mapping[int, str],
    goal: Goal,
) -> Example:
    is_masked = record["masked_lm_weights"] > 0
    golds = record["masked_lm_ids"][is_masked]
    losses = -record["log_probabilities"][is_masked].astype(np.float64)
    loss = float(losses.mean()) if len(losses) else 0.0
    num_right = int((record["guesses"][is_masked][:, 0] == golds).sum())
    facts = [f"loss {loss:.3f}", f"{num_right} of {len(golds)} guessed"]
    blocks: list[Block] = []
    # The predictions that look in each direction are equally many.
    directions = goal.directions or (0,)
    parts = np.split(np.flatnonzero(is_masked), len(directions))
    for indices, direction in zip(parts, directions, strict=True):
        blocks += _guessed(record, indices, tokens, direction, goal)
    if not goal.has_next_sentence:
        return Example(number, loss, None, facts, blocks)
    chances = record["next_sentence_probabilities"]
    label = int(record["next_sentence_labels"][0])
    facts.append(f"the second part {_NEXT[label]}; that it follows has {chances[0]:.3f}")
    said = _NEXT[int(chances.argmax())]
    return Example(number, loss, None, facts, blocks, [_NEXT[label]], [said])


def _guessed(
    record: Mapping[str, np.ndarray],
    indices: np.ndarray,
    tokens: Mapping[int, str],
    direction: int,
    goal: Goal,
) -> list[Block]:
    """Returns the texts with the guesses in them, and each of these."""
    positions = (record["masked_lm_positions"][indices] + direction).tolist()
    golds = record["masked_lm_ids"][indices].tolist()
    guesses = record["guesses"][indices]  # [masked, 5]
    marks = {
        position: _mark(gold, int(best[0]), tokens)
        for position, gold, best in zip(positions, golds, guesses, strict=True)
    }
    order = np.argsort(positions, kind="stable")
    places = [_place(record, index, tokens, direction) for index in indices[order].tolist()]
    # Of a text that is read in both directions, each has a name.
    ending = ", forward" if direction > 0 else ", backward"
    parts = _parts(record, marks, tokens, ending * (len(goal.directions) > 1))
    return [*parts, Places(places)]


def _name(token_id: int, tokens: Mapping[int, str]) -> str:
    return tokens.get(token_id, f"[{token_id}]")


def _mark(gold: int, best: int, tokens: Mapping[int, str]) -> Mark:
    if gold == best:
        return Mark(_name(gold, tokens), "right")
    return Mark(_name(gold, tokens), "missed", _name(best, tokens))


def _place(
    record: Mapping[str, np.ndarray], index: int, tokens: Mapping[int, str], direction: int
) -> Place:
    gold = int(record["masked_lm_ids"][index])
    seen = int(record["input_ids"][record["masked_lm_positions"][index]])
    chances = record["guess_probabilities"][index].tolist()
    bars = [
        Bar(_name(guess, tokens), chance, guess == gold)
        for guess, chance in zip(record["guesses"][index].tolist(), chances, strict=True)
    ]
    is_plain = direction or tokens.get(seen) == "[MASK]"
    note = "" if is_plain else f"the model saw {_name(seen, tokens)}"
    return Place(_name(gold, tokens), float(np.exp(record["log_probabilities"][index])), bars, note)


def _parts(
    record: Mapping[str, np.ndarray],
    marks: Mapping[int, Mark],
    tokens: Mapping[int, str],
    ending: str,
) -> Iterator[Marked]:
    """Yields the first part, and the second, where there is one; [CLS] and [SEP] left out."""
    length = int(record["input_mask"].sum())
    segments = record["segment_ids"][:length]
    ids = record["input_ids"][:length].tolist()
    first = int((segments == 0).sum())
    for name, places in (("A", range(1, first - 1)), ("B", range(first, length - 1))):
        pieces = [marks.get(place, _name(ids[place], tokens)) for place in places]
        if pieces:
            yield Marked(list(_join(pieces)), f"{name}{ending}")


def _join(pieces: Sequence[str | Mark]) -> Iterator[str | Mark]:
    """Yields pieces with spaces between words, texts that meet put together."""
    spaced: list[str | Mark] = []
    for piece in pieces:
        text = piece.text if isinstance(piece, Mark) else piece
        if spaced and text.startswith("##"):
            end = text.removeprefix("##")
            whole = dataclasses.replace(piece, text=end) if isinstance(piece, Mark) else end
            spaced.append(whole)
        else:
            spaced += [*[" "] * bool(spaced), piece]
    for is_mark, group in itertools.groupby(spaced, lambda each: isinstance(each, Mark)):
        if is_mark:
            yield from group
        else:
            yield "".join(map(str, group))
