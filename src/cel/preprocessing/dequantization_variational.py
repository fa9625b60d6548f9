"""Dequantization with a learned law q(v | x), to be trained together with a density of v."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cel.preprocessing.cells import Cells, check_rows
from cel.space import FeatureSpace

__all__ = ["VariationalDequantizer"]

LIMIT = 3.0  # of the log-scale of q: its draws cannot run away before the density has learned
MARGIN = 1e-6


class VariationalDequantizer(nn.Module):
    """q(v | x) whose mean and spread a network reads from the row (Ho et al., 2019).

    Noise e ~ N(m(x), s(x)^2) is drawn for each discrete column. On a grid v = x + h (sigmoid(e) -
    1/2). In a one-hot block the active entry keeps t = e_c and the others are pushed below it,
    v_i = t - softplus(t - e_i), so that the largest entry is the active one (argmax flows,
    Hoogeboom et al., 2021). Both maps are invertible, and log q holds their log-Jacobians.

    Args:
        space: encoded feature space.
        n_context: columns of a context that the network sees too.
        hidden: width of its hidden layer.
        coarser_than: grids with a smaller step are left as they are.

    >>> from cel.space import Feature
    >>> block = Feature(name="c", kind="categorical", columns=(0, 1), categories=("a", "b"))
    >>> q = VariationalDequantizer(space=FeatureSpace((block,)))
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> v, log_q = q.dequantize(x, torch.Generator().manual_seed(0))
    >>> bool((q.quantize(v) == x).all())
    True
    """

    stackable = True

    def __init__(
        self,
        *,
        space: FeatureSpace,
        n_context: int = 0,
        hidden: int = 32,
        coarser_than: float = 0.0,
    ) -> None:
        super().__init__()
        self.space, self.cells = space, Cells(space, coarser_than)
        self.n_noise = self.cells.n_grid + self.cells.n_block
        n_in = space.width + n_context
        bound = 1 / math.sqrt(n_in)
        self.w_first = nn.Parameter(torch.empty(n_in, hidden).uniform_(-bound, bound))
        self.b_first = nn.Parameter(torch.zeros(1, hidden))
        self.w_last = nn.Parameter(torch.zeros(hidden, 2 * self.n_noise))
        self.b_last = nn.Parameter(torch.zeros(1, 2 * self.n_noise))

    def dequantize(
        self,
        x: Tensor,
        generator: torch.Generator | None = None,
        context: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Draw v (..., n, d) from q(v | x, context) and return it with log q (..., n)."""
        check_rows(x, self.space)
        shape = (*x.shape[:-1], self.n_noise)
        noise = torch.randn(shape, generator=generator, dtype=x.dtype, device=x.device)
        return self.forward(x, noise, context)

    def forward(
        self, x: Tensor, noise: Tensor, context: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return v and log q(v | x) for standard normal noise (..., n, k)."""
        mean, log_scale = self._law(x, context)
        e = mean + log_scale.exp() * noise
        log_q = -0.5 * (noise.square() + math.log(2 * math.pi)) - log_scale
        on_grid, free = torch.split(e, [self.cells.n_grid, self.cells.n_block], -1)
        u = torch.sigmoid(on_grid).clamp(MARGIN, 1 - MARGIN)
        steps = functional.logsigmoid(on_grid) + functional.logsigmoid(-on_grid)
        total = log_q.sum(-1) - steps.sum(-1) - self.cells.log_volume
        block, slopes = self._push_below(x, free)
        return self.cells.join(x, self.cells.to_cell(x, u), block), total - slopes

    def quantize(self, v: Tensor) -> Tensor:
        """Return the row x (..., n, d) in whose cell each row of `v` lies."""
        check_rows(v, self.space)
        return self.cells.quantize(v)

    def _law(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        inputs = x if context is None else torch.cat((x, context), -1)
        hidden = torch.relu(inputs @ self.w_first + self.b_first)
        mean, raw = (hidden @ self.w_last + self.b_last).chunk(2, -1)
        return mean, LIMIT * torch.tanh(raw / LIMIT)

    def _push_below(self, x: Tensor, e: Tensor) -> tuple[Tensor, Tensor]:
        """Return the block columns of v and the log-slopes of the map, summed."""
        if not self.cells.n_block:
            return e, e.new_zeros(e.shape[:-1])
        blocks = self.cells.blocks
        values = blocks.split(e, fill=0.0)
        active = blocks.split(x[..., self.cells.block], fill=0.0)
        top = (values * active).sum(-1, keepdim=True)
        gap = top - values
        below = top - functional.softplus(gap).clamp(min=MARGIN) - MARGIN * top.abs()
        slope = torch.where(blocks.real, functional.logsigmoid(gap) * (1 - active), 0.0)
        v = active * values + (1 - active) * below
        return blocks.flat(v), slope.sum((-2, -1))
