"""What it takes a row to enter a box: which features must change, whether they can, and how."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.group_methods.tcrex.boxes import Boxes, inside
from cel.space import Feature, FeatureSpace
from cel.space.region import Region

__all__ = ["Reach"]

CHUNK_VALUES = 2**22


@dataclass(frozen=True, kw_only=True, eq=False)
class Reach:
    """Boxes with the nearest sensible value behind each of their faces.

    Attributes:
        space: encoded features.
        lower: (R, d) the boxes.
        upper: (R, d).
        feasibility: (R,) share of training rows inside.
        tier: (R,) rules of a higher tier cost more than all below.
        rise: (R, d) where a number below the box enters it, NaN where it cannot; half-way to the
            next training value, or the next grid value.
        fall: (R, d) where a number above the box enters it.
        levels: (R, d) share of the training rows in the box that have a category, -1 for
            categories outside the box.
    """

    space: FeatureSpace
    lower: Tensor
    upper: Tensor
    feasibility: Tensor
    tier: Tensor
    rise: Tensor
    fall: Tensor
    levels: Tensor

    @classmethod
    def of(cls, rules: Boxes, x: Tensor, space: FeatureSpace) -> Reach:
        """Learn the values from training rows (m, d)."""
        rows = x.cpu().numpy()
        rise = np.full(rules.lower.shape, np.nan, dtype=np.float32)
        fall = rise.copy()
        for f in space.numeric_features:
            c = f.columns[0]
            rise[:, c], fall[:, c] = _entrances(
                f, rules.lower[:, c], rules.upper[:, c], np.unique(rows[:, c])
            )
        levels = _levels(rules, rows, space)
        parts = (rules.lower, rules.upper, rules.feasibility, rules.tier, rise, fall, levels)
        tensors = [torch.as_tensor(a.astype(np.float32)).to(x) for a in parts]
        names = ("lower", "upper", "feasibility", "tier", "rise", "fall", "levels")
        return cls(space=space, **dict(zip(names, tensors, strict=True)))

    def __len__(self) -> int:
        return len(self.lower)

    def contains(self, x: Tensor, which: Tensor) -> Tensor:
        """Tell whether row i of `x` (..., a, d) is in box `which[i]`, shape (..., a)."""
        return ((x > self.lower[which]) & (x <= self.upper[which])).all(-1)

    def outside(self, x: Tensor, which: Tensor) -> Tensor:
        """Tell which features keep row i of `x` (a, d) out of box `which[i]`, shape (a, p)."""
        columns = (x <= self.lower[which]) | (x > self.upper[which])
        return torch.stack([columns[:, list(f.columns)].any(1) for f in self.space], 1)

    # -- cost --------------------------------------------------------------------------------

    def costs(self, region: Region) -> Tensor:
        """Return cost(x, R) = features of x outside R - feasibility of R, shape (n, R).

        A box costs inf where a feature outside of it cannot move in: immutable, wrong direction,
        bounded, or no category of the box may be reached. Every tier adds p + 1.
        """
        size = max(1, CHUNK_VALUES // max(self.lower.numel(), 1))
        rows = torch.arange(len(region), device=self.lower.device)
        parts = [self._costs(region.select(part)) for part in torch.split(rows, size)]
        return torch.cat(parts) if parts else self.lower.new_zeros(0, len(self))

    def _costs(self, region: Region) -> Tensor:
        bounded = (self.lower.isfinite() | self.upper.isfinite()).any(0)
        count = torch.zeros(len(region), len(self), device=self.lower.device)
        stuck = torch.zeros_like(count, dtype=torch.bool)
        numbers = (bounded & region.layout.numeric).nonzero()[:, 0]
        below, above, can_rise, can_fall = self._numbers(region, numbers)
        count += (below | above).sum(-1)
        stuck |= ((below & ~can_rise) | (above & ~can_fall)).any(-1)
        for f in self.space.one_hot_features:
            columns = list(f.columns)
            if not bool(bounded[columns].any()):
                continue
            value = region.origin[:, None, columns]
            out = ((value <= self.lower[:, columns]) | (value > self.upper[:, columns])).any(-1)
            may = region.reachable[:, None, columns] & (self.levels[:, columns] >= 0)
            count += out
            stuck |= out & ~may.any(-1)
        count += (len(self.space) + 1) * self.tier
        return torch.where(stuck, torch.inf, count - self.feasibility)

    def _numbers(self, region: Region, c: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return (below, above, can rise in, can fall in), each (n, R, len(c))."""
        lower, upper = self.lower[:, c], self.upper[:, c]
        low, high = region.lower[:, None, c], region.upper[:, None, c]
        grid, slack = region.layout.step[c] > 0, region.layout.tolerance[c]
        value = region.origin[:, None, c]
        can_rise = torch.where(grid, self.rise[:, c] <= high + slack, high > lower)
        can_fall = torch.where(grid, self.fall[:, c] >= low - slack, low <= upper)
        return value <= lower, value > upper, can_rise, can_fall

    # -- the nearest point -------------------------------------------------------------------

    def clip(self, region: Region, which: Tensor) -> Tensor:
        """Move row i of the region into box `which[i]`, changing what must change, (a, d).

        Numbers stop just behind the face of the box; a category becomes the most frequent
        reachable one in the box. Rows with an infinite cost do not get in.
        """
        x, free = region.origin, region.layout.step == 0
        rise, fall = self.rise[which], self.fall[which]
        rise = torch.where(free, torch.minimum(rise, region.upper), rise)
        fall = torch.where(free, torch.maximum(fall, region.lower), fall)
        out = torch.where(x <= self.lower[which], rise, x)
        out = torch.where(x > self.upper[which], fall, out)
        out = torch.where(out.isnan() | ~region.layout.numeric, x, out)
        must = self.outside(x, which)
        for i, f in enumerate(self.space):
            columns = list(f.columns)
            if not f.is_categorical or not bool(must[:, i].any()):
                continue
            share = torch.where(region.reachable[:, columns], self.levels[which][:, columns], -1.0)
            best = torch.nn.functional.one_hot(share.argmax(1), len(columns)).to(x)
            moves = must[:, i] & (share.amax(1) >= 0)
            out[:, columns] = torch.where(moves[:, None], best, x[:, columns])
        return out


