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
