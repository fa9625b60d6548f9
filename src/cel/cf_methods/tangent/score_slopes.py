"""Scores and their gradients through known layers, by hand: small batches pay for autograd."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.objectives import ScoreLoss
from cel.protocols import Task
from cel.search import LastOf
from cel.search.gradient import RowSlope

__all__ = ["ClosedSlope", "ScoreLayers", "entropy_slope"]

FEW = 0.8  # share of rows with a slope below which only they go back through the layers


@dataclass(frozen=True, eq=False)
class ScoreLayers:
    """A linear model or a ReLU network as its layers.

    Attributes:
        layers: (W (out, in), b (out,)) of each layer, in the dtype of the rows.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @classmethod
    def of(cls, model: ModelView, like: Tensor) -> ScoreLayers | None:
        """Read the layers of a model for rows such as `like`; None where it has none to read."""
        parts = model.linear()
        if parts is None:
            try:
                view = model.relu()
            except UnsupportedError:
                return None
            if view is None:
                return None
            return cls(tuple((w.to(like), b.to(like)) for w, b in view.layers))
        weight, bias = (t.detach().to(like) for t in parts)
        return cls(((weight, bias),))

    @classmethod
    def to_the_bit(cls, model: ModelView, rows: Tensor) -> ScoreLayers | None:
        """Read the layers of a classifier whose scores of `rows` (n, d) they give to the bit.

        Searches that went through autograd before find the same answers with them, then.
        """
        known = cls.of(model, rows) if rows.device.type == "cpu" else None
        if known is None or model.task is not Task.CLASSIFICATION:
            return None
        with torch.no_grad():
            told: Tensor = model.model.logits(rows)
            return known if torch.equal(told, known.forward(rows)[0]) else None

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the scores (n, K) of rows (n, d), and what each hidden layer gave."""
        hidden = []
        for weight, bias in self.layers[:-1]:
            x = torch.addmm(bias, x, weight.T).relu_()
            hidden.append(x)
        weight, bias = self.layers[-1]
        return torch.addmm(bias, x, weight.T), hidden

    def back(self, slope: Tensor, hidden: list[Tensor]) -> Tensor:
        """Return gradients (n, d) of a loss with slopes (n, K) by the scores."""
        if not hidden:
            return self.pull(slope, hidden)
        pushed = (slope != 0).any(1)
        if int(pushed.sum()) > FEW * len(slope):
            return self.pull(slope, hidden)
        at = pushed.nonzero()[:, 0]
        out = slope.new_zeros(len(slope), self.layers[0][0].shape[1])
        if len(at):
            out[at] = self.pull(slope[at], [h[at] for h in hidden])
        return out

    def pull(self, slope: Tensor, hidden: list[Tensor]) -> Tensor:
        """Return the same, of all rows together."""
        for (weight, _), seen in zip(self.layers[:0:-1], hidden[::-1], strict=True):
            slope = torch.ops.aten.threshold_backward(slope @ weight, seen, 0)
        return slope @ self.layers[0][0]


class ClosedSlope:
    """`weight * loss(scores) + smooth cost` and its gradient, for points of some rows.

    Args:
        model: counts the evaluations.
        layers: its scores.
        loss: a function of the scores.
        target: (n,) classes or (n, K) values of all rows.
        cost: of all rows, without `extra`.
        weights: (n,) of the loss.
    """

    def __init__(
        self,
        model: ModelView,
        layers: ScoreLayers,
        loss: ScoreLoss,
        target: Tensor,
        cost: SeparableCost,
        weights: Tensor,
    ) -> None:
        self.model, self.layers, self.loss, self.cost = model, layers, loss, cost
        self._last = LastOf(lambda rows: (target[rows], weights[rows], weights[rows][:, None]))

    @torch.no_grad()
    def __call__(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return (values (a,), gradients (a, d)) at points (a, d)."""
        self.model.budget.spend(len(x))
        target, weight, factor = self._last(rows)
        scores, hidden = self.layers.forward(x)
        loss, slope = self.loss(scores, target)
        cost, grad = self.cost.smooth_slope(x, rows)
        grad = grad.add_(self.layers.back(slope.mul_(factor), hidden))
        if not math.isfinite(float(grad.sum())):
            grad = torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)
        return torch.addcmul(cost, weight, loss), grad


def entropy_slope(model: ModelView, layers: ScoreLayers, target: Tensor) -> RowSlope:
    """Return the cross entropy to the classes (n,) and its gradient, as autograd gives them."""
    wanted = LastOf(lambda rows: target[rows][:, None])

    @torch.no_grad()
    def slope(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        model.budget.spend(len(x))
        scores, hidden = layers.forward(x)
        logs, at = torch.log_softmax(scores, 1), wanted(rows)
        by_logs = torch.zeros_like(logs).scatter_(1, at, -1.0)
        by = torch.ops.aten._log_softmax_backward_data(by_logs, logs, 1, logs.dtype)
        grad = layers.pull(by, hidden)
        if not math.isfinite(float(grad.sum())):
            grad = torch.nan_to_num(grad, nan=0.0, posinf=0.0, neginf=0.0)
        return -logs.gather(1, at)[:, 0], grad

    return slope
