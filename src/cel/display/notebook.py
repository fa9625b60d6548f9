"""A result in a notebook: every row before and after, changed cells marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.proof_notes import proof_notes
from cel.display.sentences import row_sentence
from cel.display.terminal import first_rows
from cel.display.why_not import HINT, why_not
from cel.display.words import cell, cell_pair, percent_pair, row_name
from cel.text import html

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["before_after", "notebook_html"]

FEW = 6  # columns that stay are shown beside those that change if there are so few
# Colours are transparent layers over whatever the notebook's theme has.
STYLE = """
.cel-result table {border-collapse: collapse; margin: .4em 0}
.cel-result th, .cel-result td {padding: .25em .7em; text-align: right; vertical-align: top}
.cel-result th.cel-row, .cel-result td.cel-told {text-align: left}
.cel-result tr.cel-before {border-top: 1px solid rgb(128 128 128 / 45%)}
.cel-result td.cel-same {opacity: .55}
.cel-result td.cel-new {background: rgb(0 114 178 / 20%); box-shadow: inset 3px 0 rgb(0 114 178)}
.cel-result small {display: block; opacity: .8; white-space: nowrap}
.cel-result p {margin: .3em 0}
"""


def notebook_html(result: ExplanationResult, rows: int = 10, *, search: bool = False) -> str:
    """Return the first rows of a result as HTML; everything from tables is escaped.

    With `search` it is found out why rows have no answer, otherwise said if it is known.
    """
    facts = first_rows(result, rows)
    more = len(result) - len(facts)
    noun = "row" if more == 1 else "rows"
    why = why_not(result, facts, search=search)
    unanswered = bool(result.unanswered[facts.rows].any()) and not why
    parts = [
        f"<style>{STYLE}</style>",
        f"<p>{html(repr(result))}</p>",
        before_after(facts, why),
        f"<p>{html(HINT)}</p>" if unanswered else "",
        f"<p>... and {more} more {noun}: show(rows=...)</p>" if more > 0 else "",
    ]
    return f'<div class="cel-result">{"".join(parts)}</div>'


def before_after(facts: Facts, why: Mapping[int, Sequence[str]] | None = None) -> str:
    """Return a table with two lines per answered row and one sentence for each other row."""
    shown = _columns(facts)
    chances = facts.chances is not None
    heads = ["row", "", *(facts.names[j] for j in shown), "outcome"]
    heads += ["probability"] if chances else []
    head = "".join(f"<th>{html(cell(h)) if h else ''}</th>" for h in heads)
    lines = []
    for k in range(len(facts)):
        if facts.has_answer[k]:
            lines.append(_two_lines(facts, k, shown))
            continue
        told = html(row_sentence(facts, k, named=False))
        told += "".join(f"<br>{html(w)}" for w in (why or {}).get(k, []))
        lines.append(
            f'<tr class="cel-before"><th class="cel-row">{html(row_name(facts.labels[k]))}</th>'
            f'<td class="cel-told" colspan="{len(heads) - 1}">{told}</td></tr>'
        )
    hidden = [facts.names[j] for j in range(len(facts.names)) if j not in shown]
    note = ""
    if hidden:
        names = ", ".join(cell(n) for n in hidden[:8]) + (", ..." if len(hidden) > 8 else "")
        note = f"<p>{len(hidden)} columns stay as they are in these rows: {html(names)}</p>"
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return table + note


def _columns(facts: Facts) -> list[int]:
    """Return the columns to show: all if few stay as they are, else those that change."""
    changing = facts.moved[facts.has_answer].any(0)
    if (~changing).sum() <= FEW:
        return list(range(len(facts.names)))
    return [int(j) for j in np.flatnonzero(changing)]


def _two_lines(facts: Facts, row: int, shown: list[int]) -> str:
    first, second = [], []
    for j in shown:
        name = facts.names[j]
        if not facts.moved[row, j]:
            same = html(cell(facts.before[name].iloc[row]))
            first.append(f"<td>{same}</td>")
            second.append(f'<td class="cel-same">{same}</td>')
            continue
        had, has = facts.changed[j]
        before, after = (html(t) for t in cell_pair(had[row], has[row]))
        usual = facts.usual_text(row, j)
        small = f"<small>{html(usual)}</small>" if usual else ""
        first.append(f"<td>{before}</td>")
        second.append(f'<td class="cel-new"><b>{after}</b>{small}</td>')
    first.append(f"<td>{html(facts.now[row])}</td>")
    second.append(f"<td><b>{html(facts.then[row])}</b></td>")
    if facts.chances is not None:
        for cells, text in zip(
            (first, second), percent_pair(*(float(p[row]) for p in facts.chances)), strict=True
        ):
            cells.append(f"<td>{html(text)}</td>")
    label = html(row_name(facts.labels[row]))
    notes = "".join(
        f'<tr><td></td><td class="cel-told" colspan="{len(first) + 1}">{html(note)}</td></tr>'
        for note in proof_notes(facts, row)
    )
    return (
        f'<tr class="cel-before"><th class="cel-row" rowspan="2">{label}</th><td>before</td>'
        f"{''.join(first)}</tr><tr><td>after</td>{''.join(second)}</tr>{notes}"
    )
