"""Children: how the features of people are mixed and changed, inside the region of each row.

People are (a, m, d); draws per feature are (a, m, p) and reach the columns through `owner`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from cel.search.feature_draws import Sampler
from cel.search.streams import RowStreams
from cel.space.layout import by_feature
from cel.space.region import Region

__all__ = ["Variation", "changed", "simulated_binary", "tournament"]


def changed(x: Tensor, origin: Tensor, region: Region) -> Tensor:
    """Tell (a, m, p) which features of people (a, m, d) differ from their row (a, d)."""
    moved = (x - origin[:, None, :]).abs() > 1e-6
    p = len(region.space)
    if p == x.shape[2]:
        return moved[..., region.layout.owner.argsort()]
    return by_feature(moved, region.layout.owner, p) > 0


def tournament(stream: RowStreams, size: int, count: int) -> Tensor:
    """Return the places (a, count) of parents: of two drawn people the fitter, fittest first."""
    return torch.minimum(stream.integers(size, count), stream.integers(size, count))


def simulated_binary(first: Tensor, second: Tensor, u: Tensor, eta: float) -> tuple[Tensor, ...]:
    """Return two children of numbers: as far apart as their parents, times a random factor.

    The factor is `(2u)^(1/(eta+1))` below one half and `(2(1-u))^(-1/(eta+1))` above (Deb and
    Agrawal, 1995); their mean is that of the parents.
    """
    power = 1 / (eta + 1)
    inside = (2 * u).clamp(min=1e-30).pow(power)
    outside = (2 * (1 - u)).clamp(min=1e-30).pow(-power)
    spread = torch.where(u <= 0.5, inside, outside)
    middle, half = (first + second) / 2, spread * (second - first) / 2
    return middle - half, middle + half


@dataclass(frozen=True, eq=False)
class Variation:
    """Crossover and mutation of each kind of feature, and the way back into the region.

    Attributes:
        sampler: uniform draws inside the region.
        sd: (d,) standard deviation of a mutation of each number; grids move a step at the least.
        eta: how near children of continuous features stay to their parents.
    """

    sampler: Sampler
    sd: Tensor
    eta: float = 5.0

    @property
    def region(self) -> Region:
        """The region of all rows."""
        return self.sampler.region

    @cached_property
    def _continuous(self) -> Tensor:
        lay = self.region.layout
        return lay.numeric & (lay.step == 0)

    @cached_property
    def _needs_snap(self) -> bool:
        """Whether people inside box and categories may still break something: grids, relations."""
        region = self.region
        return bool(region.space.constraints) or bool((region.layout.step > 0).any())

    @cached_property
    def _last(self) -> list[tuple[Tensor, int, Region]]:
        return []

    def _around(self, rows: Tensor, count: int) -> Region:
        """Return the region of `count` people of each row, kept while the rows stay the same."""
        if self._last:
            known, size, region = self._last[0]
            if size == count and torch.equal(known, rows):
                return region
        region = self.region.select(rows.repeat_interleave(count))
        self._last[:] = [(rows, count, region)]
        return region

    def columns(self, features: Tensor) -> Tensor:
        """Spread values of features (a, m, p) over their columns (a, m, d)."""
        return features[..., self.region.layout.owner]

    def cross(
        self, first: Tensor, second: Tensor, stream: RowStreams, *, pair: float, gene: float
    ) -> tuple[Tensor, Tensor]:
        """Mix parents (a, q, d): a pair with probability `pair`, then a feature with `gene`.

        Continuous features by simulated binary crossover, all others change places.
        """
        q, p = first.shape[1], len(self.region.space)
        mixed = (stream.uniform(q) < pair)[..., None] & (stream.uniform(q, p) < gene)
        at = self.columns(mixed)
        low, high = simulated_binary(first, second, self.columns(stream.uniform(q, p)), self.eta)
        one = torch.where(self._continuous, low, second)
        two = torch.where(self._continuous, high, first)
        return torch.where(at, one, first), torch.where(at, two, second)

    def mutate(
        self, x: Tensor, rows: Tensor, stream: RowStreams, *, person: float, gene: float
    ) -> Tensor:
        """Change people (a, m, d): one with probability `person`, then a feature with `gene`.

        Numbers get a Gaussian step, categories become another one.
        """
        m, p = x.shape[1], len(self.region.space)
        touched = (stream.uniform(m) < person)[..., None] & (stream.uniform(m, p) < gene)
        lay = self.region.layout
        sd = torch.maximum(self.sd, lay.step) * lay.numeric
        step = self.columns(stream.normal(m, p)) * sd
        value = stream.uniform(m, p)
        new = x + step
        if bool((~lay.numeric).any()):
            new = torch.where(lay.numeric, new, self.sampler.other(x, value, rows))
        return torch.where(self.columns(touched), new, x)

    def reset(self, x: Tensor, rows: Tensor, stream: RowStreams, share: float) -> Tensor:
        """Give features of people (a, m, d) back to their row, each with probability `share`."""
        back = stream.uniform(x.shape[1], len(self.region.space)) < share
        return torch.where(self.columns(back), self.region.origin[rows][:, None, :], x)

    def inside(self, x: Tensor, rows: Tensor, *, surely: bool = False) -> Tensor:
        """Put people (a, m, d) into the regions of their rows; `surely` where they come from."""
        region = self.region
        if surely or self._needs_snap:
            seen: Tensor = self._around(rows, x.shape[1]).snap(x.flatten(0, 1))
            return seen.reshape(x.shape)
        low, high = region.lower[rows][:, None, :], region.upper[rows][:, None, :]
        boxed = torch.minimum(torch.maximum(x, low), high)
        return torch.where(region.layout.numeric, boxed, x)
