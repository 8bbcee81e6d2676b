"""An inspection as text for a terminal, and as an HTML file that makes no requests."""

import dataclasses
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from rich.cells import cell_len

from bert.files.durable import replace_files
from bert.files.paths import open_file
from bert.inspection.look import GOALS, Inspection, Reading, find_goals
from bert.models.pretrained import Guess
from bert.reports.page import fill_page, read_part, to_json

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

    Unlike `bert.files.display.visible`, it escapes joiners within words and unusual spaces: an
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


# Identifies a page of this kind, at its beginning.
_SIGN = b'<meta name="generator" content="bert inspect">'


def write_inspection(path: str, inspection: Inspection) -> None:
    """Writes the page of an inspection; the file appears when it is complete."""
    with replace_files([path]) as (file,):
        # A lone surrogate becomes the escape that JSON has for it.
        file.write(format_page(inspection).encode(errors="backslashreplace"))


def is_inspection(path: str) -> bool:
    """Returns whether a file is the page of an inspection."""
    with open_file(path, "rb") as file:
        return _SIGN in file.read(1024)


def format_page(inspection: Inspection) -> str:
    """Returns the page of an inspection, as HTML."""
    parts = {name: read_part(f"page.{name}", __package__) for name in ("html", "css", "js")}
    # The style of the reports.
    style = read_part("page.css") + parts["css"]
    title = " ||| ".join(filter(None, inspection.reading.texts))
    return fill_page(parts["html"], style, parts["js"], spelled(title), make_content(inspection))


def make_content(inspection: Inspection) -> dict[str, Any]:
    """Returns the content for page.js: attention in thousandths, as one list of rows."""
    reading = inspection.reading
    attention = np.rint(inspection.attention * 1000).astype(int)
    layers, heads, length, _ = attention.shape
    words = [
        {**dataclasses.asdict(word), "typed": spelled(word.typed), "cleaned": spelled(word.cleaned)}
        for word in reading.words
    ]
    masks = [
        {
            "position": position,
            "layers": [[[g.token, g.probability] for g in each] for each in found],
        }
        for position, found in inspection.masks.items()
    ]
    content = {
        "texts": [spelled(text) for text in reading.texts if text],
        "facts": inspection.facts,
        "words": words,
        "tokens": reading.tokens,
        "ids": reading.input_ids,
        "segments": reading.segment_ids,
        "unknown": reading.unknown,
        "is_next": inspection.is_next,
        "answer": inspection.answer,
        "masks": masks,
        "notes": inspection.notes,
        "layers": layer_names(int(inspection.facts["layers"])),
        "goals": {
            "names": GOALS,
            "shares": find_goals(inspection.attention, reading.tokens).tolist(),
        },
    }
    rows = attention.reshape(layers, heads, length * length).tolist()
    return {**to_json(content), "attention": rows}
