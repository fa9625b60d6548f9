"""DiCE by random sampling: change one more feature of many copies until enough are valid."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.search.streams import RowStreams, row_keys
from cel.space.region import Region

__all__ = ["Sampler", "random_sets", "unique_first"]

_NONE = torch.iinfo(torch.int64).max
_BLOCK = 200  # copies tried before a row asks for more
_PART = 4096  # points judged at a time: small enough for the cache
_DRAWS = 2  # draws of a stream used by one round


@dataclass(frozen=True, eq=False)
class Sampler:
    """Uniform draws of single features inside each row's region."""

    region: Region
    order: Tensor  # (n, p) features, those that can move first
    count: Tensor  # (n,) how many can move
    table: Tensor  # (n, p, k) columns of a feature, reachable categories first
    choices: Tensor  # (n, p) reachable categories, or grid points, 0 for a continuous feature
    low: Tensor  # (n, p) first value of a number

    @classmethod
    def of(cls, region: Region) -> Sampler:
        """Prepare the draws for the rows of a region."""
        space, lay = region.space, region.layout
        n, p = len(region), len(space)
        width = max(len(f.columns) for f in space)
        columns = torch.tensor(
            [[*f.columns, *[f.columns[0]] * (width - len(f.columns))] for f in space],
            device=region.origin.device,
        )
        real = torch.tensor(
            [[k < len(f.columns) for k in range(width)] for f in space], device=columns.device
        )
        moves = torch.zeros(n, p, dtype=region.origin.dtype, device=columns.device)
        moves = moves.index_add_(1, lay.owner, (~region.fixed).to(moves.dtype)) > 0
        usable = region.reachable[:, columns] & real
        rank = (~usable).to(torch.int8).argsort(dim=-1, stable=True)
        table = columns.expand(n, p, width).gather(2, rank)
        first = columns[:, 0]
        low, points = _grid(region, first)
        categorical = ~lay.numeric[first]
        choices = torch.where(categorical, usable.sum(-1), points)
        order = (~moves).to(torch.int8).argsort(dim=1, stable=True)
        return cls(region, order, moves.sum(1), table, choices, low)

    def change_one(self, x: Tensor, rows: Tensor, stream: RowStreams) -> Tensor:
        """Redraw one random feature of each copy; `x` is (a, b, d), `rows` (a,)."""
        lay = self.region.layout
        shape = x.shape[:2]
        which, value = stream.uniform(shape[1]), stream.uniform(shape[1])
        place = (which * self.count[rows, None]).long().clamp(min=0)
        feature = self.order[rows].gather(1, place)  # (a, b)
        choices = self.choices[rows].gather(1, feature)
        rank = (value * choices).long().minimum((choices - 1).clamp(min=0))
        here = rows[:, None].expand(shape)
        numeric = lay.numeric[self.table[here, feature, 0]]
        column = self.table[here, feature, torch.where(numeric, torch.zeros_like(rank), rank)]
        low, high = self.low[here, feature], self.region.upper[here, column]
        number = torch.where(
            choices > 0, low + rank * lay.step[column], low + value * (high - low)
        )
        new = torch.where(numeric, number, torch.ones_like(number))
        touched = lay.owner == feature[..., None]
        return x.masked_fill(touched, 0).scatter(2, column[..., None], new[..., None])

    def everything(self, x: Tensor, rows: Tensor, stream: RowStreams) -> Tensor:
        """Draw all features that can move afresh; `x` is (a, b, d), `rows` (a,)."""
        return self.at(stream.uniform(x.shape[1], len(self.region.space)), rows)

    def at(self, value: Tensor, rows: Tensor) -> Tensor:
        """Return the points (a, b, d) at quantiles (a, b, p) of what each feature can reach."""
        lay, region = self.region.layout, self.region
        b = value.shape[1]
        choices = self.choices[rows][:, None, :]
        rank = (value * choices).long().minimum((choices - 1).clamp(min=0))
        first = self.table[rows][:, None, :, 0]
        high = region.upper[rows[:, None, None], first]
        low = self.low[rows][:, None, :]
        number = torch.where(choices > 0, low + rank * lay.step[first], low + value * (high - low))
        numeric = lay.numeric[first]
        place = torch.where(numeric, torch.zeros_like(rank), rank)
        column = (
            self.table[rows][:, None].expand(-1, b, -1, -1).gather(3, place[..., None])[..., 0]
        )
        new = torch.where(numeric, number, torch.ones_like(number))
        drawn = new.new_zeros(*value.shape[:2], region.space.width).scatter(2, column, new)
        return torch.where(region.fixed[rows][:, None, :], region.origin[rows][:, None, :], drawn)


def _grid(region: Region, first: Tensor) -> tuple[Tensor, Tensor]:
    """Return (first value (n, p), number of grid points (n, p), 0 for continuous features)."""
    lay = region.layout
    step, anchor = lay.step[first], lay.anchor[first]
    low, high = region.lower[:, first], region.upper[:, first]
    unit = torch.where(step > 0, step, torch.ones_like(step))
    start = ((low - anchor) / unit - 1e-4).ceil()
    stop = ((high - anchor) / unit + 1e-4).floor()
    on_grid = (step > 0) & (stop >= start)
    origin = torch.where(step > 0, region.origin[:, first], low)
    points = torch.where(on_grid, stop - start + 1, (step > 0).to(start.dtype))
    return torch.where(on_grid, anchor + unit * start, origin), points.long()


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
    for step, (number, start) in enumerate(_schedule(samples, len(query.region.space))):
        if not len(rows) or query.budget.expired:
            break
        part = slice(start, min(start + _BLOCK, samples))
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


def _schedule(samples: int, features: int) -> list[tuple[int, int]]:
    """Return (round, first copy) of every step: two rounds per block, then round by round."""
    starts = range(0, samples, _BLOCK)
    opening = [(r, s) for s in starts for r in (1, 2)]
    return opening + [(r, s) for r in range(3, features + 1) for s in starts]


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
