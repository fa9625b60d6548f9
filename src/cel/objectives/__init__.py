"""Terms that objectives are made of; they know tensors and nothing else."""

from __future__ import annotations

from cel.objectives.terms import (
    cross_entropy,
    density_shortfall,
    hinge,
    probability_margin,
    reconstruction_error,
    safe_norm,
    squared_error,
    squared_probability_gap,
)

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
