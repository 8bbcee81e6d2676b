"""The report as a page of HTML: one file without a script, in the look of the other reports."""

import html
from collections.abc import Iterator, Mapping, Sequence

from bert.reports.page import fill_page, read_part
from paper import texts
from paper.estimates import format_minutes
from paper.tables import AGREES, DIFFERS, NOISE, Outcome
from paper.texts import Ran, Results

_BODY = "<!-- BODY -->"
_LOOKS = {AGREES: "agrees", DIFFERS: "differs", NOISE: "noise"}
_CAPTION = (
    "Filled: ours, with the standard deviation over seeds where there are several. Hollow: the "
    "paper's, on an axis of its own."
)
_CAPTION_OF_STEPS = "Ours. Steps of pre-training from left to right; each point is a fine-tuning."


def format_page(results: Results, figures: Mapping[str, str]) -> str:
    """Returns the page.

    Args:
      results: What it tells.
      figures: SVG by the key of the table.
    """
    style = read_part("page.css") + read_part("page.css", __package__)
    page = fill_page(read_part("page.html", __package__), style, "", texts.TITLE, None)
    # Behind the filling, so that no text of it is taken for a placeholder.
    return page.replace(_BODY, "\n".join(_body(results, figures)))


def _body(results: Results, figures: Mapping[str, str]) -> Iterator[str]:
    yield f"<header>{_tag('h1', texts.TITLE)}"
    yield f'<p class="lead">{_escape(texts.INTRODUCTION).replace("`", "")}</p>'
    yield f'<p class="overall">{_escape(texts.overall(results.outcomes))}</p>'
    yield _summary(results.outcomes)
    facts = "".join(
        f"{_tag('dt', name)}{_tag('dd', text)}" for name, text in texts.facts(results).items()
    )
    yield f'<dl id="facts">{facts}</dl></header><main>'
    for outcome in results.outcomes:
        yield from _section(results, outcome, figures.get(outcome.table.key, ""))
    if results.failures:
        items = "".join(
            f"<li><code>{_escape(each.name)}</code> {_escape(each.line)}</li>"
            for each in results.failures
        )
        yield f"<section><h2>What failed</h2><ul>{items}</ul></section>"
    runs = _details(texts.pretrainings_of(results))
    yield f"<section><h2>Pre-trainings</h2>{runs}</section></main>"


def _summary(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for outcome in outcomes:
        table, total, (done, count) = outcome.table, outcome.total, outcome.done
        link = f'<a href="#{table.key}">{texts.number_of(table)}</a>'
        counts = (total.same, total.contrary, total.noise, total.unknown)
        numbers = "".join(f'<td class="number">{each}</td>' for each in counts)
        rows.append(
            f"<tr><td>{link}</td>{_tag('td', table.title)}<td>{_badge(total.verdict)}</td>"
            f'{numbers}<td class="number">{done} of {count}</td></tr>'
        )
    names = ("pairs the same way", "contrary", "within the noise", "not known", "scores")
    heads = "".join(f'<th class="number">{name}</th>' for name in names)
    head = f"<thead><tr><th></th><th></th><th>the paper's order</th>{heads}</tr></thead>"
    return f'<div class="card wide"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _section(results: Results, outcome: Outcome, figure: str) -> Iterator[str]:
    table = outcome.table
    heading = f"{_escape(texts.heading(table))} {_badge(outcome.total.verdict)}"
    yield f'<section id="{table.key}"><h2>{heading}</h2><p class="note">{_escape(table.text)}</p>'
    if figure:
        caption = _CAPTION_OF_STEPS if table.steps else _CAPTION
        yield (f'<figure class="card drawing">{figure}<figcaption>{caption}</figcaption></figure>')
    yield _steps(outcome) if table.steps else _scores(outcome)
    yield f'<p class="verdict">{_escape(texts.verdict_line(outcome))}</p>'
    items = "".join(
        f"<li>{_escape(name)}: <b>{agreement.verdict}</b>. {_escape(agreement.tell())}</li>"
        for name, agreement in texts.agreement_lines(outcome)
    )
    yield f'<ul class="columns">{items}</ul><p class="note">{_escape(table.remark)}</p>'
    yield f"{_details(texts.runs_of(results, outcome))}</section>"


def _scores(outcome: Outcome) -> str:
    table = outcome.table
    ours = "".join(f'<th class="number">{_escape(column.title)}</th>' for column in table.columns)
    theirs = "".join(
        f'<th class="number theirs">{_escape(column.paper)}</th>' for column in table.columns
    )
    head = (
        f"<thead><tr><th></th>{ours}<th class='first-theirs theirs'>{texts.PAPER}</th>{theirs}"
        "</tr></thead>"
    )
    rows = []
    for row, scores in zip(table.rows, outcome.scores, strict=True):
        cells = "".join(
            f'<td class="number">{score}</td>'
            if score
            else f'<td class="number missing">{texts.cell_text(None) if cell else ""}</td>'
            for cell, score in zip(row.cells, scores, strict=True)
        )
        paper = "".join(
            f'<td class="number theirs">{texts.their_text(value)}</td>' for value in row.theirs
        )
        name = f'<td class="first-theirs theirs">{_escape(row.paper)}</td>'
        rows.append(f"<tr>{_tag('td', row.title)}{cells}{name}{paper}</tr>")
    return _table(head, rows)


def _steps(outcome: Outcome) -> str:
    table = outcome.table
    titles = "".join(f'<th class="number">{_escape(row.title)}</th>' for row in table.rows)
    head = f'<thead><tr><th></th><th class="number">steps</th>{titles}</tr></thead>'
    rows = []
    for place, (column, step) in enumerate(zip(table.columns, table.steps, strict=True)):
        cells = "".join(
            f'<td class="number{"" if row[place] else " missing"}">'
            f"{texts.cell_text(row[place])}</td>"
            for row in outcome.scores
        )
        rows.append(f'<tr>{_tag("td", column.title)}<td class="number">{step:,}</td>{cells}</tr>')
    return _table(head, rows)


def _details(runs: Sequence[Ran]) -> str:
    return f"<details><summary>Commands, seeds, minutes</summary>{_runs(runs)}</details>"


def _runs(runs: Sequence[Ran]) -> str:
    if not runs:
        return '<p class="note">Nothing has run yet.</p>'
    head = "<thead><tr><th></th><th>command (of the first seed)</th><th>seeds</th>"
    head += '<th class="number">time</th></tr></thead>'
    rows = [
        f"<tr>{_tag('td', f'{run.row}, {run.column}')}<td>{_command(run.command)}</td>"
        f"{_tag('td', ', '.join(map(str, run.seeds)))}"
        f'<td class="number">{format_minutes(run.seconds)}</td></tr>'
        for run in runs
    ]
    return _table(head, rows)


def _command(command: str) -> str:
    """Returns a command whose lines break between its flags."""
    words = " ".join(_tag("span", word) for word in command.split(" "))
    return f"<code>{words}</code>"


def _table(head: str, rows: Sequence[str]) -> str:
    return f'<div class="card wide"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _badge(verdict: str) -> str:
    look = _LOOKS.get(verdict, "")
    return f'<span class="badge {look}">{verdict}</span>'


def _tag(name: str, text: str) -> str:
    return f"<{name}>{_escape(text)}</{name}>"


def _escape(text: str) -> str:
    return html.escape(text)
