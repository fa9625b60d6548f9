"""FeatureTweak (Tolomei et al., 2017): satisfy one path of one tree, ask the whole ensemble."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.ensembles.demands import readable_rows
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.models.trees import TreeView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.space import FeatureSpace

__all__ = ["FeatureTweak", "PathBoxes"]

_CHUNK = 2**22
TRIES = 32  # candidates of a row that are scored together, cheapest first


@dataclass(frozen=True, eq=False)
class PathBoxes:
    """The paths to m leaves that vote for a class, as boxes in encoded units.

    Attributes:
        view: the trees.
        leaf: (m,) the leaves.
        above: (m, A) values that a number must exceed, -inf for none.
        most: (m, A) values that it must not exceed, inf for none.
    """

    view: TreeView
    leaf: np.ndarray
    above: np.ndarray
    most: np.ndarray

    @classmethod
    def of(cls, view: TreeView, leaf: np.ndarray) -> PathBoxes:
        """Read the boxes of some leaves."""
        axes, boxes = view.axes, view.boxes
        above = np.full((len(leaf), len(axes.edges)), -np.inf, dtype=np.float32)
        most = np.full(above.shape, np.inf, dtype=np.float32)
        for a, edges in enumerate(axes.edges):
            if axes.labels[a] or not len(edges):
                continue
            low, high = boxes.low[leaf, a], boxes.high[leaf, a]
            above[:, a] = np.where(low > 0, edges[np.maximum(low - 1, 0)], -np.inf)
            most[:, a] = np.where(
                high < len(edges), edges[np.minimum(high, len(edges) - 1)], np.inf
            )
        return cls(view, leaf, above, most)

    def allowed(self, axis: int) -> np.ndarray:
        """Return (m, k) bool, the categories of an axis that the paths allow."""
        axes, boxes = self.view.axes, self.view.boxes
        size = int(axes.offset[axis + 1] - axes.offset[axis])
        if not boxes.masked[axis]:
            return np.ones((len(self.leaf), size), dtype=bool)
        start = boxes.mask_start[axis]
        return np.asarray(boxes.mask[self.leaf, start : start + size])


class FeatureTweak(LocalMixin, BaseCounterfactualMethod):
    """Move a row just far enough to follow a path to a leaf of the wanted class.

    For every tree that votes against the class and every of its leaves that votes for it, the
    conditions of the path that the row violates are met with a distance of `eps`; all else stays.
    Candidates are asked in the order of their cost, and the first that the *ensemble* puts into
    the class is the answer. A leaf of a forest votes for its most frequent class, a leaf of
    boosted trees for the class whose score it raises most.

    Args:
        model: a wrapped tree ensemble, see `cel.models.trees`.
        eps: distance to thresholds, in standard deviations of the training rows.
        options: see `Options`.

    References:
        Tolomei, Silvestri, Haines and Lalmas: Interpretable predictions of tree-based ensembles
        via actionable feature tweaking. KDD 2017.
    """

    name = "feature_tweak"
    version: ClassVar[int] = 2  # rows with missing numbers are read
    needs = frozenset({Need.TREES, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Tolomei et al., KDD 2017, arXiv:1706.06691"
    _copies: ClassVar[int] = 400

    def __init__(self, model: Predictor, *, eps: float = 0.1, **options: Unpack[Options]) -> None:
        super().__init__(model, **options)
        self.eps = eps

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "eps", zero=True)

    def _fit(self, train: TrainRows) -> None:
        spread = train.x.cpu().numpy().astype(np.float64).std(0)
        self.spread_ = np.where(spread > 0, spread, 1.0)

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        view = query.model.trees()
        assert view is not None
        x = torch.full_like(query.x, torch.nan)
        readable = readable_rows(query, view)
        target = query.target.cpu().numpy()
        for t in np.unique(target[readable]):
            rows = np.flatnonzero(readable & (target == t))
            lead = self._lead(view, int(t))
            paths = PathBoxes.of(view, np.flatnonzero(lead > 0))
            if not len(paths.leaf):
                continue
            size = max(1, _CHUNK // max(paths.above.size, 1))
            for i in range(0, len(rows), size):
                part = rows[i : i + size]
                x[torch.as_tensor(part)] = self._tweaked(query, paths, part, lead)
        return Answer(x=x)

    @staticmethod
    def _lead(view: TreeView, target: int) -> np.ndarray:
        """Return (L,) by how much each leaf votes for a class rather than for any other."""
        others = np.delete(view.value, target, axis=1)
        return np.asarray(view.value[:, target] - others.max(1))

    def _tweaked(
        self, query: Query, paths: PathBoxes, rows: np.ndarray, lead: np.ndarray
    ) -> Tensor:
        """Return the cheapest accepted candidates (r, d) of some rows, NaN without one."""
        at = torch.as_tensor(rows, device=query.x.device)
        values, labels, cost = self._candidates(query, paths, rows)
        cost = np.where(_against(paths, query, rows, lead), cost, np.inf)
        order = np.argsort(cost, axis=1, kind="stable")
        out = torch.full_like(query.x[at], torch.nan)
        todo = np.arange(len(rows))
        for first in range(0, cost.shape[1], TRIES):
            place = order[todo, first : first + TRIES]
            known = np.isfinite(np.take_along_axis(cost[todo], place, 1))
            row, number = np.nonzero(known)
            if not len(row) or query.budget.expired:
                break
            leaf, who = place[row, number], todo[row]
            points = self._points(query, rows[who], values[who, leaf], labels[who, leaf])
            seen, ok = query.accept(points, at[torch.as_tensor(who)])
            hit = np.flatnonzero(ok.cpu().numpy())
            best = hit[np.unique(who[hit], return_index=True)[1]]  # the cheapest comes first
            out[torch.as_tensor(who[best])] = seen[torch.as_tensor(best)]
            done = np.isin(todo, who[best]) | ~known.all(1)
            todo = todo[~done]
        return out

    def _candidates(
        self, query: Query, paths: PathBoxes, rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return values (r, m, A) of numbers, categories (r, m, A), and costs (r, m)."""
        axes, region = paths.view.axes, query.region
        x = query.x.cpu().numpy()[rows]
        low, high = (v.cpu().numpy()[rows] for v in (region.lower, region.upper))
        reachable = region.reachable.cpu().numpy()[rows]
        shape = (len(rows), len(paths.leaf), len(axes.edges))
        values, labels = np.zeros(shape, dtype=np.float32), np.full(shape, -1)
        cost = np.zeros(shape[:2])
        for a, f in enumerate(axes.space):
            columns = list(f.columns)
            if axes.labels[a]:
                allowed = paths.allowed(a)
                own = x[:, columns].argmax(1)
                open_ = allowed[None] & reachable[:, None, columns]
                stays = allowed[:, own].T
                labels[:, :, a] = np.where(stays, own[:, None], open_.argmax(2))
                cost += np.where(stays, 0.0, np.where(open_.any(2), 1.0, np.inf))
                continue
            column = columns[0]
            value = x[:, [column]]
            to = self._inside(value, paths.above[:, a], paths.most[:, a], column)
            to = np.clip(to, low[:, [column]], high[:, [column]])
            fits = (to > paths.above[:, a]) & (to <= paths.most[:, a])
            values[:, :, a] = to
            far = ((to.astype(np.float64) - value) / self.spread_[column]) ** 2
            cost += np.where(fits, far, np.inf)
        return values, labels, np.sqrt(cost)

    def _inside(
        self, value: np.ndarray, above: np.ndarray, most: np.ndarray, column: int
    ) -> np.ndarray:
        """Move numbers (r, 1) that violate a path to `eps` beyond their threshold, (r, m)."""
        step = np.float32(self.eps * self.spread_[column])
        least = np.nextafter(above, np.float32(np.inf))
        up = np.minimum(np.maximum(above + step, least), most)
        down = np.maximum(np.minimum(most - step, most), least)
        moved = np.where(value <= above, up, np.where(value > most, down, value))
        return np.asarray(moved, dtype=np.float32)

    @staticmethod
    def _points(query: Query, rows: np.ndarray, values: np.ndarray, labels: np.ndarray) -> Tensor:
        """Return the encoded points (s, d) of values and categories (s, A)."""
        x = query.x.cpu().numpy()[rows].copy()
        for a, f in enumerate(query.region.space):
            if f.one_hot:
                x[:, list(f.columns)] = np.eye(len(f.columns), dtype=x.dtype)[labels[:, a]]
            else:
                x[:, f.columns[0]] = values[:, a]
        return torch.as_tensor(x).to(query.x)


def _against(paths: PathBoxes, query: Query, rows: np.ndarray, lead: np.ndarray) -> np.ndarray:
    """Tell (r, m) whether the tree of a leaf votes against the class of the row."""
    view = paths.view
    leaf_of = np.zeros(int(view.bits.slot.max(initial=0)) + 1, dtype=np.int64)
    leaf_of[view.bits.slot] = np.arange(view.n_leaves)
    leaf = leaf_of[view.leaves(query.x[torch.as_tensor(rows, device=query.x.device)])]
    votes = lead[leaf] > 0  # (r, T)
    return np.asarray(~votes[:, view.boxes.tree[paths.leaf]])
