"""Which of many samples may have the wanted outcome at all: sound bounds instead of questions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["MarginRoof"]

ROUNDING = 1e-4  # of the sum of all terms of a margin; sums of this size lose a hundredth of it
PAYS = 3  # open samples of a set, or of one per column, from which a closer look pays
AT_ONCE = 2048  # samples: what the first layer makes of them stays in the cache
HIDDEN = 2  # hidden layers of the networks that are bounded


class MarginRoof:
    """Bounds the margins of a network of two hidden layers from above over sets of samples.

    At first a set is known by its box, which is carried through the layers as intervals. Every
    ReLU lies below one line and above another (Zhang et al., 2018, "CROWN"), so that the margin
    is at most a linear function of the input: it costs next to nothing at each sample.

    Where that leaves samples open, the first layer is asked about them. A ReLU z from l to u is a
    linear function (0 or z, whichever is closer) plus something between 0 and min(-l, u), and
    most ReLUs do not change sides among samples that are close to each other. With such a split of
    the second layer the margin is at most a linear function of the first one; the range of the
    second layer follows from linear parts and rests of the first.

    A sample that is ruled out does not have the outcome, whatever is rounded.

    Args:
        layers: (W (out, in), b (out,)) of the three layers; the outputs are scores of classes.

    >>> one = torch.eye(2), torch.zeros(2)
    >>> samples = torch.tensor([[[0.2, 0.9], [0.3, 0.2]]])
    >>> MarginRoof([one, one, one]).open(samples, torch.tensor([0]), 0.0)
    tensor([[False,  True]])
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.first, self.second, self.last = layers
        self.sizes = [(w.abs(), b.abs()) for w, b in layers]
        weight = self.second[0]
        self.rise, self.fall = weight.clamp(min=0), weight.clamp(max=0)
        self.eye = torch.eye(len(self.last[1])).to(weight)

    @classmethod
    def of(cls, layers: Sequence[tuple[Tensor, Tensor]]) -> MarginRoof | None:
        """Return the bounds of a network, None for one with more or fewer hidden layers."""
        return cls(layers) if len(layers) == HIDDEN + 1 else None

    def open(self, x: Tensor, target: Tensor, least: float) -> Tensor:
        """Tell which samples may have a margin of `least`, (a, s) bool.

        Args:
            x: (a, s, d) the samples of a sets.
            target: (a,) the wanted class of each set.
            least: smallest margin that counts.
        """
        box = x.amin(1), x.amax(1)
        mix = self._mix(target)
        limit = least - ROUNDING * self._size(torch.maximum(box[0].abs(), box[1].abs()))[:, None]
        maybe = self._coarse(x, *box, mix) >= limit
        left = (maybe.sum(1) > PAYS).nonzero()[:, 0]
        for at in torch.split(left, max(1, AT_ONCE // x.shape[1])):
            maybe[at] &= self._fine(x[at], mix[at], limit[at])
        return maybe

    def _coarse(self, x: Tensor, low: Tensor, high: Tensor, mix: Tensor) -> Tensor:
        """Return upper bounds (a, s) of the margins of samples in boxes (a, d)."""
        slope, height = mix @ self.last[0], mix @ self.last[1]
        first = _interval(self.first, self.sizes[0][0], low, high)
        second = _interval(self.second, self.sizes[1][0], *(e.relu() for e in first))
        for (weight, bias), ends in ((self.second, second), (self.first, first)):
            lower, more, lift = _around(*ends)
            rise = slope.clamp(min=0)
            slope = slope * lower[:, None] + rise * more[:, None]
            height = height + (rise * lift[:, None]).sum(-1) + slope @ bias
            slope = slope @ weight
        return torch.baddbmm(height[:, None], x, slope.mT).amin(-1)

    def _fine(self, x: Tensor, mix: Tensor, limit: Tensor) -> Tensor:
        """Tell which samples may have margins of `limit` (a, 1), (a, s) bool."""
        home = x[:, 0]
        moving = (x != home[:, None]).flatten(0, 1).any(0).nonzero()[:, 0]
        away = x.index_select(2, moving) - home.index_select(1, moving)[:, None]  # (a, s, c)
        start = torch.addmm(self.first[1], home, self.first[0].T)  # (a, m)
        columns = self.first[0].index_select(1, moving)
        z = away @ columns.T + start[:, None]
        linear, gap, ends = _split(z.amin(1), z.amax(1))
        units = z.relu_()
        reach = _interval(self.second, self.sizes[1][0], *ends)
        maybe = self._roof(units, mix, *reach) >= limit
        at = (maybe.sum(1) > PAYS * len(moving)).nonzero()[:, 0]
        if len(at):
            linear, gap = linear[at], gap[at]
            parts = (linear.T[..., None] * columns[:, None]).flatten(1)  # (m, b c)
            slopes = (self.second[0] @ parts).reshape(-1, len(at), len(moving))
            values = away[at] @ slopes.permute(1, 2, 0)  # (b, s, n)
            base = torch.addmm(self.second[1], linear * start[at], self.second[0].T)
            below = base + values.amin(1) + gap @ self.fall.T
            above = base + values.amax(1) + gap @ self.rise.T
            tight = torch.maximum(below, reach[0][at]), torch.minimum(above, reach[1][at])
            maybe[at] &= self._roof(units[at], mix[at], *tight) >= limit[at]
        return maybe

    def _mix(self, target: Tensor) -> Tensor:
        """Return (a, r, K) the differences of scores whose least one is the margin."""
        others = torch.arange(len(self.eye) - 1, device=target.device)
        return self.eye[target][:, None] - self.eye[others + (others >= target[:, None])]

    def _size(self, most: Tensor) -> Tensor:
        """Return (a,) the sum of all terms of the scores for inputs up to `most` (a, d)."""
        for weight, bias in self.sizes:
            most = torch.addmm(bias, most, weight.T)
        return 1 + most.sum(1)

    def _roof(self, units: Tensor, mix: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return upper bounds (a, s) of margins.

        Args:
            units: (a, s, m) what the first layer gives.
            mix: (a, r, K) see `_mix`.
            low: (a, n) least values of the second layer, before its ReLU.
            high: (a, n) largest ones.
        """
        linear, gap, _ = _split(low, high)
        push = mix @ self.last[0]  # (a, r, n)
        kept = push * linear[:, None]
        height = mix @ self.last[1] + kept @ self.second[1]
        height = height + (push.clamp(min=0) * gap[:, None]).sum(-1)
        slope = kept @ self.second[0]
        return torch.baddbmm(height[:, None], units, slope.mT).amin(-1)


def _interval(
    layer: tuple[Tensor, Tensor], size: Tensor, low: Tensor, high: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the least and largest values (a, n) of a layer for inputs in boxes (a, m)."""
    middle = torch.addmm(layer[1], (low + high) / 2, layer[0].T)
    radius = ((high - low) / 2) @ size.T
    return middle - radius, middle + radius


def _around(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, for numbers z from low to high (a, n), what holds their ReLU in, (a, n) each.

    `lower * z <= relu(z) <= (lower + more) * z + lift`.
    """
    on, off = low >= 0, high <= 0
    decided = on | off
    wide = torch.where(decided, torch.ones_like(low), high - low)
    upper = torch.where(decided, on.to(low), high / wide)
    lift = torch.where(decided, torch.zeros_like(low), -upper * low)
    lower = torch.where(decided, upper, (high > -low).to(low))
    return lower, upper - lower, lift


def _split(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Split ReLUs of numbers z from low to high (a, n) into linear parts and what is left.

    Returns:
        1 where the linear part is z and 0 where it is none, how much larger the ReLU is at most,
        and its least and largest values.
    """
    on = high > -low
    ends = low.relu(), high.relu()
    return on.to(low), torch.where(on, (-low).relu(), ends[1]), ends
