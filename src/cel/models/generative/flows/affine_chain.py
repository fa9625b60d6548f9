"""All transforms of an affine flow as one node of the graph, for training.

Every product and every sum is the one that the graph of `Flow.transform` makes, on the same
numbers: gradients of the weights are equal to the byte. What is saved is the graph itself,
hundreds of nodes a step, and the copies that stitch it together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from cel.models.generative.flows.masked import MaskedNet

__all__ = ["affine_chain"]


def affine_chain(
    net: MaskedNet, limit: float, z: Tensor, slopes: Tensor, context: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return what all transforms make of rows, differentiable once towards the weights of `net`.

    Args:
        net: the networks of the transforms.
        limit: bound on a log-scale, see `Affine`.
        z: (n, d) standardised rows.
        slopes: (n, d) log-slopes so far.
        context: (n, c), or None.

    Returns:
        z (n, d) and log-slopes (n, d).
    """
    pairs = zip(net.w_hidden, net.b_hidden, strict=True)
    weights = (net.w_first, net.b_first, net.w_out, *(p for pair in pairs for p in pair))
    masks = (net.mask_first, None, net.mask_out, *(net.mask_hidden, None) * len(net.w_hidden))
    chained: tuple[Tensor, Tensor] = _Chain.apply(  # type: ignore[no-untyped-call]
        z, slopes, context, limit, masks, *weights
    )
    return chained


class _Link(NamedTuple):
    """What the gradient of one transform needs of its forward pass."""

    weights: tuple[Tensor, ...]
    inputs: Tensor  # (n, d + c)
    units: list[Tensor]  # (n, h) of each hidden layer, what it adds
    sums: list[Tensor]  # (n, h) of each hidden layer, what goes on
    shrink: Tensor
    soft: Tensor


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        slopes: Tensor,
        context: Tensor | None,
        limit: float,
        masks: Sequence[Tensor | None],
        *parameters: Tensor,
    ) -> tuple[Tensor, Tensor]:
        masked = [p if m is None else p * m for p, m in zip(parameters, masks, strict=True)]
        d = z.shape[1]
        links, ends = [], []
        for weights in zip(*(w.unbind(0) for w in masked), strict=True):
            inputs = z if context is None else torch.cat((z, context), -1)
            out, units, sums = _through(inputs, weights)
            shift, raw = out[:, :d], out[:, d:]
            soft = raw.abs().div_(limit).add_(1)
            scale = raw / soft
            shrink = torch.exp(-scale)
            z = (z - shift).mul_(shrink)
            slopes = slopes - scale
            links.append(_Link(weights, inputs, units, sums, shrink, soft))
            ends.append(z)
        ctx.links, ctx.masks, ctx.shapes = links, masks, [p.shape for p in parameters]
        ctx.save_for_backward(*ends)
        return z, slopes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor, by_slopes: Tensor) -> tuple[Tensor | None, ...]:
        grads = [by.new_empty(shape) for shape in ctx.shapes]
        d, ends = by.shape[1], ctx.saved_tensors
        for t in reversed(range(len(ends))):
            link: _Link = ctx.links[t]
            by_raw = (by * ends[t]).add_(by_slopes).neg_().div_(link.soft).div_(link.soft)
            by_z = by * link.shrink
            by_out = torch.cat((by_z.neg(), by_raw), 1)
            by_first = _back(by_out, link, [g[t] for g in grads])
            if t:
                by = by_z.add_(torch.mm(by_first, link.weights[0].t())[:, :d])
        ctx.links = None
        for grad, mask in zip(grads, ctx.masks, strict=True):
            if mask is not None:
                grad.mul_(mask)
        return (None, None, None, None, None, *grads)


def _through(
    inputs: Tensor, weights: tuple[Tensor, ...]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Return shifts and scales (n, 2 d) side by side, and what the hidden layers made."""
    w_first, b_first, w_out, *rest = weights
    first = torch.addmm(b_first, inputs, w_first)
    width = w_out.shape[0]
    h = torch.relu(first[:, :width])
    units, sums = [h], [h]
    for weight, bias in zip(rest[::2], rest[1::2], strict=True):
        units.append(torch.addmm(bias, h, weight).relu_())
        h = h + units[-1]
        sums.append(h)
    return torch.addmm(first[:, width:], h, w_out), units, sums


def _back(by: Tensor, link: _Link, grads: list[Tensor]) -> Tensor:
    """Fill the gradients of a transform's weights; return that of its first product."""
    _, _, w_out, *rest = link.weights
    g_first, gb_first, g_out, *g_rest = grads
    torch.mm(link.sums[-1].t(), by, out=g_out)
    by_h = torch.mm(by, w_out.t())
    for k in reversed(range(1, len(link.units))):
        by_unit = torch.ops.aten.threshold_backward(by_h, link.units[k], 0)
        torch.mm(link.sums[k - 1].t(), by_unit, out=g_rest[2 * k - 2])
        torch.sum(by_unit, 0, keepdim=True, out=g_rest[2 * k - 1])
        by_h = torch.mm(by_unit, rest[2 * k - 2].t()).add_(by_h)
    by_first = torch.cat((torch.ops.aten.threshold_backward(by_h, link.units[0], 0), by), 1)
    torch.mm(link.inputs.t(), by_first, out=g_first)
    torch.sum(by_first, 0, keepdim=True, out=gb_first)
    return by_first
