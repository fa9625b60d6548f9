"""How unusual a counterfactual is among training rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cel.errors import ConfigError, MissingInputError, UnsupportedError
from cel.metrics.base import metric
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["isolation_forest", "lof", "lof_median"]

Among = Literal["all", "target"]


def unique_rows(x: np.ndarray) -> np.ndarray:
    """Return the distinct rows of `x` (m, d), sorted.

    >>> unique_rows(np.array([[1.0], [0.0], [1.0]])).tolist()
    [[0.0], [1.0]]
    """
    plain = np.ascontiguousarray(x) + 0.0  # -0.0 and 0.0 are one value
    return np.unique(plain, axis=0)


def _fit_lof(x: np.ndarray, k: int, deduplicate: bool) -> Any:
    from sklearn.neighbors import LocalOutlierFactor

    rows = unique_rows(x) if deduplicate else np.ascontiguousarray(x)
    if len(rows) < 2:
        raise MissingInputError(f"needs two different training rows, got {len(rows)}")
    return LocalOutlierFactor(n_neighbors=min(k, len(rows) - 1), novelty=True).fit(rows)


def _lof(ev: Evaluation, k: int, among: Among, deduplicate: bool) -> np.ndarray:
    """Factors of the selected rows, computed once for the mean and the median."""
    if among not in ("all", "target"):
        raise ConfigError(f"among must be 'all' or 'target', got {among!r}")
    if k < 1:
        raise ConfigError(f"k must be at least 1, got {k}")
    key = ("lof", ev.kind, k, among, deduplicate)
    return ev.memo(key, lambda: _lof_values(ev, k, among, deduplicate))


def _lof_values(ev: Evaluation, k: int, among: Among, deduplicate: bool) -> np.ndarray:
    if among == "all":
        fitted = ev.shared("lof", lambda: _fit_lof(ev.x_train, k, deduplicate), (k, deduplicate))
        return np.asarray(-fitted.score_samples(_like(ev.cf, ev.x_train)))
    if ev.task is Task.REGRESSION:
        raise UnsupportedError("among='target' needs classes")
    out = np.full(len(ev), np.nan)
    for wanted in np.unique(ev.target):
        members = ev.x_train[ev.y_train == wanted]
        if len(unique_rows(members)) > 1:
            rows, key = ev.target == wanted, (k, int(wanted), deduplicate)
            fitted = ev.shared("lof", partial(_fit_lof, members, k, deduplicate), key, model=True)
            out[rows] = -fitted.score_samples(_like(ev.cf[rows], members))
    return out


def _like(x: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Give both sides one dtype, for which scikit-learn has its fast path."""
    return np.ascontiguousarray(x, dtype=reference.dtype)


LOF = (
    "LOF(x') = (1/k) sum over the k nearest training rows z of lrd(z) / lrd(x'), lrd = 1 / mean "
    "reachability distance; equal training rows count once"
)


@metric(
    "lof",
    undefined="the target class has fewer than two different training rows",
    better="lower",
    rows="found",
    needs={"train"},
    meaning="How lonely answers are among training rows: near 1 for ordinary rows, larger for "
    "outliers.",
    formula=f"mean of {LOF}",
    reference="Breunig et al., 2000",
)
def lof(ev: Evaluation, k: int = 20, among: Among = "all", deduplicate: bool = True) -> np.ndarray:
    """Local outlier factor of each counterfactual."""
    return _lof(ev, k, among, deduplicate)


@metric(
    "lof_median",
    undefined="the target class has fewer than two different training rows",
    better="lower",
    rows="found",
    needs={"train"},
    aggregate="median",
    meaning="How lonely the answer in the middle is; a few extreme answers do not move it.",
    formula=f"median of {LOF}",
    reference="Breunig et al., 2000",
)
def lof_median(ev: Evaluation, k: int = 20, among: Among = "all") -> np.ndarray:
    """Local outlier factor of each counterfactual."""
    return _lof(ev, k, among, True)


@metric(
    "isolation_forest",
    better="higher",
    rows="found",
    needs={"train"},
    meaning="How hard it is to cut answers off from the training rows: above 0 for ordinary "
    "rows, below for outliers.",
    formula="1/2 - 2^(-E[depth of x'] / c(n)), scikit-learn's decision_function",
    reference="Liu, Ting and Zhou, 2008",
)
def isolation_forest(
    ev: Evaluation, trees: int = 100, seed: int = 42, deduplicate: bool = False
) -> np.ndarray:
    """Decision function of an isolation forest for each counterfactual."""

    def fit() -> ForestDepths:
        from sklearn.ensemble import IsolationForest

        rows = unique_rows(ev.x_train) if deduplicate else ev.x_train
        return ForestDepths(IsolationForest(n_estimators=trees, random_state=seed).fit(rows))

    fitted: ForestDepths = ev.shared("isolation_forest", fit, (trees, seed, deduplicate))
    return fitted.decide(_like(ev.cf, ev.x_train))


class ForestDepths:
    """The decision function of a fitted `IsolationForest` over all features, to the byte.

    scikit-learn sends every tree through joblib, which takes ten times as long as the trees
    themselves for the few rows of a cell.

    Args:
        forest: a fitted forest.
    """

    def __init__(self, forest: Any) -> None:
        self.trees = [e.tree_ for e in forest.estimators_]
        self.lengths = [_lengths(t) for t in self.trees]
        whole = float(_average_length(np.array([forest.max_samples_]))[0])
        self.offset, self.scale = float(forest.offset_), len(self.trees) * whole

    def decide(self, x: np.ndarray) -> np.ndarray:
        """Return the decision function (n,) of rows (n, d)."""
        rows = np.ascontiguousarray(x, dtype=np.float32)
        depths = np.zeros(len(rows))
        for tree, lengths in zip(self.trees, self.lengths, strict=True):
            depths += lengths[tree.apply(rows)]
        share = depths / self.scale if self.scale else np.ones_like(depths)
        return np.asarray(-(2**-share) - self.offset)


def _lengths(tree: Any) -> np.ndarray:
    """Return for every node how many splits it takes to get there, and on from there."""
    depth, here = np.zeros(tree.node_count), np.array([0])
    for number in range(1, tree.max_depth + 2):
        depth[here] = number
        below = np.concatenate([tree.children_left[here], tree.children_right[here]])
        here = below[below >= 0]
    return np.asarray(depth + _average_length(tree.n_node_samples) - 1.0)


def _average_length(n: np.ndarray) -> np.ndarray:
    """Return how many splits it takes on average to cut a row off from n rows."""
    n = np.asarray(n, dtype=np.float64)
    out = np.where(n == 2, 1.0, 0.0)
    many = n > 2
    rest = n[many] - 1.0
    out[many] = 2.0 * (np.log(rest) + np.euler_gamma) - 2.0 * rest / n[many]
    return out
