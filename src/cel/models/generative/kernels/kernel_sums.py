"""Sums of product kernels over stored rows, chunk by chunk."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["PAIRS_AT_ONCE", "Kernel", "log_kernel_sum", "log_kernels", "loo_log_likelihood"]

PAIRS_AT_ONCE = 4_000_000

Kernel = tuple[Tensor, Tensor, Tensor]
"""Inverse bandwidths (d,), log-ratios (d,) of block columns, and the log of the factor ()."""


def log_kernels(x: Tensor, rows: Tensor, kernel: Kernel) -> Tensor:
    """Return log K(x_i, r_j), (n, m): Gaussian for numbers, Aitchison-Aitken for blocks.

    The kernel of a block of k categories is 1 - l for the same category and l / (k - 1) for
    another one (Aitchison and Aitken, 1976); its logarithm is a weighted inner product of the
    one-hot blocks, which also extends it to soft ones.
    """
    inverse, ratio, factor = kernel
    a, b = x * inverse, rows * inverse
    centre = b.mean(0)  # smaller numbers lose fewer digits in the difference of squares
    a, b = a - centre, b - centre
    squares = a.square().sum(1)[:, None] + b.square().sum(1) - 2 * a @ b.T
    return factor - 0.5 * squares.clamp(min=0.0) + (x * ratio) @ rows.T


def log_kernel_sum(x: Tensor, rows: Tensor, kernel: Kernel, log_weights: Tensor) -> Tensor:
    """Return log sum_j w_j K(x_i, r_j), (n,); `log_weights` is (m,) or (n, m)."""
    size = max(PAIRS_AT_ONCE // max(len(rows), 1), 1)
    wide = log_weights.dim() > 1
    pieces = []
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        own = log_weights[part] if wide else log_weights
        pieces.append((log_kernels(x[part], rows, kernel) + own).logsumexp(1))
    return torch.cat(pieces) if pieces else x.new_zeros(0)


def loo_log_likelihood(rows: Tensor, kernel: Kernel, count: int) -> float:
    """Return the mean over the first `count` rows of their log-density without themselves."""
    size = max(PAIRS_AT_ONCE // len(rows), 1)
    total = 0.0
    for start in range(0, count, size):
        part = rows[start : min(start + size, count)]
        logs = log_kernels(part, rows, kernel)
        own = torch.arange(len(part), device=rows.device)
        logs[own, own + start] = -math.inf
        total += float(logs.logsumexp(1).sum())
    return total / count - math.log(len(rows) - 1)
