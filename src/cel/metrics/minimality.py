"""Which of the changes were needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.metrics.base import metric
from cel.metrics.evaluation import chunks
from cel.space.distances import changed_features

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["redundancy"]


@metric(
    "redundancy",
    better="lower",
    unit="share",
    rows="found",
    needs={"model"},
    meaning="Which part of the changes could be taken back without losing the wanted outcome.",
    formula="(1 / #changed) sum over changed features of 1[f(x' with the feature reverted) = "
    "target]; 0 where nothing changed",
    reference="Pawelczyk et al. (CARLA), 2021",
)
def redundancy(ev: Evaluation) -> np.ndarray:
    """Share of changed features that can be reverted, one at a time."""
    x, cf, target = ev.x, ev.cf, ev.target
    moved = changed_features(x, cf, ev.space)
    row, feature = np.nonzero(moved)
    still = np.zeros(len(row), dtype=bool)
    for part in chunks(len(row), ev.space.width):
        if len(row[part]):
            back = ev.space.owner[None] == feature[part, None]
            trial = np.where(back, x[row[part]], cf[row[part]])
            still[part] = ev.achieved(ev.predict(trial), target[row[part]])
    spare = np.bincount(row, weights=still, minlength=len(x))
    return np.asarray(spare / np.maximum(moved.sum(1), 1))
