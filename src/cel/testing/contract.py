"""The contract of a method as a list of checks; `cel check MODULE:CLASS` runs it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.errors import CelError, UnsupportedError
from cel.protocols import Need, Scope, Status
from cel.result import ExplanationResult
from cel.search import Budget
from cel.space.region import Region
from cel.testing.doubles import BlackBox, Counting
from cel.testing.planted import NotAsked, contradiction, unanswerable
from cel.testing.problems import PROBLEMS, ToyProblem
from cel.testing.tree_problems import TREE_PROBLEMS
from cel.testing.untouched import Witness

__all__ = ["CHECKS", "ContractReport", "NotAsked", "applicable", "check_method", "problems_of"]

ROUND = 32  # calls of the model that may follow after the last query was spent
FEW = 4  # rows of checks that explain several times

Method = type[BaseCounterfactualMethod]
Check = Callable[[Method, ToyProblem], None]


@dataclass(frozen=True)
class ContractReport:
    """The outcome of one check on one problem.

    Attributes:
        check: name of the check, "supported" for a refused problem.
        problem: name of the problem.
        result: "refused" where the method declares that it does not work there, "skipped" where
            the check does not apply to it.
        message: what failed, or why nothing was asked.
    """

    check: str
    problem: str
    result: Literal["passed", "failed", "refused", "skipped"]
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether something was asked and answered as it must be."""
        return self.result == "passed"

    @property
    def failed(self) -> bool:
        """Whether the method broke a promise."""
        return self.result == "failed"


def _require(condition: Any, message: str) -> None:
    if not bool(condition):
        raise AssertionError(message)


@lru_cache(maxsize=64)
def _first(cls: Method, p: ToyProblem) -> ExplanationResult:
    """The answer that several checks look at, computed once."""
    return _explain(cls, p)


def _explain(cls: Method, p: ToyProblem, x: np.ndarray | None = None) -> ExplanationResult:
    result: ExplanationResult = p.explain(p.fitted(cls), x)
    return result


def aligned(cls: Method, p: ToyProblem) -> None:
    """Every row has one known status, and the input is untouched."""
    before = p.x.copy()
    result = _explain(cls, p)
    _require(np.array_equal(p.x, before), "explain changed its input")
    _require(np.array_equal(result.x_origs, p.x), "x_origs is not the input")
    _require({*result.status} <= {s.value for s in Status}, f"unknown status in {result.status}")


def finds_something(cls: Method, p: ToyProblem) -> None:
    """On an easy problem at least a quarter of the rows is found: empty answers prove nothing."""
    share = _first(cls, p).found.mean()
    _require(share >= 0.25, f"only {share:.0%} of the rows were found")


def feasible(cls: Method, p: ToyProblem) -> None:
    """Candidates are decodable, inside the region, and immutables are equal bit for bit."""
    result = _first(cls, p)
    rows = np.flatnonzero(result.has_candidate)
    region = Region.around(p.space, p.x[rows])
    _require(region.contains(result.x_cfs[rows]).all(), "a candidate is outside its region")
    frozen = [c for f in p.space if not f.mutable for c in f.columns]
    same = np.array_equal(result.x_cfs[rows][:, frozen], p.x[rows][:, frozen])
    _require(same, "an immutable feature changed")


def valid(cls: Method, p: ToyProblem) -> None:
    """Found means valid on the real model, and never the original row."""
    result = _first(cls, p)
    rows = result.found
    outcome = p.outcome(result.x_cfs[rows])
    if p.target is None:
        gap = np.abs(outcome - result.y_cf_targets[rows])
        _require((gap <= 0.05 + 1e-6).all(), f"a found row misses its target by {gap.max():.3f}")
    else:
        _require((outcome == p.target).all(), "a found row does not have the target class")
    _require((result.x_cfs[rows] != p.x[rows]).any(1).all(), "a found row equals its original")


def seeded(cls: Method, p: ToyProblem) -> None:
    """The same seed gives the same bytes."""
    a, b = _first(cls, p), _explain(cls, p)
    _require(a.x_cfs.tobytes() == b.x_cfs.tobytes(), "two runs with one seed differ")


