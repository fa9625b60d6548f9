"""From candidates to outcomes: decode, predict again with the real model, settle a status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from cel.cf_methods.options import Asked
from cel.cf_methods.prepare import Prepared
from cel.cf_methods.query import Answer
from cel.cf_methods.view import ModelView
from cel.protocols import Proof, Status, Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space.layout import TOLERANCE
from cel.space.region import Region

__all__ = ["assemble"]

LONGER = (1e-3, 1e-2, 5e-2)  # of a step whose outcome was lost to the digits of its columns
_PART = 4096  # points at a time: with all of them every step waits for the memory
LEAST = (2e-6, 2e-5, 2e-4)  # of the range: shorter steps of numbers count as none


def assemble(
    method: Asked,
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
    x_sets = _sets(answers, prepared, view)
    x_cfs, y_cfs, valid = _verified(_snapped(x_cfs, prepared), x_sets, prepared, view)
    have = ~np.isnan(x_cfs).any(1)
    status[have] = np.where(valid[have], Status.FOUND.value, Status.INVALID.value)
    status[prepared.starts.stuck] = Status.INFEASIBLE.value
    status[prepared.done] = Status.NOT_APPLICABLE.value
    status[prepared.bad] = Status.ERROR.value
    bound, proof = _proofs(answers, x_cfs, status == Status.FOUND.value, prepared)
    given = prepared.given
    return ExplanationResult(
        x_origs=prepared.x,
        x_cfs=x_cfs,
        y_origs=prepared.y,
        y_cf_targets=_single_targets(prepared, y_cfs),
        y_cfs=y_cfs,
        status=status,
        source_ids=prepared.source_ids,
        space=prepared.space,
        pipeline=prepared.pipeline,
        target=prepared.target,
        sheet=prepared.encoding.sheet,
        rows=None if given is None else given.frame,
        reasons=_reasons(method, prepared, status),
        x_sets=x_sets,
        cf_group_ids=_groups(answers, n),
        bound=bound,
        proof=proof,
        seconds=seconds,
        method=method.name,
        params=_plain_params(method),
        logs=_logs(answers, prepared),
        context=_context(method, prepared, x_cfs),
    )


def _reasons(method: Asked, prepared: Prepared, status: np.ndarray) -> np.ndarray | None:
    """Return the reasons of rows; a method that demands more says what it proved impossible."""
    rows = np.flatnonzero(status == Status.INFEASIBLE.value)
    if not method.infeasible_means or not len(rows):
        return prepared.reasons
    none = np.full(len(status), None, dtype=object)
    out = none if prepared.reasons is None else prepared.reasons.copy()
    out[rows] = [method.infeasible_means if out[i] is None else out[i] for i in rows]
    return out


def _single_targets(prepared: Prepared, y_cfs: np.ndarray) -> np.ndarray:
    """Return one wanted value per output: of an interval the one nearest to what was reached."""
    wanted, y = prepared.target_values, prepared.y
    if y.ndim == 1 or wanted.shape == y.shape:
        return wanted
    low, high = np.split(wanted, 2, axis=1)
    return np.clip(np.where(np.isnan(y_cfs), y, y_cfs), low, high)


def _snapped(x: np.ndarray, prepared: Prepared) -> np.ndarray:
    """Make candidates decodable; a candidate equal to its origin is no candidate."""
    have = np.flatnonzero(~np.isnan(x).any(1))
    out = np.full_like(x, np.nan)
    if not len(have):
        return out
    seen = _region(prepared, have).snap(torch.as_tensor(x[have])).numpy()
    moved = (np.abs(seen - prepared.x[have]) > 0).any(1)
    out[have[moved]] = seen[moved]
    return out


def _region(prepared: Prepared, rows: np.ndarray) -> Region:
    return Region.around(prepared.space, torch.as_tensor(prepared.starts.x[rows]))


def _verified(
    x: np.ndarray, x_sets: np.ndarray | None, prepared: Prepared, view: ModelView
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (candidates, predictions, whether each row is valid and feasible)."""
    n = len(x)
    valid = np.zeros(n, dtype=bool)
    if view.task is Task.REGRESSION:
        y: np.ndarray = np.full(prepared.y.shape, np.nan)
    else:
        y = np.full(n, -1, dtype=np.int64)
    out = np.full_like(x, np.nan)
    tried = ~np.isnan(x).any(1)

    def judge(points: np.ndarray, rows: np.ndarray) -> None:
        """Take over points (m, d) that are answers, and the first failed one of a candidate."""
        codes, outcome, ok = _judged(points, rows, prepared, view)
        failed = np.isnan(out[rows]).any(1) & tried[rows]
        here = (ok | failed) & ~np.isnan(codes).any(1)
        out[rows[here]], y[rows[here]] = codes[here], outcome[here]
        valid[rows] |= ok

    have = np.flatnonzero(tried)
    if len(have):
        judge(x[have], have)
    if prepared.given is None and not prepared.starts.moved.any():
        return out, y, valid
    if view.budget.strict and view.budget.late:
        return out, y, valid
    for points, rows in _second_chances(x, x_sets, valid, prepared):
        if len(rows):
            judge(points, rows)
    return out, y, valid


