"""Counterfactuals from known rows, and small changes given back."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query, TrainRows
from cel.search import bisect_to_boundary, nearest
from cel.search.streams import row_keys

__all__ = ["best_distinct", "changed_count", "near_rows", "neighbour_sets", "small_changes_back"]


def changed_count(query: Query, x: Tensor, rows: Tensor) -> Tensor:
    """Return the number of features (a, b) in which points (a, b, d) leave their row."""
    owner = query.region.layout.owner
    moved = ((x - query.x[rows][:, None, :]).abs() > 1e-6).to(x.dtype)
    if len(query.region.space) == len(owner):
        return moved.sum(-1)
    hits = moved @ torch.nn.functional.one_hot(owner).to(x.dtype)
    return (hits > 0).sum(-1).to(x.dtype)


def _unit(x: Tensor) -> Tensor:
    """Stretch each row of (a, b) to [0, 1]."""
    low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
    return (x - low) / (high - low).clamp(min=1e-12)


def near_rows(query: Query, train: TrainRows, rows: Tensor, count: int) -> Tensor:
    """Return (a, b, d) nearest training rows that the model puts into the rows' target class."""
    target = query.target[rows]
    found = query.x[rows][:, None, :].repeat(1, count, 1)
    for label in sorted(set(target.tolist())):
        pool = train.of_class(label).to(query.x)
        here = (target == label).nonzero()[:, 0]
        if len(pool):
            index = nearest(query.x[rows[here]], pool, count)[1]
            found[here, : index.shape[1]] = pool[index]
    return found


@torch.no_grad()
def neighbour_sets(query: Query, train: TrainRows, *, k: int, sparsity_weight: float) -> Tensor:
    """Return (n, k, d) training rows near each row, NaN padded.

    Of the 10 k nearest rows of the target class, immutable features kept as they are, those that
    stay valid are ranked by distance plus `sparsity_weight` times the number of changes, each
    stretched to [0, 1].
    """
    rows, count = query.rows(), 10 * k
    x = near_rows(query, train, rows, count)
    seen, ok = query.accept(x.flatten(0, 1), rows.repeat_interleave(count))
    x, ok = seen.reshape(x.shape), ok.reshape(-1, count)
    distance = (x - query.x[:, None, :]).norm(dim=-1)
    rank = _unit(distance) + sparsity_weight * _unit(changed_count(query, x, rows))
    return best_distinct(x, rank, ok, k)


def best_distinct(x: Tensor, rank: Tensor, ok: Tensor, k: int) -> Tensor:
    """Return (n, k, d): the k distinct accepted points of lowest rank, NaN padded."""
    order = rank.masked_fill(~ok, torch.inf).sort(dim=1, stable=True).indices
    x = x.gather(1, order[..., None].expand_as(x))
    ok = ok.gather(1, order)
    keys = row_keys(x.flatten(0, 1), 0).reshape(x.shape[:2])
    same = keys[:, :, None] == keys[:, None, :]
    ok &= ~torch.tril(same, -1).any(-1)
    first = (~ok).to(torch.int8).argsort(dim=1, stable=True)[:, :k]
    out = x.gather(1, first[..., None].expand(-1, -1, x.shape[-1]))
    return torch.where(ok.gather(1, first)[..., None], out, torch.full_like(out, torch.nan))


@torch.no_grad()
def small_changes_back(query: Query, sets: Tensor, small: Tensor) -> Tensor:
    """Return sets (n, k, d) with small changes undone, or shortened, while members stay valid.

    Numbers are taken in descending order of `small` (d,); a change of at most `small` is set back
    to the row's value, or bisected towards it (Mothilal et al., section 3.4). NaN members stay,
    and a member that would become a copy of another stays as it was.
    """
    n, k, d = sets.shape
    flat = sets.reshape(-1, d).clone()
    source = query.rows().repeat_interleave(k)
    origin, valid = query.x[source], ~flat.isnan().any(1)
    numeric = query.region.layout.numeric

    def accept(x: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        return query.accept(x, source[members])

    for column in small.argsort(descending=True, stable=True).tolist():
        if not bool(numeric[column]) or query.budget.expired:
            continue
        change = (flat[:, column] - origin[:, column]).abs()
        members = (valid & (change > 0) & (change <= small[column])).nonzero()[:, 0]
        if not len(members):
            continue
        trial = flat[members].clone()
        trial[:, column] = origin[members, column]
        seen, ok = accept(trial, members)
        flat[members[ok]] = seen[ok]
        slide = torch.arange(d, device=flat.device) == column
        rest = torch.zeros_like(valid)
        rest[members[~ok]] = True
        flat = bisect_to_boundary(origin, flat, rest, accept, slide=slide)
    out = flat.reshape(n, k, d)
    return torch.where(_repeated(out)[..., None], sets, out)


def _repeated(sets: Tensor) -> Tensor:
    """Tell which members (n, k) equal an earlier one, as giving back changes can make them."""
    n, k, d = sets.shape
    keys = row_keys(sets.reshape(-1, d), 0).reshape(n, k)
    return torch.tril(keys[:, :, None] == keys[:, None, :], -1).any(-1)
