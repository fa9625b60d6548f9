"""Row-wise terms with their slopes in closed form: what descents ask for at every step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["ScoreLoss", "margin_hinge", "probability_gap", "probability_hinge", "value_gap"]

ScoreLoss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(scores (n, K), wanted classes (n,) or values (n, K)) -> (losses (n,), slopes (n, K))."""


def margin_hinge(aim: float, power: int = 1) -> ScoreLoss:
    """Return `max(0, aim - margin)^power`, margin: the wanted score minus the best other one.

    >>> margin_hinge(1.0)(torch.tensor([[0.0, 2.0]]), torch.tensor([0]))
    (tensor([3.]), tensor([[-1.,  1.]]))
    """

    def loss(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        at = target[:, None]
        best, rival = scores.scatter(1, at, -torch.inf).max(1, keepdim=True)
        short = (best - scores.gather(1, at) + aim).clamp_(min=0)
        push = short.sign() if power == 1 else power * short ** (power - 1)
        slope = torch.zeros_like(scores).scatter_(1, rival, push).scatter_(1, at, -push)
        return (short if power == 1 else short**power)[:, 0], slope

    return loss


def probability_hinge(aim: float) -> ScoreLoss:
    """Return `max(0, aim - (p_t - max_{k != t} p_k))`, with probabilities p of scores.

    >>> losses, _ = probability_hinge(0.0)(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    >>> losses
    tensor([0.])
    """

    def loss(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        p, at = torch.softmax(scores, -1), target[:, None]
        wanted = p.gather(1, at)
        best, rival = p.scatter(1, at, -torch.inf).max(1, keepdim=True)
        margin = wanted - best
        short = (aim - margin).clamp_(min=0)
        slope = p * margin  # minus the slope of the margin, but for its own two entries
        slope.scatter_add_(1, at, -wanted).scatter_add_(1, rival, best)
        return short[:, 0], slope.mul_(short.sign())

    return loss


def probability_gap(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return `(1 - p_t)^2` with probabilities p of scores.

    >>> probability_gap(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    (tensor([0.2500]), tensor([[-0.2500,  0.2500]]))
    """
    p, at = torch.softmax(scores, -1), target[:, None]
    wanted = p.gather(1, at)
    gap = 1 - wanted
    pull = 2 * gap * wanted
    return gap.square()[:, 0], (pull * p).scatter_add_(1, at, -pull)


def value_gap(values: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over the outputs of `(f - y)^2`.

    >>> value_gap(torch.tensor([[3.0]]), torch.tensor([[1.0]]))
    (tensor([4.]), tensor([[4.]]))
    """
    miss = values - target
    return miss.square().mean(-1), miss * (2 / miss.shape[-1])
