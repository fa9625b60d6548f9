"""Several objectives at once: fronts, crowding and the volume that is dominated, in batches.

Values are (a, m, o): a rows, m individuals each, o objectives, all of them to be minimised.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["DominatedVolume", "crowding", "dominates", "nondominated"]


def dominates(values: Tensor, others: Tensor | None = None) -> Tensor:
    """Tell (a, m, k) whether person i is nowhere worse than other j, and somewhere better.

    >>> dominates(torch.tensor([[[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]]]))[0].int().tolist()
    [[0, 1, 1], [0, 0, 0], [0, 0, 0]]
    """
    other = values if others is None else others
    no_worse = values[:, :, None, 0] <= other[:, None, :, 0]
    better = values[:, :, None, 0] < other[:, None, :, 0]
    for k in range(1, values.shape[2]):
        no_worse &= values[:, :, None, k] <= other[:, None, :, k]
        better |= values[:, :, None, k] < other[:, None, :, k]
    return no_worse & better


def nondominated(values: Tensor, *, enough: int | None = None) -> Tensor:
    """Return the front (a, m) of each person: 0 for those that nobody dominates, and so on.

    Args:
        values: (a, m, o).
        enough: individuals whose front must be known; once a row has so many, its others are said
            to be in one last front.

    >>> nondominated(torch.tensor([[[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 2.0]]])).tolist()
    [[0, 0, 1, 2]]
    """
    a, m = values.shape[:2]
    beats = dominates(values).to(torch.float32)
    front = torch.zeros(a, m, dtype=torch.long, device=values.device)
    left = torch.ones(a, m, dtype=torch.bool, device=values.device)
    wanted = m if enough is None else min(enough, m)
    for number in range(m):
        beaten = torch.bmm(left.to(beats.dtype)[:, None, :], beats)[:, 0] > 0
        open_ = (m - left.sum(1) < wanted)[:, None]
        now = left & ~beaten & open_
        front[now] = number
        left &= ~now
        front[left & open_] = number + 1
        if not bool(((m - left.sum(1)) < wanted).any()):
            break
    return front


def crowding(values: Tensor, front: Tensor, apart: Tensor) -> Tensor:
    """Return how lonely (a, m) each person is within its front: the higher, the better to keep.

    Two sums over the objectives, each over the neighbours on both sides in the order of that
    objective: the gap between these, divided by the range within the front, and how far they are
    apart from the person in feature space. Both are turned into ranks within the front, which are
    added (Dandl et al., 2020). The ends of an objective are infinitely lonely.

    Args:
        values: (a, m, o).
        front: (a, m) from `nondominated`.
        apart: (a, m, m) distances of the individuals.
    """
    value = values.mT  # (a, o, m)
    fronts = front[:, None, :].expand(value.shape)
    order = value.argsort(dim=2, stable=True)
    order = order.gather(2, fronts.gather(2, order).argsort(dim=2, stable=True))
    own, sorted_ = fronts.gather(2, order), value.gather(2, order)
    same = own[..., 1:] == own[..., :-1]
    inner = torch.zeros_like(own, dtype=torch.bool)
    inner[..., 1:-1] = same[..., 1:] & same[..., :-1]
    width = _width(sorted_, same)
    between = torch.full_like(sorted_, torch.inf)
    between[..., 1:-1] = (sorted_[..., 2:] - sorted_[..., :-2]) / width[..., 1:-1]
    aside = torch.full_like(sorted_, torch.inf)
    step = _pairs(apart, order[..., :-1], order[..., 1:])
    aside[..., 1:-1] = step[..., 1:] + step[..., :-1]
    both = torch.stack([between, aside], 1).masked_fill_(~inner[:, None], torch.inf)
    both = torch.empty_like(both).scatter_(3, order[:, None].expand(both.shape), both)
    total = both[:, :, 0]
    for k in range(1, value.shape[1]):
        total = total + both[:, :, k]
    rank = _rank(total, front[:, None])
    return rank[:, 0] + rank[:, 1]


def _width(value: Tensor, same: Tensor) -> Tensor:
    """Return (..., m) the range of sorted values within the front of each place.

    Args:
        value: (..., m), front after front.
        same: (..., m - 1) bool, whether a place and the next one are in one front.
    """
    number = torch.nn.functional.pad((~same).long().cumsum(-1), (1, 0))
    low = torch.full_like(value, torch.inf).scatter_reduce(-1, number, value, "amin")
    high = torch.full_like(value, -torch.inf).scatter_reduce(-1, number, value, "amax")
    return (high - low).gather(-1, number).clamp(min=1e-30)


def _pairs(apart: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Return entries (a, o, k) of matrices (a, m, m)."""
    m = apart.shape[2]
    return apart.flatten(1).gather(1, (i * m + j).flatten(1)).reshape(i.shape)


def _rank(value: Tensor, front: Tensor) -> Tensor:
    """Return the rank (..., m) of each value within its front, from 1; equal ones share a mean."""
    same = front[..., :, None] == front[..., None, :]
    below = (value[..., None, :] < value[..., :, None]) & same
    level = (value[..., None, :] == value[..., :, None]) & same
    return below.sum(-1) + (level.sum(-1) + 1) / 2


class DominatedVolume:
    """What share of points below a reference somebody has dominated so far, for each row.

    The points are the same for all rows: a Kronecker sequence, drawn towards the ideal.

    >>> volume = DominatedVolume(torch.tensor([[1.0, 1.0]]), points=400)
    >>> volume.add(torch.tensor([[[0.0, 0.0]]]), torch.tensor([0]))
    >>> float(volume.share[0])
    1.0
    """

    def __init__(self, reference: Tensor, *, points: int = 256, power: float = 2.0) -> None:
        o = reference.shape[1]
        root = 2.0
        for _ in range(64):  # the root of root^(o + 1) = root + 1 spreads o dimensions best
            root = (1 + root) ** (1 / (o + 1))
        steps = torch.tensor([root ** -(k + 1) for k in range(o)], dtype=torch.float64)
        number = torch.arange(1, points + 1, dtype=torch.float64)
        self.points = ((number[:, None] * steps) % 1).pow(power).to(reference)  # (s, o)
        self.reference = reference.clamp(min=1e-30)  # (n, o)
        self.hit = torch.zeros(len(reference), points, dtype=torch.bool, device=reference.device)

    def add(self, values: Tensor, rows: Tensor) -> None:
        """Count what people (a, m, o) of some rows dominate."""
        unit = values / self.reference[rows][:, None, :]
        below = unit[:, :, None, 0] <= self.points[:, 0]
        for k in range(1, unit.shape[2]):
            below &= unit[:, :, None, k] <= self.points[:, k]
        self.hit[rows] |= below.any(1)

    @property
    def share(self) -> Tensor:
        """(n,) share of the points that are dominated."""
        return self.hit.to(self.reference.dtype).mean(1)
