"""How long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.errors import MissingInputError
from cel.metrics.base import metric

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = [
    "cpu_ms_per_row", "ms_per_row", "time_cpu_s", "time_explain_s", "time_fit_s", "time_s",
]  # fmt: skip


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


@metric(
    "time_cpu_s",
    better="lower",
    unit="s",
    rows="cell",
    meaning="Seconds of computing in all, whatever else the machine was doing meanwhile.",
    formula="CPU seconds of the process, all threads, during fit and explain; work on a GPU is "
    "not in it",
)
def time_cpu_s(ev: Evaluation) -> float:
    """CPU seconds of `fit` and `explain`."""
    return _seconds(ev, "fit_cpu") + _seconds(ev, "explain_cpu")


@metric(
    "cpu_ms_per_row",
    better="lower",
    unit="ms",
    rows="cell",
    meaning="Milliseconds of computing that one answer takes.",
    formula="1000 * CPU seconds of explain / number of explained rows",
)
def cpu_ms_per_row(ev: Evaluation) -> float:
    """CPU milliseconds of `explain` per explained row."""
    rows = int(np.count_nonzero(ev.result.explained))
    if not rows:
        raise MissingInputError("no row needed an explanation")
    return 1000 * _seconds(ev, "explain_cpu") / rows
