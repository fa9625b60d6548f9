"""Fixed noise for bounds that must come out the same every time."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["normal_bank"]


def normal_bank(groups: int, samples: int, width: int) -> Tensor:
    """Return (groups, samples, width) standard normal numbers, the same for equal arguments.

    Each group is a scrambled Sobol sequence, which covers the space better than random draws.
    """
    sobol: Any = torch.quasirandom.SobolEngine
    if not width or width > sobol.MAXDIM:
        generator = torch.Generator().manual_seed(groups)
        return torch.randn(groups, samples, width, generator=generator)
    parts = [sobol(width, scramble=True, seed=g).draw(samples) for g in range(groups)]
    bank: Tensor = torch.special.ndtri(torch.stack(parts).clamp(1e-6, 1 - 1e-6))
    return bank