def alone(cls: Method, p: ToyProblem) -> None:
    """A row explained alone gets the answer it gets in a batch."""
    if not cls.rows_independent:
        raise NotAsked("answers may depend on the other rows")
    whole = _first(cls, p)
    method = p.fitted(cls)
    for i in range(0, len(p.x), 5):
        single = p.explain(method, p.x[i : i + 1])
        same = np.allclose(single.x_cfs[0], whole.x_cfs[i], atol=2e-3, equal_nan=True)
        _require(same, f"row {i} alone differs from row {i} in the batch")


def order(cls: Method, p: ToyProblem) -> None:
    """Reversing the rows reverses the answers."""
    if not cls.rows_independent:
        raise NotAsked("answers may depend on the other rows")
    forward, backward = _first(cls, p), _explain(cls, p, p.x[::-1].copy())
    same = np.allclose(forward.x_cfs, backward.x_cfs[::-1], atol=2e-3, equal_nan=True)
    _require(same, "the order of the rows matters")


def pure(cls: Method, p: ToyProblem) -> None:
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


def untouched(cls: Method, p: ToyProblem) -> None:
    """Training rows, the model, settings of the process and modules are left as they were."""
    given: dict[str, Any] = {"the training rows": p.x_train, "the rows": p.x}
    for name in ("weights", "bias"):
        if hasattr(p.model, name):
            given[f"the {name} of the model"] = getattr(p.model, name)
    witness = Witness(given)
    _explain(cls, p)
    changed = witness.changes()
    _require(not changed, f"the method changed {', '.join(changed[:3])}; work on a copy")


def cloned(cls: Method, p: ToyProblem) -> None:
    """Settings survive get_params and clone; a clone is unfitted and answers alike."""
    method = p.build(cls)
    copy = method.clone()
    _require(type(copy) is cls and not hasattr(copy, "train_"), "clone is not a fresh copy")
    for name, value in method.get_params().items():
        other = copy.get_params()[name]
        _require(other is value or other == value, f"setting {name!r} was lost by clone")
    a, b = (p.explain(m.fit(p.given(p.x_train))) for m in (method, copy))
    _require(np.array_equal(a.x_cfs, b.x_cfs, equal_nan=True), "a clone answers differently")


def loader(cls: Method, p: ToyProblem) -> None:
    """`explain_dataloader` equals `explain`, up to digits that only the owner's table has."""
    if p.target != 1:
        raise NotAsked("a loader has no place for a target")
    data = torch.utils.data.TensorDataset(torch.as_tensor(p.x))
    batches = torch.utils.data.DataLoader(data, batch_size=5)
    a = p.fitted(cls).explain(p.given(p.x))
    b = p.fitted(cls).explain_dataloader(batches)
    digits = 2e-3 if getattr(p.model, "reads_tables", False) and p.pipeline is not None else 0.0
    same = np.allclose(a.x_cfs, b.x_cfs, rtol=0, atol=digits, equal_nan=True)
    _require(same, "loader and array answers differ")


def budgets(cls: Method, p: ToyProblem) -> None:
    """No time means `timeout`."""
    statuses = set(p.explain(p.fitted(cls, time_limit=0.0)).status)
    _require(statuses <= {"timeout"}, f"time_limit=0 gave {statuses}")


def queries(cls: Method, p: ToyProblem) -> None:
    """When `max_queries` evaluations per row are spent, a method ends after the round it is in.

    Every row that the model is asked about counts, whichever way it is asked. What a global or
    group method learns from training rows is learnt before and does not count.
    """
    counting, x = Counting(p.model), p.x[:FEW]
    method = replace(p, model=counting).fitted(cls)
    if cls.scope is not Scope.LOCAL:
        p.explain(method, x)
    for most in (1, 20):
        method.max_queries = most
        counting.asked.clear()
        result = p.explain(method, x)
        _require(len(result) == len(x), f"max_queries={most} lost rows")
        own = len(x) * (1 + most)  # every row is predicted once before the search
        late = counting.asked[int(np.searchsorted(np.cumsum(counting.asked), own)) + 1 :]
        _require(
            len(late) <= ROUND,
            f"the model was called {len(late)} more times ({sum(late) / len(x):.0f} evaluations "
            f"per row) when max_queries={most} was spent; look at query.budget.expired in loops",
        )


