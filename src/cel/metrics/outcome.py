"""Did the method answer, is the answer right, and is it allowed?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.metrics.base import metric
from cel.protocols import Task
from cel.space.distances import changed_features
from cel.space.region import Region

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["VIOLATIONS", "coverage", "mae", "success", "unchanged", "validity", "violations"]

VIOLATIONS = ("immutable", "direction", "bound", "category", "integer", "relation")


@metric(
    "coverage",
    better="higher",
    unit="share",
    rows="explained",
    meaning="How often the method answered at all, rightly or wrongly.",
    formula="share of explained rows with a candidate (status found or invalid)",
)
def coverage(ev: Evaluation) -> np.ndarray:
    """1 where a row has a candidate."""
    return np.asarray(ev.result.has_candidate[ev.positions], dtype=np.float64)


@metric(
    "validity",
    better="higher",
    unit="share",
    rows="candidates",
    meaning="How many of the returned answers really lead to the wanted outcome.",
    formula="share of candidates with f(x') = target; regression: every |f(x') - t| <= tolerance",
    reference="Wachter, Mittelstadt and Russell, 2017",
)
def validity(ev: Evaluation) -> np.ndarray:
    """1 where the prediction for the candidate is the target, not merely another class."""
    return ev.achieved(ev.predicted, ev.target).astype(np.float64)


@metric(
    "success",
    better="higher",
    unit="share",
    rows="explained",
    meaning="How many people end up with a verified, allowed counterfactual.",
    formula="share of explained rows with status found",
)
def success(ev: Evaluation) -> np.ndarray:
    """1 where a row has a verified counterfactual."""
    return np.asarray(ev.result.found[ev.positions], dtype=np.float64)


@metric(
    "mae",
    better="lower",
    unit="training range",
    rows="candidates",
    tasks={Task.REGRESSION},
    meaning="How far the predicted value of the answer is from the wanted value.",
    formula="mean over outputs of |f(x') - t|",
)
def mae(ev: Evaluation) -> np.ndarray:
    """Mean absolute error of each candidate."""
    return np.asarray(np.abs(ev.predicted - ev.target).mean(-1))


@metric(
    "unchanged",
    better="lower",
    unit="share",
    rows="candidates",
    aliases=("actionability",),
    meaning="How many returned answers are just the original row again.",
    formula="share of candidates in which no feature changed; the paper calls it actionability",
)
def unchanged(ev: Evaluation) -> np.ndarray:
    """1 where a candidate equals its original."""
    moved = changed_features(ev.x, ev.cf, ev.space)
    return np.asarray(~moved.any(1), dtype=np.float64)


def _violations(ev: Evaluation) -> dict[str, np.ndarray]:
    """Violations of each selected row by kind."""

    def count() -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = Region.around(ev.space, ev.x).violations(ev.cf)
        return found

    return ev.memo(("violations", ev.kind), count)


@metric(
    "violations",
    better="lower",
    unit="per row",
    rows="candidates",
    meaning="How many rules of the feature space an answer breaks: fixed features, directions, "
    "bounds, categories, whole numbers and relations.",
    formula="number of violations of any kind, per candidate",
    reference="Pawelczyk et al. (CARLA), 2021",
)
def violations(ev: Evaluation) -> np.ndarray:
    """All violations of each candidate."""
    counts = np.stack([_violations(ev)[kind] for kind in VIOLATIONS])
    return np.asarray(counts.sum(0), dtype=np.float64)


def _one_kind(kind: str) -> None:
    def count(ev: Evaluation) -> np.ndarray:
        return np.asarray(_violations(ev)[kind], dtype=np.float64)

    count.__qualname__ = f"violations_{kind}"
    metric(
        f"violations_{kind}",
        better="lower",
        unit="per row",
        rows="candidates",
        meaning=f"How many {kind} rules an answer breaks.",
        formula=f"number of {kind} violations, per candidate",
        reference="Pawelczyk et al. (CARLA), 2021",
    )(count)


for _kind in VIOLATIONS:
    _one_kind(_kind)
