"""Carreira-Perpinan and Hada (2023): the nearest populated region of a decision forest (LIRE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.ensembles.answers import verified
from cel.cf_methods.ensembles.cell_table import CellTable
from cel.cf_methods.ensembles.demands import DemandGroup, groups, readable_rows
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.models.trees import TreeView
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support, Task
from cel.search.coordinate import Incumbents, lower
from cel.search.profiles import sums_at
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["LiveRegions"]

_CHUNK = 2**22
TRIES = 16  # nearest regions that are looked at when constraints between features forbid one


@dataclass(frozen=True, eq=False)
class _Regions:
    """Boxes of cells in which every tree keeps its leaf: one per different training row.

    Attributes:
        cells: (m, A) cells of the rows, numbered through.
        low: (m, A) first cells of the boxes, numbered through.
        high: (m, A) last cells.
        mask: (m, C) bool, cells of the boxes on axes that are no ranges; true elsewhere.
    """

    cells: np.ndarray
    low: np.ndarray
    high: np.ndarray
    mask: np.ndarray


class LiveRegions(LocalMixin, BaseCounterfactualMethod):
    """The nearest point of the regions of a forest in which training rows of the class live.

    Where a training row falls into one leaf of every tree, these leaves meet in a box: a *live*
    region. All of it has the row's score, so any point of it is an answer, and the nearest one
    costs one clipping. Only regions of rows with the wanted outcome count, and only those of rows
    whose recorded label is the predicted one where labels are known.

    Args:
        model: a wrapped tree ensemble, see `cel.models.trees`.
        beta: price of changing a feature at all.
        lower: whether answers may leave their region to become cheaper, feature by feature.
        options: see `Options`.

    References:
        Carreira-Perpinan and Hada: Very fast, approximate counterfactual explanations for decision
        forests. AAAI 2023.
    """

    name = "live_regions"
    version: ClassVar[int] = 2  # rows with missing numbers are read
    tasks = frozenset({Task.CLASSIFICATION, Task.REGRESSION})
    needs = frozenset({Need.TREES, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Carreira-Perpinan and Hada, AAAI 2023"
    _copies: ClassVar[int] = 400

    def __init__(
        self,
        model: Predictor,
        *,
        beta: float = 0.05,
        lower: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.beta, self.lower = beta, lower

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "beta", zero=True)

    def _fit(self, train: TrainRows) -> None:
        x = train.x.cpu().numpy()
        self.scale_ = mad_scale(x, self.space_)
        view = self._view_of_trees()
        keep = np.ones(len(x), dtype=bool)
        if train.labels is not None and train.y.ndim == 1 and train.labels.shape == train.y.shape:
            right = (train.labels == train.y).cpu().numpy()
            keep = right if right.any() else keep
        self.regions_ = _live(view, x[keep])

    def _view_of_trees(self) -> TreeView:
        view = ModelView(self.model).trees()
        assert view is not None
        return view

    def _explain(self, query: Query) -> Answer | Tensor:
        view = query.model.trees()
        assert view is not None
        x = torch.full_like(query.x, torch.nan)
        readable = readable_rows(query, view)
        table = CellTable.of(view, query.region, self.scale_, self.beta)
        for whole in groups(query, view):
            group = whole.only(readable[whole.rows])
            own = table.select(group.rows)
            found = self._nearest(view, group, own)
            x[torch.as_tensor(group.rows)] = verified(query, own, found, group.rows)
        return Answer(x=x)

    def _nearest(self, view: TreeView, group: DemandGroup, table: CellTable) -> Incumbents:
        demand = group.demand(view.bits)
        regions = self.regions_
        sums = sums_at(view.bits, demand.tables, regions.cells)  # (m, H)
        found = Incumbents.nothing(table.home)
        size = max(1, _CHUNK // max(regions.low.size, 1))
        for i in range(0, len(table), size):
            rows = np.arange(i, min(i + size, len(table)))
            many = np.repeat(sums[None], len(rows), 0)  # (r, m, H)
            good = demand.margin(many, rows) >= 0
            cells, cost = _clipped(table, regions, rows)
            cost = np.where(good, cost, np.inf)
            self._offer(found, table, cells, cost, rows)
        if self.lower:
            have = np.flatnonzero(np.isfinite(found.cost))
            owner = view.axes.owner
            cells, _ = lower(view.bits, demand, table, found.cells[have], have, owner)
            found.offer(have, cells, table.cost(cells, have))
        return found

    @staticmethod
    def _offer(
        found: Incumbents, table: CellTable, cells: np.ndarray, cost: np.ndarray, rows: np.ndarray
    ) -> None:
        """Take the cheapest region of each row that keeps the constraints between features."""
        tries = min(TRIES if table.legal else 1, cost.shape[1])
        best = np.argpartition(cost, tries - 1, axis=1)[:, :tries]
        row, place = np.nonzero(np.isfinite(np.take_along_axis(cost, best, 1)))
        region = best[row, place]
        points, their = cells[row, region], rows[row]
        price = cost[row, region]
        if table.legal:
            legal = table.legal.holds(points, table.number[their], their)
            points, their, price = points[legal], their[legal], price[legal]
        found.offer(their, points, price)


def _live(view: TreeView, x: np.ndarray) -> _Regions:
    """Return the regions of rows (m, d); rows of one region count once."""
    axes, boxes = view.axes, view.boxes
    leaf_of = np.zeros(int(view.bits.slot.max(initial=0)) + 1, dtype=np.int64)
    leaf_of[view.bits.slot] = np.arange(view.n_leaves)
    leaf = np.unique(leaf_of[view.leaves(x)], axis=0)  # (m, T)
    low = np.empty((len(leaf), len(axes.offset) - 1), dtype=np.int64)
    high = np.empty_like(low)
    mask = np.ones((len(leaf), axes.count), dtype=bool)
    size = max(1, _CHUNK // max(leaf.shape[1] * low.shape[1], 1))
    for i in range(0, len(leaf), size):
        part = slice(i, i + size)
        low[part] = boxes.low[leaf[part]].max(1)
        high[part] = boxes.high[leaf[part]].min(1)
        own = boxes.mask[leaf[part]].all(1)
        for a in np.flatnonzero(boxes.masked):
            width = axes.offset[a + 1] - axes.offset[a]
            start = boxes.mask_start[a]
            mask[part, axes.offset[a] : axes.offset[a + 1]] = own[:, start : start + width]
    first = axes.offset[:-1]
    cells = low + first
    for a in np.flatnonzero(boxes.masked):
        cells[:, a] = first[a] + mask[:, axes.offset[a] : axes.offset[a + 1]].argmax(1)
    return _Regions(cells, low + first, high + first, mask)


def _clipped(
    table: CellTable, regions: _Regions, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the nearest allowed cells (r, m, A) of all regions, and their prices (r, m)."""
    axes, boxes = table.view.axes, table.view.boxes
    cells = np.empty((len(rows), *regions.low.shape), dtype=np.int64)
    total = np.zeros(cells.shape[:2])
    at = np.arange(len(rows))[:, None]
    for a in range(len(axes.offset) - 1):
        part = slice(axes.offset[a], axes.offset[a + 1])
        price = table.price[rows, part]
        if boxes.masked[a]:
            inside = np.where(regions.mask[None, :, part], price[:, None], np.inf)
            local = inside.argmin(2)
            total += np.take_along_axis(inside, local[..., None], 2)[..., 0]
        else:
            home = table.home[rows, a][:, None] - part.start
            low, high = regions.low[:, a] - part.start, regions.high[:, a] - part.start
            local = _next_allowed(np.isfinite(price), home)[at, np.clip(home, low, high)]
            outside = (local < low) | (local > high)
            local = np.clip(local, 0, price.shape[1] - 1)
            total += np.where(outside, np.inf, price[at, local])
        cells[:, :, a] = local + part.start
    return cells, total


def _next_allowed(open_: np.ndarray, home: np.ndarray) -> np.ndarray:
    """Return for every cell (r, k) the next allowed one away from home; -1 or k for none."""
    k = open_.shape[1]
    place = np.broadcast_to(np.arange(k), open_.shape)
    above = np.where(open_, place, k)[:, ::-1]
    above = np.minimum.accumulate(above, axis=1)[:, ::-1]
    below = np.maximum.accumulate(np.where(open_, place, -1), axis=1)
    return np.asarray(np.where(place >= home, above, below))
