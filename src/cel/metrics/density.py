"""How likely a counterfactual is under densities of real rows.

With judges in the context, densities that no method may query, scores are theirs; otherwise they
are those of the one density that methods may query as well (the coach).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from cel.errors import ConfigError
from cel.metrics.base import metric
from cel.protocols import LogDensity, Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = [
    "coach_percentile",
    "coach_plausibility",
    "density_percentile",
    "density_spread",
    "log_density",
    "log_density_median",
    "prob_plausibility",
]

Over = Literal["class", "all"]


def _log_density(ev: Evaluation, density: LogDensity) -> np.ndarray:
    """Log p(x' | target) of the selected rows."""
    key = ("log_density", ev.kind, ev.references.identity(density))
    return ev.memo(key, lambda: ev.log_prob(ev.cf, ev.target, density))


def _judges(ev: Evaluation) -> tuple[LogDensity, ...]:
    """The densities that score: judges, or the coach where there are none."""
    return tuple(ev.context.judges.values()) or (ev.coach,)


def _percentile(ev: Evaluation, density: LogDensity) -> np.ndarray:
    """Mid-rank of each log-density among held-out rows of the same class."""
    reference = ev.shared(
        "held_out_log_density",
        partial(ev.log_prob, ev.x_test, ev.y_test, density),
        (ev.references.identity(density),),
        model=True,
    )
    values = _log_density(ev, density)
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


def _percentiles(ev: Evaluation) -> np.ndarray:
    """(judges, s) percentiles of the selected rows."""
    return np.stack([_percentile(ev, d) for d in _judges(ev)])


def _reached(ev: Evaluation, quantile: float, over: Over) -> np.ndarray:
    """1 where the coach's log-density reaches its threshold."""
    if over not in ("class", "all"):
        raise ConfigError(f"over must be 'class' or 'all', got {over!r}")
    values = _log_density(ev, ev.coach)
    tau = ev.levels.thresholds(quantile, ev.target)
    if over == "all":
        tau = np.full(len(tau), ev.levels.pooled(quantile))
    undefined = np.isnan(values) | np.isnan(tau)
    return np.where(undefined, np.nan, values >= tau)


@metric(
    "log_density",
    undefined="the density returned NaN",
    better="higher",
    unit="nats",
    rows="found",
    needs={"density"},
    meaning="How likely answers are among real rows of the wanted outcome, on average.",
    formula="mean of log p(x' | target) under the first judge, or the coach where there is none; "
    "nats of different families cannot be averaged",
)
def log_density(ev: Evaluation) -> np.ndarray:
    """Log-density of each counterfactual given its target."""
    return _log_density(ev, _judges(ev)[0])


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
    return _log_density(ev, _judges(ev)[0])


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
    "(regression: over all held-out rows), averaged over the judges",
)
def density_percentile(ev: Evaluation) -> np.ndarray:
    """Mean over the judges of the mid-rank among held-out rows of the same class."""
    return np.asarray(_percentiles(ev).mean(0))


@metric(
    "density_spread",
    undefined="no held-out row has the target class",
    better="lower",
    unit="share",
    rows="found",
    needs={"density", "test"},
    meaning="How far the judges disagree about how likely an answer is.",
    formula="sample standard deviation over the judges of the percentile of x', mean over rows; 0 "
    "with one judge",
)
def density_spread(ev: Evaluation) -> np.ndarray:
    """Standard deviation over the judges of each percentile."""
    values = _percentiles(ev)
    return np.asarray(values.std(0, ddof=1) if len(values) > 1 else 0.0 * values[0])


@metric(
    "prob_plausibility",
    undefined="no row of reference has the target class",
    better="higher",
    unit="share",
    rows="found",
    needs={"density", "train"},
    meaning="How many answers are at least as likely as a typical real row of the wanted outcome.",
    formula="share with log p(x' | target) >= tau, tau = the quantile of log p over all training "
    "rows that the model puts into the target class (regression, or over='all': over all training "
    "rows); with judges: mean over the judges of the share whose percentile among held-out rows "
    "reaches the quantile",
    reference="Artelt and Hammer, 2020; Wielopolski et al. (PPCEF), 2024",
)
def prob_plausibility(ev: Evaluation, quantile: float = 0.5, over: Over = "class") -> np.ndarray:
    """1 where the threshold is reached; with judges, the share of those that are satisfied."""
    if not ev.context.judges:
        return _reached(ev, quantile, over)
    if not 0 <= quantile <= 1:
        raise ConfigError(f"quantile must lie between 0 and 1, got {quantile}")
    values = _percentiles(ev)
    return np.where(np.isnan(values).any(0), np.nan, (values >= quantile).mean(0))


@metric(
    "coach_plausibility",
    undefined="no training row has the target class",
    better="higher",
    unit="share",
    rows="found",
    needs={"coach", "train"},
    meaning="How many answers keep the threshold that methods with a density were given.",
    formula="as prob_plausibility without judges: share with log p(x' | target) >= tau under the "
    "density that methods may query",
)
def coach_plausibility(ev: Evaluation, quantile: float = 0.5) -> np.ndarray:
    """1 where a counterfactual reaches the threshold of the density that methods may query."""
    return _reached(ev, quantile, "class")


@metric(
    "coach_percentile",
    undefined="no held-out row has the target class",
    better="higher",
    unit="share",
    rows="found",
    needs={"coach", "test"},
    meaning="The percentile under the density that methods may query; far above that of the "
    "judges, an answer pleases the coach only.",
    formula="as density_percentile, under the density that methods may query",
)
def coach_percentile(ev: Evaluation) -> np.ndarray:
    """Mid-rank among held-out rows under the density that methods may query."""
    return _percentile(ev, ev.coach)
