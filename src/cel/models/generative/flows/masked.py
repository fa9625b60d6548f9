"""Networks whose output j sees only the inputs before it, for a whole flow at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from cel.preprocessing.blocks import Blocks

__all__ = ["MaskedNet", "autoregressive_degrees", "coupling_degrees"]

MATRIX = 2


def autoregressive_degrees(n_transforms: int, n_features: int) -> Tensor:
    """Return (t, d) ranks 1..d in column order, reversed in every other transform.

    >>> autoregressive_degrees(2, 3).tolist()
    [[1, 2, 3], [3, 2, 1]]
    """
    order = torch.arange(1, n_features + 1)
    return torch.stack([order if t % 2 == 0 else order.flip(0) for t in range(n_transforms)])


def coupling_degrees(n_transforms: int, n_features: int) -> Tensor:
    """Return (t, d) ranks: 1 for columns that stay, 2 for columns that move, taking turns.

    A single column moves in every transform: nothing else could.

    >>> coupling_degrees(2, 3).tolist()
    [[1, 2, 1], [2, 1, 2]]
    """
    if n_features == 1:
        return torch.full((n_transforms, 1), 2)
    parity = torch.arange(n_features)[None, :] + torch.arange(n_transforms)[:, None]
    return parity % 2 + 1


class MaskedNet(nn.Module):
    """One masked residual network per transform (MADE; Germain et al., 2015), stored as stacks.

    A connection exists where the rank of its source is below (outputs) or not above (hidden
    units) the rank of its end. The context enters un-masked, and inputs and context also reach
    the outputs directly, so that linear dependence does not have to fit through narrow layers.
    Parameters have a leading axis of t transforms; a stack of s models puts one more axis in
    front, and every product is then a batched one.

    Args:
        degrees: (t, d) rank of each input in each transform.
        n_context: columns of the context, 0 for none.
        n_params: numbers wanted per input.
        hidden: width of a hidden layer.
        n_hidden: number of hidden layers.

    >>> ranks = autoregressive_degrees(2, 3)
    >>> net = MaskedNet(ranks, n_context=0, n_params=2, hidden=8, n_hidden=2)
    >>> net(torch.zeros(5, 3), None, net.weights()[0]).shape
    torch.Size([5, 2, 3])
    """

    mask_first: Tensor
    mask_hidden: Tensor
    mask_out: Tensor

    def __init__(
        self, degrees: Tensor, *, n_context: int, n_params: int, hidden: int, n_hidden: int
    ) -> None:
        super().__init__()
        t, d = degrees.shape
        self.sizes, self.shape = [hidden, n_params * d], (n_params, d)
        rank = _hidden_degrees(degrees, hidden, n_context)  # (t, h)
        out = degrees.repeat(1, n_params)
        seen = torch.cat((degrees, degrees.new_zeros(t, n_context)), 1)  # the context is rank 0
        skip = _mask(seen, out, ties=False)
        self.register_buffer("mask_first", torch.cat((_mask(seen, rank, ties=True), skip), -1))
        self.register_buffer("mask_hidden", _mask(rank, rank, ties=True))
        self.register_buffer("mask_out", _mask(rank, out, ties=False))
        first = torch.cat((_uniform(t, d + n_context, hidden), torch.zeros_like(skip)), -1)
        self.w_first = nn.Parameter(first)
        self.b_first = nn.Parameter(torch.zeros(t, 1, hidden + n_params * d))
        self.w_hidden = nn.ParameterList(_uniform(t, hidden, hidden) for _ in range(n_hidden - 1))
        self.b_hidden = nn.ParameterList(torch.zeros(t, 1, hidden) for _ in range(n_hidden - 1))
        self.w_out = nn.Parameter(torch.zeros(t, hidden, n_params * d))

    @torch.no_grad()
    def start_equal(self, start: int, blocks: Blocks) -> None:
        """Give the categories of a block, from input column `start` on, equal first weights.

        Learning then treats the categories alike: another order of theirs gives the same model.
        """
        columns = slice(start, start + len(blocks.owner))
        first = blocks.table[blocks.owner, 0]
        self.w_first[:, columns] = self.w_first[:, columns][:, first]

    def weights(self) -> list[tuple[Tensor, ...]]:
        """Mask the weights of all transforms and return them transform by transform.

        Masks cost one product per kind of layer instead of one per layer.
        """
        stacks = [self.w_first * self.mask_first, self.b_first, self.w_out * self.mask_out]
        for weight, bias in zip(self.w_hidden, self.b_hidden, strict=True):
            stacks += [weight * self.mask_hidden, bias]
        return list(zip(*(s.unbind(-3) for s in stacks), strict=True))

    def forward(self, x: Tensor, context: Tensor | None, weights: tuple[Tensor, ...]) -> Tensor:
        """Return (..., n, p, d) numbers for inputs (..., n, d) and context (..., n, c)."""
        w_first, b_first, w_out, *rest = weights
        inputs = x if context is None else torch.cat((x, context), -1)
        h, skip = torch.split(_add_product(b_first, inputs, w_first), self.sizes, -1)
        h = torch.relu(h)
        for weight, bias in zip(rest[::2], rest[1::2], strict=True):
            h = h + torch.relu(_add_product(bias, h, weight))
        out = _add_product(skip, h, w_out)
        return out.view(*out.shape[:-1], *self.shape)


def _add_product(bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """Return bias + x weight in one pass, for matrices or for stacks of them."""
    if x.dim() == MATRIX:
        return torch.addmm(bias, x, weight)
    return torch.baddbmm(bias, x, weight)


def _hidden_degrees(degrees: Tensor, hidden: int, n_context: int) -> Tensor:
    """Spread the ranks of hidden units evenly; rank 0 units see the context only."""
    low, high = int(degrees.min()), int(degrees.max())
    first = 0 if n_context or low == high else low
    last = max(high - 1, first)
    return torch.linspace(first, last, hidden).round().long().expand(len(degrees), -1)


def _mask(low: Tensor, high: Tensor, *, ties: bool) -> Tensor:
    """Return (t, in, out): 1 where the source's rank is below, or with ties at, the end's."""
    source, end = low[:, :, None], high[:, None, :]
    return (source <= end if ties else source < end).to(torch.get_default_dtype())


def _uniform(t: int, n_in: int, n_out: int) -> Tensor:
    bound = 1 / math.sqrt(max(n_in, 1))
    return torch.empty(t, n_in, n_out).uniform_(-bound, bound)
