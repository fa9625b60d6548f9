"""How likely a counterfactual is under a density of real rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.metrics.base import metric
from cel.protocols import Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["density_percentile", "log_density", "log_density_median", "prob_plausibility"]


def _log_density(ev: Evaluation) -> np.ndarray:
    """Log p(x' | target) of the selected rows."""
    return ev.memo(("log_density", ev.kind), lambda: ev.log_prob(ev.cf, ev.target))


def _of_held_out_rows(ev: Evaluation) -> np.ndarray:
    """(t,) log-densities of the held-out rows."""
    return ev.shared(
        "held_out_log_density",
        lambda: ev.log_prob(ev.x_test, ev.y_test),
        model=True,
        density=True,
    )


@metric(
    "log_density",
    undefined="the density returned NaN",
    better="higher",
    unit="nats",
    rows="found",
    needs={"density"},
    meaning="How likely answers are among real rows of the wanted outcome, on average.",
    formula="mean of log p(x' | target)",
)
def log_density(ev: Evaluation) -> np.ndarray:
    """Log-density of each counterfactual given its target."""
    return _log_density(ev)


@metric(
    "log_density_median",
    undefined="the density returned NaN",
    better="higher",
    unit="nats",
    rows="found",
    needs={"density"},
    aggregate="median",
    meaning="How likely the answer in the middle is; a few extreme answers do not move it.",
    formula="median of log p(x' | target)",
)
def log_density_median(ev: Evaluation) -> np.ndarray:
    """Log-density of each counterfactual given its target."""
    return _log_density(ev)


@metric(
    "density_percentile",
    undefined="no held-out row has the target class",
    better="higher",
    unit="share",
    rows="found",
    needs={"density", "test"},
    meaning="Which part of real, unseen rows of the wanted outcome is less likely than the "
    "answer; real rows score 0.5 on average.",
    formula="[#(log p(z) < log p(x')) + #(=) / 2] / #z over held-out rows z of the target class "
    "(regression: over all held-out rows)",
)
def density_percentile(ev: Evaluation) -> np.ndarray:
    """Mid-rank of each log-density among held-out rows of the same class."""
    reference, values = _of_held_out_rows(ev), _log_density(ev)
    if ev.task is Task.REGRESSION:
        return _rank(values, reference)
    out = np.full(len(values), np.nan)
    for wanted in np.unique(ev.target):
        rows, known = ev.target == wanted, reference[ev.y_test == wanted]
        if len(known):
            out[rows] = _rank(values[rows], known)
    return out


def _rank(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    ordered = np.sort(reference)
    below = np.searchsorted(ordered, values, side="left")
    upto = np.searchsorted(ordered, values, side="right")
    rank = (below + upto) / (2 * len(ordered))
    return np.where(np.isnan(values), np.nan, rank)


@metric(
    "prob_plausibility",
    undefined="no training row has the target class",
    better="higher",
    unit="share",
    rows="found",
    needs={"density", "train"},
    meaning="How many answers are at least as likely as a typical training row of the wanted "
    "outcome.",
    formula="share with log p(x' | target) >= tau, tau = the quantile of log p over training rows "
    "that the model puts into the target class (regression: over all training rows)",
    reference="Artelt and Hammer, 2020; Wielopolski et al. (PPCEF), 2024",
)
def prob_plausibility(ev: Evaluation, quantile: float = 0.5) -> np.ndarray:
    """1 where a counterfactual reaches the threshold of its target."""
    values, tau = _log_density(ev), ev.levels.thresholds(quantile, ev.target)
    undefined = np.isnan(values) | np.isnan(tau)
    return np.where(undefined, np.nan, values >= tau)
