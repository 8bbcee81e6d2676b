"""A page of sections: one file that asks the network for nothing and runs no text as code.

A section has curves, tables, a confusion matrix, a scatter plot, or examples. page.js draws them:
it reads the names of these classes, in lower case, and the names of their fields.
"""

import base64
import dataclasses
import hashlib
import html
import json
import math
import os
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from bert.files.durable import replace_files
from bert.files.paths import read_file
from bert.options import typed_value

# The page's own script puts text on it as text and never as HTML.
_PLACEHOLDER = re.compile(r"%([A-Z]+(?:_[A-Z]+)*)%")
# Within a script, nothing but "<" can end it or begin a comment; JavaScript took the last two for
# ends of lines. JSON has another way to write each.
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
# Examples that a page holds at most, the worst ones.
MAX_EXAMPLES = 1_000
MAX_CHARACTERS = 2_000
# The rank of an example that has no label; all others come before it.
UNKNOWN = -math.inf


@dataclasses.dataclass(frozen=True)
class Series:
    """A line of a chart.

    Attributes:
      name: What the line is.
      points: Points [x, y], or [x, mean, least, greatest] of several each.
      is_reference: Whether others are compared with the line, such as a baseline.
    """

    name: str
    points: Sequence[Sequence[float]]
    is_reference: bool = False


@dataclasses.dataclass(frozen=True)
class Chart:
    """Lines over the same axis.

    Attributes:
      title: The title of the chart.
      series: The lines.
      y: What the values are.
      x: What the points are counted in.
    """

    title: str
    series: Sequence[Series]
    y: str = ""
    x: str = "step"


@dataclasses.dataclass(frozen=True)
class Curves:
    """Charts beside each other."""

    title: str
    charts: Sequence[Chart]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Link:
    """A link to another file of the folder, or to a filter of this page, `filter_link`."""

    text: str
    target: str


Cell = str | float | Link | None


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under the names of their columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Matrix:
    """A confusion matrix; a click on a cell shows its examples.

    Attributes:
      counts: A row for each right label, with a column for each that was said.
      examples: The `key` of the examples.
    """

    title: str
    labels: Sequence[str]
    counts: Sequence[Sequence[int]]
    examples: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Scatter:
    """What was said against what is right, [right, said, number of the example]."""

    title: str
    points: Sequence[Sequence[float]]
    examples: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Text:
    """A text of an example; its name distinguishes it from the others."""

    text: str
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A marked part of a text.

    Attributes:
      look: "right", "wrong", or "missed", which is right and was not said.
      label: What stands beside it.
    """

    text: str
    look: str
    label: str = ""


@dataclasses.dataclass(frozen=True)
class Marked:
    """A text with marks in their places."""

    pieces: Sequence[str | Mark]
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Bar:
    """An answer and its probability."""

    text: str
    probability: float
    is_right: bool = False
    is_said: bool = False


@dataclasses.dataclass(frozen=True)
class Bars:
    """Answers with their probabilities."""

    bars: Sequence[Bar]


@dataclasses.dataclass(frozen=True)
class Place:
    """A place of a text that was to be guessed.

    Attributes:
      text: What was there.
      probability: What the model gave to that.
      guesses: The model's best ones.
      note: What the model saw there.
    """

    text: str
    probability: float
    guesses: Sequence[Bar]
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Places:
    """Places of a text in their order."""

    places: Sequence[Place]


Block = Text | Marked | Bars | Places


@dataclasses.dataclass(frozen=True)
class Example:
    """An example, what was said of it, and what is right.

    Attributes:
      number: In its file, from 0.
      rank: By this, the greatest first, examples are shown.
      is_right: Whether what was said is right; None where that makes no sense.
      right: The right labels, by which examples are filtered.
      said: Those that were said.
      facts: Short texts, such as its loss.
      blocks: Its texts and answers.
    """

    number: int
    rank: float
    is_right: bool | None
    facts: Sequence[str]
    blocks: Sequence[Block]
    right: Sequence[str] = ()
    said: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples, which a reader may filter.

    Attributes:
      key: Names them in links.
      order: What they are sorted by.
      labels: Those to filter by.
      total: How many there are in all.
    """

    key: str
    title: str
    order: str
    examples: Sequence[Example]
    labels: Sequence[str]
    total: int
    note: str = ""


Section = Curves | Table | Matrix | Scatter | Examples


