"""Terms that objectives are made of; they know tensors and nothing else."""

from __future__ import annotations

from cel.objectives.terms import (
    cross_entropy,
    density_shortfall,
    elastic_net,
    hinge,
    probability_margin,
    reconstruction_error,
    safe_norm,
    squared_error,
    squared_probability_gap,
    weighted_l1,
)

__all__ = [
    "cross_entropy",
    "density_shortfall",
    "elastic_net",
    "hinge",
    "probability_margin",
    "reconstruction_error",
    "safe_norm",
    "squared_error",
    "squared_probability_gap",
    "weighted_l1",
]
