"""Take over features of another row, one at a time, until a row is accepted.

The forward twin of `revert_features`: that one starts from an answer and gives features back, this
one starts from the row and takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.space.layout import by_feature

__all__ = ["Introduced", "introduce_features"]

Judge = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""(points (a, d), row numbers (a,)) -> (admissible (a,), accepted (a,), values (a, v))."""

Reward = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(values of candidates (a, c, v), of the states (a, v), known (a, c)) -> rewards (a, c)."""

VALUES = 2**22  # numbers of candidates that exist at a time


@dataclass(frozen=True, kw_only=True, eq=False)
class Introduced:
    """Where n rows ended.

    Attributes:
        x: (n, d) the origin with some features of the donor.
        ok: (n,) whether that is accepted.
        round: (n, p) the round, from 1, in which a feature was taken over; 0 for never.
    """

    x: Tensor
    ok: Tensor
    round: Tensor


def introduce_features(
    origin: Tensor,
    donor: Tensor,
    judge: Judge,
    reward: Reward,
    owner: Tensor,
    *,
    groups: Tensor | None = None,
    budget: Budget | None = None,
) -> Introduced:
    """Walk from the origin to the donor, each round by the feature of highest reward.

    A round builds, for every row that is not accepted yet, one candidate for each feature in which
    it still differs from its donor, judges them all in one call, and goes to the best one; ties go
    to the earlier feature. Where no single feature is admissible, the groups of features that
    constraints join are tried, then the donor itself.

    Args:
        origin: (n, d) rows.
        donor: (n, d) accepted points.
        judge: tells which points may stand, which are accepted, and what the reward looks at.
        reward: compares candidates with the state that they leave.
        owner: (d,) feature of each column; a one-hot block is taken over as a whole.
        groups: (g, p) bool, features to be taken over together, or None.
        budget: ends the walk early.

    >>> origin, donor = torch.zeros(1, 3), torch.tensor([[1.0, 3.0, 2.0]])
    >>> def judge(x, rows):
    ...     total = x.sum(1)
    ...     return total > -1, total >= 4, total[:, None]
    >>> gain = lambda new, old, known: (new - old[:, None])[..., 0]
    >>> introduce_features(origin, donor, judge, gain, torch.arange(3)).x
    tensor([[0., 3., 2.]])
    """
    count = int(owner.max()) + 1
    walk = _Walk(origin, donor, judge, reward, owner, count)
    singles = torch.eye(count, dtype=torch.bool, device=origin.device)
    stages = [singles, *([] if groups is None or not len(groups) else [groups])]
    for number in range(1, count + 1):
        todo = (~walk.ok & walk.left.any(1)).nonzero()[:, 0]
        if not len(todo) or (budget is not None and budget.expired):
            break
        for part in torch.split(todo, max(1, VALUES // (count * origin.shape[1]))):
            rest = part
            for sets in stages:
                rest = walk.step(rest, sets, number)
            walk.jump(rest, number)
    return Introduced(x=walk.x, ok=walk.ok, round=walk.round)


class _Walk:
    """The states of all rows; rows leave when they are accepted or have arrived."""

    def __init__(
        self,
        origin: Tensor,
        donor: Tensor,
        judge: Judge,
        reward: Reward,
        owner: Tensor,
        count: int,
    ) -> None:
        self.x, self.donor, self.judge, self.reward, self.owner = (
            origin.clone(), donor, judge, reward, owner,
        )  # fmt: skip
        rows = torch.arange(len(origin), device=origin.device)
        _, self.ok, self.values = judge(self.x, rows)
        self.round = torch.zeros(len(origin), count, dtype=torch.long, device=origin.device)
        self.left = by_feature(donor != origin, owner, count) > 0  # (n, p) not taken over

    def step(self, rows: Tensor, sets: Tensor, number: int) -> Tensor:
        """Take over the best of some sets (s, p) of features; return rows that had no choice."""
        if not len(rows):
            return rows
        take = sets[None] & self.left[rows][:, None]  # (a, s, p)
        known = take.any(2)
        at, which = known.nonzero(as_tuple=True)
        points = torch.where(
            take[at, which][:, self.owner], self.donor[rows[at]], self.x[rows[at]]
        )
        admissible, accepted, values = self.judge(points, rows[at])
        table = values.new_zeros(*known.shape, values.shape[1])
        table[at, which] = values
        known[at, which] = admissible
        gain = self.reward(table, self.values[rows], known)
        gain = gain.nan_to_num(nan=-torch.inf).masked_fill(~known, -torch.inf)
        best = _first_best(gain, known)
        moved = known.any(1)
        place = torch.full(known.shape, -1, dtype=torch.long, device=rows.device)
        place[at, which] = torch.arange(len(at), device=rows.device)
        chosen = place.gather(1, best[:, None])[moved, 0]
        self._go(rows[moved], points[chosen], take[at[chosen], which[chosen]], number)
        self.ok[rows[moved]] = accepted[chosen]
        self.values[rows[moved]] = values[chosen]
        return rows[~moved]

    def jump(self, rows: Tensor, number: int) -> None:
        """Take over everything that is left."""
        if not len(rows):
            return
        _, self.ok[rows], self.values[rows] = self.judge(self.donor[rows], rows)
        self._go(rows, self.donor[rows], self.left[rows], number)

    def _go(self, rows: Tensor, x: Tensor, took: Tensor, number: int) -> None:
        self.x[rows] = x
        self.round[rows] = torch.where(took, number, self.round[rows])
        self.left[rows] &= ~took


def _first_best(gain: Tensor, known: Tensor) -> Tensor:
    """Return (a,) the first known place of the highest gain (a, c)."""
    best = gain.amax(1, keepdim=True)
    place = torch.arange(gain.shape[1], device=gain.device).expand_as(gain)
    return place.masked_fill(~(known & (gain >= best)), gain.shape[1] - 1).amin(1)
