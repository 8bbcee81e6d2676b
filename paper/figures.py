"""Figures as SVG, which stand in a page or by themselves: dots for tables, lines for figure 5."""

import html
from collections.abc import Sequence

from paper.tables import Outcome, Score

_WIDTH = 760
_FONT = 'font-family="system-ui, sans-serif" font-size="12"'
# On white and on black paper.
_OURS, _THEIRS, _QUIET, _LINE = "#2f6fb3", "#d0762b", "#7b828a", "#c9ccd0"
_SERIES = ("#2f6fb3", "#d0762b", "#3a8f68")
_ROW, _HEAD, _FOOT, _LABEL = 24, 46, 26, 232
# Of more columns than so many, texts are smaller.
_FEW = 4
_SMALL = 'font-size="10"'
# Half of the distance that the texts of the least and the greatest value need.
_HALF = 12
_GAP = 26


def draw(outcome: Outcome) -> str:
    """Returns the figure of a table, or "" where nothing of it has run."""
    if not outcome.done[0]:
        return ""
    return _draw_lines(outcome) if outcome.table.steps else _draw_dots(outcome)


def _text(x: float, y: float, text: str, *, look: str = "", anchor: str = "start") -> str:
    look = look or f'fill="{_QUIET}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {look}>{html.escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, look: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" {look}/>'


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    begin = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" '
        f'width="{_WIDTH}" height="{height:.0f}" role="img" {_FONT}>'
    )
    return "\n".join([begin, f"<title>{html.escape(title)}</title>", *parts, "</svg>"]) + "\n"


