"""Which log-density counts as plausible: one answer, for methods and for metrics."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from cel.errors import ConfigError, DataError
from cel.protocols import LogDensity

__all__ = ["DensityLevels", "log_density_of"]

CHUNK_VALUES = 2**22  # entries of one matrix handed on at a time


def log_density_of(density: LogDensity, x: np.ndarray, context: np.ndarray) -> np.ndarray:
    """Return log p(x | context) of shape (n,), in chunks.

    Args:
        density: with `log_prob(x, context)`; one without context is asked without it.
        x: (n, d) encoded rows.
        context: (n,) class positions, or (n, o) values.
    """
    values = np.ndim(context) == 2
    kind = torch.float32 if values else torch.long
    given = torch.as_tensor(np.ascontiguousarray(context)).to(kind)
    rows = torch.as_tensor(np.ascontiguousarray(x, dtype=np.float32))
    blind = getattr(density, "context_kind_", "") == "none"
    size = max(1, CHUNK_VALUES // max(rows.shape[1], 1))
    starts = range(0, max(len(rows), 1), size)
    with torch.no_grad():
        parts = [
            density.log_prob(rows[i : i + size], None if blind else given[i : i + size])
            for i in starts
        ]
    return np.asarray(torch.cat(parts).cpu().numpy(), dtype=np.float64)


@dataclass(frozen=True, kw_only=True, eq=False)
class DensityLevels:
    """Log-densities of training rows, and the thresholds that follow from them.

    A method that promises plausible answers and the metric that checks the promise must mean the
    same threshold. Both take it from here, over the same rows: all training rows, those kept for
    validation included.

    Attributes:
        log_density: (m,) of the training rows, given what the model predicts for them; a NaN of
            the density counts as impossible.
        classes: (m,) predicted class positions, or None for values (regression).

    >>> levels = DensityLevels(
    ...     log_density=np.array([-3.0, -1.0, -2.0, 5.0]), classes=np.array([0, 0, 0, 1]))
    >>> levels.thresholds(0.5, np.array([0, 1, 2])).tolist()
    [-2.0, 5.0, nan]
    >>> levels.pooled(0.5)
    -2.0
    """

    log_density: np.ndarray
    classes: np.ndarray | None = None

    def __post_init__(self) -> None:
        if not len(self.log_density):
            raise DataError("thresholds of a density need training rows, got none")

    @classmethod
    def of(cls, density: LogDensity, x: np.ndarray, y: np.ndarray) -> DensityLevels:
        """Ask a density about training rows.

        Args:
            density: the density.
            x: (m, d) encoded training rows, those kept for validation included.
            y: (m,) predicted class positions, or (m, o) predicted values.
        """
        values = log_density_of(density, x, y)
        values = np.where(np.isnan(values), -np.inf, values)
        return cls(log_density=values, classes=None if np.ndim(y) == 2 else np.asarray(y))

    @property
    def spread(self) -> float:
        """Standard deviation of the finite log-densities, at least 0.001."""
        known = self.log_density[np.isfinite(self.log_density)]
        return max(float(np.std(known, ddof=1)) if len(known) > 1 else 0.0, 1e-3)

    def pooled(self, quantile: float) -> float:
        """Return the quantile over all rows, whatever their class."""
        return _quantile(self.log_density, quantile)

    def thresholds(self, quantile: float, targets: np.ndarray) -> np.ndarray:
        """Return the threshold of each target: the quantile over training rows of its class.

        Values (regression) have one threshold for all.

        Args:
            quantile: share of training rows below the threshold.
            targets: (n,) class positions, or (n, o) values.

        Returns:
            (n,) thresholds, NaN for a class without training rows.
        """
        if self.classes is None:
            return np.full(len(targets), self.pooled(quantile))
        out = np.full(len(targets), np.nan)
        for wanted in np.unique(targets):
            rows = self.log_density[self.classes == wanted]
            if len(rows):
                out[targets == wanted] = _quantile(rows, quantile)
        return out


def _quantile(values: np.ndarray, quantile: float) -> float:
    """A quantile that is one of the values, so that infinite ones cannot spoil it."""
    if not 0 <= quantile <= 1:
        raise ConfigError(f"quantile must lie between 0 and 1, got {quantile}")
    return float(np.quantile(values, quantile, method="inverted_cdf"))