def _second_chances(
    x: np.ndarray, x_sets: np.ndarray | None, valid: np.ndarray, prepared: Prepared
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield points for rows that have no answer yet; `valid` grows in between.

    Rows that began outside a hard range may be done once they are inside. A candidate that failed
    may have lost its outcome to the digits of its columns: a verified member of its set takes its
    place, or the same step made a little longer.
    """
    open_ = ~valid & ~prepared.bad & ~prepared.done
    rows = np.flatnonzero(open_ & prepared.starts.moved)
    yield prepared.starts.x[rows], rows
    if prepared.given is None:
        return
    if x_sets is not None:
        members = ~np.isnan(x_sets).any(-1)
        rows = np.flatnonzero(~valid & members.any(1))
        way = np.abs(x_sets[rows] - prepared.x[rows, None]).sum(-1)
        yield x_sets[rows, np.nanargmin(way, axis=1)] if len(rows) else x[:0], rows
    numeric = np.zeros(x.shape[1], dtype=bool)
    numeric[prepared.space.numeric_columns] = True
    for share, least in zip(LONGER, LEAST, strict=True):
        rows = np.flatnonzero(~valid & ~np.isnan(x).any(1))
        if not len(rows):
            return
        start = prepared.starts.x[rows]
        step = (1 + share) * (x[rows] - start)
        small = numeric & (step != 0) & (np.abs(step) < least)
        longer = start + np.where(small, np.sign(step) * np.float32(least), step)
        yield _region(prepared, rows).snap(torch.as_tensor(longer)).numpy(), rows


def _judged(
    x: np.ndarray, rows: np.ndarray, prepared: Prepared, view: ModelView
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points as their owner will see them, what the model says, and whether they answer.

    Points (m, d) for rows (m,); where nothing is left of the changes, the point is NaN.
    """
    given = prepared.given
    wanted = prepared.target_values[rows]
    few = _few_changes(prepared, rows)
    if given is None:
        outcome = view.outcome(x)
        feasible = _in_parts("contains", x, rows, prepared) & few(x)
        return x, outcome, view.achieved(outcome, wanted) & feasible
    table, codes = given.answers(x, rows)
    feasible = _in_parts("contains", codes, rows, prepared) & given.keeps(table, rows)
    feasible &= few(codes)
    if view.reads_tables:
        outcome, refused = view.outcome_of_tables(table)
        feasible[list(refused)] = False
    else:
        outcome = view.outcome(codes)
    same = (codes == prepared.x[rows]).all(1)
    codes = np.where(same[:, None], np.float32(np.nan), codes)
    return codes, outcome, view.achieved(outcome, wanted) & feasible & ~same


def _in_parts(what: str, x: np.ndarray, rows: np.ndarray, prepared: Prepared) -> np.ndarray:
    """Ask the regions of rows (m,) about points (m, d), few at a time: they stay in the cache."""
    if len(x) <= _PART:
        return np.asarray(getattr(_region(prepared, rows), what)(torch.as_tensor(x)).numpy())
    cuts = [slice(i, i + _PART) for i in range(0, len(x), _PART)]
    return np.concatenate([_in_parts(what, x[cut], rows[cut], prepared) for cut in cuts])


def _few_changes(prepared: Prepared, rows: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a test of points (m, d) that counts changes from the rows as they were given."""
    limit = prepared.space.limit
    if limit is None or not prepared.starts.moved.any():
        return lambda x: np.ones(len(x), dtype=bool)
    given = Region.around(prepared.space, torch.as_tensor(prepared.x[rows]))
    return lambda x: given.changed_units(torch.as_tensor(x)).numpy() <= limit.most


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
        seen = _in_parts("snap", sets[row, number], source, prepared)
        codes, _, good = _judged(seen, source, prepared, view)
        out[source[good], number[good]] = codes[good]
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
    answers: list[tuple[Any, Answer]], x_cfs: np.ndarray, found: np.ndarray, prepared: Prepared
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
            slack = 0.0 if prepared.given is None else TOLERANCE  # digits of a table
            same = found[rows] & (np.abs(given - x_cfs[rows]) <= slack).all(1)
            proof[rows] = np.where(same, a.proof, Proof.NONE.value)
    return bound, proof


def _logs(answers: list[tuple[Any, Answer]], prepared: Prepared) -> dict[str, Any]:
    logs: dict[str, Any] = {}
    for rows, a in answers:
        logs |= a.logs or {}
        for name, entries in (a.row_logs or {}).items():
            whole = logs.setdefault(name, [None] * len(prepared.x))
            for row, entry in zip(rows, entries, strict=True):
                whole[row] = entry
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
    if prepared.bad.any() and prepared.given is None:
        logs["not_finite"] = [str(i) for i in prepared.source_ids[prepared.bad][:20]]
    return logs


def _plain_params(method: Asked) -> dict[str, Any]:
    plain = (str, int, float, bool, type(None), tuple, list)
    return {k: v for k, v in method.get_params().items() if isinstance(v, plain)}


def _context(method: Asked, prepared: Prepared, x_cfs: np.ndarray) -> EvaluationContext:
    density = getattr(method, "gen_model", None)
    split = getattr(method, "_split", None)
    if split is not None:
        known = EvaluationContext.of(split, method.model, density)
        return replace(known, levels=getattr(method, "levels_", None))
    train = getattr(method, "train_", None)
    model, given = method.model, prepared.given
    if given is not None and getattr(model, "reads_tables", False) and len(given):
        model = ModelView(model).bound(given.decoder(np.arange(len(given)))).model
    return EvaluationContext(
        model=model,
        density=density,
        levels=getattr(method, "levels_", None),
        x_train=None if train is None else train.x.cpu().numpy(),
        y_train=None if train is None else train.y.cpu().numpy(),
    )
