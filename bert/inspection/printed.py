"""An inspection as text for a terminal."""

import json
from collections.abc import Collection, Iterator, Sequence

from rich.cells import cell_len

from bert.inspection.look import GOALS, Inspection, Reading, find_goals
from bert.models.pretrained import Guess

# Marks of a piece.
_CHANGED, _UNKNOWN = "≠", "?"


def format_inspection(inspection: Inspection) -> str:
    """Returns an inspection in lines."""
    reading = inspection.reading
    lines = [spelled(" ||| ".join(filter(None, reading.texts))), ""]
    lines += [*_pieces(reading), ""]
    if inspection.is_next is not None:
        lines += [f"{inspection.is_next:.4f}  is the probability that the second follows.", ""]
    if inspection.answer is not None:
        answer = json.dumps(inspection.answer, ensure_ascii=False, indent=1)
        lines += ["The answer", *map(spelled, answer.splitlines()), ""]
    for position, layers in inspection.masks.items():
        lines += [f"[MASK] at {position}, layer by layer", *_guesses(layers), ""]
    if inspection.attention.size:
        lines += ["Where attention goes, in percent", *_goals(inspection), ""]
    return "\n".join([*lines, *inspection.notes, *([""] if inspection.notes else [])])


def _pieces(reading: Reading) -> Iterator[str]:
    rows = [["position", "segment", "typed", "cleaned", "piece", "id", ""]]
    place = 0
    for word in reading.words:
        for number, piece in enumerate(word.pieces):
            typed, cleaned = (word.typed, word.cleaned) if not number else ("", "")
            marks = _CHANGED if word.typed and typed != cleaned else ""
            marks += _UNKNOWN if piece == reading.unknown else ""
            numbers = [place, reading.segment_ids[place]]
            cells = [*map(str, numbers), typed, cleaned, piece]
            rows.append([*cells, str(reading.input_ids[place]), marks])
            place += 1
        if not word.pieces:
            rows.append(["", "", word.typed, word.cleaned, "", "", _CHANGED])
    yield from _table(rows, numbers={0, 1, 5})
    found = {mark for row in rows[1:] for mark in row[-1]}
    legend = {_CHANGED: "cleaning changed it", _UNKNOWN: "the vocabulary lacks the word"}
    yield from (f"{mark} {text}" for mark, text in legend.items() if mark in found)


def _guesses(layers: Sequence[Sequence[Guess]]) -> Iterator[str]:
    rows = []
    for name, guesses in zip(layer_names(len(layers) - 1), layers, strict=True):
        rows.append([name, *(f"{each.token} {each.probability:.3f}" for each in guesses)])
    return _table(rows)


def _goals(inspection: Inspection) -> Iterator[str]:
    shares = find_goals(inspection.attention, inspection.reading.tokens)
    rows = [["", *GOALS]]
    names = layer_names(len(shares))[1:]
    rows += [
        [name, *(f"{100 * share:.0f}" for share in row)]
        for name, row in zip(names, shares.tolist(), strict=True)
    ]
    return _table(rows, numbers=range(1, len(GOALS) + 1))


def layer_names(num_layers: int) -> list[str]:
    """Returns the names of the embeddings and of the layers above them."""
    return ["embeddings", *(f"layer {number}" for number in range(num_layers))]


def spelled(text: str) -> str:
    """Returns a text with an escape for every invisible character.

    Unlike `bert.files.visible.visible`, it escapes joiners within words and unusual spaces: an
    inspection must show them.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _table(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> Iterator[str]:
    """Yields rows with aligned columns; columns of numbers are aligned at the right."""
    shown = [[spelled(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*shown, strict=True)]
    for row in shown:
        cells = []
        for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
            room = " " * (width - cell_len(cell))
            cells.append(f"{room}{cell}" if place in numbers else f"{cell}{room}")
        yield f"  {'  '.join(cells)}".rstrip()
