"""A result as text, and where a result is shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.proof_notes import proof_notes
from cel.display.sentences import row_sentence
from cel.display.why_not import why_not
from cel.display.words import cell, cell_pair, percent_pair, row_name
from cel.errors import ConfigError
from cel.text import visible

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["first_rows", "show", "terminal_text"]

WIDEST = 28  # characters of a cell in the terminal


def show(result: ExplanationResult, rows: int = 10) -> None:
    """Show the first rows of a result, in a notebook as HTML, elsewhere as text."""
    first_rows(result, rows)
    display = _notebook_display()
    if display is None:
        sys.stdout.write(terminal_text(result, rows, search=True))
        return
    from cel.display.notebook import notebook_html

    display(
        {"text/html": notebook_html(result, rows, search=True), "text/plain": repr(result)},
        raw=True,
    )


def first_rows(result: ExplanationResult, rows: int) -> Facts:
    """Return what there is to show of the first rows."""
    if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
        raise ConfigError(f"rows is {rows!r}; say how many to show, 1 or more")
    return Facts.of(result, np.arange(min(int(rows), len(result))))


def terminal_text(result: ExplanationResult, rows: int = 10, *, search: bool = False) -> str:
    """Return the first rows of a result as text: what changes, how likely, how usual.

    With `search` it is found out why rows have no answer, otherwise said if it is known.
    """
    facts = first_rows(result, rows)
    why = why_not(result, facts, search=search)
    lines = [visible(repr(result)), ""]
    for k in range(len(facts)):
        told = [row_sentence(facts, k), *(f"  {w}" for w in why.get(k, [])), ""]
        lines += _row(facts, k) if facts.has_answer[k] else told
    if len(result) > len(facts):
        more = len(result) - len(facts)
        lines += [f"... and {more} more {'row' if more == 1 else 'rows'}: show(rows=...)", ""]
    return "\n".join(lines)


def _row(facts: Facts, row: int) -> list[str]:
    head = f"Row {row_name(facts.labels[row])}: {facts.now[row]} -> {facts.then[row]}"
    if facts.chances is not None:
        before, after = percent_pair(*(float(p[row]) for p in facts.chances))
        head += f"  (probability of {facts.wanted[row]}: {before} -> {after})"
    table = [["", "before", "after", "background rows"]]
    for j in np.flatnonzero(facts.moved[row]):
        had, has = facts.changed[int(j)]
        shown = cell_pair(had[row], has[row])
        texts = [cell(facts.names[j]), *shown, facts.usual_text(row, int(j))]
        table.append([t if len(t) <= WIDEST else t[: WIDEST - 1] + "…" for t in texts])
    kept = len(facts.names) - int(facts.moved[row].sum())
    foot = f"  {kept} other columns stay as they are" if kept else ""
    notes = [f"  {note}" for note in proof_notes(facts, row)]
    return [head, *_aligned(table), *([foot] if foot else []), *notes, ""]


def _aligned(table: list[list[str]]) -> list[str]:
    if not any(row[-1] for row in table[1:]):
        table = [row[:-1] for row in table]
    widths = [max(len(row[j]) for row in table) for j in range(len(table[0]))]
    return [
        "  " + "  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _notebook_display() -> Any:
    """Return what displays in a notebook with a kernel, None elsewhere."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