def _entrances(
    f: Feature, lower: np.ndarray, upper: np.ndarray, seen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return (R,) values that enter (lower, upper] from below and from above."""
    if f.kind == "ordinal" and f.allowed is not None:
        ranks = np.flatnonzero(f.allowed_mask)
        return _extremes((f.anchor + (f.step or 1.0) * ranks).astype(np.float32), lower, upper)
    if f.step:
        return _grid(f, lower, upper)
    after = np.searchsorted(seen, lower, "right")
    above = seen[np.minimum(after, len(seen) - 1)]
    below = seen[np.maximum(np.searchsorted(seen, upper, "right") - 1, 0)]
    with np.errstate(invalid="ignore"):
        rise, fall = (lower + above) / 2, (upper + below) / 2
    rise = np.where(rise > lower, rise, above)
    return rise, np.where(fall > lower, fall, upper)


def _grid(f: Feature, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    anchor, step = np.float32(f.anchor), np.float32(f.step or 1.0)
    with np.errstate(invalid="ignore"):
        rise = anchor + step * (np.floor((lower - anchor) / step) + 1)
        rise = np.where(rise > lower, rise, rise + step)
        fall = anchor + step * np.floor((upper - anchor) / step)
        fall = np.where(fall <= upper, fall, fall - step)
    return np.where(rise <= upper, rise, np.nan), np.where(fall > lower, fall, np.nan)


def _extremes(
    values: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest of the values in each interval, NaN for none."""
    within = (values > lower[:, None]) & (values <= upper[:, None])
    first = np.where(within, values, np.inf).min(1)
    last = np.where(within, values, -np.inf).max(1)
    some = within.any(1)
    return np.where(some, first, np.nan), np.where(some, last, np.nan)


def _levels(rules: Boxes, x: np.ndarray, space: FeatureSpace) -> np.ndarray:
    """Return how often each category occurs in each box, -1 where the box forbids it."""
    out = np.zeros(rules.lower.shape)
    if not space.one_hot_features:
        return out
    member = inside(x, rules.lower, rules.upper).astype(np.float64)
    share = member @ x / np.maximum(member.sum(1, keepdims=True), 1)
    for f in space.one_hot_features:
        columns = list(f.columns)
        lower, upper = rules.lower[:, columns], rules.upper[:, columns]
        on, off = (lower < 1) & (upper >= 1), (lower < 0) & (upper >= 0)
        others = (~off).sum(1, keepdims=True) - ~off
        out[:, columns] = np.where(on & (others == 0), share[:, columns], -1.0)
    return out
