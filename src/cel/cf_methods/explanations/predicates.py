"""Conditions on single features that rows satisfy or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cel.cf_methods.explanations.wording import Term, Wording
from cel.space import Feature, FeatureSpace

__all__ = ["Item", "all_hold"]


@dataclass(frozen=True)
class Item:
    """A condition on one feature: `low < x <= high`, or one of some categories.

    Attributes:
        feature: position of the feature.
        low: open lower end of a number.
        high: closed upper end of a number.
        levels: which categories satisfy it, None for numbers.
    """

    feature: int
    low: float = -np.inf
    high: float = np.inf
    levels: tuple[bool, ...] | None = None

    @property
    def trivial(self) -> bool:
        """Whether every row satisfies it."""
        if self.levels is not None:
            return all(self.levels)
        return bool(np.isinf(self.low) and np.isinf(self.high))

    def holds(self, x: np.ndarray, feature: Feature) -> np.ndarray:
        """Return (n,) bool for encoded rows (n, d)."""
        if self.trivial:
            return np.ones(len(x), dtype=bool)
        if self.levels is None:
            column = x[:, feature.columns[0]]
            return np.asarray((column > self.low) & (column <= self.high))
        wanted = [c for c, level in zip(feature.columns, self.levels, strict=True) if level]
        return np.asarray(x[:, wanted].sum(1) > 0.5)

    def word(self, space: FeatureSpace, wording: Wording) -> Term:
        """Return the condition in original units."""
        feature = space.features[self.feature]
        if self.levels is not None:
            return wording.levels(feature, self.levels)
        return wording.interval(feature, self.low, self.high)


def all_hold(items: Sequence[Item], x: np.ndarray, space: FeatureSpace) -> np.ndarray:
    """Return (n,) bool: which encoded rows (n, d) satisfy every condition."""
    out = np.ones(len(x), dtype=bool)
    for item in items:
        out &= item.holds(x, space.features[item.feature])
    return out
