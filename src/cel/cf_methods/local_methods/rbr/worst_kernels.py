"""Gaussian kernels at their worst, and how they depend on the distance alone.

A sample at distance c of a point counts by the logarithm of a Gaussian kernel with bandwidth s in
q dimensions. An adversary may move the mean and widen the kernel a little: to make samples of the
unwanted class count more ("op"), or samples of the wanted class count less ("pe"). Both problems
have two unknowns and depend on the sample through c only, so that one table of their optima over c
serves all rows, samples and steps.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

__all__ = ["KernelTable", "kernel_table", "worst_value"]

Side = Literal["op", "pe"]
POINTS = 4096  # distances of a table
PART = 128  # of them that are computed together
GRID = 33  # radii and angles of the first look
CLOSER = 17  # of each further look, around the best
LOOKS = 7
SHRINK = 0.25


def _value(side: Side, c: Tensor, a: Tensor, b: Tensor, s: float, q: int, eps: float) -> Tensor:
    """Return the log kernel for moves a and b of the adversary; all broadcast."""
    wide = b + s
    if side == "op":
        return -wide.log() - (c - a).square() / (2 * wide.square()) - (q - 1) * math.log(s)
    value = -wide.log() - (c + math.sqrt(q) * a).square() / (2 * wide.square())
    if q > 1:
        rest = (eps**2 - q * a.square() - b.square()).clamp(min=0) / (q - 1)
        value = value - (q - 1) * (s + rest.sqrt()).log()
    return value


def worst_value(side: Side, c: Tensor, *, s: float, q: int, eps: float) -> Tensor:
    """Return the worst log kernels at distances c (k,): the largest for "op", least for "pe".

    The moves lie in a quarter of a disc (an ellipse for "pe"); polar coordinates are searched by
    a grid, then by ever smaller ones around the best point of each distance.
    """
    sign = 1.0 if side == "op" else -1.0
    zero = torch.zeros_like(c)
    if eps == 0.0:
        return _value(side, c, zero, zero, s, q, eps)
    stretch = 1.0 if side == "op" else math.sqrt(q)
    centre = torch.full((2, len(c)), 0.5, dtype=c.dtype)  # shares of radius and right angle
    reach, count, best = 0.5, GRID, torch.full_like(c, -torch.inf)
    for _ in range(LOOKS):
        steps = torch.linspace(-reach, reach, count, dtype=c.dtype)
        radius = (centre[0][:, None, None] + steps[:, None]).clamp(0, 1)
        angle = (centre[1][:, None, None] + steps[None, :]).clamp(0, 1)
        a = eps * radius * (angle * math.pi / 2).cos() / stretch
        b = eps * radius * (angle * math.pi / 2).sin()
        value = sign * _value(side, c[:, None, None], a, b, s, q, eps)
        top, at = value.flatten(1).max(1)
        radius, angle = (v.expand_as(value).flatten(1) for v in (radius, angle))
        here = torch.stack([v.gather(1, at[:, None])[:, 0] for v in (radius, angle)])
        better = top > best
        centre = torch.where(better, here, centre)
        best = torch.maximum(best, top)
        reach, count = reach * SHRINK, CLOSER
    return sign * best


class KernelTable:
    """Worst log kernels over distances from 0 to `most`, interpolated between.

    Searches ask for distances within the data, a small part of the table: its entries are computed
    from the first on, as far as somebody asked.

    Args:
        side: the adversary.
        s: bandwidth.
        q: dimensions.
        eps: how far it may move a kernel.
        most: largest distance; beyond it the last slope goes on.
    """

    def __init__(self, side: Side, s: float, q: int, eps: float, most: float) -> None:
        self.side, self.s, self.q, self.eps, self.most = side, s, q, eps, most
        self.values = torch.zeros(0, dtype=torch.float64)
        self._cast = self.values

    def __call__(self, c: Tensor) -> Tensor:
        """Return the values at distances of any shape, differentiable."""
        last = POINTS - 1
        place = c * (last / self.most)
        below = place.detach().floor().clamp(0, last - 1).long()
        table = self._until(int(below.max()) + 2 if below.numel() else 0, c)
        low, high = table[below], table[below + 1]
        return low + (place - below.to(c)) * (high - low)

    def _until(self, count: int, like: Tensor) -> Tensor:
        """Return at least the first `count` values, in the dtype of `like`."""
        if count > len(self.values):
            c = torch.linspace(0, self.most, POINTS, dtype=torch.float64)
            parts = torch.split(c[len(self.values) :], PART)
            more = parts[: math.ceil((count - len(self.values)) / PART)]
            found = [worst_value(self.side, p, s=self.s, q=self.q, eps=self.eps) for p in more]
            self.values = torch.cat([self.values, *found])
            self._cast = self.values
        if (self._cast.dtype, self._cast.device) != (like.dtype, like.device):
            self._cast = self.values.to(like)
        return self._cast


@lru_cache(maxsize=256)
def kernel_table(side: Side, s: float, q: int, eps: float, most: float) -> KernelTable:
    """Return the table of one adversary."""
    return KernelTable(side, s, q, eps, most)
