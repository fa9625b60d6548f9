"""One sentence per row, for the person that the row is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.words import cell, cell_pair, joined, percent_pair, row_name
from cel.protocols import Status

if TYPE_CHECKING:
    import pandas as pd

    from cel.result import ExplanationResult

__all__ = ["change_words", "row_sentence", "sentences"]

_ENDS = {
    Status.NOT_FOUND: "no answer was found",
    Status.INFEASIBLE: "no allowed change leads to {wanted}",
    Status.TIMEOUT: "the time limit ended the search before an answer was found",
    Status.ERROR: "the row could not be used",
}


def sentences(result: ExplanationResult) -> pd.Series:
    """Return one sentence per row, indexed like the rows."""
    import pandas as pd

    facts = Facts.of(result)
    texts = [row_sentence(facts, k) for k in range(len(facts))]
    return pd.Series(texts, index=result.originals().index, dtype=object, name="sentence")


def change_words(facts: Facts, row: int) -> list[str]:
    """Return the changes of one row in words: `income from 1200 to 1450`."""
    out = []
    for j in np.flatnonzero(facts.moved[row]):
        had, has = facts.changed[int(j)]
        before, after = cell_pair(had[row], has[row])
        out.append(f"{cell(facts.names[j])} from {before} to {after}")
    return out


def row_sentence(facts: Facts, row: int, *, named: bool = True) -> str:
    """Return the sentence of one row.

    Args:
        facts: rows side by side with their answers.
        row: position among them.
        named: whether it begins with the label of the row.
    """
    text = _told(facts, row)
    name = f"Row {row_name(facts.labels[row])}: " if named else ""
    return name + (text if named else text[0].upper() + text[1:]) + "."


def _told(facts: Facts, row: int) -> str:
    status = Status(facts.status[row])
    now, wanted, then = facts.now[row], facts.wanted[row], facts.then[row]
    if status is Status.NOT_APPLICABLE:
        return f"the model says {now} already, nothing has to change"
    if status in (Status.FOUND, Status.INVALID):
        steps = joined(change_words(facts, row)) or "nothing"
        if status is Status.INVALID:
            return f"the best attempt changes {steps}, but the model then says {then}"
        return f"change {steps}; the model then says {then} instead of {now}{_chance(facts, row)}"
    text = _ENDS[status].format(wanted=wanted)
    reasons = facts.result.reasons
    reason = None if reasons is None else reasons[facts.rows[row]]
    return text if reason is None else f"{text}: {cell(str(reason).rstrip('.'))}"


def _chance(facts: Facts, row: int) -> str:
    if facts.chances is None:
        return ""
    before, after = percent_pair(*(float(p[row]) for p in facts.chances))
    return f" (probability of {facts.wanted[row]}: {before} before, {after} after)"
