"""A page of sections: one file that asks the network for nothing and runs no text as code."""

import base64
import dataclasses
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from bert.files.durable import replace_files
from bert.reports.sections import Section, to_json

# The page's own script puts text on it as text and never as HTML.
_PLACEHOLDER = re.compile(r"%([A-Z]+(?:_[A-Z]+)*)%")
# Within a script, nothing but "<" can end it or begin a comment; JavaScript took the last two for
# ends of lines. JSON has another way to write each.
_ESCAPED = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


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
      title: Of the page.
      sections: Below each other.
      figures: The numbers at the head.
      facts: By name, what was asked for.
    """

    title: str
    sections: Sequence[Section]
    figures: Sequence[Figure] = ()
    facts: Mapping[str, str | float] = dataclasses.field(default_factory=dict)


def write_page(path: str, page: Page) -> None:
    """Writes a page, which appears when it is whole."""
    with replace_files([path]) as (file,):
        # A lone surrogate becomes the escape that JSON has for it.
        file.write(format_page(page).encode(errors="backslashreplace"))


def format_page(page: Page) -> str:
    """Returns a page as HTML."""
    parts = {name: read_part(f"page.{name}") for name in ("html", "css", "js")}
    return fill_page(parts["html"], parts["css"], parts["js"], page.title, to_json(page))


def fill_page(template: str, style: str, script: str, title: str, content: Any) -> str:
    """Returns a page that a template makes of its parts.

    Args:
      template: HTML with the placeholders `%TITLE%`, `%STYLE%`, `%SCRIPT%`, `%CONTENT%` and, for
        its policy, `%STYLE_HASH%` and `%SCRIPT_HASH%`.
      style: CSS.
      script: JavaScript, which finds the content.
      title: Of the page.
      content: Fit for JSON.
    """
    values = {
        "TITLE": html.escape(title),
        "STYLE": style,
        "SCRIPT": script,
        # Whatever stood in the page besides them, the browser would not run it.
        "STYLE_HASH": _hash(style),
        "SCRIPT_HASH": _hash(script),
        "CONTENT": embed(content),
    }
    # At once, so that no value's own percent signs are taken for a placeholder.
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template)


def embed(value: Any) -> str:
    """Returns JSON that may stand in a script element."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.translate(_ESCAPED)


def read_part(name: str, package: str = __package__) -> str:
    """Returns a file that lies beside the modules of a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
