"""From discrete rows to continuous ones and exactly back, with the density of the way.

A dequantizer draws v from q(v | x), a law on the cell of all v that are mapped back to x. For any
density p(v) the cell of x holds the probability P(x) = E_q[p(v) / q(v | x)], so that

    log P(x) >= E_q[log p(v) - log q(v | x)]

with equality when q is p inside the cell (Theis et al., 2016; Ho et al., 2019; Hoogeboom et al.,
2021). A number on a grid of width h has the cell (x - h/2, x + h/2). A one-hot block of k columns
has the cell of all v in R^k whose largest entry is the active one, which treats all categories
alike: no order is invented and no row has two categories. Continuous columns stay as they are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor

from cel.preprocessing.cells import Cells, check_rows
from cel.preprocessing.dequantization_variational import VariationalDequantizer
from cel.space import FeatureSpace

__all__ = [
    "Dequantizer",
    "NoiseDequantizer",
    "UniformDequantizer",
    "VariationalDequantizer",
    "importance_bound",
]

LogDensity = Callable[[Tensor], Tensor]


class Dequantizer(ABC):
    """Draws continuous rows from discrete ones; `quantize` is the exact way back.

    Args:
        space: encoded feature space.
        coarser_than: grids with a smaller step are left as they are, like continuous columns.
    """

    def __init__(self, *, space: FeatureSpace, coarser_than: float = 0.0) -> None:
        self.space, self.coarser_than = space, coarser_than

    @cached_property
    def cells(self) -> Cells:
        """The discrete columns and their cells."""
        return Cells(self.space, self.coarser_than)

    def dequantize(
        self, x: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw v (n, d) from q(v | x) and return it with log q(v | x) (n,)."""
        check_rows(x, self.space)
        cells = self.cells.to(x.device)
        grid, log_grid = self._inside(_like(x, cells.n_grid), generator)
        free, log_block = self._inside(_like(x, cells.n_block), generator)
        log_q = log_grid.sum(-1) + log_block.sum(-1) - cells.log_volume + cells.log_ways
        return cells.join(x, cells.to_cell(x, grid), cells.to_argmax(x, free)), log_q

    def quantize(self, v: Tensor) -> Tensor:
        """Return the row x (n, d) in whose cell each row of `v` lies."""
        check_rows(v, self.space)
        return self.cells.to(v.device).quantize(v)

    @abstractmethod
    def _inside(self, like: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Draw numbers in (0, 1) of the shape of `like`, with their log-densities."""


class UniformDequantizer(Dequantizer):
    """q is uniform: on the cell of a grid point, and on the part of the unit cube of a block.

    >>> from cel.space import Feature
    >>> space = FeatureSpace((Feature(name="n", kind="integer", step=0.25),))
    >>> v, log_q = UniformDequantizer(space=space).dequantize(torch.tensor([[0.5]]))
    >>> bool((v - 0.5).abs() < 0.125), log_q.exp().item()
    (True, 4.0)
    """

    def _inside(self, like: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        u = torch.rand(like.shape, generator=generator, dtype=like.dtype, device=like.device)
        return inner(u), torch.zeros_like(u)


class NoiseDequantizer(Dequantizer):
    """q is logit-normal: u = sigmoid(s n) with n ~ N(0, 1), moved into the cell.

    Args:
        space: encoded feature space.
        scale: standard deviation s of the logit.
        coarser_than: grids with a smaller step are left as they are.
    """

    def __init__(
        self, *, space: FeatureSpace, scale: float = 1.0, coarser_than: float = 0.0
    ) -> None:
        super().__init__(space=space, coarser_than=coarser_than)
        self.scale = scale

    def _inside(self, like: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        noise = torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)
        u = inner(torch.sigmoid(self.scale * noise))
        return u, log_logit_normal(u, self.scale)


def importance_bound(
    log_prob: LogDensity,
    dequantizer: Dequantizer | VariationalDequantizer,
    x: Tensor,
    *,
    samples: int = 1,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return log 1/S sum_s p(v_s) / q(v_s | x), (n,), on average below log P(x).

    The gap closes as the number of samples grows.

    Args:
        log_prob: density of continuous rows, (n, d) to (n,).
        dequantizer: where the rows v_s come from.
        x: (n, d) discrete rows.
        samples: number S of draws per row (Burda et al., 2016).
        generator: source of the draws.
    """
    terms = []
    for _ in range(samples):
        v, log_q = dequantizer.dequantize(x, generator)
        terms.append(log_prob(v) - log_q)
    return torch.stack(terms).logsumexp(0) - math.log(samples)


def log_logit_normal(u: Tensor, scale: float) -> Tensor:
    """Return the log-density of u = sigmoid(scale n), n ~ N(0, 1)."""
    logit = torch.logit(u)
    log_normal = -0.5 * (logit / scale).square() - math.log(scale * math.sqrt(2 * math.pi))
    return log_normal - torch.log(u) - torch.log1p(-u)


def inner(u: Tensor) -> Tensor:
    """Keep numbers off the ends of (0, 1), where a logit is infinite."""
    margin = torch.finfo(torch.float32).eps
    return u.clamp(margin, 1 - margin)


def _like(x: Tensor, columns: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], columns)
