"""One offline page for a person or a cohort."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.offline import simple_page, write_page
from cel.display.proof_notes import proof_notes
from cel.display.sentences import row_sentence
from cel.display.strips import StripMaker
from cel.display.why_not import why_not
from cel.display.words import cell, cell_pair, percent, percent_pair, row_name
from cel.errors import ConfigError
from cel.text import html

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["html_table", "person_page", "save_html"]

MOST = 200  # people with a card of their own
COLUMNS = 15  # of the table of frequent changes
_STATUS = {
    "found": "answered", "invalid": "attempt failed", "not_found": "no answer found",
    "infeasible": "no answer exists", "not_applicable": "nothing to change",
    "timeout": "time ran out", "error": "could not be used",
}  # fmt: skip


def save_html(
    result: ExplanationResult, path: str | Path, *, title: str | None = None, most: int = MOST
) -> Path:
    """Write the page of a result; see `ExplanationResult.save_html`."""
    return write_page(path, person_page(result, title=title, most=most))


def person_page(result: ExplanationResult, *, title: str | None = None, most: int = MOST) -> str:
    """Return the page as text."""
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        raise ConfigError(f"most is {most!r}; say how many people get a card, 1 or more")
    facts = Facts.of(result)
    title = title or ("What would have to change" if len(result) != 1 else "What has to change")
    body = [f"<header><h1>{html(title)}</h1>{_summary(result)}</header>"]
    if len(result) > 1:
        body.append(_frequent(facts))
    shown = Facts.of(result, np.arange(min(most, len(result))))
    strips = StripMaker(shown)
    body.append(_legend(shown))
    why = why_not(result, shown, search=True)
    body += [_card(shown, k, strips, why.get(k, [])) for k in range(len(shown))]
    if len(result) > len(shown):
        more = len(result) - len(shown)
        words = "row is" if more == 1 else "rows are"
        body.append(f"<p>{more:,} more {words} counted above, not shown.</p>")
    return simple_page(title, "\n".join(body))


def html_table(heads: Sequence[str], lines: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table of texts, all escaped; columns after the first are set to the right."""
    head = "".join(f"<th>{html(h)}</th>" for h in heads)
    rows = "".join(f"<tr>{''.join(f'<td>{html(c)}</td>' for c in line)}</tr>" for line in lines)
    name = f' class="{kind}"' if kind else ""
    return f"<table{name}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _summary(result: ExplanationResult) -> str:
    counts = result.counts()
    parts = [
        f"<li><b>{counts[name]:,}</b> {words}</li>"
        for name, words in _STATUS.items()
        if name in counts
    ]
    rows = f"{len(result):,} row{'s' if len(result) != 1 else ''}"
    method = html(result.method or "a method of your own")
    return f'<p class="muted">{rows}, method {method}</p><ul class="counts">{"".join(parts)}</ul>'


def _frequent(facts: Facts) -> str:
    """Return which columns change most often, and how."""
    won = np.flatnonzero(facts.has_answer)
    if not len(won):
        return ""
    often = facts.moved[won].sum(0)
    lines = []
    for j in np.argsort(-often, kind="stable")[:COLUMNS]:
        if often[j]:
            lines.append(
                [cell(facts.names[j]), f"{often[j]:,}", percent(often[j] / len(won)),
                 _usual_way(facts, int(j), won)]
            )  # fmt: skip
    table = html_table(["column", "rows", "share", "most often"], lines)
    return f"<section><h2>What changes most often</h2>{table}</section>"


