"""An inspection as a page: one HTML file that makes no requests."""

import dataclasses
from typing import Any

import numpy as np

from bert.files.durable import replace_files
from bert.files.paths import open_file
from bert.inspection.look import GOALS, Inspection, find_goals
from bert.inspection.printed import layer_names, spelled
from bert.reports.page import fill_page, read_part, to_json

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
