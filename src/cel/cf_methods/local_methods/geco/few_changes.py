"""The search of GeCo: one changed group first, then more of them, cheapest people first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from cel.cf_methods.local_methods.geco.group_values import GroupValues, feature_gaps
from cel.cf_methods.query import MARGIN, Query
from cel.search.population import evolve_parts
from cel.search.streams import RowStreams, content_keys

__all__ = ["VALID", "ChangeSettings", "fewest_changes", "norm_mean"]

VALID = 1.0  # largest score of people with the wanted class
_LOOKS = (2, 8, 32)  # times as many as survive: children, cheapest first, made and judged together
_VALUES = 2**22  # numbers of children, or of known values, that exist at a time
_CACHE = 2**16  # of them that are made or compared together: they stay in the cache of a core


@dataclass(frozen=True, kw_only=True)
class ChangeSettings:
    """Sizes and the end of the search; see `GeCo`."""

    size: int
    parents: int
    patterns: int
    first_samples: int
    samples: int
    norms: tuple[float, ...]
    top: int
    least: int
    give_up: int
    generations: int


def norm_mean(gaps: Tensor, norms: tuple[float, ...]) -> Tensor:
    """Return the weighted sum (...) of four norms of gaps (..., p), each in [0, 1].

    The norms are the share of changed features, the mean gap, the root of the mean square and the
    largest gap.

    >>> round(norm_mean(torch.tensor([0.5, 0.0]), (0.25, 0.25, 0.25, 0.25)).item(), 4)
    0.4009
    """
    p = gaps.shape[-1]
    parts = (
        (gaps > 1e-6).sum(-1).to(gaps.dtype) / p,
        gaps.sum(-1) / p,
        (gaps.square().sum(-1) / p).sqrt(),
        gaps.amax(-1),
    )
    return sum((w * v for w, v in zip(norms, parts, strict=True)), torch.zeros_like(parts[1]))


@torch.no_grad()
def fewest_changes(
    query: Query, known: Tensor, groups: Tensor, settings: ChangeSettings
) -> tuple[Tensor, Tensor]:
    """Return people (n, size, d), best first, and their scores; valid ones score 1 at most."""
    g, d = len(groups), query.x.shape[1]
    children = settings.parents * g * settings.samples + settings.patterns**2
    rows = 4 * min(_VALUES // (children * d), _VALUES // (g * len(known)))

    def search(part: Tensor) -> tuple[_FewChanges, RowStreams]:
        some = query.select(part)
        return _FewChanges(some, known, groups, settings), some.rng

    return evolve_parts(
        query.rows(), rows, search, generations=settings.generations, budget=query.budget
    )


@dataclass(frozen=True, eq=False)
class _Children:
    """Children of a rows, c each, that are made only when their turn comes.

    Attributes:
        far: (a, c) distances as drawn, or what they are at least; infinite for nobody.
        make: (positions of rows (k,), children (k,)) -> points (k, d).
    """

    far: Tensor
    make: Callable[[Tensor, Tensor], Tensor]

    def and_then(self, other: _Children) -> _Children:
        """Return these children and others behind them."""
        count = self.far.shape[1]

        def make(row: Tensor, child: Tensor) -> Tensor:
            out = self.make(row[:0], child[:0])
            out = out.new_empty(len(row), out.shape[1])
            mine, size = child < count, max(1, _CACHE // out.shape[1])
            for some, who, start in ((mine, self, 0), (~mine, other, count)):
                for at in torch.split(some.nonzero()[:, 0], size):
                    out[at] = who.make(row[at], child[at] - start)
            return out

        return _Children(torch.cat([self.far, other.far], 1), make)


@dataclass(frozen=True, eq=False)
class _FewChanges:
    """The search of some rows. Scores are float64; places without a person score infinity."""

    query: Query
    known: Tensor
    groups: Tensor  # (g, p)
    settings: ChangeSettings
    draws: ClassVar[int] = 4
    tolerance: ClassVar[float] = 0.0

    @cached_property
    def values(self) -> GroupValues:
        return GroupValues.of(self.known, self.groups, self.query.region)

    @cached_property
    def age(self) -> Tensor:
        """(n,) generations so far."""
        return torch.zeros(len(self.query), dtype=torch.long, device=self.query.x.device)

    @cached_property
    def leaves_region(self) -> bool:
        """Whether values that are fine alone may break something together."""
        space = self.query.region.space
        return bool(space.constraints) or space.limit is not None

    def first(self, stream: RowStreams) -> tuple[Tensor, Tensor]:
        """Return people that changed one group each."""
        query, g, size = self.query, len(self.groups), self.settings.size
        nobody = query.x[:, None, :].repeat(1, size, 1)
        nothing = torch.full(nobody.shape[:2], torch.inf, dtype=torch.float64).to(nobody.device)
        u = stream.uniform(1, g, self.settings.first_samples)
        children = self.one_more(query.x[:, None, :], query.rows(), u)
        return self.fittest(nobody, nothing, children, query.rows())

    def breed(
        self, people: Tensor, worth: Tensor, rows: Tensor, stream: RowStreams
    ) -> tuple[Tensor, Tensor]:
        """Return the best of people and children."""
        s, g = self.settings, len(self.groups)
        self.age[rows] += 1
        best, alive = self.patterns(people, worth, rows)
        few = [
            self.unions(best, alive, rows, stream),
            self.nearer(best, alive, rows, stream.uniform(best.shape[1], g)),
        ]
        x, ok = (torch.cat(p, 1) for p in zip(*few, strict=True))
        far = self.distance(x, rows).masked_fill(~ok, torch.inf)
        parents = people[:, : s.parents]
        more = self.one_more(parents, rows, stream.uniform(parents.shape[1], g, s.samples))
        living = worth[:, : s.parents].isfinite().repeat_interleave(g * s.samples, 1)
        more = _Children(more.far.masked_fill(~living, torch.inf), more.make)
        children = _Children(far, lambda row, child: x[row, child]).and_then(more)
        return self.fittest(people, worth, children, rows)

    def moved(self, people: Tensor, rows: Tensor) -> Tensor:
        """Tell (a, m, g) which groups people (a, m, d) have changed."""
        differs = people != self.query.x[rows][:, None, :]
        columns = self.values.columns
        return (differs.to(people.dtype) @ columns.to(people.dtype).T) > 0

    def patterns(self, people: Tensor, worth: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best person (a, r, d) of each set of changed groups, and who exists."""
        moved, count = self.moved(people, rows), min(self.settings.patterns, people.shape[1])
        keys = content_keys(moved.flatten(0, 1).to(people.dtype)).reshape(worth.shape)
        new = ~_again(keys) & worth.isfinite()
        order = (~new).to(torch.int8).argsort(dim=1, stable=True)[:, :count]
        best = people.gather(1, order[..., None].expand(-1, -1, people.shape[2]))
        return best, new.gather(1, order)

    def unions(
        self, best: Tensor, alive: Tensor, rows: Tensor, stream: RowStreams
    ) -> tuple[Tensor, Tensor]:
        """Join the changes of two people; where both changed a group, a coin is tossed."""
        i, j = torch.triu_indices(best.shape[1], best.shape[1], 1, device=best.device)
        moved = self.moved(best, rows)
        coin = stream.uniform(len(i), len(self.groups)) < 0.5
        first = moved[:, i] & (~moved[:, j] | coin)
        columns = self.values.columns.to(best.dtype)
        x = torch.where((first.to(best.dtype) @ columns) > 0, best[:, i], best[:, j])
        return x, alive[:, i] & alive[:, j]

    def nearer(
        self, best: Tensor, alive: Tensor, rows: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Replace one changed group by a value that is nearer to the row, drawn by frequency."""
        (a, r), g = best.shape[:2], len(self.groups)
        gaps = feature_gaps(best, self.query.x[rows][:, None, :], self.query.region.space)
        now = gaps @ self.groups.to(gaps).T  # (a, r, g)
        count = self.values.nearer(rows, now - 1e-6)
        source = rows[:, None, None].expand(a, r, g)
        group = torch.arange(g, device=best.device).expand(a, r, g)
        rank = (u * count).long().minimum((count - 1).clamp(min=0))
        x = self.values.put(best[:, :, None, :].expand(-1, -1, g, -1), source, group, rank)
        return x.flatten(1, 2), ((count > 0) & alive[..., None]).flatten(1)

    def one_more(self, parents: Tensor, rows: Tensor, u: Tensor) -> _Children:
        """Change one more group of parents (a, m, d), at quantiles u (a, m, g, s)."""
        (a, m), (g, s) = parents.shape[:2], u.shape[2:]
        count = self.values.count[rows][:, None, :, None]
        rank = (u * count).long().minimum((count - 1).clamp(min=0))
        group = torch.arange(g, device=u.device)[:, None]
        gap = self.values.far(rows[:, None, None, None], group, rank)
        gap = gap.masked_fill((count < 1) | self.moved(parents, rows)[..., None], torch.inf)
        before = feature_gaps(parents, self.query.x[rows][:, None, :], self.query.region.space)
        far = self.with_one_more(before[:, :, None, None, :], gap).flatten(1).double()
        rank = rank.flatten(1)

        def make(row: Tensor, child: Tensor) -> Tensor:
            which = child // s % g
            return self.values.put(
                parents[row, child // (g * s)], rows[row], which, rank[row, child]
            )

        return _Children(far.reshape(a, m * g * s), make)

    def with_one_more(self, before: Tensor, gap: Tensor) -> Tensor:
        """Return distances (..., g, s) of people with gaps (..., 1, 1, p) that move one group.

        The gaps (..., g, s) are sums over the features of a group; what several features add is
        bounded from below.
        """
        p, k = before.shape[-1], self.groups.sum(1).to(gap)[:, None]
        parts = (
            ((before > 1e-6).sum(-1) + (k == 1)) / p,
            (before.sum(-1) + gap) / p,
            ((before.square().sum(-1) + gap.square() / k) / p).sqrt(),
            torch.maximum(before.amax(-1), gap / k),
        )
        weights = self.settings.norms
        total = sum((w * v for w, v in zip(weights, parts, strict=True)), torch.zeros_like(gap))
        return total.masked_fill(gap.isinf(), torch.inf)

    def fittest(
        self, elders: Tensor, known: Tensor, children: _Children, rows: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the best of elders (a, e, d) and children, and their scores.

        Children are made and judged cheapest first, and only as long as one of them may still be
        among the best: no valid person scores below its distance.
        """
        far, size = children.far.clone(), self.settings.size
        keys = -1 - torch.arange(size, device=rows.device).repeat(len(rows), 1)
        here = known.isfinite()
        keys[here] = content_keys(elders[here])
        for look in (*_LOOKS, far.shape[1]):
            near, which = far.topk(min(look * size, far.shape[1]), dim=1, largest=False)
            row, place = (near < known[:, -1:]).nonzero(as_tuple=True)
            if not len(row) or self.query.budget.expired:
                break
            child = which[row, place]
            made = self.settled(children.make(row, child), rows[row])
            elders, known, keys = self.joined(elders, known, keys, made, row, rows)
            far.scatter_(1, which, torch.inf)
        return elders, known

    def settled(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return children (k, d) as they would be seen."""
        if not self.leaves_region:
            return x
        region = self.query.region.select(rows)
        if region.space.limit is not None:
            seen: Tensor = region.snap(x)
            return seen
        at = (~region.keeps_rules(x)).nonzero()[:, 0]
        x[at] = region.select(at).snap(x[at])
        return x

    def joined(
        self, elders: Tensor, known: Tensor, keys: Tensor, x: Tensor, row: Tensor, rows: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best of elders and new people (k, d) of rows at positions (k,), sorted."""
        query, size = self.query, self.settings.size
        price = self.distance(x[:, None], rows[row])[:, 0]
        home = (price == 0).nonzero()[:, 0]
        home = home[(x[home] == query.x[rows[row[home]]]).all(1)]
        price[home] = torch.inf
        first = torch.searchsorted(row, torch.arange(len(rows), device=row.device))
        slot = torch.arange(len(row), device=row.device) - first[row]
        width = int(slot.max()) + 1
        number = torch.zeros(len(rows), width, dtype=torch.long, device=row.device)
        number[row, slot] = torch.arange(len(row), device=row.device)
        nobody = -1 - size - torch.arange(width, device=row.device)
        new = nobody.repeat(len(rows), 1)
        new[row, slot] = content_keys(x)
        keys = torch.cat([keys, new], 1)
        again = _again(keys)[row, size + slot]
        at = (~again & (price < known[row, -1])).nonzero()[:, 0]
        score = torch.full((len(rows), width), torch.inf, dtype=known.dtype, device=row.device)
        score[row[at], slot[at]] = self.judged(x[at], price[at], rows[row[at]])
        best, order = torch.cat([known, score], 1).sort(dim=1, stable=True)
        order = order[:, :size]
        old = elders.gather(1, order.clamp(max=size - 1)[..., None].expand(-1, -1, x.shape[1]))
        fresh = x[number.gather(1, (order - size).clamp(min=0))]
        people = torch.where((order < size)[..., None], old, fresh)
        return people, best[:, :size], keys.gather(1, order)

    def distance(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the distances (a, m) of people (a, m, d) to their rows, in float64."""
        query, out = self.query, []
        size = max(1, _CACHE // max(1, x[0].numel() if len(x) else 1))
        for some, at in zip(torch.split(x, size), torch.split(rows, size), strict=True):
            gaps = feature_gaps(some, query.x[at][:, None, :], query.region.space)
            out.append(norm_mean(gaps, self.settings.norms))
        return torch.cat(out).double()

    def judged(self, x: Tensor, far: Tensor, rows: Tensor) -> Tensor:
        """Return distances (m,), plus 2 minus the chance of the class where it is not reached."""
        query, target = self.query, self.query.target[rows]
        scores = query.model.scores(x)
        chance = torch.softmax(scores.double(), 1).gather(1, target[:, None])[:, 0]
        reached = query.model.margin_of(scores, target) >= MARGIN
        return torch.where(reached, far, far + 2 - chance)

    def goal(self, worth: Tensor, rows: Tensor) -> Tensor:
        """Return the sum of the best scores: it falls whenever one of them is new."""
        return worth[:, : self.settings.top].clamp(max=4).sum(1)

    def open(self, worth: Tensor, stale: Tensor, rows: Tensor) -> Tensor:
        """Tell for which rows one more generation may help."""
        s, empty = self.settings, worth[:, 0] > VALID
        hope = (self.age[rows] < s.least) | (stale < 1) | (empty & (stale < s.give_up))
        return hope & (self.values.count[rows] > 0).any(1)


def _again(keys: Tensor) -> Tensor:
    """Tell (a, m) which keys (a, m) equal an earlier one."""
    same, order = keys.sort(dim=1, stable=True)
    again = torch.zeros_like(same, dtype=torch.bool)
    again[:, 1:] = same[:, 1:] == same[:, :-1]
    return torch.zeros_like(again).scatter(1, order, again)
