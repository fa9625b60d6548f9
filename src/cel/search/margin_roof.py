"""Which of many samples may have the wanted outcome at all: sound bounds instead of questions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["MarginRoof"]

ROUNDING = 1e-4  # of the sum of all terms of a margin; sums of this size lose a thousandth of it
PAYS = 6  # samples of a set, per column, from which tighter bounds of the second layer pay
PIECE = 2**20  # numbers of one product


class MarginRoof:
    """Bounds the margins of a ReLU network from above over sets of samples.

    The samples of a set lie in a box. There every ReLU lies below one line and above another
    (Zhang et al., 2018, "CROWN"), which makes the margin at most a linear function of the input:
    it costs next to nothing at each sample. The box is carried through the layers as intervals;
    where samples stay open after that, the second hidden layer is bounded by linear functions of
    the input as well. A sample that is ruled out does not have the outcome, whatever is rounded.

    Args:
        layers: (W (out, in), b (out,)) of each layer, at least one hidden one; the outputs are
            the scores of classes.

    >>> roof = MarginRoof([(torch.eye(2), torch.zeros(2)), (torch.eye(2), torch.zeros(2))])
    >>> samples = torch.tensor([[[0.2, 0.9], [0.3, 0.2]]])
    >>> roof.open(samples, torch.tensor([0]), 0.0)
    tensor([[False,  True]])
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.layers = layers
        self.sizes = [(w.abs(), b.abs()) for w, b in layers]
        self.eye = torch.eye(len(layers[-1][1])).to(layers[-1][0])

    def open(self, x: Tensor, target: Tensor, least: float) -> Tensor:
        """Tell which samples (a, s, d) of a sets may have a margin of `least`, (a, s) bool.

        Args:
            x: the samples.
            target: (a,) the wanted class of each set.
            least: smallest margin that counts.
        """
        low, high = x.amin(1), x.amax(1)
        others = torch.arange(len(self.eye) - 1, device=target.device)
        rivals = others + (others >= target[:, None])
        mix = self.eye[target][:, None] - self.eye[rivals]  # (a, r, K)
        least_seen = least - ROUNDING * self._size(torch.maximum(low.abs(), high.abs()))[:, None]
        maybe = self._roof(x, low, high, mix, tight=False) >= least_seen
        if len(self.layers) <= 2:  # one hidden layer: its intervals are exact
            return maybe
        moving = (high > low).any(0).nonzero()[:, 0]
        again = (maybe.sum(1) > PAYS * len(moving)).nonzero()[:, 0]
        each = max(1, PIECE // max(1, len(moving) * len(self.layers[0][1])))
        for at in torch.split(again, each):
            part = self._roof(x[at], low[at], high[at], mix[at], tight=True, moving=moving)
            maybe[at] &= part >= least_seen[at]
        return maybe

    def _size(self, most: Tensor) -> Tensor:
        """Return (a,) the sum of all terms of the scores for inputs up to `most` (a, d)."""
        for weight, bias in self.sizes:
            most = torch.addmm(bias, most, weight.T)
        return 1 + most.sum(1)

    def _roof(
        self,
        x: Tensor,
        low: Tensor,
        high: Tensor,
        mix: Tensor,
        *,
        tight: bool,
        moving: Tensor | None = None,
    ) -> Tensor:
        """Return upper bounds (a, s) of the margins of samples in boxes (a, d)."""
        lines = self._lines(low, high, moving if tight else None)
        weight, bias = self.layers[-1]
        slope, height = mix @ weight, mix @ bias
        for (weight, bias), (lower, more, lift) in zip(
            self.layers[-2::-1], lines[::-1], strict=True
        ):
            rise = slope.clamp(min=0)
            height = height + (rise * lift[:, None]).sum(-1)
            slope = slope * lower[:, None] + rise * more[:, None]
            height = height + slope @ bias
            slope = slope @ weight
        return torch.baddbmm(height[:, None], x, slope.mT).amin(-1)

    def _lines(
        self, low: Tensor, high: Tensor, moving: Tensor | None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return the lines around the ReLUs of each hidden layer, see `_around`, over boxes."""
        lines: list[tuple[Tensor, Tensor, Tensor]] = []
        middle, radius = (low + high) / 2, (high - low) / 2
        for number, (weight, bias) in enumerate(self.layers[:-1]):
            z = torch.addmm(bias, middle, weight.T)
            spread = radius @ self.sizes[number][0].T
            ends = z - spread, z + spread
            if number == 0:
                first, reach = z, radius
            elif number == 1 and moving is not None:
                least, most = self._second(first, reach[:, moving], lines[0], moving)
                ends = torch.maximum(ends[0], least), torch.minimum(ends[1], most)
                ends = ends[0], torch.maximum(*ends)
            lines.append(_around(*ends))
            bottom, top = ends[0].relu(), ends[1].relu()
            middle, radius = (bottom + top) / 2, (top - bottom) / 2
        return lines

    def _second(
        self, z: Tensor, radius: Tensor, lines: tuple[Tensor, Tensor, Tensor], moving: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return least and largest values (a, n) of the second layer, through the first one.

        Args:
            z: (a, m) the first layer in the middle of the boxes.
            radius: (a, c) of the boxes, in the columns `moving` (c,).
            lines: around the ReLUs of the first layer.
            moving: columns in which boxes have a width.
        """
        (first, _), (weight, bias) = self.layers[:2]
        lower, more, lift = lines
        rise, fall = weight.clamp(min=0), weight.clamp(max=0)
        columns = first[:, None, moving]  # (m, 1, c)
        shape = len(weight), len(z), len(moving)
        base = (weight @ (lower.T[..., None] * columns).flatten(1)).reshape(shape)
        extra = (more.T[..., None] * columns).flatten(1)
        at_low, at_high = lower * z, (lower + more) * z + lift
        ends = []
        for up, down in ((fall, rise), (rise, fall)):  # the least values, the largest ones
            away = ((up @ extra).reshape(shape) + base).abs_().mul_(radius).sum(-1).T
            centre = torch.addmm(bias, at_high, up.T).addmm_(at_low, down.T)
            ends.append((centre, away))
        return ends[0][0] - ends[0][1], ends[1][0] + ends[1][1]


def _around(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for inputs from low to high (a, n), what holds their ReLU in, (a, n) each.

    `lower * z <= relu(z) <= (lower + more) * z + lift`.
    """
    on, off = low >= 0, high <= 0
    decided = on | off
    wide = torch.where(decided, torch.ones_like(low), high - low)
    upper = torch.where(decided, on.to(low), high / wide)
    lift = torch.where(decided, torch.zeros_like(low), -upper * low)
    lower = torch.where(decided, upper, (high > -low).to(low))
    return lower, upper - lower, lift