class _Strip:
    """A horizontal axis from the least to the greatest of some values.

    Args:
      left: Where it begins.
      right: Where it ends.
      values: That it must hold.
    """

    def __init__(self, left: float, right: float, values: Sequence[float]) -> None:
        self.left, self.right = left, right
        low, high = min(values), max(values)
        # Of equal values, one in the middle.
        pad = (high - low) * 0.08 or max(abs(high) * 0.05, 0.5)
        self.low, self.high = low - pad, high + pad

    def x(self, value: float) -> float:
        """Returns where a value stands."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)


def _ends(score: Score) -> tuple[float, float]:
    spread = score.deviation or 0.0
    return score.mean - spread, score.mean + spread


def _draw_dots(outcome: Outcome) -> str:
    table = outcome.table
    height = _HEAD + _ROW * len(table.rows) + _FOOT
    parts = [
        _text(0, _HEAD + _ROW * (row + 0.66), line.title, look='fill="#4d545b"')
        for row, line in enumerate(table.rows)
    ]
    width = (_WIDTH - _LABEL) / len(table.columns)
    for place, column in enumerate(table.columns):
        left = _LABEL + place * width
        size = _SMALL if len(table.columns) > _FEW else ""
        parts.append(
            _text(left + 6, 16, column.title, look=f'fill="#4d545b" font-weight="600" {size}')
        )
        middle = left + width / 2
        ours = [row[place] for row in outcome.scores]
        values = [row.theirs[place] for row in table.rows]
        theirs = [None if value is None else Score(value, None, 1) for value in values]
        parts += _strip((left + 8, middle - 8), height, "ours", ours)
        parts += _strip((middle + 8, left + width - 8), height, "the paper's", theirs)
    return _svg(height, f"{table.title}: ours beside the paper's", parts)


def _strip(
    ends: tuple[float, float], height: float, name: str, scores: Sequence[Score | None]
) -> list[str]:
    known = [score for score in scores if score]
    if not known:
        return []
    strip = _Strip(*ends, [end for score in known for end in _ends(score)])
    is_ours = name == "ours"
    color = _OURS if is_ours else _THEIRS
    look = f'stroke="{_LINE}"'
    bottom = height - _FOOT
    small, tiny = f'fill="{_QUIET}" {_SMALL}', f'fill="{_QUIET}" font-size="9"'
    parts = [_text((strip.left + strip.right) / 2, 34, name, look=small, anchor="middle")]
    parts.append(_line(strip.left, bottom, strip.right, bottom, look))
    means = [score.mean for score in known]
    for x, text in _end_labels(strip, min(means), max(means)):
        parts.append(_text(x, bottom + 16, text, look=tiny, anchor="middle"))
    for row, score in enumerate(scores):
        y = _HEAD + _ROW * (row + 0.5)
        parts.append(_line(strip.left, y, strip.right, y, f'{look} stroke-dasharray="1 4"'))
        if score and score.deviation is not None:
            low, high = map(strip.x, _ends(score))
            parts.append(_line(low, y, high, y, f'stroke="{color}" stroke-width="2"'))
        if score:
            fill = color if is_ours else "none"
            parts.append(
                f'<circle cx="{strip.x(score.mean):.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" '
                f'stroke="{color}" stroke-width="2"/>'
            )
    return parts


def _end_labels(strip: _Strip, low: float, high: float) -> list[tuple[float, str]]:
    """Returns the texts of the least and the greatest value and their places, apart."""
    texts = list(dict.fromkeys([f"{low:.1f}", f"{high:.1f}"]))
    middle = (strip.x(low) + strip.x(high)) / 2
    if len(texts) == 1:
        return [(middle, texts[0])]
    half = max((strip.x(high) - strip.x(low)) / 2, _HALF)
    # Neither reaches the axis beside this one.
    least, most = strip.left + half + 3, strip.right - half - 3
    if least < most:
        middle = min(max(middle, least), most)
    return [(middle - half, texts[0]), (middle + half, texts[1])]


def _draw_lines(outcome: Outcome) -> str:
    """Returns a panel for each task, with a line for each row over the steps."""
    table = outcome.table
    titles = list(dict.fromkeys(column.title for column in table.columns))
    width = (_WIDTH - _GAP * (len(titles) - 1)) / len(titles)
    parts: list[str] = []
    for panel, title in enumerate(titles):
        places = [n for n, column in enumerate(table.columns) if column.title == title]
        parts += _panel(outcome, places, panel * (width + _GAP), width, title)
    for number, row in enumerate(table.rows):
        x = 44 + 150 * number
        look = f'stroke="{_SERIES[number]}" stroke-width="3"'
        parts += [_line(x, 268, x + 18, 268, look), _text(x + 25, 272, row.title)]
    return _svg(284, table.title, parts)


def _panel(
    outcome: Outcome, places: Sequence[int], left: float, width: float, title: str
) -> list[str]:
    steps = [outcome.table.steps[place] for place in places]
    lines = [
        [(step, row[place]) for step, place in zip(steps, places, strict=True)]
        for row in outcome.scores
    ]
    lines = [[(step, score) for step, score in line if score] for line in lines]
    values = [score.mean for line in lines for _, score in line if score]
    parts = [_text(left + 40, 16, title, look='fill="#4d545b" font-weight="600"')]
    if not values:
        return parts
    # Upwards, so from the bottom.
    across = _Strip(left + 40, left + width - 12, [0.0, *map(float, steps)])
    up = _Strip(224, 32, values)
    for number in range(4):
        value = up.low + (up.high - up.low) * (0.06 + number * 0.29)
        y = up.x(value)
        parts.append(_line(across.left, y, across.right, y, f'stroke="{_LINE}"'))
        parts.append(_text(across.left - 6, y + 4, f"{value:.1f}", anchor="end"))
    # The first of two steps that would overlap is left out.
    shown = [
        s
        for s, after in zip(steps, [*steps[1:], 10**12], strict=True)
        if across.x(min(after, 10**12)) - across.x(s) > 38 or after == 10**12
    ]
    parts += [_text(across.x(step), 244, f"{step:,}", anchor="middle") for step in shown]
    for number, line in enumerate(lines):
        color = _SERIES[number]
        points = [(across.x(step), up.x(score.mean)) for step, score in line if score]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in points]
    return parts
