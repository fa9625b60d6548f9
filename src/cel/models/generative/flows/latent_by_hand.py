"""The latent law of a flow and its gradient without a graph, in memory that is kept."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cel.models.generative.flows.tails import DEGREES, student_constants

__all__ = ["LatentByHand"]


class LatentByHand:
    """`log_latent` of (n, d) numbers and the gradient of its mean: the operations of autograd.

    Args:
        tail: share of heavy tails.
        n: number of rows.
        d: number of columns.
    """

    def __init__(self, tail: float, n: int, d: int) -> None:
        self.tail, self.mean = tail, torch.ones(1, 1) / n
        self.share = float(self.mean)
        rooms = (torch.empty(n, d) for _ in range(5))
        self.normal, self.student, self.ratio, self.by, self.spare = rooms

    def rows(self, z: Tensor) -> Tensor:
        """Return the log-densities (n,) of contiguous numbers (n, d), as `log_latent` does."""
        normal = torch.square(z, out=self.normal).add_(math.log(2 * math.pi)).mul_(-0.5)
        if self.tail == 0:
            return normal.sum(-1)
        half, constant = student_constants()
        torch.square(z, out=self.ratio).div_(DEGREES)
        student = torch.log1p(self.ratio, out=self.student).mul_(half).neg_().add_(constant)
        normal.add_(math.log1p(-self.tail))
        student.add_(math.log(self.tail))
        return torch.logaddexp(normal, student, out=self.spare).sum(-1)

    def slope(self, z: Tensor) -> Tensor:
        """Return the gradient (n, d) of the mean over rows, at the numbers `rows` was given."""
        double = torch.mul(z, 2, out=self.spare)
        if self.tail == 0:
            return torch.mul(double, -0.5 * self.share, out=self.by)
        by = torch.sub(self.student, self.normal, out=self.by)
        self._share_of(by).mul_(-0.5).mul_(double)
        other = torch.sub(self.normal, self.student, out=self.normal)
        self._share_of(other).neg_().mul_(student_constants()[0])
        return by.add_(other.div_(self.ratio.add_(1)).div_(DEGREES).mul_(double))

    def _share_of(self, gap: Tensor) -> Tensor:
        """Turn how much larger the other term is, in logarithms, into the gradient of this one."""
        return torch.div(self.mean, gap.exp_().add_(1), out=gap)
