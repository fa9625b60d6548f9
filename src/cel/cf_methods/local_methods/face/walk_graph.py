"""A graph of rows in which every edge is a step that a person could take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from cel.space import FeatureSpace
from cel.space.region import Region

__all__ = ["GraphReach", "WalkGraph", "WalkSteps"]

CHUNK = 2**22  # distances that exist at a time
APART = 1e3  # how much farther apart rows with other immutable features count
LEAST = 1e-6  # smallest price of a unit of length
WIDER = 4  # times as many neighbours are looked at as are wanted

Density = Callable[[Tensor], Tensor]
"""Points (a, d) -> log-densities (a,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class GraphReach:
    """The way from every node to the nearest target: (m,) cost, next node (-1: none), end."""

    cost: Tensor
    after: Tensor
    end: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class WalkSteps:
    """Where one may step: `ok` (a, b) steps, to `node` (a, b) at `price` (a, b)."""

    node: Tensor
    price: Tensor
    ok: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class WalkGraph:
    """Rows, and steps between near ones that keep to the region of the row they start from.

    Attributes:
        x: (m, d) rows.
        space: the features.
        kind: "knn": the k nearest; "epsilon": those within a distance.
        k: how many neighbours at most.
        epsilon: the distance, infinite for "knn".
        price: "length", "knn", "epsilon" or "density": what a step costs.
        density: log-density, for "density".
        likeness: share of its range by which an immutable number may differ.
        peak: log-density, up to a constant, that costs nothing.
        matrix: (m, m) prices of the steps.
    """

    x: Tensor
    space: FeatureSpace
    kind: Literal["knn", "epsilon"]
    k: int
    epsilon: float
    price: str
    density: Density | None
    likeness: float
    peak: float = 0.0
    matrix: csr_matrix | None = None

    def build(self) -> WalkGraph:
        """Return the graph with all its steps."""
        blocks = self._blocks()
        near = [self._near(self.x[rows], rows) for rows in blocks]
        loose = WalkGraph(**(vars(self) | {"peak": 0.0}))
        parts = []
        if self.price != "length":
            parts = [loose._levels(r, *n) for r, n in zip(blocks, near, strict=True)]
        peak = max((float(p.max()) for p in parts if p.numel()), default=0.0)
        settled = WalkGraph(**(vars(self) | {"peak": peak}))
        start, end, weight = [], [], []
        for rows, (length, node) in zip(blocks, near, strict=True):
            steps = settled._steps_to(self.x[rows], length, node)
            at, which = steps.ok.nonzero(as_tuple=True)
            start.append(rows[at].cpu().numpy())
            end.append(steps.node[at, which].cpu().numpy())
            weight.append(steps.price[at, which].double().cpu().numpy())
        m = len(self.x)
        ends = np.concatenate(start), np.concatenate(end)
        matrix = csr_matrix((np.concatenate(weight), ends), shape=(m, m))
        return WalkGraph(**(vars(settled) | {"matrix": matrix}))

    def steps(self, x: Tensor) -> WalkSteps:
        """Return the steps that rows (a, d) may take."""
        return self._steps_to(x, *self._near(x, None))

    def _steps_to(self, x: Tensor, length: Tensor, node: Tensor) -> WalkSteps:
        """Return the steps of rows (a, d) to near nodes (a, b), of which no more than k count."""
        ok = length <= self.epsilon
        width = node.shape[1] if self.kind == "epsilon" else max(1, self.k)
        taken = torch.zeros_like(node[:, 0])
        for part in torch.split(torch.arange(node.shape[1], device=node.device), width):
            asked = ok[:, part] & ((taken < self.k) | (self.kind == "epsilon"))[:, None]
            at, which = asked.nonzero(as_tuple=True)
            held = torch.zeros_like(asked)
            held[at, which] = self._allowed(x[at], self.x[node[at, part[which]]])
            if self.kind == "knn":
                held &= taken[:, None] + held.cumsum(1) <= self.k
            taken = taken + held.sum(1)
            ok[:, part] = held
        target = self.x[node]
        price = self._price(x[:, None].expand_as(target), target, length)
        return WalkSteps(node=node, price=price, ok=ok)

    def reach(self, targets: Tensor) -> GraphReach:
        """Return the cheapest way from every node to one of the targets (t,)."""
        m = len(self.x)
        none = torch.full((m,), -1)
        if not len(targets) or self.matrix is None:
            return GraphReach(cost=torch.full((m,), torch.inf), after=none, end=none)
        cost, after, end = dijkstra(
            self.matrix.T.tocsr(), indices=targets.cpu().numpy(), min_only=True,
            return_predecessors=True,
        )  # fmt: skip
        return GraphReach(
            cost=torch.as_tensor(cost),
            after=torch.as_tensor(after).long().clamp(min=-1),
            end=torch.as_tensor(end).long().clamp(min=-1),
        )

    def radius(self, x: Tensor) -> Tensor:
        """Return the distance (a,) of rows to their k-th nearest node."""
        count = min(self.k + 1, len(self.x))
        parts = [
            torch.cdist(p, self.x).topk(count, dim=1, largest=False).values[:, -1]
            for p in torch.split(x, max(1, CHUNK // len(self.x)))
        ]
        return torch.cat(parts)

    def _blocks(self) -> tuple[Tensor, ...]:
        rows = torch.arange(len(self.x), device=self.x.device)
        return torch.split(rows, max(1, CHUNK // len(self.x)))

    def _near(self, x: Tensor, own: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return lengths and nodes (a, b) of near nodes, nearest first."""
        stretch = torch.ones_like(self.x[0])
        for f in self.space:
            if not f.mutable:
                stretch[list(f.columns)] = APART
        count = len(self.x) if self.kind == "epsilon" else min(WIDER * self.k, len(self.x))
        here, there = (x * stretch).double(), (self.x * stretch).double()
        far = torch.addmm(there.square().sum(1), here, there.T, alpha=-2)  # and |here|^2: no part
        if own is not None:
            far[torch.arange(len(x), device=x.device), own] = torch.inf
        if self.kind == "epsilon":
            count = max(1, int((torch.cdist(x, self.x) <= self.epsilon).sum(1).max()))
        away, node = far.topk(count, dim=1, largest=False)
        length = (x[:, None] - self.x[node]).norm(dim=-1)
        return length.masked_fill(away.isinf(), torch.inf), node

    def _allowed(self, a: Tensor, b: Tensor) -> Tensor:
        """Tell (c,) whether one may step from a (c, d) to b (c, d).

        Immutable labels must be equal and immutable numbers alike; the traveller keeps their own.
        """
        target, like = b.clone(), torch.ones_like(a[:, 0], dtype=torch.bool)
        for f in self.space:
            if f.mutable:
                continue
            columns = list(f.columns)
            width = f.upper - f.lower if math.isfinite(f.upper - f.lower) else 1.0
            least = self.likeness * width if f.kind == "continuous" else 1e-6
            like &= ((a[:, columns] - b[:, columns]).abs() <= least).all(1)
            target[:, columns] = a[:, columns]
        out = like.clone()
        at = like.nonzero()[:, 0]
        out[at] = Region.around(self.space, a[at]).contains(target[at])
        return out

    def _price(self, a: Tensor, b: Tensor, length: Tensor) -> Tensor:
        """Return the prices (a, c) of steps between points (a, c, d)."""
        if self.price == "length":
            return length
        level = self._level(a, b, length)
        return (self.peak - level).clamp(min=LEAST) * length

    def _level(self, a: Tensor, b: Tensor, length: Tensor) -> Tensor:
        """Return log-densities (a, c) halfway, up to a constant."""
        if self.price == "density" and self.density is not None:
            middle = ((a + b) / 2).flatten(0, 1)
            return self.density(middle).reshape(length.shape).to(length.dtype)
        return -self.x.shape[1] * length.clamp(min=1e-9).log()

    def _levels(self, rows: Tensor, length: Tensor, node: Tensor) -> Tensor:
        """Return log-densities halfway from some nodes (a,) to near ones (a, b)."""
        target = self.x[node]
        level = self._level(self.x[rows][:, None].expand_as(target), target, length)
        return level[length.isfinite()]