def declared(cls: Method, p: ToyProblem) -> None:
    """What is not among `needs` is not used: gradients, weights, trees, training rows, density."""
    who = cls.__name__
    inside = {Need.GRADIENTS, Need.LINEAR_MODEL, Need.TREES, Need.RELU}
    if Need.DENSITY not in cls.needs and "gen_model" in p.build(cls).get_params():
        message = f"{who} uses a density but does not declare Need.DENSITY"
        _works(p, p.fitted(cls, gen_model=None), message)
    if Need.TRAIN_ROWS not in cls.needs:
        message = f"{who} uses training rows but does not declare Need.TRAIN_ROWS"
        _works(p, p.build(cls, space=p.space), message)
    hidden = replace(p, model=BlackBox(p.model))
    if not inside & cls.needs and applicable(cls, hidden) is None:
        message = f"{who} looks inside the model but does not declare Need.GRADIENTS, "
        _works(hidden, hidden.fitted(cls), f"{message}LINEAR_MODEL, TREES or RELU")


def _works(p: ToyProblem, method: Any, message: str) -> None:
    try:
        p.explain(method, p.x[:FEW])
    except (CelError, AttributeError, TypeError) as error:
        raise AssertionError(f"{message} ({error})") from error


def hard_rows(cls: Method, p: ToyProblem) -> None:
    """A NaN row is an error of that row only; no rows and satisfied rows are fine."""
    method = p.fitted(cls)
    x = p.x.copy()
    x[1, 0] = np.nan
    if p.pipeline is None:  # tables with holes are the pipeline's business
        result = p.explain(method, x)
        _require(result.status[1] == "error", f"a NaN row got status {result.status[1]!r}")
        _require((result.status == "error").sum() == 1, "a NaN row spoiled other rows")
    _require(len(p.explain(method, p.x[:0])) == 0, "zero rows gave an answer")
    if p.target is not None:
        done = p.x_train[p.outcome(p.x_train) == p.target][:2]
        states = set(p.explain(method, done).status)
        _require(states == {"not_applicable"}, f"rows already in the target class got {states}")


def frozen_rows(cls: Method, p: ToyProblem) -> None:
    """With every feature immutable nothing is found, and nothing breaks."""
    nothing = p.space.with_changes(**{f.name: {"mutable": False} for f in p.space})
    try:
        result = p.explain(p.fitted(cls, space=nothing))
    except CelError as refusal:
        raise NotAsked(f"refused: {refusal}") from None
    _require(not result.has_candidate.any(), "a fully immutable row got a counterfactual")


CHECKS: dict[str, Check] = {
    c.__name__: c
    for c in (
        aligned, finds_something, feasible, valid, seeded, alone, order, pure, cloned, loader,
        budgets, queries, declared, hard_rows, frozen_rows, contradiction, unanswerable,
        untouched,
    )
}  # fmt: skip


def applicable(cls: Method, p: ToyProblem) -> str | None:
    """Return why a method refuses a problem before it begins, or None."""
    method = p.build(cls)
    try:
        method._refuse(method._view(Budget()), p.space)
    except UnsupportedError as refusal:
        return str(refusal)
    return None


def problems_of(cls: Method) -> dict[str, Callable[[], ToyProblem]]:
    """Return the problems that a method is tried on: more trees where it reads them or proves."""
    reads = Need.TREES in cls.needs or cls.proves
    return PROBLEMS | TREE_PROBLEMS if reads else PROBLEMS


def check_method(cls: Method) -> list[ContractReport]:
    """Run all checks on all problems that the method declares to support."""
    reports = []
    for name, make in problems_of(cls).items():
        problem = make()
        reason = applicable(cls, problem)
        if reason is not None:
            reports.append(ContractReport("supported", name, "refused", reason))
            continue
        for check, run in CHECKS.items():
            try:
                run(cls, problem)
            except NotAsked as reason_:
                reports.append(ContractReport(check, name, "skipped", str(reason_)))
            except (AssertionError, CelError) as failure:
                reports.append(ContractReport(check, name, "failed", str(failure)))
            else:
                reports.append(ContractReport(check, name, "passed"))
    return reports
