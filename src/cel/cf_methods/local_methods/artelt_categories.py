"""Which categories a mixed row has while its numbers are optimised."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.local_methods.artelt_program import Setting
from cel.cf_methods.query import Query

__all__ = ["case_rows", "modal_rows"]

_NEAR = 32


def modal_rows(query: Query, shares: dict[int, Tensor]) -> Tensor:
    """Return the rows (n, d) with the most frequent reachable categories of their target class.

    Args:
        query: the rows.
        shares: (d,) mean training row of each class, which holds the shares of its categories.
    """
    rows = query.x.clone()
    for label, share in shares.items():
        here = query.target == label
        rows[here] = torch.where(query.region.layout.numeric, query.x[here], share.to(query.x))
    out: Tensor = query.region.snap(rows)
    return out


@torch.no_grad()
def case_rows(setting: Setting, rows: Tensor, core: dict[int, Tensor]) -> Tensor:
    """Return the rows (n, d) with the categories of a near dense row of their target class.

    Of the nearest dense training rows, moved into the region of the row, the first that is valid
    and still dense gives its categories, so that there is a feasible point with them. Rows for
    which there is none keep their own.
    """
    query = setting.query
    out, numeric = query.x.clone(), query.region.layout.numeric
    target = query.target[rows]
    for label in sorted(set(target.tolist())):
        here, pool = rows[target == label], core.get(label)
        own = (setting.label == label).nonzero()[:, 0]
        if pool is None or not len(pool) or not len(own):
            continue
        near = torch.cdist(query.x[here], pool, p=1)
        near = near.topk(min(_NEAR, len(pool)), dim=1, largest=False).indices
        source = here.repeat_interleave(near.shape[1])
        seen, ok = query.accept(pool[near].flatten(0, 1), source)
        ratio = setting.bank.mahalanobis(setting.numbers(seen))[:, own] / setting.bank.radius[own]
        ok = (ok & (ratio.amin(1) <= 1)).reshape(near.shape)
        first = ok.to(torch.int8).argmax(1)
        case = seen.reshape(*near.shape, -1)[torch.arange(len(here), device=here.device), first]
        use = ok.any(1)[:, None] & ~numeric
        out[here] = torch.where(use, case, out[here])
    return out
