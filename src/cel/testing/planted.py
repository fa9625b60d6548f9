"""The contradiction drill: what is proved is held against answers that are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.cf_methods.view import ModelView
from cel.protocols import Need, Proof, Status, Task
from cel.result import ExplanationResult
from cel.space import Feature, FeatureSpace
from cel.space.region import Region
from cel.testing.problems import ToyProblem

__all__ = ["NotAsked", "contradiction", "planted_answers", "unanswerable"]

INSIDE = {Need.LINEAR_MODEL, Need.TREES, Need.RELU}
CLEAR = 2e-3  # margin of a planted answer: twenty times what methods must reach
DRAWS = 400
BOXED = 2  # rows that may hardly move
TINY = 1e-5  # how far
SAME = 1e-5  # of a bound
NARROW = 4  # rows that are asked again with little more than their planted answer left


class NotAsked(Exception):  # noqa: N818 (it is no error)
    """A check has nothing to ask of this method on this problem; the message says why."""


def planted_answers(p: ToyProblem, seed: int = 0) -> np.ndarray:
    """Return a feasible answer of each row of the problem (n, d), NaN where none was drawn.

    Random points of each row's region are snapped and scored; the one that changes least wins.
    """
    rng = np.random.default_rng(seed)
    n, d = p.x.shape
    view = ModelView(p.model)
    best, least = np.full((n, d), np.nan, dtype=np.float32), np.full(n, np.inf)
    rows = torch.arange(n).repeat_interleave(DRAWS)
    origin = torch.as_tensor(p.x)
    region = Region.around(p.space, origin).select(rows)
    draws = torch.as_tensor(rng.random((n * DRAWS, d)), dtype=origin.dtype)
    low, high = region.lower.clamp(min=-5), region.upper.clamp(max=5)
    moved = torch.as_tensor(rng.random((n * DRAWS, d)) < rng.random((n * DRAWS, 1)))
    points = region.snap(torch.where(moved, low + draws * (high - low), region.origin))
    good = region.contains(points) & (view.margin(points, _targets(p, view)[rows]) >= CLEAR)
    good &= (points != region.origin).any(1)
    far = (points - region.origin).abs().sum(1).numpy()
    for i in range(n):
        own = np.flatnonzero(good.numpy() & (rows.numpy() == i))
        if len(own):
            first = own[far[own].argmin()]
            best[i], least[i] = points[first].numpy(), far[first]
    return best


def _targets(p: ToyProblem, view: ModelView) -> torch.Tensor:
    if p.task is Task.REGRESSION:
        return torch.as_tensor(np.clip(view.outcome(p.x) + 0.2, 0, 1)).to(torch.float32)
    return torch.full((len(p.x),), int(p.target), dtype=torch.int64)


def contradiction(cls: type[BaseCounterfactualMethod], p: ToyProblem) -> None:
    """Rows with a planted answer are never `infeasible`, not even when it is nearly the only one.

    The second part is asked of methods that declare that they prove, and of those that are seen
    to call a row infeasible. Where answers must be more than valid (`infeasible_means`), the ones
    that the method found are the planted ones, on numbers that nothing rounds. Fewer allowed rows
    never cost less: what is optimal in a part of a feasible set is not cheaper than the bound of
    the whole. A method that proves nothing claims no proof; one that proves says how much.
    """
    result = p.explain(p.fitted(cls))
    planted = _own_answers(p, result) if cls.infeasible_means else planted_answers(p)
    known = np.flatnonzero(~np.isnan(planted).any(1))
    if not (len(known) or cls.infeasible_means):
        raise AssertionError("no row of the problem has a planted answer")
    _check(cls, result, known)
    told = cls.proves or Status.INFEASIBLE.value in _boxed(cls, p, known[:1])
    for i in known[:NARROW] if told else ():
        space = _between(p.space, p.x[i], planted[i])
        narrow = p.explain(p.fitted(cls, space=space), p.x[i : i + 1])
        _check(cls, narrow, np.array([0]))
        if cls.proves:
            _check_bounds(result, narrow, int(i))


def _own_answers(p: ToyProblem, result: ExplanationResult) -> np.ndarray:
    """Return the answers of a method (n, d), NaN where there is none or where numbers are rounded.

    A rounded answer may be less than what the method demanded of the number before it.
    """
    rounded = any(f.is_discrete for f in p.space) or p.pipeline is not None
    keep = result.found[:, None] & (not rounded)
    return np.where(keep, result.x_cfs, np.float32(np.nan))


def unanswerable(cls: type[BaseCounterfactualMethod], p: ToyProblem) -> None:
    """A row that may hardly move gets no answer; a method that proves says that there is none.

    Asked of methods that prove something about models that they read, and of all on trees.
    """
    view = ModelView(p.model)
    if not cls.proves:
        raise NotAsked("the method proves nothing")
    if not (cls.needs & INSIDE or hasattr(p.model, "trees_")):
        raise NotAsked("the method need not read this model")
    margin = view.margin(torch.as_tensor(p.x), _targets(p, view)).numpy()
    rows = np.argsort(margin, kind="stable")[:BOXED]  # those that are farthest from an answer
    states = _boxed(cls, p, rows)
    if set(states) != {Status.INFEASIBLE.value}:
        raise AssertionError(f"rows that may not move got {states}, not 'infeasible'")


def _boxed(cls: type[BaseCounterfactualMethod], p: ToyProblem, rows: np.ndarray) -> list[str]:
    """Return the status of rows (m,) that may move by no more than a tiny box."""
    out = []
    for i in rows:
        space = _between(p.space, p.x[i], p.x[i], TINY)
        out.append(str(p.explain(p.fitted(cls, space=space), p.x[i : i + 1]).status[0]))
    return out


def _check(
    cls: type[BaseCounterfactualMethod], result: ExplanationResult, known: np.ndarray
) -> None:
    wrong = known[result.status[known] == Status.INFEASIBLE.value]
    if len(wrong):
        raise AssertionError(f"row {wrong[0]} is called infeasible but has a planted answer")
    if cls.proves:
        if result.proof is None or result.bound is None:
            raise AssertionError("the method declares that it proves but gives no proof and bound")
        return
    if result.proof is not None and (result.proof != Proof.NONE.value).any():
        raise AssertionError("the method claims a proof but does not declare that it proves")


def _check_bounds(whole: ExplanationResult, narrow: ExplanationResult, row: int) -> None:
    """Compare the bound of a row with its optimum in a part of what it was allowed."""
    assert whole.bound is not None
    assert narrow.bound is not None
    assert narrow.proof is not None
    low, best = float(whole.bound[row]), float(narrow.bound[0])
    if narrow.proof[0] == Proof.OPTIMAL.value and low > best * (1 + SAME) + SAME:
        raise AssertionError(
            f"row {row} is said to cost at least {low:.6g}, but {best:.6g} in a part of its region"
        )


def _between(
    space: FeatureSpace, x: np.ndarray, y: np.ndarray, more: float = 1e-6
) -> FeatureSpace:
    """Return the space with little more than the box between two rows."""
    return space.with_changes(**{f.name: _limits(f, x, y, more) for f in space})


def _limits(f: Feature, x: np.ndarray, y: np.ndarray, more: float) -> dict[str, Any]:
    columns = list(f.columns)
    if f.one_hot:
        pair = {int(x[columns].argmax()), int(y[columns].argmax())}
        return {"allowed": tuple(f.categories[k] for k in sorted(pair))}
    a, b = float(x[columns[0]]), float(y[columns[0]])
    return {"lower": min(a, b) - more, "upper": max(a, b) + more}
