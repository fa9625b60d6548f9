"""FACE: a row of the target class that can be walked to through dense regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.face.walk_graph import GraphReach, WalkGraph
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import check_positive, check_shares
from cel.protocols import DensityModel, Need, Predictor
from cel.search.streams import row_keys
from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["FACE"]


class FACE(LocalMixin, BaseCounterfactualMethod):
    """Walk along edges of a graph of training rows to a dense row of the target class.

    Two rows are joined when the second is among the k nearest of the first (or within `epsilon`)
    and lies in the region of the first: immutable features equal, directions kept, constraints
    kept. Every step of a path is therefore one that the person could take. A step costs its length
    times `-log(density / highest density)` halfway, so that paths avoid empty regions. Targets
    are the rows with probability at least `probability` of the class and a density above the
    `quantile` of the class. The cheapest path from the row to a target gives the answer;
    `logs["path"]` holds, for each row, the points on the way.

    Immutable labels and integers must be equal along a path. Immutable numbers of a continuum may
    differ by `likeness` of their range; the row keeps its own ones, on the way and at the end.

    Args:
        model: any classifier.
        graph: "knn" or "epsilon".
        k: neighbours per row.
        epsilon: length of the longest edge of an "epsilon" graph, in encoded units.
        price: "density" with `gen_model`; "knn" and "epsilon" estimate the density from the length
            of the edge; "length" counts length alone; "auto" takes the density if there is one.
        probability: least probability of the class at the end.
        quantile: share of the rows of the class that are too lonely to be targets.
        likeness: see above.
        max_rows: size of the graph; larger training sets are subsampled by a content hash.
        gen_model: a density over rows.
        **options: see `Options`.

    Reference: Poyiadzi, Sokol, Santos-Rodriguez, De Bie and Flach, FACE: feasible and actionable
    counterfactual explanations, AIES 2020.
    """

    name: ClassVar[str] = "face"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS, Need.PROBABILITIES})
    version: ClassVar[int] = 2
    reference: ClassVar[str] = "Poyiadzi et al., AIES 2020, arXiv:1909.09369"
    _copies: ClassVar[int] = 400
    _test_params: ClassVar[Mapping[str, Any]] = {"likeness": 0.1}

    def __init__(
        self,
        model: Predictor,
        *,
        graph: Literal["knn", "epsilon"] = "knn",
        k: int = 20,
        epsilon: float = 0.25,
        price: Literal["auto", "density", "knn", "epsilon", "length"] = "auto",
        probability: float = 0.5,
        quantile: float = 0.1,
        likeness: float = 0.05,
        max_rows: int = 8000,
        gen_model: DensityModel | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.graph, self.k, self.epsilon, self.price = graph, k, epsilon, price
        self.probability, self.quantile, self.likeness = probability, quantile, likeness
        self.max_rows, self.gen_model = max_rows, gen_model

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "k", "epsilon", "max_rows")
        check_positive(self, "likeness", zero=True)
        check_shares(self, ["probability", "quantile"])

    @torch.no_grad()
    def _fit(self, train: TrainRows) -> None:
        rows = np.unique(train.x.cpu().numpy(), axis=0)
        if len(rows) > self.max_rows:
            order = np.argsort(row_keys(rows, self.random_state).numpy(), kind="stable")
            rows = rows[np.sort(order[: self.max_rows])]
        x = torch.as_tensor(rows).to(self._device())
        price = self.price
        if price == "auto":
            price = "knn" if self.gen_model is None else "density"
        density = None if self.gen_model is None else self.gen_model.log_prob
        self.graph_ = WalkGraph(
            x=x, space=self.space_, kind=self.graph, k=min(self.k, len(x)),
            epsilon=self.epsilon if self.graph == "epsilon" else torch.inf,
            price=price, density=density, likeness=self.likeness,
        ).build()  # fmt: skip
        view = ModelView(self.model)
        scores = view.scores(x)
        self.sure_, self.label_ = torch.softmax(scores.double(), 1), scores.argmax(1)
        lonely = self._loneliness(x)
        self.reach_: dict[int, GraphReach] = {
            label: self.graph_.reach(self._targets(label, lonely))
            for label in range(scores.shape[1])
        }

    def _loneliness(self, x: Tensor) -> Tensor:
        """Return (m,) how far from the data rows are: negative log-density, or kNN radius."""
        if self.gen_model is None:
            return self.graph_.radius(x)
        return torch.as_tensor(-self.gen_model.log_prob(x, self.label_))

    def _targets(self, label: int, lonely: Tensor) -> Tensor:
        own = (self.label_ == label).nonzero()[:, 0]
        if not len(own):
            return own
        limit = lonely[own].double().quantile(1 - self.quantile)
        good = (lonely[own] <= limit) & (self.sure_[own, label] >= self.probability)
        return own[good]

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        steps = self.graph_.steps(query.x)
        cost = torch.full_like(steps.price, torch.inf, dtype=torch.float64)
        end = torch.full_like(steps.node, -1)
        for label, reach in self.reach_.items():
            rows = (query.target == label).nonzero()[:, 0]
            node = steps.node[rows]
            cost[rows] = steps.price[rows].double() + reach.cost.to(node.device)[node]
            end[rows] = reach.end.to(node.device)[node]
        cost = cost.masked_fill(~steps.ok, torch.inf)
        x = torch.full_like(query.x, torch.nan)
        paths: list[Any] = [None] * len(query)
        order = cost.sort(dim=1, stable=True)
        todo = query.rows()
        for rank in range(cost.shape[1]):
            todo = todo[order.values[todo, rank].isfinite()]
            if not len(todo) or query.budget.expired:
                break
            first = steps.node[todo, order.indices[todo, rank]]
            done = self._arrive(query, todo, first, end[todo, order.indices[todo, rank]], x, paths)
            todo = todo[~done]
        return Answer(x=x, logs=self._why(query, steps.ok, cost, x), row_logs={"path": paths})

    def _arrive(
        self, query: Query, rows: Tensor, first: Tensor, end: Tensor, x: Tensor, paths: list[Any]
    ) -> Tensor:
        """Record the ends of paths that hold for the rows; tell (a,) which do."""
        seen, ok = query.accept(self.graph_.x[end], rows)
        ok &= (seen != query.x[rows]).any(1)
        sure = torch.softmax(query.model.scores(seen).double(), 1)
        ok &= sure.gather(1, query.target[rows, None])[:, 0] >= self.probability
        walk = self._walk(query, rows, first)
        ok &= self._steps_hold(query.x[rows], walk)
        for i in ok.nonzero()[:, 0].tolist():
            points = walk[i][~walk[i].isnan().any(1)]
            points[-1] = seen[i]
            paths[int(rows[i])] = points.cpu().tolist()
        x[rows[ok]] = seen[ok]
        return ok

    def _walk(self, query: Query, rows: Tensor, first: Tensor) -> Tensor:
        """Return (a, l, d): the points on the way, with the row's own immutable features."""
        lay, place, points = query.region.layout, first.clone(), []
        home = query.x[rows]
        after = torch.full((len(self.reach_), len(self.graph_.x)), -1)
        for label, reach in self.reach_.items():
            after[label] = reach.after
        after = after.to(first.device)
        while bool((place >= 0).any()):
            spot = torch.where(lay.mutable, self.graph_.x[place.clamp(min=0)], home)
            points.append(
                torch.where((place >= 0)[:, None], spot, torch.full_like(spot, torch.nan))
            )
            place = torch.where(place >= 0, after[query.target[rows], place.clamp(min=0)], place)
        return torch.stack(points, 1)

    def _steps_hold(self, home: Tensor, walk: Tensor) -> Tensor:
        """Tell (a,) whether each point of a path lies in the region of the one before."""
        before = torch.cat([home[:, None], walk[:, :-1]], 1)
        known = ~walk.isnan().any(2)
        at, which = known.nonzero(as_tuple=True)
        held = Region.around(self.space_, before[at, which]).contains(walk[at, which])
        good = torch.ones_like(known)
        good[at, which] = held
        return good.all(1)

    def _why(self, query: Query, ok: Tensor, cost: Tensor, x: Tensor) -> dict[str, Any] | None:
        lost = x.isnan().any(1)
        if not bool(lost.any()):
            return None
        alone = lost & ~ok.any(1)
        island = lost & ok.any(1) & ~cost.isfinite().any(1)
        reasons = {
            "no feasible neighbour": alone,
            "no way from the neighbours to a target": island,
            "no target holds for the row itself": lost & ~alone & ~island,
        }
        return {"why": {name: int(m.sum()) for name, m in reasons.items() if bool(m.any())}}
