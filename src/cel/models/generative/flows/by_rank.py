"""The inverse of autoregressive flows, column by column."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.models.generative.flows.flow import Flow

__all__ = ["inverse_by_rank"]


@torch.no_grad()
def inverse_by_rank(flow: Flow, z: Tensor, context: Tensor | None = None) -> Tensor:
    """Return the rows (n, d) whose latent numbers are `z`, as `Flow.inverse` does up to rounding.

    `Flow.inverse` computes the parameters of all columns as often as there are columns. Here each
    pass computes those of the one column that is due, and what the first layer makes of a column
    is added when the column is known.

    Args:
        flow: any flow; one without ranks in a row is inverted by itself.
        z: (n, d) latent numbers.
        context: (n, c), or None.
    """
    if flow.order is None:
        return flow.inverse(z, context)
    if flow.log_scale is not None:
        z = z * (-3 * torch.tanh(flow.log_scale / 3)).exp()
    seen = flow.standard_context(context)
    for t, weights in reversed(list(enumerate(flow.net.weights()))):
        z = _undone(flow, z, seen, weights, flow.order[t])
    return z * flow.scale + flow.loc


def _undone(
    flow: Flow, z: Tensor, context: Tensor | None, weights: tuple[Tensor, ...], order: list[int]
) -> Tensor:
    """Return what one transform maps to z (n, d); columns become known in the given order."""
    w_first, b_first, w_out, *rest = weights
    width, d = flow.net.sizes[0], z.shape[1]
    begin = b_first.expand(len(z), -1)
    if context is not None:
        begin = torch.addmm(b_first, context, w_first[d:])
    first, skip = begin[:, :width].clone(), begin[:, width:]
    w_hidden, w_skip = w_first[:d, :width], w_first[:d, width:]
    x = torch.zeros_like(z)
    for j in order:
        h = torch.relu(first)
        for weight, bias in zip(rest[::2], rest[1::2], strict=True):
            h = h + torch.relu(torch.addmm(bias, h, weight))
        own = slice(j, None, d)  # the parameters of this column
        params = skip[:, own] + x @ w_skip[:, own] + h @ w_out[:, own]
        x[:, j : j + 1] = flow.bijection.inverse(z[:, j : j + 1], params[:, :, None])
        first += x[:, j : j + 1] * w_hidden[j]
    return x
