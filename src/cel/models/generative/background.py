"""A broad law under a narrow one, so that no row has an absurd log-density."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cel.models.generative.flows.tails import DEGREES, log_student

__all__ = ["draw_broad", "log_broad", "mix"]


def mix(log_p: Tensor, log_broad: Tensor, share: float) -> Tensor:
    """Return log[(1 - e) p + e b]: still a density, and nowhere below e b."""
    if share == 0:
        return log_p
    return torch.logaddexp(log_p + math.log1p(-share), log_broad + math.log(share))


def log_broad(x: Tensor, loc: Tensor, scale: Tensor) -> Tensor:
    """Return the log-density (n,) of independent Student numbers with these centres."""
    return (log_student((x - loc) / scale) - scale.log()).sum(-1)


def draw_broad(n: int, loc: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor:
    """Draw (n, d) rows from the law of `log_broad`."""
    shape = (n, loc.shape[-1])
    z = torch.randn(shape, generator=generator, device=generator.device)
    chi = torch.randn((*shape, DEGREES), generator=generator, device=generator.device)
    return loc + scale * (z / chi.square().mean(-1).sqrt()).to(loc)
