"""Keeps the ratios of benchmark runs in benchmarks/history.jsonl, and draws them as docs/speed.svg.

    python benchmarks/history.py

draws them again. A line of the history is one benchmark of a run of page.py with --history: the
ratios in its tables, of this project to another program that took turns with it, higher being
better. In the picture, a row is a ratio: a pale dot for each earlier run, a dark one for the last.
"""

import datetime
import html
import json
import math
import os
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turns import FOLDER, ROOT

HISTORY, PICTURE = FOLDER / "history.jsonl", ROOT / "docs" / "speed.svg"
# Titles of the columns that are ratios: of speeds; of times, the other's to ours; and of the
# requests that serve.py answers to the texts that the model does.
RATIOS = ("ratio", "times as long", "of direct")
# The other programs of prediction.py have ratios to torch, too.
PEERS = ("torch/", "onnxruntime/", "openvino/")

_LEFT, _WIDTH, _RIGHT, _ROW = 330, 420, 130, 18
# The ends of the scale.
_LOW, _HIGH = 0.25, 32.0


def read_ratios(page: str) -> dict[str, float]:
    """Returns the ratios in the tables of a Markdown page, by section, table and row."""
    ratios: dict[str, float] = {}
    section, titles = "", [""]
    for line in page.splitlines():
        if line.startswith("### "):
            section = line[4:].partition(":")[0]
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if not cells:
            titles = []
        elif not titles:
            titles = cells
        elif named := [place for place, title in enumerate(titles) if title in RATIOS]:
            name = " ".join(filter(None, (section, titles[0], cells[0])))
            value = cells[named[0]]
            if value.replace(".", "").isdigit() and not cells[0].startswith(PEERS):
                ratios[name] = float(value)
    return ratios


def append(benchmark: str, flags: Sequence[str], page: str, path: Path = HISTORY) -> None:
    """Adds what a benchmark has printed to the history, if there are ratios in it."""
    from bert.files.machine import processor_name  # noqa: PLC0415 (page.py sets the path)

    if not (ratios := read_ratios(page)):
        return
    line = {
        "benchmark": " ".join([benchmark, *flags]),
        "commit": _commit(),
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
        "processor": f"{processor_name()}, {os.cpu_count()} cores",
        "ratios": ratios,
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _commit() -> str:
    """Returns the commit, marked where files differ from it, apart from those of the history."""
    others = [f":(exclude){path.relative_to(ROOT)}" for path in (HISTORY, PICTURE)]

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    is_changed = git("diff", "--name-only", "HEAD", "--", ".", *others)
    return git("rev-parse", "--short=10", "HEAD") + ("-dirty" if is_changed else "")


def read_history(path: Path = HISTORY) -> dict[str, dict[str, list[Any]]]:
    """Returns by benchmark and ratio the runs that have it, each with its line and its value."""
    history: dict[str, dict[str, list[Any]]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        rows = history.setdefault(line["benchmark"], {})
        for name, value in line["ratios"].items():
            rows.setdefault(name, []).append((line, value))
    return history


def draw(history: dict[str, dict[str, list[Any]]]) -> str:
    """Returns the picture of a history as SVG."""
    parts: list[str] = []
    top = 34
    for benchmark, rows in sorted(history.items()):
        parts.append(_text(8, top + 13, benchmark, 'font-weight="600"'))
        top += _ROW
        for name, runs in sorted(rows.items()):
            if all(value == 1.0 for _, value in runs):
                # A program beside itself.
                continue
            parts += _draw_row(top, name, runs)
            top += _ROW
        top += _ROW // 2
    scale = []
    for step in range(int(math.log2(_LOW)), int(math.log2(_HIGH)) + 1):
        x, dash = _x(2.0**step), "" if step == 0 else ' stroke-dasharray="1 4"'
        scale.append(f'<path d="M{x:.1f} 30V{top}" stroke="#7b828a"{dash}/>')
        scale.append(_text(x, 20, f"{2.0**step:g}", 'text-anchor="middle"'))
    width = _LEFT + _WIDTH + _RIGHT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#4d545b">'
    )
    ground = f'<rect width="{width}" height="{top}" fill="#ffffff"/>'
    title = "<title>How many times as fast as the program beside, run by run</title>"
    return "\n".join([head, title, ground, *scale, *parts, "</svg>"]) + "\n"


def _draw_row(top: int, name: str, runs: Sequence[tuple[Any, float]]) -> list[str]:
    """Returns the name of a ratio, its dots, and its last value with the change."""
    parts = [_text(20, top + 13, name)]
    for number, (line, value) in enumerate(runs):
        color = "#1f4e80" if number == len(runs) - 1 else "#a9c4e0"
        shown = f"{value:g}: {line['commit']}, {line['date']}, {line['processor']}"
        parts.append(
            f'<circle cx="{_x(value):.1f}" cy="{top + 9}" r="4" fill="{color}">'
            f"<title>{html.escape(shown)}</title></circle>"
        )
    *earlier, (_, last) = runs
    text = f"{last:g}"
    if earlier:
        change = last / statistics.median(value for _, value in earlier) - 1
        text += f" ({change:+.0%})"
    return [*parts, _text(_LEFT + _WIDTH + 16, top + 13, text)]


def _x(value: float) -> float:
    share = math.log(min(max(value, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return _LEFT + share * _WIDTH


def _text(x: float, y: float, text: str, look: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y}" {look}>{html.escape(text)}</text>'


def main() -> None:
    """Draws the history."""
    PICTURE.write_text(draw(read_history()), encoding="utf-8")


if __name__ == "__main__":
    main()
