"""Searches over batches of rows; they know tensors and nothing else."""

from __future__ import annotations

from cel.search.boundary import bisect_to_boundary
from cel.search.budget import Budget
from cel.search.closed_forms import Nearest, nearest_elastic, nearest_l1, nearest_l2
from cel.search.gradient import Found, gradient_search, row_gradient
from cel.search.halfspaces import nearest_all, proved_empty
from cel.search.least_change import least_change_search, row_jacobian
from cel.search.linearised import Demands, linearised_search
from cel.search.memo import LastOf
from cel.search.neighbours import nearest
from cel.search.sparsify import revert_features
from cel.search.steppers import Adam, Fista, Sgd, soft_threshold
from cel.search.streams import RowStreams
from cel.search.weights import search_weight

__all__ = [
    "Adam",
    "Budget",
    "Demands",
    "Fista",
    "Found",
    "LastOf",
    "Nearest",
    "RowStreams",
    "Sgd",
    "bisect_to_boundary",
    "gradient_search",
    "least_change_search",
    "linearised_search",
    "nearest",
    "nearest_all",
    "nearest_elastic",
    "nearest_l1",
    "nearest_l2",
    "proved_empty",
    "revert_features",
    "row_gradient",
    "row_jacobian",
    "search_weight",
    "soft_threshold",
]
