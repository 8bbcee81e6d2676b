"""What tests of several modules share of `reports_page`."""

import html.parser
import json
import shutil
import subprocess
import tempfile

import pytest


class Parsed(html.parser.HTMLParser):
    """Collects the tags of a page, and the texts of its elements of a kind."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = [], {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self._inside = dict(attributes).get("type", tag)

    def handle_endtag(self, _):
        self._inside = ""

    def handle_data(self, text):
        self.texts[self._inside] = self.texts.get(self._inside, "") + text

    @property
    def content(self):
        return json.loads(self.texts["application/json"])


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="There is no Chromium here.")


class Shown(html.parser.HTMLParser):
    """What a browser makes of a page: the texts of its articles and marks, all words, and drawings.

    `drawn` has the attributes of all shapes of a class, in their order.
    """

    def __init__(self, text):
        super().__init__()
        self.articles, self.classes, self.words, self.marks = [], set(), "", []
        self.drawn = {}
        self._skips = self._in_article = self._in_mark = False
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.classes |= set((dict(attributes).get("class") or "").split())
        self.drawn.setdefault(dict(attributes).get("class"), []).append(dict(attributes))
        self._skips = tag in ("script", "style", "option")
        if tag == "article":
            self._in_article = True
            self.articles.append("")
        if tag == "mark":
            self._in_mark = True
            self.marks.append("")

    def handle_endtag(self, tag):
        self._skips = False
        self._in_article &= tag != "article"
        self._in_mark &= tag != "mark"

    def handle_data(self, text):
        if self._skips:
            return
        self.words += text
        if self._in_article:
            self.articles[-1] += text
        if self._in_mark:
            self.marks[-1] += text


def browse(path, fragment=""):
    """Returns what Chromium shows of a file, and what it says in the console.

    What a page asks the network for, its policy refuses, and the console tells.
    """
    return browse_at(f"{path.as_uri()}{fragment}", "--host-resolver-rules=MAP * ~NOTFOUND")


def browse_at(address, *rules):
    """Returns what Chromium shows at an address, and what it says in the console."""
    with tempfile.TemporaryDirectory() as folder:
        options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync"
        options += " --disable-background-networking --disable-component-update --dump-dom"
        options += f" --enable-logging=stderr --user-data-dir={folder} --virtual-time-budget=3000"
        result = subprocess.run(
            [CHROMIUM, *options.split(), *rules, address],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return Shown(result.stdout), console
