"""The nearest instance: training rows of the target class, as they are or inside the region."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor
from cel.search.boundary import Test
from cel.search.pool import Distance, Neighbours, Pool
from cel.space import FeatureSpace

__all__ = ["NearestInstance"]

CHOICE = 10  # times as many neighbours as wanted, from which a diverse set is chosen


class NearestInstance(LocalMixin, BaseCounterfactualMethod):
    """Show the nearest people who have the wanted outcome.

    The candidates are the training rows that the model puts into the target class. With
    `projected`, a row counts where the region puts it (immutable features of the row itself,
    directions and bounds clipped), and must still have the target class there; without, only real
    rows inside the region count, and they are shown unchanged. The search is exact: a row without
    an answer has none among the training rows.

    A diverse set begins with the nearest row; each further member is the one farthest from the
    members so far, among the rows at most `slack` farther away than the nearest.

    Args:
        model: any classifier; only its predictions are used.
        k: rows per explanation; with more than one they are in `x_sets`.
        distance: "heom", "l1_mad", "l2" or "gower"; see `cel.search.pool.Pool`.
        projected: whether rows are moved into the region.
        diverse: whether the k rows are to differ from each other.
        slack: share by which members of a diverse set may be farther away than the nearest row.
        **options: see `Options`.

    Reference: Wexler et al., The What-If Tool, IEEE TVCG 2020 (nearest counterfactual).
    """

    name: ClassVar[str] = "nearest"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Wexler et al., IEEE TVCG 2020, arXiv:1907.04135"
    _copies: ClassVar[int] = 60

    def __init__(
        self,
        model: Predictor,
        *,
        k: int = 1,
        distance: Distance = "heom",
        projected: bool = True,
        diverse: bool = False,
        slack: float = 0.5,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.k, self.distance, self.projected = k, distance, projected
        self.diverse, self.slack = diverse, slack

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "k")
        check_positive(self, "slack", zero=True)

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.to(self._device()), train.y.to(self._device())
        self.pool_ = Pool.of(x, y, self.space_, self.distance)

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        near = self.pool_.nearest(
            query.x,
            query.target,
            self.k * CHOICE if self.diverse else self.k,
            region=query.region if self.projected else None,
            accept=query.accept if self.projected else _as_they_are(query),
            budget=query.budget,
        )
        x = self._spread(near) if self.diverse else near.x
        return Answer(x=x[:, 0], sets=x if self.k > 1 else None, logs=self._why(query, near))

    def _spread(self, near: Neighbours) -> Tensor:
        """Return (n, k, d): the nearest row, then each time the one farthest from all before."""
        n, c, d = near.x.shape
        close = near.ok & (near.distance <= (1 + self.slack) * near.distance[:, :1])
        rank = torch.arange(c, device=near.x.device).expand(n, c)
        gap = torch.where(near.ok, -1.0 - rank, -torch.inf)  # too far away: in order, and last
        gap = torch.where(close, torch.inf, gap)
        chosen: list[Tensor] = []
        for _ in range(min(self.k, c)):
            best = gap.argmax(1) if chosen else torch.zeros_like(rank[:, 0])
            spot = near.x.gather(1, best[:, None, None].expand(n, 1, d))
            known = near.ok.gather(1, best[:, None]) & gap.gather(1, best[:, None]).isfinite()
            known |= near.ok[:, :1] if not chosen else False
            chosen.append(torch.where(known[..., None], spot, torch.full_like(spot, torch.nan)))
            away = self.pool_.between(
                near.x.flatten(0, 1), spot.expand(n, c, d).flatten(0, 1)
            ).reshape(n, c)
            gap = torch.where(close, torch.minimum(gap, away), gap)
            gap = gap.scatter(1, best[:, None], -torch.inf)
            close = close.scatter(1, best[:, None], False)
        return torch.cat(chosen, 1)

    def _why(self, query: Query, near: Neighbours) -> dict[str, Any] | None:
        lost = ~near.ok[:, 0]
        if not bool(lost.any()) or query.budget.expired:
            return None
        absent = sorted(set(query.target[lost].tolist()) - set(self.pool_.parts))
        if absent:
            return {"why": f"the model puts no training row into class {absent[0]}"}
        return {"why": f"{int(lost.sum())} rows: no training row of the class inside the region"}


def _as_they_are(query: Query) -> Test:
    """Return a test that moves nothing: inside the region, and of the wanted class."""

    def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        inside: Tensor = query.region.select(rows).contains(x)
        return x, inside & (query.model.margin(x, query.target[rows]) >= MARGIN)

    return accept
