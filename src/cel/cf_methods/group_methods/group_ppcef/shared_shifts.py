"""K shifts for N rows, fitted together: which row takes which, and how far it goes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.explanations.cohort import Cohort
from cel.cf_methods.group_methods.group_ppcef.shift_objective import (
    ShiftObjective,
    entropy,
    sparsemax,
)
from cel.search import nearest

__all__ = ["SharedShifts", "fit_shifts", "row_points", "shift_losses", "start_shifts"]

START = 0.5  # score of a row's own cluster: others keep a share, and so a gradient
LONGEST = 3.0  # |log-magnitude|
SMALLEST = 0.01  # share of a shift's cost below which a feature is left out
STEPS_A_LOOK = 10


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedShifts:
    """Shifts and how rows take them: `x'_i = x_i + exp(m_i) (sparsemax(s_i) D)`.

    Attributes:
        shift: (K, d) in encoded units.
        score: (N, K) whose sparsemax is the share of each shift in each row.
        log_size: (N, 1) log-magnitudes.
        loss: the objective at the end.
        steps: descent steps taken.
    """

    shift: Tensor
    score: Tensor
    log_size: Tensor
    loss: float = float("nan")
    steps: int = 0

    @property
    def share(self) -> Tensor:
        """(N, K) share of each shift in each row; rows sum to 1."""
        return sparsemax(self.score)

    def pruned(self, scale: Tensor) -> SharedShifts:
        """Leave out columns that have hardly a part in the cost of their shift."""
        part = self.shift.abs() * scale
        small = part < SMALLEST * part.sum(1, keepdim=True)
        return replace(self, shift=self.shift.masked_fill(small, 0.0))


def start_shifts(
    problem: Cohort, objective: ShiftObjective, count: int, seed: int
) -> SharedShifts:
    """Cluster the ways to plausible rows of the target; each cluster's mean way is a shift."""
    from sklearn.cluster import KMeans

    query, scale = problem.query, problem.price.scale
    goal = _plausible_rows(problem, objective)
    _, index = nearest(query.x * scale, goal * scale, p=1.0)
    way = _allowed(query.region.project(goal[index[:, 0]]) - query.x, problem)
    ways = (way * scale).cpu().numpy()
    count = min(count, len(np.unique(ways, axis=0)))
    labels = KMeans(count, n_init=4, max_iter=50, random_state=seed).fit_predict(ways)
    member = torch.nn.functional.one_hot(torch.as_tensor(labels).long(), count).to(way)
    shift = (member.T @ way) / member.sum(0)[:, None]
    return SharedShifts(shift=shift, score=START * member, log_size=torch.zeros_like(way[:, :1]))


def _plausible_rows(problem: Cohort, objective: ShiftObjective, most: int = 5000) -> Tensor:
    """Return training rows of the target that reach the level, or all if none does."""
    rows = problem.train.x[problem.hit]
    if len(rows) > most:
        chosen = problem.rng.choice(len(rows), most, replace=False)
        rows = rows[torch.as_tensor(np.sort(chosen), device=rows.device)]
    target = torch.full((len(rows),), problem.key, dtype=torch.long, device=rows.device)
    with torch.no_grad():
        logp = objective.demand.density.log_prob(rows, target)
    good = rows[logp >= objective.demand.level[0]]
    return good if len(good) else rows


def _allowed(delta: Tensor, problem: Cohort) -> Tensor:
    """Remove what may not move from shifts (K, d): fixed features and forbidden signs."""
    lay = problem.query.region.layout
    movable = torch.as_tensor(problem.price.movable[problem.space.owner], device=delta.device)
    delta = torch.where(movable, delta, 0)
    delta = torch.where(lay.up, delta.clamp(min=0), delta)
    return torch.where(lay.down, delta.clamp(max=0), delta)


def row_points(made: SharedShifts, objective: ShiftObjective, rows: Tensor) -> Tensor:
    """Return where the shifts lead the rows, inside box and simplices, (a, d)."""
    query = objective.query
    moved = query.x[rows] + made.log_size.exp() * (made.share @ made.shift)
    return query.project(moved, rows)


def shift_losses(made: SharedShifts, objective: ShiftObjective, rows: Tensor) -> Tensor:
    """Return the whole objective of K shifts, a number: the mean of rows plus that of shifts."""
    w, share = objective.weights, made.share
    own = objective.loss(row_points(made, objective, rows), rows) + w.choice * entropy(share)
    value = own.mean() + w.groups * entropy(share.mean(0))
    if len(made.shift) > 1 and w.difference:
        value = value + w.difference * _likeness(made.shift)
    return value


def _likeness(shift: Tensor) -> Tensor:
    """How far shifts are from right angles: -log det of the products of their directions."""
    unit = shift / shift.norm(dim=1, keepdim=True).clamp(min=1e-6)
    gram = unit @ unit.T + 1e-4 * torch.eye(len(unit), dtype=unit.dtype, device=unit.device)
    volume: Tensor = torch.linalg.slogdet(gram).logabsdet
    return (-volume).clamp(min=0)


def fit_shifts(
    problem: Cohort,
    objective: ShiftObjective,
    start: SharedShifts,
    *,
    steps: int,
    lr: float,
    patience: int,
    magnitudes: bool,
) -> SharedShifts:
    """Descend the objective from `start` over shifts, shares and magnitudes together.

    Args:
        problem: what to fit on.
        objective: of its rows.
        start: where to begin.
        steps: most descent steps (Adam).
        lr: step size.
        patience: steps without a relative gain of 1e-3 after which it ends.
        magnitudes: whether rows have magnitudes of their own; otherwise all are 1.
    """
    free = [start.shift.clone(), start.score.clone(), start.log_size.clone()]
    trained = free if magnitudes else free[:2]
    rows, best = problem.query.rows(), start
    mark, since = float("inf"), 0
    with torch.enable_grad():
        for value in trained:
            value.requires_grad_(True)
        descent = torch.optim.Adam(trained, lr=lr)
        for step in range(steps + 1):
            now = SharedShifts(shift=free[0], score=free[1], log_size=free[2])
            loss = shift_losses(now, objective, rows)
            value_now = float(loss.detach())
            if not best.loss <= value_now:  # the start has none
                shift, score, size = (v.detach().clone() for v in free)
                best = SharedShifts(
                    shift=shift, score=score, log_size=size, loss=value_now, steps=step
                )
            if value_now < mark - 1e-3 * abs(mark) or step == 0:  # many small gains add up
                mark, since = value_now, step
            late = step % STEPS_A_LOOK == 0 and problem.query.budget.expired
            if late or step == steps or step - since >= patience:
                break
            descent.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for value in trained:
                assert value.grad is not None
                value.grad.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            descent.step()
            with torch.no_grad():
                free[0].copy_(_allowed(free[0], problem))
                free[2].clamp_(-LONGEST, LONGEST)
    return best
