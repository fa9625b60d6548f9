"""Maximal-valid rules: large, accurate boxes that no other such box contains."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cel.cf_methods.group_methods.tcrex_surrogate import Candidates, Surrogates
from cel.search import Budget

__all__ = ["Rules", "Wanted", "find_rules", "inside", "maximal"]

HALVINGS = 6  # how often rho may be halved


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a box must have to be a rule.

    Attributes:
        tau: smallest accuracy.
        rho: smallest feasibility.
        tau_floor: how far tau may be relaxed before rho is.
        max_rules: most rules kept, the most feasible ones.
        confidence: standard errors by which the accuracy of a box is lowered before it is
            compared with tau.
    """

    tau: float
    rho: float
    tau_floor: float
    max_rules: int
    confidence: float

    def lowered(self, hits: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Return the lower end of Wilson's interval of the accuracies, (B,).

        Of many boxes the best look better than they are, small ones most of all. With z standard
        errors: (p + z^2 / 2n - z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n).
        """
        n, z = np.maximum(size, 1), self.confidence
        p = hits / n
        spread = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        return np.asarray((p + z**2 / (2 * n) - spread) / (1 + z**2 / n))


@dataclass(frozen=True, kw_only=True, eq=False)
class Rules:
    """Boxes `lower < x <= upper`, the most feasible first.

    Attributes:
        lower: (R, d) float32.
        upper: (R, d) float32.
        feasibility: (R,) share of the training rows inside.
        accuracy: (R,) share of those that have the target outcome.
        tier: (R,) rules of a higher tier are for rows that those below are out of reach of.
        tau: the accuracy asked for in the end.
        rho: the feasibility asked for in the end.
        cut: which limits were hit.
    """

    lower: np.ndarray
    upper: np.ndarray
    feasibility: np.ndarray
    accuracy: np.ndarray
    tier: np.ndarray
    tau: float
    rho: float
    cut: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower)

    def extended(self, other: Rules) -> Rules:
        """Return these rules and, one tier above them, others."""
        if not len(self) or not len(other):
            return other if not len(self) else self
        joined = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("lower", "upper", "feasibility", "accuracy")
        }
        return Rules(
            **joined,
            tier=np.concatenate([self.tier, other.tier + self.tier.max() + 1]),
            tau=min(self.tau, other.tau),
            rho=min(self.rho, other.rho),
            cut=sorted({*self.cut, *other.cut}),
        )


def find_rules(surrogates: Surrogates, hit: np.ndarray, wanted: Wanted, budget: Budget) -> Rules:
    """Return the maximal-valid boxes for the marked training rows (m,).

    If no box is as accurate as tau, tau becomes the best accuracy among the boxes with
    feasibility rho, unless that is below `tau_floor`; then rho is halved, the trees are grown
    deeper, and the search starts again. The last resort is the best accuracy seen.
    """
    best = (0.0, wanted.rho)
    for halving in range(HALVINGS + 1):
        rho = wanted.rho / 2**halving
        boxes = surrogates.at(rho, budget)
        large = _large(boxes, rho)
        top = float(wanted.lowered(boxes.hits(hit), boxes.size)[large].max(initial=0.0))
        if top > best[0]:
            best = (top, rho)
        if top >= min(wanted.tau, wanted.tau_floor) or rho * len(hit) <= 1 or budget.expired:
            break
    return _rules(surrogates.at(best[1], budget), hit, min(best[0], wanted.tau), best[1], wanted)


def _large(boxes: Candidates, rho: float) -> np.ndarray:
    """Return the numbers of boxes with enough rows; the whole space is not a rule."""
    bounded = np.isfinite(boxes.lower).any(1) | np.isfinite(boxes.upper).any(1)
    return np.flatnonzero(bounded & (boxes.size >= rho * boxes.rows - 1e-9))


def _rules(boxes: Candidates, hit: np.ndarray, tau: float, rho: float, wanted: Wanted) -> Rules:
    hits, large = boxes.hits(hit), _large(boxes, rho)
    lowered = wanted.lowered(hits, boxes.size)
    valid = large[(lowered[large] >= tau) & (hits[large] > 0)]
    kept = valid[maximal(boxes.lower[valid], boxes.upper[valid])]
    kept = kept[np.argsort(-boxes.size[kept], kind="stable")]
    cut = ["trees"] if boxes.cut else []
    if len(kept) > wanted.max_rules:
        kept, cut = kept[: wanted.max_rules], [*cut, "rules"]
    return Rules(
        lower=boxes.lower[kept], upper=boxes.upper[kept], accuracy=hits[kept] / boxes.size[kept],
        feasibility=boxes.size[kept] / boxes.rows, tier=np.zeros(len(kept), dtype=np.int64),
        tau=tau, rho=rho, cut=cut,
    )  # fmt: skip


def maximal(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return the numbers of the boxes (B, d) that no other of these boxes contains, ascending.

    Boxes must differ. They are taken from wide to narrow, so that a box can only be contained in
    one that was kept before.

    >>> maximal(np.array([[0.0], [0.2], [0.5]]), np.array([[0.6], [0.5], [0.9]]))
    array([0, 2])
    """
    if not len(lower):
        return np.zeros(0, dtype=np.int64)
    used = np.flatnonzero((np.isfinite(lower) | np.isfinite(upper)).any(0))
    low, high = lower[:, used].astype(np.float64), upper[:, used].astype(np.float64)
    ends = np.concatenate([low, high])
    finite = np.where(np.isfinite(ends), ends, 0.0)
    low = np.where(np.isfinite(low), low, finite.min(0) - 1)
    high = np.where(np.isfinite(high), high, finite.max(0) + 1)
    kept: list[int] = []
    for i in np.argsort(-(high - low).sum(1), kind="stable"):
        contained = (low[kept] <= low[i]) & (high[kept] >= high[i])
        if not contained.all(1).any():
            kept.append(int(i))
    return np.sort(np.array(kept))


def inside(x: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Tell for rows (n, d) and boxes (R, d) which row is in which box, shape (R, n)."""
    used = np.flatnonzero((np.isfinite(lower) | np.isfinite(upper)).any(0))
    out = np.ones((len(lower), len(x)), dtype=bool)
    for column in used:
        value = x[:, column]
        out &= (value > lower[:, column, None]) & (value <= upper[:, column, None])
    return out
