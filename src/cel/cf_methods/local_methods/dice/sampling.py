"""DiCE by random sampling: change one more feature of many copies until enough are valid."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.search.feature_draws import Sampler
from cel.search.streams import RowStreams, row_keys

__all__ = ["Sampler", "random_sets", "unique_first"]

_NONE = torch.iinfo(torch.int64).max
_BLOCK = 200  # copies tried at most before a row asks for more
_FIRST = 4  # copies tried at first for every row that is wanted
_PART = 4096  # points judged at a time: small enough for the cache
_DRAWS = 2  # draws of a stream used by one round


def unique_first(keys: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return (keys (n, k), positions (n, k)) of the k smallest distinct keys of each row."""
    value, index = keys.sort(dim=1, stable=True)
    twice = torch.zeros_like(value, dtype=torch.bool)
    twice[:, 1:] = value[:, 1:] == value[:, :-1]
    value = value.masked_fill(twice, _NONE)
    value, again = value.sort(dim=1, stable=True)
    return value[:, :k], index.gather(1, again)[:, :k]


@torch.no_grad()
def random_sets(query: Query, *, k: int, samples: int, seed: int) -> Tensor:
    """Return (n, k, d) valid, distinct rows chosen at random, NaN padded.

    `samples` copies of each row are kept; in every round each copy gets one more randomly chosen
    feature redrawn. A row ends after round two or later, as soon as k copies were valid. Copies
    are tried in blocks, which changes how many are looked at, not how they are distributed. The
    choice among the valid ones is by a hash of their content.
    """
    n, d = query.x.shape
    sampler = Sampler.of(query.region)
    copies = query.x[:, None, :].repeat(1, samples, 1)
    keys = torch.full((n, k), _NONE, device=query.x.device)
    kept = torch.full((n, k, d), torch.nan, device=query.x.device)
    rows = (sampler.count > 0).nonzero()[:, 0]
    for step, (number, part) in enumerate(_schedule(samples, len(query.region.space), k)):
        if not len(rows) or query.budget.expired:
            break
        stream = RowStreams(query.rng.keys[rows], query.rng.draw + _DRAWS * step)
        x = sampler.change_one(copies[rows, part], rows, stream)
        copies[rows, part] = x
        new_keys, seen = _judge(query, x, rows, seed)
        pool = torch.cat([keys[rows], new_keys], 1)
        keys[rows], index = unique_first(pool, k)
        both = torch.cat([kept[rows], seen], 1)
        kept[rows] = both.gather(1, index[..., None].expand(-1, -1, d))
        if number >= 2:
            rows = rows[keys[rows, -1] == _NONE]
    return torch.where((keys == _NONE)[..., None], torch.full_like(kept, torch.nan), kept)


def _schedule(samples: int, features: int, k: int) -> list[tuple[int, slice]]:
    """Return (round, copies) of every step: two rounds per block, then round by round.

    Few copies at first, twice as many in each further block: most rows need few.
    """
    ends, size = [0], min(_BLOCK, _FIRST * k)
    while ends[-1] < samples:
        ends.append(min(ends[-1] + size, samples))
        size = min(_BLOCK, 2 * size)
    opening = [(r, slice(a, b)) for a, b in pairwise(ends) for r in (1, 2)]
    whole = [slice(a, min(a + _BLOCK, samples)) for a in range(0, samples, _BLOCK)]
    return opening + [(r, part) for r in range(3, features + 1) for part in whole]


def _judge(query: Query, x: Tensor, rows: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return (content hash, or the largest integer for invalid copies (a, b); copies as seen)."""
    keys, seen = [], []
    for part in torch.split(torch.arange(len(rows), device=rows.device), _PART // x.shape[1] + 1):
        flat, source = x[part].flatten(0, 1), rows[part].repeat_interleave(x.shape[1])
        ok = query.model.margin(flat, query.target[source]) >= MARGIN
        if query.region.space.constraints:  # draws keep grid and box, but not relations
            flat[ok], ok[ok.clone()] = query.accept(flat[ok], source[ok])
        key = torch.full((len(flat),), _NONE, device=flat.device)
        key[ok] = row_keys(flat[ok], seed).clamp(max=_NONE - 1)
        keys.append(key)
        seen.append(flat)
    return torch.cat(keys).reshape(x.shape[:2]), torch.cat(seen).reshape(x.shape)
