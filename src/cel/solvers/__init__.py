"""Small convex programs, thousands at a time: closed forms, half-spaces, tangents."""

from __future__ import annotations

from cel.solvers.closed_forms import Nearest, nearest_elastic, nearest_l1, nearest_l2
from cel.solvers.halfspaces import nearest_all, proved_empty
from cel.solvers.least_change import least_change_search, row_jacobian
from cel.solvers.linearised import Demands, linearised_search

__all__ = [
    "Demands",
    "Nearest",
    "least_change_search",
    "linearised_search",
    "nearest_all",
    "nearest_elastic",
    "nearest_l1",
    "nearest_l2",
    "proved_empty",
    "row_jacobian",
]
