"""A linear guess of a margin around each row, learned from what was asked already."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MarginFit"]

_RIDGE = 1e-3  # of the mean square of the inputs


class MarginFit:
    """Least squares of margins on points, one fit per row; only ranks of guesses are of use.

    A fit sees the margins of its own row alone, so that guesses do not depend on batch-mates.

    Args:
        n: rows.
        width: size of a point.
        like: a tensor of the device and dtype.

    >>> fit = MarginFit(1, 1, torch.zeros(1))
    >>> rows = torch.tensor([0])
    >>> fit.learn(torch.tensor([[[0.0], [1.0], [2.0]]]), torch.tensor([[1.0, 3.0, 5.0]]), rows)
    >>> fit.guess(torch.tensor([[[3.0]]]), rows).round().tolist()
    [[7.0]]
    """

    def __init__(self, n: int, width: int, like: Tensor) -> None:
        kind = {"dtype": torch.float64, "device": like.device}
        self.gram = torch.zeros(n, width + 1, width + 1, **kind)  # type: ignore[call-overload]
        self.moment = torch.zeros(n, width + 1, **kind)  # type: ignore[call-overload]

    def learn(self, points: Tensor, margins: Tensor, rows: Tensor) -> None:
        """Take in points (a, c, q) of some rows with their margins (a, c)."""
        x = _with_one(points)
        self.gram[rows] += x.mT @ x
        self.moment[rows] += (x.mT @ margins.to(x)[..., None])[..., 0]

    def guess(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return guessed margins (a, s) of points (a, s, q)."""
        gram = self.gram[rows]
        size = gram.diagonal(dim1=1, dim2=2).mean(1).clamp(min=1e-12)
        eye = torch.eye(gram.shape[1], dtype=gram.dtype, device=gram.device)
        weights = torch.linalg.solve(gram + _RIDGE * size[:, None, None] * eye, self.moment[rows])
        weights = weights.to(points.dtype)[..., None]
        guess: Tensor = torch.baddbmm(weights[:, :1], points, weights[:, 1:])[..., 0]
        return guess


def _with_one(points: Tensor) -> Tensor:
    one = torch.ones_like(points[..., :1])
    return torch.cat([one, points], -1).double()
