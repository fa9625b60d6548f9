"""Give back the small changes of numbers that the outcome does not need."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.search import bisect_to_boundary
from cel.search.streams import row_keys

__all__ = ["small_changes_back"]


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
