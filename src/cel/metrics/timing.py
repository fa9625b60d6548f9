"""How long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.errors import MissingInputError
from cel.metrics.base import metric

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["ms_per_row", "time_explain_s", "time_fit_s", "time_s"]


def _seconds(ev: Evaluation, stage: str) -> float:
    if stage not in ev.result.seconds:
        raise MissingInputError(f"the result does not say how long {stage!r} took")
    return float(ev.result.seconds[stage])


@metric(
    "time_fit_s",
    better="lower",
    unit="s",
    rows="cell",
    meaning="Seconds spent on learning from training rows, once per fold.",
    formula="wall-clock seconds of fit",
)
def time_fit_s(ev: Evaluation) -> float:
    """Seconds of `fit`."""
    return _seconds(ev, "fit")


@metric(
    "time_explain_s",
    better="lower",
    unit="s",
    rows="cell",
    meaning="Seconds spent on answering for all rows.",
    formula="wall-clock seconds of explain",
)
def time_explain_s(ev: Evaluation) -> float:
    """Seconds of `explain`."""
    return _seconds(ev, "explain")


@metric(
    "time_s",
    better="lower",
    unit="s",
    rows="cell",
    meaning="Seconds in all, the paper's time.",
    formula="time_fit_s + time_explain_s",
)
def time_s(ev: Evaluation) -> float:
    """Seconds of `fit` and `explain`."""
    return _seconds(ev, "fit") + _seconds(ev, "explain")


@metric(
    "ms_per_row",
    better="lower",
    unit="ms",
    rows="cell",
    meaning="Milliseconds that one person waits for an answer.",
    formula="1000 * time_explain_s / number of explained rows",
)
def ms_per_row(ev: Evaluation) -> float:
    """Milliseconds of `explain` per explained row."""
    rows = int(np.count_nonzero(ev.result.explained))
    if not rows:
        raise MissingInputError("no row needed an explanation")
    return 1000 * _seconds(ev, "explain") / rows
