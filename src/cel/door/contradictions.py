"""Constraints that no row can meet, found before any search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linprog

from cel.space import Constraint, LinearRelation

__all__ = ["conflict"]


def conflict(
    constraints: Sequence[Constraint], ranges: Mapping[str, tuple[float, float]]
) -> list[str]:
    """Return the fewest relations and ranges that exclude each other, in words; [] for none.

    >>> both = [LinearRelation.of({"a": 1, "b": -1}), LinearRelation.of({"b": 1, "a": -1}, -1)]
    >>> conflict(both, {})
    ['a <= b', 'b <= a - 1']
    """
    relations = [c for c in constraints if isinstance(c, LinearRelation)]
    used = {n for r in relations for n in r.features}
    known = {n: ends for n, ends in ranges.items() if n in used}
    if not relations or _possible(relations, known):
        return []
    for relation in list(relations):  # leave out what is not needed for the contradiction
        rest = [r for r in relations if r is not relation]
        if not _possible(rest, known):
            relations = rest
    for name in list(known):
        less = {n: e for n, e in known.items() if n != name}
        if not _possible(relations, less):
            known = less
    said = [str(r) for r in relations]
    return said + [f"{n} from {low:g} to {high:g}" for n, (low, high) in known.items()]


def _possible(
    relations: Sequence[LinearRelation], ranges: Mapping[str, tuple[float, float]]
) -> bool:
    """Tell whether some numbers meet all relations and ranges."""
    names = sorted({n for r in relations for n in r.features})
    if not names:
        return True
    matrix = np.zeros((len(relations), len(names)))
    for i, relation in enumerate(relations):
        for name, coefficient in relation.terms:
            matrix[i, names.index(name)] += coefficient
    ends = [ranges.get(n, (-math.inf, math.inf)) for n in names]
    bounds = [(a if math.isfinite(a) else None, b if math.isfinite(b) else None) for a, b in ends]
    limit = [r.bound for r in relations]
    found = linprog(np.zeros(len(names)), A_ub=matrix, b_ub=limit, bounds=bounds, method="highs")
    return bool(found.status != 2)
