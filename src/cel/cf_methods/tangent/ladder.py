"""The ladder of gradient methods: exact where it can be, then tangents, other starts, descent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.starts import other_starts
from cel.cf_methods.tangent.switches import search_switches_together, search_with_switches
from cel.search import Found

__all__ = ["Finish", "Rung", "climb", "descent", "known_rows", "restarts", "tangents"]

Rung = Callable[[NearestPoint], Found]
"""One way to answer the rows of a problem."""

Finish = Callable[[NearestPoint, Found], Found]
"""Makes answers cheaper."""


def climb(
    problem: NearestPoint,
    rungs: Sequence[Rung],
    *,
    exact: bool = True,
    finish: Finish | None = None,
) -> Answer:
    """Try one rung after the other, each on the rows that have no answer yet.

    Args:
        problem: what to solve.
        rungs: from the cheapest to the last resort.
        exact: begin with the closed form where there is one; it proves rows infeasible, too.
        finish: makes answers of rungs cheaper; by default all that `NearestPoint.finish` does.
    """
    if not (exact and problem.has_closed_form):
        return Answer(x=_climb(problem, rungs, finish).x)
    found, infeasible = problem.closed_form()
    todo = (~found.ok & ~infeasible).nonzero()[:, 0]
    if len(todo):
        found.put_better(todo, _climb(problem.on(todo), rungs, finish))
    return Answer(x=found.x, infeasible=infeasible)


def _climb(problem: NearestPoint, rungs: Sequence[Rung], finish: Finish | None) -> Found:
    found = Found.nothing(problem.query.x)
    for rung in rungs:
        todo = (~found.ok).nonzero()[:, 0]
        if not len(todo) or problem.query.budget.expired:
            break
        part = problem if len(todo) == len(problem.query) else problem.on(todo)
        found.put_better(todo, rung(part))
    return problem.finish(found) if finish is None else finish(problem, found)


def tangents(steps: int, *, together: bool = False) -> Rung:
    """Solve the tangents of the model, with changes of categories one by one or `together`."""
    search = search_switches_together if together else search_with_switches
    return lambda problem: search(problem, steps=steps)


def restarts(
    starts: Callable[[Query], Tensor], steps: int, *more: Callable[[Query], Tensor]
) -> Rung:
    """Solve tangents from other points (n, k, d), from `more` where none of them is accepted."""

    def rung(problem: NearestPoint) -> Found:
        points = [_of_rows(problem, make) for make in (starts, *more)]
        return problem.restart(Found.nothing(problem.query.x), *points, steps=steps)

    return rung


def _of_rows(problem: NearestPoint, make: Callable[[Query], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda rows: make(problem.query.select(rows))


def known_rows(train: TrainRows | None, count: int) -> Callable[[Query], Tensor]:
    """Start from training rows of the target class, or from points of the region."""
    return lambda query: other_starts(query, train, count)


def descent(descend: Rung, steps: int) -> Rung:
    """Follow a descent, then the tangents at the points it reached."""
    return lambda problem: problem.polish(descend(problem), steps)
