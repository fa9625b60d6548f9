"""Case-based counterfactuals: reuse the good examples that the training data hold already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.sace_cases import CaseBase, GoodPairs, find_pairs
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.errors import ConfigError
from cel.protocols import Need

__all__ = ["SACE"]

HOW = {0: "native pair", 1: "adapted pair", 2: "nearest unlike neighbour (fallback)"}
_BLOCK = 64  # candidates of one row judged together
_UNMOVED = 1e-6

Build = Callable[[Tensor, slice], Tensor]
"""(row numbers (a,), which candidates) -> (a, b, d)."""


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
        model: Any,
        *,
        differences: int = 2,
        match_tolerance: float = 0.2,
        cases: int = 64,
        partners: int = 8,
        adaptations: int = 32,
        fallback: Literal["nun"] | None = "nun",
        max_rows: int = 5000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.differences, self.match_tolerance = differences, match_tolerance
        self.cases, self.partners, self.adaptations = cases, partners, adaptations
        self.fallback, self.max_rows = fallback, max_rows

    def _fit(self, train: TrainRows) -> None:
        if self.fallback not in ("nun", None):
            raise ConfigError(f"unknown fallback {self.fallback!r}; use 'nun' or None")
        self.base_ = CaseBase.of(
            train.x, train.y, self.space_, limit=self.max_rows, seed=self.random_state
        )
        classes = self.base_.y.unique().tolist()
        self.pairs_: dict[tuple[int, int], GoodPairs] = {
            (a, b): find_pairs(
                self.base_,
                a,
                b,
                differences=self.differences,
                tolerance=self.match_tolerance,
                partners=self.partners,
            )
            for a in classes
            for b in classes
            if a != b
        }

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        base = self._base_on(query.x)
        found = torch.full_like(query.x, torch.nan)
        how = torch.full((len(query),), -1, dtype=torch.long, device=query.x.device)
        codes = base.encode(query.x)
        own = query.model.scores(query.x).argmax(1)
        for a, b in torch.stack([own, query.target], 1).unique(dim=0).tolist():
            rows = ((own == a) & (query.target == b)).nonzero()[:, 0]
            pairs = self.pairs_.get((a, b))
            if pairs is not None and len(pairs.cases):
                rows = self._reuse(query, base, codes, pairs, rows, found, how)
            theirs = (base.y == b).nonzero()[:, 0]
            if self.fallback == "nun" and len(theirs) and len(rows):
                self._neighbour(query, base, codes, theirs, rows, found, how)
        stuck = query.region.fixed.all(1)
        return Answer(x=found, groups=how, infeasible=stuck, logs={"how": HOW})

    def _base_on(self, x: Tensor) -> CaseBase:
        """Return the case base on the device of the rows."""
        return self.base_ if self.base_.x.device == x.device else self.base_.to(x.device)

    def _reuse(
        self,
        query: Query,
        base: CaseBase,
        codes: Tensor,
        pairs: GoodPairs,
        rows: Tensor,
        found: Tensor,
        how: Tensor,
    ) -> Tensor:
        """Try native pairs, then adapted ones; return the rows without an answer."""
        k = pairs.partners.shape[1]
        near = base.distance(codes[rows], base.codes[pairs.cases])
        order = near.sort(dim=1, stable=True).indices[:, : self.cases]
        case = pairs.cases[order].repeat_interleave(k, 1)  # (a, pairs)
        partner = pairs.partners[order].flatten(1)
        first = torch.where(partner >= 0, 0, 1).argsort(dim=1, stable=True)
        case, partner = case.gather(1, first), partner.gather(1, first)

        def native(local: Tensor, which: slice) -> Tensor:
            x, other = case[local][:, which], partner[local][:, which]
            return self._copied(query.x[rows[local]], base, x, other, other)

        left = _first_accepted(query, rows, native, case.shape[1], found, how, 0)
        count = min(4, case.shape[1])
        place = torch.searchsorted(rows, left)  # `rows` are sorted
        case, partner, rows = case[place, :count], partner[place, :count], left
        if not len(rows) or not self.adaptations:
            return rows
        values = self._values(base, codes[rows], case, partner)

        def adapted(local: Tensor, which: slice) -> Tensor:
            v = values.shape[2]
            x, other = (t[local].repeat_interleave(v, 1)[:, which] for t in (case, partner))
            source = values[local].flatten(1)[:, which]
            source = torch.where(other >= 0, source, other)
            return self._copied(query.x[rows[local]], base, x, other, source)

        return _first_accepted(query, rows, adapted, values[0].numel(), found, how, 1)

    def _copied(
        self, x: Tensor, base: CaseBase, case: Tensor, partner: Tensor, source: Tensor
    ) -> Tensor:
        """Copy the difference features of pairs (a, b) from `source` to rows (a, d)."""
        known = partner.clamp(min=0)
        differs = (base.codes[case] - base.codes[known]).abs() > self.match_tolerance
        owner = torch.as_tensor(base.space.owner, device=x.device)
        columns = differs[..., owner] & (partner >= 0)[..., None]
        return torch.where(columns, base.x[source.clamp(min=0)], x[:, None, :])

    def _values(self, base: CaseBase, codes: Tensor, case: Tensor, partner: Tensor) -> Tensor:
        """Return (a, pairs, v) rows of the target class, nearest to each candidate first."""
        known = partner.clamp(min=0)
        differs = (base.codes[case] - base.codes[known]).abs() > self.match_tolerance
        candidate = torch.where(differs, base.codes[known], codes[:, None, :])
        label = base.y[known[:, :1]][0, 0]
        theirs = (base.y == label).nonzero()[:, 0]
        v = min(self.adaptations, len(theirs))
        parts = [
            base.distance(part, base.codes[theirs]).topk(v, dim=1, largest=False).indices
            for part in torch.split(candidate.flatten(0, 1), 2048)
        ]
        return theirs[torch.cat(parts)].reshape(*case.shape, v)

    def _neighbour(
        self,
        query: Query,
        base: CaseBase,
        codes: Tensor,
        theirs: Tensor,
        rows: Tensor,
        found: Tensor,
        how: Tensor,
    ) -> None:
        """Take the nearest rows of the target class, as far as the region allows."""
        order = base.distance(codes[rows], base.codes[theirs]).sort(dim=1, stable=True).indices

        def neighbour(local: Tensor, which: slice) -> Tensor:
            return base.x[theirs[order[local][:, which]]]

        _first_accepted(query, rows, neighbour, len(theirs), found, how, 2, exact=False)


def _first_accepted(
    query: Query,
    rows: Tensor,
    build: Build,
    count: int,
    found: Tensor,
    how: Tensor,
    step: int,
    exact: bool = True,
) -> Tensor:
    """Write the first accepted candidate of each row into `found`; return the rows without one.

    With `exact`, candidates that the region would change are refused, so that every changed value
    is one of the training data.
    """
    local = torch.arange(len(rows), device=rows.device)
    for start in range(0, count, _BLOCK):
        if not len(local) or query.budget.expired:
            break
        candidates = build(local, slice(start, start + _BLOCK))
        b = candidates.shape[1]
        flat = candidates.flatten(0, 1)
        seen, ok = query.accept(flat, rows[local].repeat_interleave(b))
        if exact:
            ok &= ((seen - flat).abs() <= _UNMOVED).all(1)
        ok = ok.reshape(-1, b)
        best = ok.to(torch.int8).argmax(1)
        done = ok.any(1)
        picked = seen.reshape(len(local), b, -1)[torch.arange(len(local)), best]
        found[rows[local[done]]], how[rows[local[done]]] = picked[done], step
        local = local[~done]
    return rows[local]
