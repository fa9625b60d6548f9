"""Networks in which output j sees only the inputs that come before it, for a whole flow at once."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

__all__ = ["MaskedNet", "autoregressive_degrees", "coupling_degrees"]


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
        strict: whether output j may see inputs of lower rank only (True).

    >>> net = MaskedNet(autoregressive_degrees(2, 3), n_context=0, n_params=2, hidden=8, n_hidden=2)
    >>> weights = net.weights(torch.zeros(5, 0))
    >>> net(torch.zeros(5, 3), weights[0]).shape
    torch.Size([5, 2, 3])
    """

    mask_in: Tensor
    mask_hidden: Tensor
    mask_out: Tensor
    mask_skip: Tensor

    def __init__(
        self, degrees: Tensor, *, n_context: int, n_params: int, hidden: int, n_hidden: int
    ) -> None:
        super().__init__()
        t, d = degrees.shape
        self.shape = (n_params, d)
        rank = _hidden_degrees(degrees, hidden, n_context)  # (t, h)
        out = degrees.repeat(1, n_params)
        for name, low, high, ties in (
            ("mask_in", degrees, rank, True),
            ("mask_hidden", rank, rank, True),
            ("mask_out", rank, out, False),
            ("mask_skip", degrees, out, False),
        ):
            self.register_buffer(name, _mask(low, high, ties=ties))
        self.w_in = nn.Parameter(_uniform(t, d + n_context, hidden)[:, :d])
        self.c_in = nn.Parameter(_uniform(t, d + n_context, hidden)[:, d:])
        self.b_in = nn.Parameter(torch.zeros(t, hidden))
        self.w_hidden = nn.ParameterList(_uniform(t, hidden, hidden) for _ in range(n_hidden - 1))
        self.b_hidden = nn.ParameterList(torch.zeros(t, hidden) for _ in range(n_hidden - 1))
        self.w_out = nn.Parameter(torch.zeros(t, hidden, n_params * d))
        self.w_skip = nn.Parameter(torch.zeros(t, d, n_params * d))
        self.c_out = nn.Parameter(torch.zeros(t, n_context, n_params * d))
        self.b_out = nn.Parameter(torch.zeros(t, n_params * d))

    def weights(self, context: Tensor) -> list[tuple[Tensor, ...]]:
        """Mask all weights once and send the context (..., n, c) through, for every transform.

        Masks cost one product per kind of layer instead of one per layer, which is most of the
        time of a narrow network.
        """
        stacks = [
            (self.w_in * self.mask_in).unbind(-3),
            _with_context(context, self.c_in, self.b_in).unbind(-3),
            (self.w_out * self.mask_out).unbind(-3),
            (self.w_skip * self.mask_skip).unbind(-3),
            _with_context(context, self.c_out, self.b_out).unbind(-3),
        ]
        for weight, bias in zip(self.w_hidden, self.b_hidden, strict=True):
            stacks += [(weight * self.mask_hidden).unbind(-3), bias.unsqueeze(-2).unbind(-3)]
        return list(zip(*stacks, strict=True))

    def forward(self, x: Tensor, weights: tuple[Tensor, ...]) -> Tensor:
        """Return (..., n, p, d) numbers for the inputs (..., n, d) of one transform."""
        w_in, b_in, w_out, w_skip, b_out, *rest = weights
        h = torch.relu(x @ w_in + b_in)
        for weight, bias in zip(rest[::2], rest[1::2], strict=True):
            h = h + torch.relu(h @ weight + bias)
        return (h @ w_out + x @ w_skip + b_out).unflatten(-1, self.shape)


def _with_context(context: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return (..., t, n or 1, h): the part of a layer that does not depend on the row."""
    if context.shape[-1] == 0:
        return bias.unsqueeze(-2)
    return context.unsqueeze(-3) @ weight + bias.unsqueeze(-2)


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
