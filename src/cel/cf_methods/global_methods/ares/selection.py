"""Choosing rules: lazy greedy, then exchanges and deletions, under limits on size."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["RuleLimits", "SetFunction", "exchange", "lazy_greedy"]

CHUNK = 2**22  # values computed at a time
AHEAD = 127  # candidates whose gains are taken with that of the next one
POOL = 1000  # candidates for exchanges
SWEEPS = 5


@dataclass(frozen=True, kw_only=True)
class RuleLimits:
    """At most `rules` rules with at most `groups` different subgroups."""

    rules: int
    groups: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SetFunction:
    """F(R) = constant + sum of own worth + sum over rows of the best value of a chosen rule.

    With values >= 0 it is submodular; it is monotone where no own worth is negative.

    Attributes:
        own: (V,) worth of each candidate by itself, a cost if negative.
        values: positions (k,) -> values (k, n).
        rows: n.
        group: (V,) subgroup of each candidate, for the limit.
        constant: worth of the empty set.
    """

    own: np.ndarray
    values: Callable[[np.ndarray], np.ndarray]
    rows: int
    group: np.ndarray
    constant: float = 0.0

    def __len__(self) -> int:
        return len(self.own)

    def best(self, chosen: list[int]) -> np.ndarray:
        """Return (n,) the best value of a chosen rule for each row, 0 without rules."""
        if not chosen:
            return np.zeros(self.rows)
        return np.asarray(self.values(np.array(chosen)).max(0))

    def __call__(self, chosen: list[int]) -> float:
        """Return F of a set of candidates."""
        return self.constant + float(self.own[chosen].sum() + self.best(chosen).sum())

    def gains(self, which: np.ndarray, best: np.ndarray) -> np.ndarray:
        """Return what each of some candidates adds to a set with the given best values."""
        size = max(1, CHUNK // max(self.rows, 1))
        parts = [which[i : i + size] for i in range(0, len(which), size)]
        out = [self.own[p] + np.maximum(self.values(p) - best, 0.0).sum(1) for p in parts]
        return np.concatenate(out) if out else np.zeros(0)

    def fits(self, chosen: list[int], limits: RuleLimits) -> bool:
        """Tell whether a set keeps the limits."""
        groups = len({int(self.group[i]) for i in chosen})
        return len(chosen) <= limits.rules and groups <= limits.groups


def lazy_greedy(function: SetFunction, limits: RuleLimits) -> list[int]:
    """Add the candidate that gains most until none gains or fits (Minoux, 1978).

    Gains only shrink as the set grows, so a gain that is still the largest after being brought up
    to date is the largest of all.
    """
    chosen: list[int] = []
    groups: set[int] = set()
    best = np.zeros(function.rows)
    gains = function.gains(np.arange(len(function)), best)
    asked = np.zeros(len(function), dtype=np.int64)  # how many were chosen when gains were taken
    heap = [(-g, i) for i, g in enumerate(gains.tolist()) if g > 0]
    heapq.heapify(heap)
    while heap and len(chosen) < limits.rules:
        _, i = heapq.heappop(heap)
        group = int(function.group[i])
        if group not in groups and len(groups) >= limits.groups:
            continue
        if asked[i] < len(chosen):  # those that may come next are brought up to date with it
            some = np.array([i, *(k for _, k in heap[:AHEAD])])
            some = some[asked[some] < len(chosen)]
            gains[some], asked[some] = function.gains(some, best), len(chosen)
        now = float(gains[i])
        if heap and now < -heap[0][0]:
            if now > 0:
                heapq.heappush(heap, (-now, i))
        elif now > 0:
            chosen.append(i)
            groups.add(group)
            best = np.maximum(best, function.values(np.array([i]))[0])
    return chosen


def exchange(
    function: SetFunction, chosen: list[int], limits: RuleLimits
) -> tuple[list[int], bool]:
    """Swap or drop rules while that improves F clearly (Lee et al., 2009).

    Returns:
        The improved set, and whether the number of sweeps cut the search short.
    """
    if not chosen:
        return chosen, False
    first = function.gains(np.arange(len(function)), np.zeros(function.rows))
    pool = np.argsort(-first, kind="stable")[:POOL]
    factor = 1 + 1e-6 / max(len(function), 1) ** 4
    value = function(chosen)
    for _ in range(SWEEPS):
        improved = False
        for rule in list(chosen):
            rest = [i for i in chosen if i != rule]
            trial = _best_swap(function, rest, pool, limits)
            new = function(trial)
            if new > value * factor + 1e-9 * abs(value):
                chosen, value, improved = trial, new, True
        if not improved:
            return chosen, False
    return chosen, True


def _best_swap(
    function: SetFunction, rest: list[int], pool: np.ndarray, limits: RuleLimits
) -> list[int]:
    """Return `rest` with the best candidate added, or alone if none adds anything."""
    gains = function.gains(pool, function.best(rest))
    for i in np.argsort(-gains, kind="stable"):
        if gains[i] <= 0:
            break
        trial = [*rest, int(pool[i])]
        if function.fits(trial, limits):
            return trial
    return rest
