"""The demand that an answer is as probable as real rows of its class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.models.generative.levels import DensityLevels
from cel.protocols import DensityModel
from cel.search.gradient import Accept

__all__ = ["DensityDemand", "class_thresholds", "levels_of"]

SPARE = 2e-3  # searches head a little beyond the level, in units of the spread
ROUNDING = 1e-4  # other batch sizes round differently; what is accepted here must hold there


def levels_of(density: DensityModel, train: TrainRows, model: ModelView) -> DensityLevels:
    """Return the log-densities of all training rows, those kept for validation included."""
    x, y = train.x.cpu().numpy(), train.y.cpu().numpy()
    if train.reserve is not None:
        more = train.reserve.cpu().numpy()
        x, y = np.concatenate([x, more]), np.concatenate([y, model.outcome(more)])
    return DensityLevels.of(density, x, y)


def class_thresholds(levels: DensityLevels, quantile: float, classes: int) -> np.ndarray:
    """Return the log-density (K,) that is plausible in each class; pooled for an empty class."""
    level = levels.thresholds(quantile, np.arange(classes))
    return np.where(np.isnan(level), levels.pooled(quantile), level)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityDemand:
    """At least a level of log-density under the density of the wanted class.

    Attributes:
        query: rows and targets.
        density: has `log_prob(x, classes)`.
        level: (n,) least log-density of every row's answer.
        spread: standard deviation of log-densities over training rows, the unit of surpluses.
        once: ask for gradients by hand where the density has them (`log_prob_once`).
    """

    query: Query
    density: DensityModel
    level: Tensor
    spread: float
    once: bool = False

    def log_density(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return log p(x | wanted class), shape (a,)."""
        plain = self.density.log_prob
        ask = getattr(self.density, "log_prob_once", plain) if self.once else plain
        out: Tensor = ask(x, self.query.target[rows]).to(x.dtype)
        return out

    def surplus(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the log-density beyond the level, in units of the spread."""
        return (self.log_density(x, rows) - self.level[rows]) / self.spread - SPARE

    def accept(self) -> Accept:
        """Return the test of the query with this demand added."""

        def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            seen, ok = self.query.accept(x, rows)
            at = ok.nonzero()[:, 0]
            with torch.no_grad():
                logp = self.log_density(seen[at], rows[at]) if len(at) else seen[at, 0]
            ok[at] = logp >= self.level[rows[at]] + ROUNDING * self.spread
            return seen, ok

        return accept
