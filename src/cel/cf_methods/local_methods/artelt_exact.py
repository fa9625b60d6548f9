"""The same convex programs, one at a time, by an interior-point solver."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import torch

from cel.errors import MissingDependencyError
from cel.search.admm import INFEASIBLE, SOLVED, UNDECIDED, Programs, Solution
from cel.search.budget import Budget

__all__ = ["exact_available", "solve_exactly"]


def exact_available() -> bool:
    """Whether cvxpy and Clarabel are installed."""
    return all(importlib.util.find_spec(n) is not None for n in ("cvxpy", "clarabel"))


def solve_exactly(programs: Programs, budget: Budget | None = None) -> Solution:
    """Solve programs by Clarabel through cvxpy; the program is compiled once.

    Only a status of `optimal` counts as solved and `infeasible` as proved.
    """
    if not exact_available():
        raise MissingDependencyError("cvxpy with Clarabel", "convex")
    x = programs.origin.clone()
    status = torch.zeros(len(programs), dtype=torch.int8)
    problem, names, variable = _compile(programs)
    for i in range(len(programs)):
        if budget is not None and budget.expired:
            break
        for name, value in _values(programs, i).items():
            names[name].value = value
        status[i] = _solve(problem)
        if status[i] == SOLVED:
            x[i] = torch.as_tensor(variable.value)
    return Solution(x, status.to(x.device))


def _compile(programs: Programs) -> tuple[Any, dict[str, Any], Any]:
    import cvxpy

    cp: Any = cvxpy  # its functions are re-exported in a way that type checkers miss
    d, h = programs.origin.shape[1], programs.normals.shape[1]
    x = cp.Variable(d)
    p = {
        "origin": cp.Parameter(d),
        "lower": cp.Parameter(d),
        "upper": cp.Parameter(d),
        "root": cp.Parameter((d, d)),
        "centre": cp.Parameter(d),
        "radius": cp.Parameter(nonneg=True),
    }
    rules = [x >= p["lower"], x <= p["upper"]]
    rules.append(cp.norm(p["root"] @ x - p["centre"]) <= p["radius"])
    if h:
        p["normals"], p["offsets"] = cp.Parameter((h, d)), cp.Parameter(h)
        rules.append(p["normals"] @ x <= p["offsets"])
    delta = x - p["origin"]
    weight = programs.weight.cpu().numpy()
    cost = cp.sum(cp.multiply(weight, cp.abs(delta)))
    if programs.norm == "l2":
        cost = cp.sum_squares(delta) / 2
    return cp.Problem(cp.Minimize(cost), rules), p, x


def _values(programs: Programs, i: int) -> dict[str, np.ndarray]:
    ball, j = programs.ellipsoids, int(programs.which[i])
    root = (ball.vectors[j] * ball.precision[j].sqrt()).T
    values = {
        "origin": programs.origin[i],
        "lower": programs.lower[i].clamp(min=-1e6),
        "upper": programs.upper[i].clamp(max=1e6),
        "root": root,
        "centre": root @ ball.mean[j],
        "radius": ball.radius[j].clamp(min=0).sqrt(),
    }
    if programs.normals.shape[1]:
        values |= {"normals": programs.normals[i], "offsets": programs.offsets[i]}
    return {k: v.detach().cpu().numpy() for k, v in values.items()}


def _solve(problem: Any) -> int:
    import cvxpy as cp

    try:
        problem.solve(solver=cp.CLARABEL)
    except cp.error.SolverError:
        return UNDECIDED
    known = {"optimal": SOLVED, "infeasible": INFEASIBLE}
    return known.get(problem.status, UNDECIDED)
