"""Terms that objectives are made of; they know tensors and nothing else."""

from __future__ import annotations

from cel.objectives.slopes import (
    ScoreLoss,
    margin_hinge,
    probability_gap,
    probability_hinge,
    value_gap,
)
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
    "ScoreLoss",
    "cross_entropy",
    "density_shortfall",
    "hinge",
    "margin_hinge",
    "probability_gap",
    "probability_hinge",
    "probability_margin",
    "reconstruction_error",
    "safe_norm",
    "squared_error",
    "squared_probability_gap",
    "value_gap",
]
