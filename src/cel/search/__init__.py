"""Searches over batches of rows; they know tensors and nothing else."""

from __future__ import annotations

from cel.search.boundary import bisect_to_boundary
from cel.search.budget import Budget
from cel.search.gradient import Found, Race, gradient_search, row_gradient
from cel.search.memo import LastOf
from cel.search.nearest_rows import nearest
from cel.search.sparsify import revert_features
from cel.search.steppers import Adam, Fista, soft_threshold
from cel.search.streams import RowStreams
from cel.search.weight_growth import search_weight

__all__ = [
    "Adam",
    "Budget",
    "Fista",
    "Found",
    "LastOf",
    "Race",
    "RowStreams",
    "bisect_to_boundary",
    "gradient_search",
    "nearest",
    "revert_features",
    "row_gradient",
    "search_weight",
    "soft_threshold",
]
