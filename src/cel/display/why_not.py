"""What keeps rows from an answer, in sentences for people."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.display.comparison_facts import Facts
from cel.display.words import cell, percent
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.result import ExplanationResult

__all__ = ["HINT", "why_not"]

HINT = "result.diagnosis() tells what keeps them from an answer."


def why_not(result: ExplanationResult, facts: Facts, *, search: bool) -> dict[int, list[str]]:
    """Return sentences for shown rows that have no answer, by their position in `facts`.

    Args:
        result: a result.
        facts: the rows that are shown.
        search: whether to find it out (see `ExplanationResult.diagnosis`); otherwise only what
            was found out before is told.
    """
    shown = {int(row): k for k, row in enumerate(facts.rows)}
    rows = np.array([r for r in np.flatnonzero(result.unanswered) if int(r) in shown], dtype=int)
    if not search:
        known = {i for part in vars(result).get("_diagnosis", []) for i in part.index}
        rows = np.array([r for r in rows if r in known], dtype=int)
    if not len(rows):
        return {}
    places = [shown[int(r)] for r in rows]
    lines = result._diagnosed(rows).to_dict("records")
    return {
        place: _sentences(line, facts.wanted[place], result.task)
        for place, line in zip(places, lines, strict=True)
    }


def _sentences(line: Mapping[Any, Any], wanted: str, task: Task) -> list[str]:
    out = []
    if _known(line.get("blocked_by")):
        out.append(f"What keeps it from an answer: {cell(line['blocked_by'])}.")
    if _known(line.get("relax")) and _known(line.get("how_far")):
        relax, far = cell(line["relax"]), cell(line["how_far"])
        out.append(f"If this did not hold ({relax}), there would be an answer: {far}.")
    if _known(line.get("best_effort")):
        reached = ""
        if _known(line.get("best_prediction")):
            value = float(line["best_prediction"])
            reached = f" (prediction {value:,.6g})"
            if task is Task.CLASSIFICATION:
                reached = f" (probability of {wanted}: {percent(value)})"
        out.append(f"The nearest that was reached: {cell(line['best_effort'])}{reached}.")
    return out


def _known(value: object) -> bool:
    missing = isinstance(value, float) and math.isnan(value)
    return not (value is None or value == "" or missing)