def worst_first(
    key: str,
    title: str,
    examples: Sequence[Example],
    *,
    order: str,
    labels: Sequence[str] = (),
    note: str = "",
) -> Examples:
    """Returns examples in the order of their rank, the first `MAX_EXAMPLES` of them.

    The right answer of examples of the rank `UNKNOWN` is not known, which the page says.
    """
    unknown = sum(example.rank == UNKNOWN for example in examples)
    if unknown:
        said = f"{unknown:,} of {len(examples):,} have no label: they are neither right nor wrong."
        note = f"{note} {said}".strip()
    ranked = sorted(examples, key=lambda example: -example.rank)
    return Examples(key, title, order, ranked[:MAX_EXAMPLES], labels, len(ranked), note)


def shorten(text: str) -> str:
    """Returns the beginning of a text, as much as a page shows."""
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} …"


def filter_link(text: str, key: str, **values: str) -> Link:
    """Returns a link that filters the examples of this key, such as by `right` or `said`."""
    named = {f"{key}.{name}": value for name, value in values.items()}
    return Link(text, f"#{urllib.parse.urlencode(named, quote_via=urllib.parse.quote)}")


def to_json(value: Any) -> Any:
    """Returns sections as dictionaries, with their `kind`; numbers have six digits."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {"kind": type(value).__name__.lower(), **to_json(fields)}
    if isinstance(value, Mapping):
        return {name: to_json(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_json(each) for each in value]
    if isinstance(value, float):
        # JSON has no other numbers.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that matters, with a remark."""

    name: str
    value: float
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Page:
    """What a page shows.

    Attributes:
      title: The title of the page.
      sections: The sections, the first at the top.
      figures: The numbers at the head.
      facts: The options of the run, by name.
      subtitle: Where the page is from.
    """

    title: str
    sections: Sequence[Section] = ()
    figures: Sequence[Figure] = ()
    facts: Mapping[str, str | float] = dataclasses.field(default_factory=dict)
    subtitle: str = ""

    @property
    def name(self) -> str:
        """The title and the subtitle in a line, for the window."""
        return f"{self.title} ({self.subtitle})" if self.subtitle else self.title


def write_page(path: str, page: Page, script: str = "page.js", **content: Any) -> None:
    """Writes a page; the file appears when it is complete.

    Args:
      path: The file.
      page: What the page shows.
      script: The file beside this module that draws the page.
      **content: More that the script reads, by name.
    """
    with replace_files([path]) as (file,):
        # A lone surrogate becomes the escape that JSON has for it.
        file.write(format_page(page, script, **content).encode(errors="backslashreplace"))


def format_page(page: Page, script: str = "page.js", **content: Any) -> str:
    """Returns a page as HTML; arguments as for `write_page`."""
    code, shown = read_part("base.js") + read_part(script), {**to_json(page), **to_json(content)}
    return fill_page(read_part("page.html"), read_part("page.css"), code, page.name, shown)


class ShownPage:
    """A written page that a notebook shows below its cell and saves with its outputs.

    Args:
      content: The HTML of the page.
      height: The height of its frame, in pixels.
    """

    def __init__(self, content: bytes, height: int) -> None:
        self._content = content
        self._height = height

    def __repr__(self) -> str:
        return f"ShownPage(height={self._height})"

    def _repr_html_(self) -> str:
        # Neither Colab nor an editor opens a path, and links within `srcdoc` leave the page.
        address = f"data:text/html;base64,{base64.b64encode(self._content).decode()}"
        style = f"width: 100%; height: {self._height}px; border: 0"
        return f'<iframe src="{address}" style="{style}"></iframe>'


def show_page(path: str | os.PathLike[str], height: int = 600) -> ShownPage:
    """Returns a page, such as `report.html` of a run, to be shown as the last value of a cell."""
    return ShownPage(read_file(typed_value("path", path, str)), height)


def fill_page(template: str, style: str, script: str, title: str, content: Any) -> str:
    """Returns a page that a template makes of its parts.

    Args:
      template: HTML with the placeholders `%TITLE%`, `%STYLE%`, `%SCRIPT%`, `%CONTENT%` and, for
        its policy, `%STYLE_HASH%` and `%SCRIPT_HASH%`.
      style: CSS.
      script: JavaScript, which finds the content.
      title: The title of the window.
      content: A value that JSON can hold.
    """
    values = {
        "TITLE": html.escape(title),
        "STYLE": style,
        "SCRIPT": script,
        # The browser runs nothing else that a page might contain.
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(script),
        "CONTENT": embed(content),
    }
    # In one pass, so that no percent signs of a value are taken for a placeholder.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def embed(value: Any) -> str:
    """Returns JSON that may stand in a script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.translate(_ESCAPED)


def read_part(name: str, package: str = __package__) -> str:
    """Returns the text of a file beside the modules of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
