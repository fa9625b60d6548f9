"""Does an answer survive small changes of itself or of the person who asked?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.errors import CelError, ConfigError, UnsupportedError
from cel.metrics.base import metric
from cel.metrics.evaluation import chunks
from cel.protocols import Task
from cel.space.distances import gower

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["instability", "invalidation_rate", "noise_robustness", "stability"]


def _noise(ev: Evaluation, columns: np.ndarray, draws: int, sigma: float, seed: int) -> np.ndarray:
    """(draws, d) normal noise in some columns, the same for every row: rows stay independent."""
    if draws < 1 or sigma < 0:
        raise ConfigError(f"draws must be at least 1 and sigma >= 0, got {draws} and {sigma}")
    noise = np.zeros((draws, ev.space.width))
    random = np.random.default_rng(seed)
    noise[:, columns] = random.normal(0.0, sigma, (draws, len(columns)))
    return noise


def _copies(cf: np.ndarray, noise: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield numbers of noisy copies and their rows, stacked, so that they fit in memory."""
    for part in chunks(len(noise), cf.size):
        stacked = cf[None] + noise[part][:, None]
        yield len(stacked), stacked.reshape(-1, cf.shape[1])


def _kept(ev: Evaluation, sigma: float, draws: int, seed: int) -> np.ndarray:
    """Share of noisy copies of each counterfactual that still have the wanted outcome."""

    def count() -> np.ndarray:
        noise = _noise(ev, ev.space.numeric_columns, draws, sigma, seed)
        kept = np.zeros(len(ev))
        for copies, rows in _copies(ev.cf, noise):
            target = np.concatenate([ev.target] * copies)
            kept += ev.achieved(ev.predict(rows), target).reshape(copies, -1).sum(0)
        return kept / draws

    return ev.memo(("kept", ev.kind, sigma, draws, seed), count)


@metric(
    "noise_robustness",
    better="higher",
    unit="share",
    rows="found",
    needs={"model"},
    meaning="How often the wanted outcome stays when the answer is carried out inexactly.",
    formula="mean over e ~ N(0, sigma^2) on the numeric features of 1[f(x' + e) = target]",
    reference="Pawelczyk et al. (PROBE), 2023",
)
def noise_robustness(
    ev: Evaluation, sigma: float = 0.05, draws: int = 100, seed: int = 0
) -> np.ndarray:
    """Share of noisy copies that keep the target."""
    return _kept(ev, sigma, draws, seed)


@metric(
    "invalidation_rate",
    better="lower",
    unit="share",
    rows="found",
    needs={"model"},
    meaning="How often the wanted outcome is lost when the answer is carried out inexactly.",
    formula="1 - noise_robustness",
    reference="Pawelczyk et al. (PROBE), 2023",
)
def invalidation_rate(
    ev: Evaluation, sigma: float = 0.05, draws: int = 100, seed: int = 0
) -> np.ndarray:
    """Share of noisy copies that lose the target."""
    return 1 - _kept(ev, sigma, draws, seed)


@metric(
    "stability",
    better="higher",
    unit="probability",
    rows="found",
    needs={"model"},
    tasks={Task.CLASSIFICATION},
    meaning="How surely the model gives the wanted outcome all around the answer.",
    formula="mean - standard deviation of p(target | x' + e) over e ~ N(0, sigma^2)",
    reference="Dutta et al., 2022; Hamman et al., 2023",
)
def stability(ev: Evaluation, sigma: float = 0.05, draws: int = 100, seed: int = 0) -> np.ndarray:
    """Mean minus spread of the target's probability around each counterfactual."""
    noise = _noise(ev, ev.space.numeric_columns, draws, sigma, seed)
    parts = []
    for copies, rows in _copies(ev.cf, noise):
        wanted = np.concatenate([ev.target] * copies)[:, None]
        found = np.take_along_axis(ev.probabilities(rows), wanted, 1)
        parts.append(found.reshape(copies, -1))
    values = np.concatenate(parts)
    return np.asarray(values.mean(0) - values.std(0))


@metric(
    "instability",
    undefined="no perturbed row was answered",
    better="lower",
    unit="share",
    rows="found",
    needs={"model", "method"},
    meaning="How much the answer changes when the person who asks is slightly different.",
    formula="mean over x~ = x + e, e ~ N(0, sigma^2) on continuous features, f(x~) = f(x), of "
    "gower(x'(x), x'(x~)) / (1 + gower(x, x~))",
    reference="Laugel et al., 2019; Artelt et al., 2021; Guidotti, 2022",
)
def instability(ev: Evaluation, sigma: float = 0.01, draws: int = 3, seed: int = 0) -> np.ndarray:
    """Mean distance between the answers to a row and to its neighbours."""
    continuous = [f.columns[0] for f in ev.space if f.kind == "continuous"]
    if not continuous:
        raise UnsupportedError("needs a continuous feature that can be perturbed")
    noise = _noise(ev, np.array(continuous), draws, sigma, seed)
    low, high = ev.space.vector("lower"), ev.space.vector("upper")
    near = ev.x[None] + noise[:, None]
    near = np.clip(near, np.minimum(low, ev.x), np.maximum(high, ev.x))
    flat = near.reshape(-1, near.shape[-1]).astype(ev.x.dtype)
    answers, usable = _ask_again(ev, flat, draws)
    before, after = np.tile(ev.x, (draws, 1)), np.tile(ev.cf, (draws, 1))
    out = np.full(len(flat), np.nan)
    apart = gower(after[usable], answers[usable], ev.space)
    out[usable] = apart / (1 + gower(before[usable], flat[usable], ev.space))
    return _mean_of_known(out.reshape(draws, -1))


def _ask_again(ev: Evaluation, x: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return counterfactuals of the perturbed rows, and which of them count."""
    target: Any = np.concatenate([ev.target] * draws)
    if ev.result.target is not None and ev.task is Task.CLASSIFICATION:
        target = ev.result.target.decode(target)  # labels and positions may be confused
    try:
        answer = ev.method.explain(x, target)
    except CelError as problem:
        raise UnsupportedError(f"the method refused perturbed rows: {problem}") from problem
    usable = np.asarray(answer.found)
    if ev.task is Task.CLASSIFICATION:
        origin = np.tile(ev.result.y_origs[ev.positions], draws)
        usable = usable & (ev.predict(x) == origin)
    return np.asarray(answer.x_cfs), usable


def _mean_of_known(values: np.ndarray) -> np.ndarray:
    """Column means over the entries that are not NaN; NaN for columns without any."""
    number = (~np.isnan(values)).sum(0)
    return np.where(number > 0, np.nansum(values, 0) / np.maximum(number, 1), np.nan)
