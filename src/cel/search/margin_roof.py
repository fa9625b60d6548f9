"""Which of many samples may have the wanted outcome at all: sound bounds instead of questions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["MarginRoof"]

ROUNDING = 1e-4  # of the sum of all terms of a margin; sums of this size lose a hundredth of it
PAYS = 0.25  # open share of a set from which a closer look pays
AT_ONCE = 2048  # samples: what the first layer makes of them stays in the cache
HIDDEN = (0, 2)  # hidden layers of the models that are bounded


class MarginRoof:
    """Bounds the margins of a network of two hidden layers from above over sets of samples.

    Of a linear model it gives the margins themselves, for less than an answer to a question costs.

    At first a set is known by its box, which is carried through the layers as intervals. Every
    ReLU lies below one line and above another (Zhang et al., 2018, "CROWN"), so that the margin
    is at most a linear function of the input: it costs next to nothing at each sample.

    Where that leaves samples open, the first layer is asked about them. Units of the second layer
    that raise the margin are asked, too. A unit z that lowers it lies above 0 and above z,
    whatever its range: with the one that holds in the middle of a set, the margin is at most a
    linear function of the first layer plus what the other units add. That is nearly the margin,
    since few units change sides among samples that are close to each other.

    A sample that is ruled out does not have the outcome, whatever is rounded.

    Args:
        layers: (W (out, in), b (out,)) of the layers; the outputs are scores of classes.

    >>> one = torch.eye(2), torch.zeros(2)
    >>> samples = torch.tensor([[[0.2, 0.9], [0.3, 0.2]]])
    >>> MarginRoof([one, one, one]).open(samples, torch.tensor([0]), 0.0)
    tensor([[False,  True]])
    """

    def __init__(self, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.hidden, self.last = tuple(layers[:-1]), layers[-1]
        self.sizes = [(w.abs(), b.abs()) for w, b in layers]
        self.eye = torch.eye(len(self.last[1])).to(self.last[0])

    @classmethod
    def of(cls, layers: Sequence[tuple[Tensor, Tensor]]) -> MarginRoof | None:
        """Return the bounds of a model, None for one with another number of hidden layers."""
        return cls(layers) if len(layers) - 1 in HIDDEN else None

    def open(self, x: Tensor, target: Tensor, least: float) -> Tensor:
        """Tell which samples may have a margin of `least`, (a, s) bool.

        Args:
            x: (a, s, d) the samples of a sets.
            target: (a,) the wanted class of each set.
            least: smallest margin that counts.
        """
        box = _box(x)
        mix = self._mix(target)
        limit = least - ROUNDING * self._size(torch.maximum(box[0].abs(), box[1].abs()))[:, None]
        maybe = self._coarse(x, *box, mix) >= limit
        if not self.hidden:
            return maybe
        left = (maybe.sum(1) > PAYS * x.shape[1]).nonzero()[:, 0]
        if not len(left):
            return maybe
        push, height, on, turn = self._middle(x.mean(1)[left], mix[left])
        moves, left = (box[0] < box[1])[left][turn], left[turn]
        count = max(1, AT_ONCE // x.shape[1])
        for first in range(0, len(left), count):
            part = slice(first, first + count)
            at = left[part]
            side = push[part], height[part], on[part]
            some = x.index_select(0, at)
            maybe[at] &= self._fine(some, moves[part].any(0), *side, limit[at])
        return maybe

    def _coarse(self, x: Tensor, low: Tensor, high: Tensor, mix: Tensor) -> Tensor:
        """Return upper bounds (a, s) of the margins of samples in boxes (a, d)."""
        slope, height = mix @ self.last[0], mix @ self.last[1]
        ranges = []
        for layer, (size, _) in zip(self.hidden, self.sizes, strict=False):
            ranges.append(_interval(layer, size, low, high))
            low, high = (end.relu() for end in ranges[-1])
        for (weight, bias), ends in zip(self.hidden[::-1], ranges[::-1], strict=True):
            lower, more, lift = _around(*ends)
            rise = slope.clamp(min=0)
            slope = slope * lower[:, None] + rise * more[:, None]
            height = height + (rise * lift[:, None]).sum(-1) + slope @ bias
            slope = slope @ weight
        return _least(x, slope, height)

    def _middle(self, x: Tensor, mix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Ask the network about the middle (a, d) of each set.

        Returns:
            By how much units of the second layer raise the difference of scores that is the
            margin there, (a, n), its bias (a, 1), which units are on, (a, n) bool, and the order
            (a,) of the sets that these are in: those with the same difference in a row.
        """
        for weight, bias in self.hidden:
            units = torch.addmm(bias, x, weight.T)
            x = units.relu()
        scores = torch.addmm(self.last[1], x, self.last[0].T)
        worst = (mix @ scores[..., None])[..., 0].argmin(1)
        turn = worst.argsort(stable=True)
        chosen = mix[turn, worst[turn]]  # (a, K)
        return chosen @ self.last[0], (chosen @ self.last[1])[:, None], units[turn] > 0, turn

    def _fine(
        self, x: Tensor, moving: Tensor, push: Tensor, height: Tensor, on: Tensor, limit: Tensor
    ) -> Tensor:
        """Tell which samples may have margins of `limit` (a, 1), (a, s) bool.

        Args:
            x: (a, s, d) samples.
            moving: (d,) bool, columns that are not the same for all samples of each set.
            push: (a, n) by how much the units of the second layer raise the margin.
            height: (a, 1) its bias.
            on: (a, n) bool, units that count as linear where they lower it.
            limit: (a, 1) see above.
        """
        units, (weight, bias) = self._first_units(x, moving), self.hidden[1]
        raising = (push > 0).any(0)
        linear = push * (on & ~raising)
        height, slope = height + (linear @ bias)[:, None], linear @ weight
        at = raising.nonzero()[:, 0]
        push, weight, bias = push[:, at], weight[at], bias[at]
        reach = _interval((weight, bias), self.sizes[1][0][at], units.amin(1), units.amax(1))
        lower, more, lift = _around(*reach)
        rise = push.clamp(min=0)
        line = push * lower + rise * more
        top = height + ((rise * lift).sum(1) + line @ bias)[:, None]
        maybe = (units * (slope + line @ weight)[:, None]).sum(-1).add_(top) >= limit
        here = maybe.flatten().nonzero()[:, 0]
        if len(here):
            row, some = here // x.shape[1], units.flatten(0, 1).index_select(0, here)
            roof = (some * slope.index_select(0, row)).sum(1).add_(height[row, 0])
            above = torch.addmm(bias, some, weight.T).relu_().mul_(push.index_select(0, row))
            maybe.view(-1)[here] = roof.add_(above.sum(1)) >= limit[row, 0]
        return maybe

    def _first_units(self, x: Tensor, moving: Tensor) -> Tensor:
        """Return what the first layer gives for samples (a, s, d), (a, s, m)."""
        weight, bias = self.hidden[0]
        still = torch.addmm(bias, x[:, 0].masked_fill(moving, 0), weight.T)
        at = moving.nonzero()[:, 0]
        if len(at) < len(moving):
            x, weight = x.index_select(2, at), weight.index_select(1, at)
        return torch.baddbmm(still[:, None], x, weight.T.expand(len(x), -1, -1)).relu_()

    def _mix(self, target: Tensor) -> Tensor:
        """Return (a, r, K) the differences of scores whose least one is the margin."""
        others = torch.arange(len(self.eye) - 1, device=target.device)
        return self.eye[target][:, None] - self.eye[others + (others >= target[:, None])]

    def _size(self, most: Tensor) -> Tensor:
        """Return (a,) the sum of all terms of the scores for inputs up to `most` (a, d)."""
        for weight, bias in self.sizes:
            most = torch.addmm(bias, most, weight.T)
        return 1 + most.sum(1)


def _box(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least and largest values (a, d) of samples (a, s, d)."""
    by_sample = x.transpose(0, 1).contiguous()
    return by_sample.amin(0), by_sample.amax(0)


def _least(x: Tensor, slope: Tensor, height: Tensor) -> Tensor:
    """Return (a, s) the least of r linear functions (a, r, d) of samples (a, s, d)."""
    if slope.shape[1] == 1:
        return (x * slope).sum(-1).add_(height)
    return torch.baddbmm(height[:, None], x, slope.mT).amin(-1)


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
