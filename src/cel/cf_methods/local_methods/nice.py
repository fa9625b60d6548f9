"""NICE: walk from the row to its nearest unlike neighbour, best feature first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive
from cel.protocols import DensityModel, Need, Predictor
from cel.search import bisect_to_boundary, revert_features
from cel.search.gradient import RowFunction
from cel.search.introduce import introduce_features
from cel.search.pool import Distance, Neighbours, Pool
from cel.space import FeatureSpace
from cel.space.layout import by_feature

__all__ = ["NICE"]

REWARDS = ("sparsity", "proximity", "plausibility", "none")
EPS = 1e-11  # of the code of the authors: added to a change of distance
ASKED = 64  # rows, and donors of each, that are asked why nothing was found
CROWD = 5  # neighbours whose mean distance stands for plausibility
_SAME = 1e-6


class NICE(LocalMixin, BaseCounterfactualMethod):
    """Take over features of the nearest unlike neighbour until the target class is reached.

    The donor b is the nearest training row that the model puts into the target class, inside the
    region of the row: immutable features stay, directions and bounds clip. From the row, one
    feature of b after the other is taken over, that of the highest reward first. With z the state,
    c a candidate and p the probability of the target class:

    - "sparsity": `p(c) - p(z)`;
    - "proximity": `(p(c) - p(z)) / (D(x, c) - D(x, z) + 1e-11)`, D the distance to the donor;
    - "plausibility": `(p(c) - p(z)) (E(z) - E(c))`, E an error that is low on rows like those of
      the data; where no candidate gains in both, that of "sparsity";
    - "none": the donor itself.

    E is the squared error of `autoencoder`, the negative log-density of `gen_model`, or, without
    either, the mean distance to the five nearest training rows of the class.

    Args:
        model: any classifier.
        reward: "sparsity", "proximity", "plausibility" or "none".
        distance: "heom" (the authors'), "l1_mad", "l2" or "gower"; see `cel.search.pool.Pool`.
        justified: take only donors whose recorded outcome is the predicted one, as far as
            outcomes were recorded.
        donors: neighbours that are walked to; the best end wins and all are kept in `x_sets`.
        finish: give back what is not needed at the end: features, then a share of the numbers.
            Not part of the published method; changed values are then no longer the donor's.
        gen_model: a density for "plausibility".
        autoencoder: an object with `encode(x)` and `decode(z, x)` for "plausibility".
        **options: see `Options`.

    Reference: Brughmans, Leyman and Martens, NICE: an algorithm for nearest instance
    counterfactual explanations, Data Mining and Knowledge Discovery, 2023.
    """

    name: ClassVar[str] = "nice"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS, Need.PROBABILITIES})
    reference: ClassVar[str] = "Brughmans, Leyman and Martens, DMKD 2023, arXiv:2104.07411"
    _copies: ClassVar[int] = 120
    _test_params: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        model: Predictor,
        *,
        reward: Literal["sparsity", "proximity", "plausibility", "none"] = "sparsity",
        distance: Distance = "heom",
        justified: bool = True,
        donors: int = 1,
        finish: bool = False,
        gen_model: DensityModel | None = None,
        autoencoder: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.reward, self.distance, self.justified = reward, distance, justified
        self.donors, self.finish = donors, finish
        self.gen_model, self.autoencoder = gen_model, autoencoder

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "donors")

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.to(self._device()), train.y.to(self._device())
        among = None
        if self.justified and train.labels is not None:
            among = train.labels.to(y) == y
        self.pool_ = Pool.of(x, y, self.space_, self.distance, among=among)

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        near = self.pool_.nearest(
            query.x,
            query.target,
            self.donors,
            region=query.region,
            accept=query.accept,
            budget=query.budget,
        )
        x, logs = near.x, self._why(query, near)
        if self.reward != "none" or self.finish:
            row, which = near.ok.nonzero(as_tuple=True)
            x = torch.full_like(x, torch.nan)
            x[row, which] = self._walk(query.select(row), near.x[row, which])
        if self.donors == 1:
            return Answer(x=x[:, 0], logs=logs)
        x = self._ordered(query, x)
        return Answer(x=x[:, 0], sets=x, logs=logs)

    def _walk(self, query: Query, donor: Tensor) -> Tensor:
        """Return where the rows of a query end on their way to their donors (n, d), or NaN."""
        x, ok, lay = donor, torch.ones_like(donor[:, 0], dtype=torch.bool), query.region.layout
        if self.reward != "none":
            look = _Look(self, query)
            walked = introduce_features(
                query.x,
                donor,
                look.judge,
                look.reward,
                lay.owner,
                groups=joined_features(query.region.space).to(donor.device),
                budget=query.budget,
            )
            x, ok = walked.x, walked.ok
        if self.finish:
            x = revert_features(x, query.x, ok, query.accept, lay.owner)
            x = bisect_to_boundary(query.x, x, ok, query.accept, slide=lay.numeric, steps=12)
        return torch.where(ok[:, None], x, torch.full_like(x, torch.nan))

    def _ordered(self, query: Query, x: Tensor) -> Tensor:
        """Put the best of several answers (n, k, d) first, by what the reward is after."""
        row, which = (~x.isnan().any(2)).nonzero(as_tuple=True)
        points, part = x[row, which], query.select(row)
        price = self.pool_.between(part.x, points)
        if self.reward == "sparsity":
            region = query.region
            moved = by_feature(points != part.x, region.layout.owner, len(region.space))
            price = (moved > 0).sum(1) + price / (1 + price)
        elif self.reward == "plausibility":
            price = self._error(part)(points, part.rows())
        table = torch.full(x.shape[:2], torch.inf, dtype=x.dtype, device=x.device)
        table[row, which] = price.to(x.dtype)
        order = table.sort(dim=1, stable=True).indices
        return x.gather(1, order[..., None].expand_as(x))

    def _error(self, query: Query) -> RowFunction:
        """Return a function of points (a, d) and rows that is low where data are."""
        if self.autoencoder is not None:
            return lambda x, rows: (
                (self.autoencoder.decode(self.autoencoder.encode(x), x) - x).square().sum(1)
            )
        density = self.gen_model
        if density is not None:
            return lambda x, rows: -density.log_prob(x, query.target[rows])
        return lambda x, rows: self.pool_.crowd(x, query.target[rows], CROWD)

    def _why(self, query: Query, near: Neighbours) -> dict[str, Any] | None:
        """Tell what keeps the donors of rows without an answer from being valid."""
        lost = (~near.ok[:, 0]).nonzero()[:, 0][:ASKED]
        if not len(lost) or query.budget.expired:
            return None
        part = query.select(lost)
        donors = self.pool_.nearest(part.x, part.target, ASKED)
        row, which = donors.ok.nonzero(as_tuple=True)
        if not len(row):
            return {"why": "no training row of the target class, as far as the model sees it"}
        raw, asked = donors.x[row, which], part.select(row)
        placed: Tensor = asked.region.snap(raw)
        shares = {}
        for f in query.region.space:
            columns = list(f.columns)
            freed = placed.clone()
            freed[:, columns] = raw[:, columns]
            blocked = ((freed - placed).abs() > _SAME).any(1)
            good = blocked.clone()
            good[blocked] = query.model.margin(freed[blocked], asked.target[blocked]) >= MARGIN
            if bool(good.any()):
                shares[f.name] = round(float(good.float().mean()), 4)
        return {"why": {"share of donors that one feature keeps away": shares}}


class _Look:
    """What a walk sees of its candidates: one call of the model for each."""

    def __init__(self, method: NICE, query: Query) -> None:
        self.method, self.query = method, query
        self.kind = method.reward
        self.error = method._error(query) if self.kind == "plausibility" else None

    def judge(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, target = self.query, self.query.target[rows]
        stands = torch.ones_like(x[:, 0], dtype=torch.bool)
        if query.region.space.constraints:
            seen = query.snap(x, rows)
            stands = ((seen - x).abs() <= _SAME).all(1)
        scores = query.model.scores(x)
        sure = torch.softmax(scores.double(), 1).gather(1, target[:, None])[:, 0]
        values = [sure]
        if self.kind == "proximity":
            values.append(self.method.pool_.between(query.x[rows], x).double())
        elif self.error is not None:
            values.append(self.error(x, rows).double())
        return stands, query.model.margin_of(scores, target) >= MARGIN, torch.stack(values, 1)

    def reward(self, new: Tensor, old: Tensor, known: Tensor) -> Tensor:
        gain = new[..., 0] - old[:, None, 0]
        if self.kind == "proximity":
            return gain / (new[..., 1] - old[:, None, 1] + EPS)
        if self.kind == "plausibility":
            like = old[:, None, 1] - new[..., 1]
            both = known & (gain > 0) & (like > 0)
            product = (gain * like).masked_fill(~both, -torch.inf)
            return torch.where(both.any(1, keepdim=True), product, gain)
        return gain


def joined_features(space: FeatureSpace) -> Tensor:
    """Return (c, p) bool: the features that each constraint joins."""
    sets = [[n in rule.features for n in space.names] for rule in space.constraints]
    return torch.tensor(sets, dtype=torch.bool).reshape(len(sets), len(space))
