"""The objective of DiCE's gradient search and its slope by hand, step for step as autograd does.

Sets are small and steps are many: most of the time of a graph goes into building it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.cf_methods.tangent.score_slopes import ScoreLayers
from cel.cf_methods.view import CHUNK_ROWS

__all__ = ["SetSlope", "determinant_slope"]


class SetSlope:
    """`mean hinge - b det K` of sets (a, k d) of some rows, and its gradient.

    Args:
        query: rows and targets.
        layers: the scores of the model.
        each: row numbers (a,) -> those of the members (a k,).
        weight: (d,) of the distance.
        k: members of a set.
        diversity_weight: b.
        kernel: sets (a, k, d) -> (kernels (a, k, k), distances of pairs (a, p, d), kernels of
            pairs (a, p)).
        pairs: (p,) one member of each pair, (p,) the other, and (k k,) which pair an entry of a
            kernel is, p on the diagonal.
    """

    def __init__(
        self,
        query: Query,
        layers: ScoreLayers,
        each: Callable[[Tensor], Tensor],
        weight: Tensor,
        k: int,
        diversity_weight: float,
        pairs: tuple[Tensor, Tensor, Tensor],
        kernel: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    ) -> None:
        self.query, self.layers, self.each, self.weight, self.k = query, layers, each, weight, k
        self.diversity_weight, self.pairs, self.kernel = diversity_weight, pairs, kernel

    @torch.no_grad()
    def __call__(self, flat: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (values (a,), gradients (a, k d)) at sets (a, k d)."""
        c = flat.reshape(len(flat), self.k, -1)
        short, grad = self._hinge(c.flatten(0, 1), self.query.target[self.each(rows)])
        value = torch.relu(short).reshape(-1, self.k).mean(1)
        apart = self._spread(c)
        if apart is not None:
            value = value - self.diversity_weight * apart[0].to(flat.dtype)
            grad = apart[1] if grad is None else grad.reshape(c.shape) + apart[1]
        out = torch.zeros_like(flat) if grad is None else grad.reshape(flat.shape)
        if not math.isfinite(float(out.sum())):
            out = torch.nan_to_num(out, nan=0.0, posinf=0.0, neginf=0.0)
        return value, out

    def _hinge(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return `1 - margin` (m,) of members (m, d), and the slopes of the mean hinge."""
        model, layers = self.query.model, self.layers
        model.budget.spend(len(x))
        passed = [layers.forward(part) for part in torch.split(x, CHUNK_ROWS)]
        scores = passed[0][0] if len(passed) == 1 else torch.cat([p[0] for p in passed])
        short = torch.rsub(model.margin_of(scores, target), 1)
        at = (short > 0).nonzero()[:, 0]
        if not len(at):
            return short, None
        model.budget.spend(len(at))
        if len(at) == len(x) and len(passed) == 1:
            here, hidden = passed[0]
            return short, self._back(here, hidden, target, short)
        wanted = target[at]
        here, hidden = layers.forward(x[at])
        missing = torch.rsub(model.margin_of(here, wanted), 1)
        short.index_copy_(0, at, missing)
        grad = torch.zeros_like(x).index_copy_(0, at, self._back(here, hidden, wanted, missing))
        return short, grad

    def _back(self, scores: Tensor, hidden: list[Tensor], target: Tensor, short: Tensor) -> Tensor:
        """Return slopes (m, d) of the mean hinge; ties of other classes share theirs."""
        push = ((short > 0).to(scores) / self.k)[:, None]
        at = target[:, None]
        others = scores.scatter(1, at, -torch.inf)
        best = others == others.amax(-1, keepdim=True)
        slope = (push * best) / best.sum(-1, keepdim=True)
        slope.scatter_(1, at, -push)
        return self.layers.pull(slope, hidden)

    def _spread(self, c: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return det K (a,) of sets (a, k, d), float64, and the slope of -b det K by the sets."""
        if self.k == 1 or self.diversity_weight == 0:
            return None
        one, other, place = self.pairs
        kernel, away, near = self.kernel(c)
        value, slope = determinant_slope(kernel, torch.tensor(-self.diversity_weight).to(c))
        by_near = torch.zeros_like(torch.cat([near, near[:, :1]], 1))
        by_near = by_near.index_add_(1, place, slope.reshape(len(c), -1))[:, :-1]
        by_apart = (-by_near * (near * near)).to(c.dtype)
        by_away = by_apart[..., None] * away.sgn()
        grad = torch.zeros_like(c).index_add_(1, one, by_away)
        grad += torch.zeros_like(c).index_add_(1, other, -by_away)
        return value, grad * self.weight


def determinant_slope(kernel: Tensor, by: Tensor) -> tuple[Tensor, Tensor]:
    """Return determinants (a,) of matrices (a, k, k), and what slopes `by` of them mean for these.

    The slope G solves K' G = det(K) by I; a zero on the diagonal of the triangle is nudged.

    >>> value, slope = determinant_slope(torch.diag_embed(torch.tensor([[2.0, 3.0]])).double(),
    ...                                  torch.tensor(1.0))
    >>> value.tolist(), [round(v, 12) for v in slope.diagonal(0, 1, 2)[0].tolist()]
    ([6.0], [3.0, 2.0])
    """
    value, lu, pivots = torch.ops.aten._linalg_det(kernel)
    right = torch.zeros_like(kernel).mT
    right.diagonal(0, -2, -1).copy_((by.to(value) * value)[:, None])
    eps = torch.finfo(kernel.dtype).eps
    lu = lu + torch.diag_embed(torch.where(lu.diagonal(0, -2, -1) == 0.0, eps, 0.0))
    return value, torch.linalg.lu_solve(lu, pivots, right, left=True, adjoint=False)
