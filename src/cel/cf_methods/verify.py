"""From candidates to outcomes: decode, predict again with the real model, settle a status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cel.cf_methods.prepare import Prepared
from cel.cf_methods.query import Answer
from cel.cf_methods.view import ModelView
from cel.protocols import Proof, Status, Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space.region import Region

if TYPE_CHECKING:
    from cel.cf_methods.base import BaseCounterfactualMethod

__all__ = ["assemble"]


def assemble(
    method: BaseCounterfactualMethod,
    prepared: Prepared,
    answers: list[tuple[Any, Answer]],
    view: ModelView,
    seconds: dict[str, float],
) -> ExplanationResult:
    """Verify every candidate and build the result."""
    n, d = prepared.x.shape
    x_cfs = np.full((n, d), np.nan, dtype=np.float32)
    status = np.full(n, Status.NOT_FOUND.value, dtype=object)
    if view.budget.expired:
        status[:] = Status.TIMEOUT.value
    for rows, answer in answers:
        x_cfs[rows] = answer.x.detach().cpu().numpy()
        if answer.infeasible is not None:
            status[rows[answer.infeasible.cpu().numpy()]] = Status.INFEASIBLE.value
    x_cfs = _snapped(x_cfs, prepared)
    y_cfs, valid = _verify(x_cfs, prepared, view)
    have = ~np.isnan(x_cfs).any(1)
    status[have] = np.where(valid[have], Status.FOUND.value, Status.INVALID.value)
    status[prepared.done] = Status.NOT_APPLICABLE.value
    status[prepared.bad] = Status.ERROR.value
    bound, proof = _proofs(answers, x_cfs, status == Status.FOUND.value)
    return ExplanationResult(
        x_origs=prepared.x,
        x_cfs=x_cfs,
        y_origs=prepared.y,
        y_cf_targets=prepared.target_values,
        y_cfs=y_cfs,
        status=status,
        source_ids=prepared.source_ids,
        space=prepared.space,
        pipeline=prepared.pipeline,
        target=prepared.target,
        x_sets=_sets(answers, prepared, view),
        cf_group_ids=_groups(answers, n),
        bound=bound,
        proof=proof,
        seconds=seconds,
        method=method.name,
        params=_plain_params(method),
        logs=_logs(answers, prepared),
        context=_context(method),
    )


def _snapped(x: np.ndarray, prepared: Prepared) -> np.ndarray:
    """Make candidates decodable; a candidate equal to its origin is no candidate."""
    have = np.flatnonzero(~np.isnan(x).any(1))
    out = np.full_like(x, np.nan)
    if not len(have):
        return out
    region = Region.around(prepared.space, torch.as_tensor(prepared.x[have]))
    seen = region.snap(torch.as_tensor(x[have])).numpy()
    moved = (np.abs(seen - prepared.x[have]) > 0).any(1)
    out[have[moved]] = seen[moved]
    return out


def _verify(x: np.ndarray, prepared: Prepared, view: ModelView) -> tuple[np.ndarray, np.ndarray]:
    """Return (predictions, whether each row is valid and feasible)."""
    have = np.flatnonzero(~np.isnan(x).any(1))
    valid = np.zeros(len(x), dtype=bool)
    if view.task is Task.REGRESSION:
        y: np.ndarray = np.full(prepared.target_values.shape, np.nan)
    else:
        y = np.full(len(x), -1, dtype=np.int64)
    if len(have):
        y[have] = view.outcome(x[have])
        region = Region.around(prepared.space, torch.as_tensor(prepared.x[have]))
        feasible = region.contains(torch.as_tensor(x[have])).numpy()
        valid[have] = view.achieved(y[have], prepared.target_values[have]) & feasible
    return y, valid


def _sets(
    answers: list[tuple[Any, Answer]], prepared: Prepared, view: ModelView
) -> np.ndarray | None:
    """Keep the verified members of every set, nearest positions first."""
    given = [(rows, a.sets.detach().cpu().numpy()) for rows, a in answers if a.sets is not None]
    if not given:
        return None
    width = max(s.shape[1] for _, s in given)
    out = np.full((len(prepared.x), width, prepared.x.shape[1]), np.nan, dtype=np.float32)
    for rows, sets in given:
        row, number = np.nonzero(~np.isnan(sets).any(-1))
        if not len(row):
            continue
        source = rows[row]
        region = Region.around(prepared.space, torch.as_tensor(prepared.x[source]))
        seen = region.snap(torch.as_tensor(sets[row, number])).numpy()
        good = view.achieved(view.outcome(seen), prepared.target_values[source])
        good &= region.contains(torch.as_tensor(seen)).numpy()
        out[source[good], number[good]] = seen[good]
    return out


def _groups(answers: list[tuple[Any, Answer]], n: int) -> np.ndarray | None:
    if not any(a.groups is not None for _, a in answers):
        return None
    out = np.full(n, -1, dtype=np.int64)
    for rows, a in answers:
        if a.groups is not None:
            out[rows] = a.groups.cpu().numpy()
    return out


def _proofs(
    answers: list[tuple[Any, Answer]], x_cfs: np.ndarray, found: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return bounds and proofs; a proof holds for the very point that was verified."""
    if not any(a.bound is not None or a.proof is not None for _, a in answers):
        return None, None
    bound = np.full(len(x_cfs), np.nan)
    proof = np.full(len(x_cfs), Proof.NONE.value, dtype=object)
    for rows, a in answers:
        if a.bound is not None:
            bound[rows] = a.bound.detach().cpu().double().numpy()
        if a.proof is not None:
            given = a.x.detach().cpu().numpy().astype(np.float32)
            same = found[rows] & (given == x_cfs[rows]).all(1)
            proof[rows] = np.where(same, a.proof, Proof.NONE.value)
    return bound, proof


def _logs(answers: list[tuple[Any, Answer]], prepared: Prepared) -> dict[str, Any]:
    logs: dict[str, Any] = {}
    for _, a in answers:
        logs |= a.logs or {}
    low = prepared.space.vector("lower") - 1e-6
    high = prepared.space.vector("upper") + 1e-6
    numeric = prepared.space.numeric_columns
    x = prepared.x[~prepared.bad][:, numeric]
    outside = ((x < low[numeric]) | (x > high[numeric])).sum(0)
    names = np.array(prepared.space.column_names, dtype=object)[numeric]
    if outside.any():
        logs["outside_training_range"] = {
            str(n): int(c) for n, c in zip(names, outside, strict=True) if c
        }
    if prepared.bad.any():
        logs["not_finite"] = [str(i) for i in prepared.source_ids[prepared.bad][:20]]
    return logs


def _plain_params(method: BaseCounterfactualMethod) -> dict[str, Any]:
    plain = (str, int, float, bool, type(None), tuple, list)
    return {k: v for k, v in method.get_params().items() if isinstance(v, plain)}


def _context(method: BaseCounterfactualMethod) -> EvaluationContext:
    train = getattr(method, "train_", None)
    held_out = getattr(method, "_held_out", None)
    return EvaluationContext(
        model=method.model,
        density=getattr(method, "gen_model", None),
        levels=getattr(method, "levels_", None),
        x_train=None if train is None else train.x.cpu().numpy(),
        y_train=None if train is None else train.y.cpu().numpy(),
        x_test=held_out,
        y_test=None if held_out is None else ModelView(method.model).outcome(held_out),
    )
