"""Case-based counterfactuals: reuse the good examples that the training data hold already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.errors import ConfigError
from cel.protocols import Need, Predictor
from cel.search.streams import row_keys
from cel.space import FeatureSpace

__all__ = ["SACE", "CaseBase", "GoodPairs", "find_pairs"]

_LABEL_GAP = 1e4  # codes of different labels are farther apart than any tolerance
_CASES_AT_ONCE = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseBase:
    """Distinct training rows in an order that does not depend on the order they came in.

    Attributes:
        x: (m, d) encoded rows.
        y: (m,) predicted classes.
        codes: (m, p) one number per feature: multiples of the standard deviation for numbers,
            widely spaced ranks for labels.
        numeric: (p,) bool.
        scale: (d,) standard deviations, 1 where a column is constant.
        space: the features.
    """

    x: Tensor
    y: Tensor
    codes: Tensor
    numeric: Tensor
    scale: Tensor
    space: FeatureSpace

    @classmethod
    def of(cls, x: Tensor, y: Tensor, space: FeatureSpace, *, limit: int, seed: int) -> CaseBase:
        """Build a case base of at most `limit` rows, drawn by a hash of their content."""
        rows, first = np.unique(x.cpu().numpy(), axis=0, return_index=True)
        keep = np.arange(len(rows))
        if len(rows) > limit:
            keep = np.sort(np.argsort(row_keys(rows, seed).numpy(), kind="stable")[:limit])
        spread = x.to(torch.float64).std(0, unbiased=False).to(x.dtype)
        scale = torch.where(spread > 1e-9, spread, torch.ones_like(spread))
        numeric = torch.tensor([not f.is_categorical for f in space], device=x.device)
        cases = torch.as_tensor(rows[keep]).to(x)
        codes = _codes(cases, scale, space)
        labels = y[torch.as_tensor(first[keep], device=y.device)]
        return cls(x=cases, y=labels, codes=codes, numeric=numeric, scale=scale, space=space)

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (n, p) of any rows (n, d)."""
        return _codes(x, self.scale, self.space)

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return (n, m) distances between codes a (n, p) and b (m, p).

        The share of numeric features times their root mean squared difference, plus the share of
        labels times the rate of labels that differ.
        """
        share = self.numeric.to(a.dtype).mean()
        total = torch.zeros(len(a), len(b), dtype=a.dtype, device=a.device)
        if self.numeric.any():
            mode = "donot_use_mm_for_euclid_dist"
            gap = torch.cdist(a[:, self.numeric], b[:, self.numeric], compute_mode=mode)
            total += share * gap / float(self.numeric.sum()) ** 0.5
        if not self.numeric.all():
            labels = ~self.numeric
            unequal = torch.cdist(a[:, labels], b[:, labels], p=0)
            total += (1 - share) * unequal / float(labels.sum())
        return total


def _codes(x: Tensor, scale: Tensor, space: FeatureSpace) -> Tensor:
    out = torch.empty(len(x), len(space), dtype=x.dtype, device=x.device)
    numbers = [i for i, f in enumerate(space) if not f.is_categorical]
    columns = torch.as_tensor(space.numeric_columns, device=x.device)
    out[:, numbers] = (x / scale)[:, columns]
    for i, f in enumerate(space):
        if f.is_categorical:
            out[:, i] = x[:, list(f.columns)].argmax(1).to(x.dtype) * _LABEL_GAP
    return out


@dataclass(frozen=True, kw_only=True, eq=False)
class GoodPairs:
    """Native pairs of one class with another.

    Attributes:
        cases: (c,) positions of the rows that have partners.
        partners: (c, k) positions of their partners, nearest first, -1 for none.
    """

    cases: Tensor
    partners: Tensor


def find_pairs(
    base: CaseBase, own: int, other: int, *, differences: int, tolerance: float, partners: int
) -> GoodPairs:
    """Find rows of two classes that differ in few features, by exhaustive comparison.

    Pairs that differ in an immutable feature are left out: they show a change nobody can make.
    """
    ours = (base.y == own).nonzero()[:, 0]
    theirs = (base.y == other).nonzero()[:, 0]
    k = min(partners, len(theirs))
    mutable = torch.as_tensor(base.space.mutable_mask, device=base.x.device)
    found = [torch.full((0, k), -1, dtype=torch.long, device=base.x.device)]
    b = base.codes[theirs]
    columns = b.T.contiguous()
    for block in torch.split(ours, _CASES_AT_ONCE) if k else ():
        a = base.codes[block]
        count = torch.zeros(len(a), len(b), dtype=torch.int16, device=a.device)
        for j, movable in enumerate(mutable.tolist()):
            differs = (a[:, j, None] - columns[j]).abs_() > tolerance
            count.add_(differs, alpha=1 if movable else differences + 1)
        good = (count > 0) & (count <= differences)
        some = good.any(1).nonzero()[:, 0]  # most cases have no partner
        table = torch.full((len(a), k), -1, dtype=torch.long, device=a.device)
        distance = base.distance(a[some], b).masked_fill(~good[some], torch.inf)
        value, index = distance.topk(k, dim=1, largest=False, sorted=True)
        table[some] = torch.where(value.isfinite(), theirs[index], torch.full_like(index, -1))
        found.append(table)
    table = torch.cat(found)
    has = (table >= 0).any(1)
    return GoodPairs(cases=ours[has] if k else ours[:0], partners=table[has])


HOW = {0: "native pair", 1: "adapted pair", 2: "nearest unlike neighbour (fallback)"}
ADAPTED_PAIRS = 4  # pairs whose difference features are tried with other values
_BLOCK = 64  # candidates of one row judged together
_UNMOVED = 1e-6

Build = Callable[[Tensor, slice], Tensor]
"""(positions in the rows at hand (a,), which candidates) -> (a, b, d)."""


class SACE(LocalMixin, BaseCounterfactualMethod):
    """Copy the difference of a native pair of cases onto the row.

    A *good pair* is two training rows of different predicted classes that differ in at most
    `differences` features; a one-hot block is one feature, and numbers differ when they are more
    than `match_tolerance` standard deviations apart. For a row of class y and target t:

    1. take the pairs (x, x') from y to t in order of the distance from the row to x, and copy the
       features in which x and x' differ from x' to the row; the first valid candidate wins;
    2. otherwise keep the features to change and take their values from the nearest rows of class
       t to the candidate;
    3. otherwise take the nearest unlike neighbour, immutable features kept (`fallback="nun"`), or
       give no answer (`fallback=None`). Few datasets hold many good pairs, so that the paper's
       procedure alone leaves rows unanswered.

    `ExplanationResult.cf_group_ids` tells the step of each row: 0, 1 or 2.

    Args:
        model: any predictor; only its predictions are used.
        differences: largest number of features in which a good pair differs.
        match_tolerance: numbers closer than this many standard deviations agree.
        cases: nearest cases of good pairs that are tried per row.
        partners: partners kept per case, nearest first.
        adaptations: rows of the target class tried for each of the first four pairs.
        fallback: "nun" or None.
        variant: "cases" as above; "scamander" copies what published comparisons ran: every row
            gets all features of the first valid row of the target class, in training order.
        max_rows: size of the case base; larger training sets are subsampled by a content hash.
        **options: see `Options`.

    Reference: M. T. Keane and B. Smyth, Good counterfactuals and where to find them, ICCBR 2020.
    """

    name: ClassVar[str] = "sace"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Keane and Smyth, ICCBR 2020, arXiv:2005.13997"
    _copies: ClassVar[int] = 4 * _BLOCK
    _test_params: ClassVar[Mapping[str, Any]] = {"cases": 16, "adaptations": 8}

    def __init__(
        self,
        model: Predictor,
        *,
        differences: int = 2,
        match_tolerance: float = 0.2,
        cases: int = 64,
        partners: int = 8,
        adaptations: int = 32,
        fallback: Literal["nun"] | None = "nun",
        variant: Literal["cases", "scamander"] = "cases",
        max_rows: int = 5000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.differences, self.match_tolerance = differences, match_tolerance
        self.cases, self.partners, self.adaptations = cases, partners, adaptations
        self.fallback, self.variant, self.max_rows = fallback, variant, max_rows

    def _fit(self, train: TrainRows) -> None:
        if self.fallback not in ("nun", None):
            raise ConfigError(f"unknown fallback {self.fallback!r}; use 'nun' or None")
        if self.variant not in ("cases", "scamander"):
            raise ConfigError(f"unknown variant {self.variant!r}; use 'cases' or 'scamander'")
        x, y = train.x.to(self._device()), train.y.to(self._device())
        self.base_ = CaseBase.of(x, y, self.space_, limit=self.max_rows, seed=self.random_state)
        self.pairs_: dict[tuple[int, int], GoodPairs] = {}

    def _pairs(self, own: int, other: int) -> GoodPairs:
        """Return the good pairs of two classes, found when they are first asked for."""
        if (own, other) not in self.pairs_:
            self.pairs_[own, other] = find_pairs(
                self.base_,
                own,
                other,
                differences=self.differences,
                tolerance=self.match_tolerance,
                partners=self.partners,
            )
        return self.pairs_[own, other]

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        trials = _Trials.of(query)
        if self.variant == "scamander":
            self._first_rows(trials)
            return Answer(x=trials.found)
        codes = self.base_.encode(query.x)
        own = query.model.scores(query.x).argmax(1)
        for a, b in sorted(set(zip(own.tolist(), query.target.tolist(), strict=True))):
            rows = ((own == a) & (query.target == b)).nonzero()[:, 0]
            pairs = self._pairs(a, b) if a != b else None
            if pairs is not None and len(pairs.cases):
                rows = self._reuse(trials, codes, pairs, rows)
            theirs = (self.base_.y == b).nonzero()[:, 0]
            if self.fallback == "nun" and len(theirs) and len(rows):
                self._neighbour(trials, codes, theirs, rows)
        stuck = query.region.fixed.all(1)
        return Answer(x=trials.found, groups=trials.how, infeasible=stuck, logs={"how": HOW})

    def _first_rows(self, trials: _Trials) -> None:
        """Take the first valid training rows of the target class, in training order."""
        target = trials.query.target
        for label in sorted(set(target.tolist())):
            pool = self.train_.of_class(label).to(trials.query.x)

            def first(local: Tensor, which: slice, pool: Tensor = pool) -> Tensor:
                return pool[which].expand(len(local), -1, -1)

            trials.first((target == label).nonzero()[:, 0], first, len(pool), 2, exact=False)

    def _reuse(self, trials: _Trials, codes: Tensor, pairs: GoodPairs, rows: Tensor) -> Tensor:
        """Try native pairs, then adapted ones; return the rows without an answer."""
        case, partner = self._ranked(codes[rows], pairs)

        def native(local: Tensor, which: slice) -> Tensor:
            x, other = case[local][:, which], partner[local][:, which]
            return self._copied(trials.query.x[rows[local]], x, other, other)

        left = trials.first(rows, native, case.shape[1], 0)
        if not len(left) or not self.adaptations:
            return left
        place = torch.searchsorted(rows, left)  # `rows` ascend
        some, other = case[place, :ADAPTED_PAIRS], partner[place, :ADAPTED_PAIRS]
        values = self._values(codes[left], some, other)
        v = values.shape[2]

        def adapted(local: Tensor, which: slice) -> Tensor:
            x, of = (t[local].repeat_interleave(v, 1)[:, which] for t in (some, other))
            source = values[local].flatten(1)[:, which]
            return self._copied(trials.query.x[left[local]], x, of, source)

        return trials.first(left, adapted, values[0].numel(), 1)

    def _ranked(self, codes: Tensor, pairs: GoodPairs) -> tuple[Tensor, Tensor]:
        """Return (cases (a, b), partners (a, b)) in order of trial; partners end with -1."""
        near = self.base_.distance(codes, self.base_.codes[pairs.cases])
        order = near.sort(dim=1, stable=True).indices[:, : self.cases]
        case = pairs.cases[order].repeat_interleave(pairs.partners.shape[1], 1)
        partner = pairs.partners[order].flatten(1)
        first = (partner < 0).to(torch.int8).argsort(dim=1, stable=True)
        return case.gather(1, first), partner.gather(1, first)

    def _copied(self, x: Tensor, case: Tensor, partner: Tensor, source: Tensor) -> Tensor:
        """Copy the difference features of pairs (a, b) from `source` to rows (a, d)."""
        owner = torch.as_tensor(self.base_.space.owner, device=x.device)
        columns = self._differs(case, partner)[..., owner] & (partner >= 0)[..., None]
        return torch.where(columns, self.base_.x[source.clamp(min=0)], x[:, None, :])

    def _differs(self, case: Tensor, partner: Tensor) -> Tensor:
        codes = self.base_.codes
        return (codes[case] - codes[partner.clamp(min=0)]).abs() > self.match_tolerance

    def _values(self, codes: Tensor, case: Tensor, partner: Tensor) -> Tensor:
        """Return (a, b, v) rows of the target class, nearest to each candidate first."""
        base, known = self.base_, partner.clamp(min=0)
        differs = self._differs(case, partner)
        candidates = torch.where(differs, base.codes[known], codes[:, None, :]).flatten(0, 1)
        theirs = (base.y == base.y[partner[0, 0]]).nonzero()[:, 0]
        v = min(self.adaptations, len(theirs))
        parts = [
            base.distance(part, base.codes[theirs]).topk(v, dim=1, largest=False).indices
            for part in torch.split(candidates, 2048)
        ]
        return theirs[torch.cat(parts)].reshape(*case.shape, v)

    def _neighbour(self, trials: _Trials, codes: Tensor, theirs: Tensor, rows: Tensor) -> None:
        """Take the nearest rows of the target class, as far as the region allows."""
        base = self.base_
        order = base.distance(codes[rows], base.codes[theirs]).sort(dim=1, stable=True).indices

        def neighbour(local: Tensor, which: slice) -> Tensor:
            return base.x[theirs[order[local][:, which]]]

        trials.first(rows, neighbour, len(theirs), 2, exact=False)


@dataclass(frozen=True, eq=False)
class _Trials:
    """Candidates in order of preference, and the first accepted one of each row."""

    query: Query
    found: Tensor  # (n, d)
    how: Tensor  # (n,)

    @classmethod
    def of(cls, query: Query) -> _Trials:
        nowhere = torch.full((len(query),), -1, dtype=torch.long, device=query.x.device)
        return cls(query, torch.full_like(query.x, torch.nan), nowhere)

    def first(
        self, rows: Tensor, build: Build, count: int, step: int, exact: bool = True
    ) -> Tensor:
        """Record the first accepted of `count` candidates; return the rows without one.

        With `exact`, candidates that the region would change are refused, so that every changed
        value is one of the training data.
        """
        local = torch.arange(len(rows), device=rows.device)
        for start in range(0, count, _BLOCK):
            if not len(local) or self.query.budget.expired:
                break
            candidates = build(local, slice(start, start + _BLOCK))
            flat, b = candidates.flatten(0, 1), candidates.shape[1]
            seen, ok = self.query.accept(flat, rows[local].repeat_interleave(b))
            if exact:
                ok &= ((seen - flat).abs() <= _UNMOVED).all(1)
            ok, seen = ok.reshape(-1, b), seen.reshape(*candidates.shape)
            done = ok.any(1)
            best = ok.to(torch.int8).argmax(1)[done]
            self.found[rows[local[done]]] = seen[done, best]
            self.how[rows[local[done]]] = step
            local = local[~done]
        return rows[local]