def _usual_way(facts: Facts, column: int, won: np.ndarray) -> str:
    """Return where a column goes most often: up, down, or to a label."""
    rows = won[facts.moved[won, column]]
    had, has = (values[rows] for values in facts.changed[column])
    number = facts.surroundings is not None and not facts.surroundings.labelled(
        facts.names[column]
    )
    if number:
        with np.errstate(invalid="ignore"):
            ways = np.array([float(b) - float(a) if _known(a) else np.nan for a, b in zip(
                had, has, strict=True)])  # fmt: skip
        counts = [("up", (ways > 0).sum()), ("down", (ways < 0).sum()),
                  ("filled in", np.isnan(ways).sum())]  # fmt: skip
        word, count = max(counts, key=lambda pair: int(pair[1]))
        return f"{word} ({percent(int(count) / len(rows))})"
    names, numbers = np.unique([cell(v) for v in has], return_counts=True)
    best = int(numbers.argmax())
    return f"to {names[best]} ({percent(numbers[best] / len(rows))})"


def _known(value: object) -> bool:
    return cell(value) != "missing"


def _legend(facts: Facts) -> str:
    if facts.surroundings is None:
        return ""
    return (
        '<p class="muted legend">In the drawings: grey bars are the background rows, '
        '<span class="ring">○</span> is the value now, <span class="dot">●</span> the new one.</p>'
    )


def _card(facts: Facts, row: int, strips: StripMaker, why: Sequence[str]) -> str:
    label = html(row_name(facts.labels[row]))
    told = html(row_sentence(facts, row, named=False))
    status = str(facts.status[row])
    head = f'<h2>{label} <span class="status {status}">{_STATUS[status]}</span></h2>'
    parts = [head, f"<p>{told}</p>"]
    if why:
        parts.append(f'<ul class="why">{"".join(f"<li>{html(w)}</li>" for w in why)}</ul>')
    if facts.has_answer[row]:
        parts += [_chance(facts, row), _changes(facts, row, strips)]
        parts += [f'<p class="muted">{html(note)}</p>' for note in proof_notes(facts, row)]
    return f'<section class="card">{"".join(parts)}{_rest(facts, row)}</section>'


def _chance(facts: Facts, row: int) -> str:
    if facts.chances is None:
        return ""
    before, after = (float(p[row]) for p in facts.chances)
    texts = percent_pair(before, after)
    wide = 240
    return (
        f'<p class="chance"><svg role="img" aria-label="probability from {html(texts[0])} to '
        f'{html(texts[1])}" viewBox="0 0 {wide} 14" width="{wide}" height="14">'
        f'<rect class="track" x="0" y="3" width="{wide}" height="8" rx="4"/>'
        f'<rect class="fill" x="0" y="3" width="{wide * after:.1f}" height="8" rx="4"/>'
        f'<rect class="was" x="0" y="3" width="{wide * before:.1f}" height="8" rx="4"/></svg> '
        f"<span>probability of {html(facts.wanted[row])}: {html(texts[0])} → "
        f"<b>{html(texts[1])}</b></span></p>"
    )


def _changes(facts: Facts, row: int, strips: StripMaker) -> str:
    lines = []
    for j in np.flatnonzero(facts.moved[row]):
        had, has = facts.changed[int(j)]
        before, after = (html(t) for t in cell_pair(had[row], has[row]))
        lines.append(
            f"<tr><th>{html(cell(facts.names[j]))}</th><td>{before}</td>"
            f'<td class="new"><b>{after}</b></td><td>{strips.strip(row, int(j))}</td>'
            f'<td class="muted">{html(facts.usual_text(row, int(j)))}</td></tr>'
        )
    return (
        "<table><thead><tr><th>column</th><th>now</th><th>then</th><th></th>"
        f"<th></th></tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _rest(facts: Facts, row: int) -> str:
    """Return the columns that stay, folded away."""
    kept = [j for j in range(len(facts.names)) if not facts.moved[row, j]]
    if not kept:
        return ""
    lines = [
        (cell(facts.names[j]), cell(facts.before[facts.names[j]].iloc[row])) for j in kept[:200]
    ]
    table = html_table(["column", "value"], lines)
    return f"<details><summary>{len(kept)} columns stay as they are</summary>{table}</details>"
