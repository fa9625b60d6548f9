"""The contract of a method as a list of checks; `cel check MODULE:CLASS` runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.errors import CelError, UnsupportedError
from cel.protocols import Status
from cel.result import ExplanationResult
from cel.space.region import Region
from cel.testing.planted import contradiction
from cel.testing.problems import PROBLEMS, Problem
from cel.testing.untouched import Witness

__all__ = ["CHECKS", "Report", "applicable", "check_method"]

Method = type[BaseCounterfactualMethod]
Check = Callable[[Method, Problem], None]


@dataclass(frozen=True)
class Report:
    """The outcome of one check on one problem."""

    check: str
    problem: str
    passed: bool
    message: str = ""


def _require(condition: Any, message: str) -> None:
    if not bool(condition):
        raise AssertionError(message)


@lru_cache(maxsize=64)
def _first(cls: Method, p: Problem) -> ExplanationResult:
    """The answer that several checks look at, computed once."""
    return _explain(cls, p)


def _explain(cls: Method, p: Problem, x: np.ndarray | None = None) -> ExplanationResult:
    method = p.fitted(cls)
    result: ExplanationResult = method.explain(p.x if x is None else x, p.target)
    return result


def aligned(cls: Method, p: Problem) -> None:
    """Every row has one known status, and the input is untouched."""
    before = p.x.copy()
    result = _explain(cls, p)
    _require(np.array_equal(p.x, before), "explain changed its input")
    _require(np.array_equal(result.x_origs, p.x), "x_origs is not the input")
    _require({*result.status} <= {s.value for s in Status}, f"unknown status in {result.status}")


def finds_something(cls: Method, p: Problem) -> None:
    """On an easy problem at least a quarter of the rows is found: empty answers prove nothing."""
    share = _first(cls, p).found.mean()
    _require(share >= 0.25, f"only {share:.0%} of the rows were found")


def feasible(cls: Method, p: Problem) -> None:
    """Candidates are decodable, inside the region, and immutables are equal bit for bit."""
    result = _first(cls, p)
    rows = np.flatnonzero(result.has_candidate)
    region = Region.around(p.space, p.x[rows])
    _require(region.contains(result.x_cfs[rows]).all(), "a candidate is outside its region")
    frozen = [c for f in p.space if not f.mutable for c in f.columns]
    same = np.array_equal(result.x_cfs[rows][:, frozen], p.x[rows][:, frozen])
    _require(same, "an immutable feature changed")


def valid(cls: Method, p: Problem) -> None:
    """Found means valid on the real model, and never the original row."""
    result = _first(cls, p)
    rows = result.found
    outcome = p.model.predict(result.x_cfs[rows])
    if p.target is None:
        gap = np.abs(outcome - result.y_cf_targets[rows])
        _require((gap <= 0.05 + 1e-6).all(), f"a found row misses its target by {gap.max():.3f}")
    else:
        _require((outcome == p.target).all(), "a found row does not have the target class")
    _require((result.x_cfs[rows] != p.x[rows]).any(1).all(), "a found row equals its original")


def seeded(cls: Method, p: Problem) -> None:
    """The same seed gives the same bytes."""
    a, b = _first(cls, p), _explain(cls, p)
    _require(a.x_cfs.tobytes() == b.x_cfs.tobytes(), "two runs with one seed differ")


def alone(cls: Method, p: Problem) -> None:
    """A row explained alone gets the answer it gets in a batch."""
    if not cls.rows_independent:
        return
    whole = _first(cls, p)
    method = p.fitted(cls)
    for i in range(0, len(p.x), 5):
        single = method.explain(p.x[i : i + 1], p.target)
        same = np.allclose(single.x_cfs[0], whole.x_cfs[i], atol=2e-3, equal_nan=True)
        _require(same, f"row {i} alone differs from row {i} in the batch")


def order(cls: Method, p: Problem) -> None:
    """Reversing the rows reverses the answers."""
    if not cls.rows_independent:
        return
    forward, backward = _first(cls, p), _explain(cls, p, p.x[::-1].copy())
    same = np.allclose(forward.x_cfs, backward.x_cfs[::-1], atol=2e-3, equal_nan=True)
    _require(same, "the order of the rows matters")


def pure(cls: Method, p: Problem) -> None:
    """The global random state and the gradient mode are left as found; no_grad is no obstacle."""
    normal = _first(cls, p)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    with torch.no_grad():
        quiet = _explain(cls, p)
        _require(not torch.is_grad_enabled(), "the gradient mode was changed")
    _require(torch.equal(torch_state, torch.get_rng_state()), "torch's random state was used")
    left = np.random.get_state()[1]  # type: ignore[index]
    _require(np.array_equal(numpy_state, left), "numpy's random state was used")
    _require(np.array_equal(normal.x_cfs, quiet.x_cfs, equal_nan=True), "no_grad changes answers")


def untouched(cls: Method, p: Problem) -> None:
    """Training rows, the model, settings of the process and modules are left as they were."""
    given: dict[str, Any] = {"the training rows": p.x_train, "the rows": p.x}
    given |= {"the weights of the model": p.model.weights, "the bias of the model": p.model.bias}
    witness = Witness(given)
    _explain(cls, p)
    changed = witness.changes()
    _require(not changed, f"the method changed {', '.join(changed[:3])}; work on a copy")


def cloned(cls: Method, p: Problem) -> None:
    """Settings survive get_params and clone; a clone is unfitted and answers alike."""
    method = p.build(cls)
    copy = method.clone()
    _require(type(copy) is cls and not hasattr(copy, "train_"), "clone is not a fresh copy")
    for name, value in method.get_params().items():
        other = copy.get_params()[name]
        _require(other is value or other == value, f"setting {name!r} was lost by clone")
    a = method.fit(p.x_train).explain(p.x, p.target)
    b = copy.fit(p.x_train).explain(p.x, p.target)
    _require(np.array_equal(a.x_cfs, b.x_cfs, equal_nan=True), "a clone answers differently")


def loader(cls: Method, p: Problem) -> None:
    """`explain_dataloader` equals `explain`."""
    if p.target not in (None, 1) or p.task.value == "regression":
        return
    data = torch.utils.data.TensorDataset(torch.as_tensor(p.x))
    batches = torch.utils.data.DataLoader(data, batch_size=5)
    a = p.fitted(cls).explain(p.x)
    b = p.fitted(cls).explain_dataloader(batches)
    _require(np.array_equal(a.x_cfs, b.x_cfs, equal_nan=True), "loader and array answers differ")


def budgets(cls: Method, p: Problem) -> None:
    """No time means `timeout`, and few queries end the search."""
    method = p.fitted(cls, time_limit=0.0)
    statuses = set(method.explain(p.x, p.target).status)
    _require(statuses <= {"timeout"}, f"time_limit=0 gave {statuses}")
    few = p.fitted(cls, max_queries=1).explain(p.x, p.target)
    _require(len(few) == len(p.x), "max_queries=1 lost rows")


def hard_rows(cls: Method, p: Problem) -> None:
    """A NaN row is an error of that row only; no rows and satisfied rows are fine."""
    method = p.fitted(cls)
    x = p.x.copy()
    x[1, 0] = np.nan
    result = method.explain(x, p.target)
    _require(result.status[1] == "error", f"a NaN row got status {result.status[1]!r}")
    _require((result.status == "error").sum() == 1, "a NaN row spoiled other rows")
    _require(len(method.explain(p.x[:0], p.target)) == 0, "zero rows gave an answer")
    if p.target is not None:
        done = p.x_train[p.model.predict(p.x_train) == p.target][:2]
        states = set(method.explain(done, p.target).status)
        _require(states == {"not_applicable"}, f"rows already in the target class got {states}")


def frozen_rows(cls: Method, p: Problem) -> None:
    """With every feature immutable nothing is found, and nothing breaks."""
    nothing = p.space.with_changes(**{f.name: {"mutable": False} for f in p.space})
    try:
        result = p.fitted(cls, space=nothing).explain(p.x, p.target)
    except CelError:
        return
    _require(not result.has_candidate.any(), "a fully immutable row got a counterfactual")


CHECKS: dict[str, Check] = {
    c.__name__: c
    for c in (
        aligned, finds_something, feasible, valid, seeded, alone, order, pure, cloned, loader,
        budgets, hard_rows, frozen_rows, contradiction, untouched,
    )
}  # fmt: skip


def applicable(cls: Method, p: Problem) -> str | None:
    """Return why a method refuses a problem, or None."""
    try:
        p.fitted(cls).explain(p.x[:1], p.target)
    except UnsupportedError as refusal:
        return str(refusal)
    return None


def check_method(cls: Method) -> list[Report]:
    """Run all checks on all problems that the method declares to support."""
    reports = []
    for name, make in PROBLEMS.items():
        problem = make()
        reason = applicable(cls, problem)
        if reason is not None:
            reports.append(Report("supported", name, True, f"refused: {reason}"))
            continue
        for check, run in CHECKS.items():
            try:
                run(cls, problem)
            except (AssertionError, CelError) as failure:
                reports.append(Report(check, name, False, str(failure)))
            else:
                reports.append(Report(check, name, True))
    return reports
