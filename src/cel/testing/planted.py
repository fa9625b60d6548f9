"""The contradiction drill: rows whose answer is known may never be called impossible."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.cf_methods.view import ModelView
from cel.protocols import Proof, Status, Task
from cel.result import ExplanationResult
from cel.space import Feature, FeatureSpace
from cel.space.region import Region
from cel.testing.problems import ToyProblem

__all__ = ["contradiction", "planted_answers"]

CLEAR = 2e-3  # margin of a planted answer: twenty times what methods must reach
DRAWS = 400
NARROW = 4  # rows that are asked again with little more than their planted answer left


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

    A method that proves nothing never claims a proof; one that proves says how much.
    """
    planted = planted_answers(p)
    known = np.flatnonzero(~np.isnan(planted).any(1))
    if not len(known):
        raise AssertionError("no row of the problem has a planted answer")
    result = p.explain(p.fitted(cls))
    _check(cls, result, known)
    for i in known[:NARROW] if cls.proves else ():
        space = _between(p.space, p.x[i], planted[i])
        narrow = p.explain(p.fitted(cls, space=space), p.x[i : i + 1])
        _check(cls, narrow, np.array([0]))


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


def _between(space: FeatureSpace, x: np.ndarray, y: np.ndarray) -> FeatureSpace:
    """Return the space with little more than the box between two rows."""
    return space.with_changes(**{f.name: _limits(f, x, y) for f in space})


def _limits(f: Feature, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    columns = list(f.columns)
    if f.one_hot:
        pair = {int(x[columns].argmax()), int(y[columns].argmax())}
        return {"allowed": tuple(f.categories[k] for k in sorted(pair))}
    a, b = float(x[columns[0]]), float(y[columns[0]])
    return {"lower": min(a, b) - 1e-6, "upper": max(a, b) + 1e-6}
