"""How wide a kernel should be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.models.generative.kernels.kernel_sums import Kernel, loo_log_likelihood

__all__ = ["KernelShape", "choose_kernel"]

WIDTHS = torch.logspace(math.log10(0.05), math.log10(4.0), 14).tolist()  # times Scott's rule
SHARES = (0.01, 0.03, 0.1, 0.3, 0.7)  # of the largest sensible l of a block
USUAL_SHARE = 0.1
ROWS_LEFT_OUT, ROWS_KEPT = 1000, 4000


@dataclass(frozen=True)
class KernelShape:
    """Which columns are numbers and which form blocks of categories.

    Attributes:
        numbers: columns with a Gaussian kernel.
        blocks: columns of each block.
        width: number of columns.
        floor: smallest bandwidth that a rule may choose; rows that occur twice would otherwise
            be explained by kernels without any width.
    """

    numbers: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    width: int
    floor: float

    def kernel(self, h: Tensor, share: float) -> Kernel:
        """Return the kernel with bandwidths `h` (numbers,) and l = share (k - 1) / k."""
        inverse, ratio = h.new_zeros(self.width), h.new_zeros(self.width)
        inverse[list(self.numbers)] = 1 / h
        factor = -h.log().sum() - 0.5 * len(h) * math.log(2 * math.pi)
        for block in self.blocks:
            k = len(block)
            if k > 1:
                other = share / k  # l / (k - 1)
                ratio[list(block)] = math.log((1 - share * (k - 1) / k) / other)
                factor = factor + math.log(other)
        return inverse, ratio, factor

    def scott(self, rows: Tensor) -> Tensor:
        """Return Scott's bandwidths, s n^(-1 / (p + 4)), of the numbers of rows (n, d)."""
        spread = rows[:, list(self.numbers)].std(0, unbiased=len(rows) > 1)
        return spread * math.pow(len(rows), -1 / (len(self.numbers) + 4))


def choose_kernel(shape: KernelShape, rows: Tensor, bandwidth: str | float) -> Kernel:
    """Return the kernel for rows (n, d) by a rule ("loo", "scott", "silverman") or a number.

    "loo" scales Scott's bandwidths, and the width of the categorical kernels, so that rows are
    most likely under the density of the others.
    """
    if not isinstance(bandwidth, str):
        return shape.kernel(rows.new_full((len(shape.numbers),), float(bandwidth)), USUAL_SHARE)
    scott = shape.scott(rows)
    p = len(shape.numbers)
    if bandwidth == "silverman":
        scott = scott * (4 / (p + 2)) ** (1 / (p + 4))
    if bandwidth != "loo" or len(rows) < 3:
        return shape.kernel(scott.clamp(min=shape.floor), USUAL_SHARE)
    width, share = 1.0, USUAL_SHARE
    for _ in range(2 if shape.blocks and p else 1):
        if p:
            width = _best(shape, rows, scott, WIDTHS, [share])[0]
        if shape.blocks:
            share = _best(shape, rows, scott, [width], SHARES)[1]
    return shape.kernel((width * scott).clamp(min=shape.floor), share)


def _best(
    shape: KernelShape,
    rows: Tensor,
    scott: Tensor,
    widths: Sequence[float],
    shares: Sequence[float],
) -> tuple[float, float]:
    """Return the pair under which rows are most likely given the others.

    Rows are independent of their position, so the first ones are a fair sample.
    """
    kept = rows[:ROWS_KEPT]
    count = min(len(kept), ROWS_LEFT_OUT)
    scored = []
    for width in widths:
        for share in shares:
            kernel = shape.kernel((width * scott).clamp(min=shape.floor), share)
            scored.append((loo_log_likelihood(kept, kernel, count), width, share))
    _, width, share = max(scored)
    return width, share
