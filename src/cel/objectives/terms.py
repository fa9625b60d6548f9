"""Row-wise terms of objectives: every function gives one number per row."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "cross_entropy",
    "density_shortfall",
    "hinge",
    "probability_margin",
    "reconstruction_error",
    "safe_norm",
    "squared_error",
    "squared_probability_gap",
]


def hinge(margin: Tensor, aim: Tensor | float = 0.0, power: int = 1) -> Tensor:
    """`max(0, aim - margin)^power`, zero once the margin reaches the aim.

    >>> hinge(torch.tensor([-1.0, 2.0]), 1.0)
    tensor([2., 0.])
    """
    short = (aim - margin).clamp(min=0)
    return short if power == 1 else short**power


def probability_margin(scores: Tensor, target: Tensor) -> Tensor:
    """`p_t - max_{k != t} p_k` for scores (n, K) and wanted classes (n,)."""
    p = torch.softmax(scores, -1)
    wanted = p.gather(1, target[:, None])[:, 0]
    return wanted - p.scatter(1, target[:, None], -torch.inf).amax(-1)


def squared_probability_gap(scores: Tensor, target: Tensor) -> Tensor:
    """`(1 - p_t)^2`: the prediction loss of Wachter et al. (2018) for classes."""
    return (1 - torch.softmax(scores, -1).gather(1, target[:, None])[:, 0]).square()


def squared_error(values: Tensor, target: Tensor) -> Tensor:
    """Mean over the outputs of `(f - y)^2`; both are in units of the range."""
    return (values - target).square().mean(-1)


def cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """`-log p_t` for scores (n, K) and wanted classes (n,)."""
    return torch.nn.functional.cross_entropy(scores, target, reduction="none")


def safe_norm(delta: Tensor) -> Tensor:
    """Euclidean norm with a finite gradient at zero."""
    return (delta.square().sum(-1) + 1e-12).sqrt()


def density_shortfall(log_density: Tensor, threshold: Tensor) -> Tensor:
    """`max(0, threshold - log p)`; a density that is not a number counts as a large shortfall."""
    finite = torch.nan_to_num(log_density, nan=-1e6, posinf=1e6, neginf=-1e6)
    return (threshold - finite).clamp(min=0)


def reconstruction_error(x: Tensor, rebuilt: Tensor) -> Tensor:
    """`|x - AE(x)|_2^2`: how foreign a row looks to an autoencoder."""
    return (x - rebuilt).square().sum(-1)
