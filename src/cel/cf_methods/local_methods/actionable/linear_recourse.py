"""From regions and linear models to programs of choices, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.solvers.choices import ChoicePrograms
from cel.space import Feature, FeatureSpace
from cel.space.constraints import Implication
from cel.space.region import Region

__all__ = ["Percentiles", "Recourse"]

FAR = 1e6  # stands for an infinite bound


class Percentiles:
    """Ranks of training rows (m, d): what share of them lies at or below a value.

    >>> ranks = Percentiles(np.array([[1.0], [2.0], [4.0]]), levels=10)
    >>> ranks.of(np.array([0.0, 2.0, 9.0]), 0).round(2)
    array([0.  , 0.67, 1.  ])
    """

    def __init__(self, x: np.ndarray, levels: int) -> None:
        self.sorted = np.sort(np.asarray(x, dtype=np.float64), axis=0)
        self.share = np.asarray(x, dtype=np.float64).mean(0)
        self.levels = levels

    def of(self, values: np.ndarray, column: int) -> np.ndarray:
        """Return the ranks of values, in [0, 1]."""
        place = np.searchsorted(self.sorted[:, column], values + 1e-7, side="right")
        return np.asarray(place / len(self.sorted))

    def grid(self, f: Feature) -> np.ndarray:
        """Return the values that a number may take: known ones, at most `levels` of them."""
        column = self.sorted[:, f.columns[0]]
        if f.kind == "ordinal":
            return _levels(f)
        known = np.quantile(column, np.linspace(0, 1, self.levels), method="nearest")
        return np.unique(np.asarray(known, dtype=np.float64))

    def price(self, before: np.ndarray, after: np.ndarray, column: int, kind: str) -> np.ndarray:
        """Return the cost of moving from values (n,) to values (n, k)."""
        a, b = self.of(before, column)[:, None], self.of(after, column)
        if kind == "max_percentile":
            return np.asarray(np.abs(b - a))
        rest = 1 / (len(self.sorted) + 1)  # keeps the logarithm finite at the top
        return np.asarray(np.abs(np.log((1 - b + rest) / (1 - a + rest))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Recourse:
    """The programs of the rows of a query, and what their choices mean.

    Attributes:
        region: the regions.
        programs: one program per row.
        numbers: columns that are offsets.
        labels: features that are options.
        values: for each label the values (n, k, c) of its options in its columns.
    """

    region: Region
    programs: ChoicePrograms
    numbers: np.ndarray
    labels: tuple[Feature, ...]
    values: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        query: Query,
        *,
        aim: float,
        scale: np.ndarray,
        beta: float,
        kind: str = "l1_mad",
        ranks: Percentiles | None = None,
        linear: bool = True,
    ) -> Recourse:
        """Build the programs `margin >= aim` of all rows.

        Without `linear` their forms are the relations of the space alone: what the model demands
        is added elsewhere.
        """
        region, space = query.region, query.region.space
        percentile = kind != "l1_mad"
        labels = tuple(f for f in space if _is_label(f, space, percentile))
        numbers = np.array(
            [f.columns[0] for f in space if not _is_label(f, space, percentile)], dtype=np.int64
        )
        w, gap = _forms(query, aim) if linear else _related(query)
        options = [_options(f, region, ranks) for f in labels]
        k = max((len(v[0]) for v, _ in options), default=1)
        n = len(query)
        gain = np.zeros((n, w.shape[1], len(labels), k))
        price = np.full((n, len(labels), k), np.inf)
        x = query.x.double().cpu().numpy()
        for i, (f, (spots, known)) in enumerate(zip(labels, options, strict=True)):
            change = spots - x[:, None, list(f.columns)]
            size = spots.shape[1]
            gain[:, :, i, :size] = np.einsum("nmc,nkc->nmk", w[:, :, list(f.columns)], change)
            cost = _option_cost(f, spots, x, scale, kind, ranks) + beta
            cost[:, 0] = 0.0
            price[:, i, :size] = np.where(known, cost, np.inf)
        lower, upper, phase = _intervals(region, numbers)
        lay = region.layout
        weight = space.vector("weight")[numbers]
        programs = ChoicePrograms(
            w=w[:, :, numbers], gap=gap, lower=lower, upper=upper,
            slope=np.broadcast_to(weight / scale[numbers], lower.shape).copy(),
            charge=np.full(lower.shape, beta), step=lay.step.double().cpu().numpy()[numbers],
            phase=phase, gain=gain, price=price, rules=_rules(space, labels, options, k),
        )  # fmt: skip
        values = tuple(v for v, _ in options)
        return cls(region=region, programs=programs, numbers=numbers, labels=labels, values=values)

    def select(self, rows: np.ndarray) -> Recourse:
        """Return the programs of some rows."""
        p = self.programs
        names = ("w", "gap", "lower", "upper", "slope", "charge", "phase", "gain", "price")
        rules = [(a, ia[rows], b, ib[rows]) for a, ia, b, ib in p.rules]
        part = replace(p, rules=rules, **{n: getattr(p, n)[rows] for n in names})
        values = tuple(v[rows] for v in self.values)
        region = self.region.select(torch.as_tensor(rows, device=self.region.origin.device))
        return replace(self, region=region, programs=part, values=values)

    def capped(self, cap: np.ndarray) -> Recourse:
        """Return the programs without the options that cost more than (n,) a cap."""
        price = np.where(
            self.programs.price <= cap[:, None, None] + 1e-12, self.programs.price, np.inf
        )
        return replace(self, programs=replace(self.programs, price=price))

    def choices(self, x: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Return offsets (n, q) and options (n, g) of decodable points (n, d)."""
        at = x.double().cpu().numpy()
        offset = (at - self.region.origin.double().cpu().numpy())[:, self.numbers]
        option = np.zeros((len(at), len(self.labels)), dtype=np.int64)
        for i, f in enumerate(self.labels):
            far = np.abs(self.values[i] - at[:, None, list(f.columns)]).max(2)
            known = np.isfinite(self.programs.price[:, i, : far.shape[1]])
            option[:, i] = np.where(known, far, np.inf).argmin(1)
        return offset, option

    def points(self, offset: np.ndarray, option: np.ndarray) -> Tensor:
        """Return the points (n, d) of offsets (n, q) and options (n, g); NaN offsets stay NaN."""
        x = self.region.origin.double().cpu().numpy().copy()
        rows = np.arange(len(x))
        x[:, self.numbers] += offset
        for i, f in enumerate(self.labels):
            x[:, list(f.columns)] = self.values[i][rows, np.maximum(option[:, i], 0)]
        x[np.isnan(offset).any(1) | (option < 0).any(1)] = np.nan
        return torch.as_tensor(x).to(self.region.origin)


def _is_label(f: Feature, space: FeatureSpace, percentile: bool) -> bool:
    if f.is_categorical or percentile or (f.kind == "ordinal" and f.allowed is not None):
        return True
    return any(isinstance(r, Implication) and f.name in r.features for r in space.constraints)


def _forms(query: Query, aim: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the demands: the margin over every other class, then the relations of the space."""
    parts = query.model.linear()
    assert parts is not None  # LINEAR_MODEL is a need
    weight, bias = (t.detach().double().cpu() for t in parts)
    x, target = query.x.double().cpu(), query.target.cpu()
    others = torch.arange(len(bias) - 1)
    other = others + (others >= target[:, None])
    w = weight[target][:, None] - weight[other]
    gap = aim - (w * x[:, None]).sum(2) - (bias[target][:, None] - bias[other])
    related, room = _related(query)
    return np.concatenate([w.numpy(), related], 1), np.concatenate([gap.numpy(), room], 1)


def _related(query: Query) -> tuple[np.ndarray, np.ndarray]:
    """Return the relations of the space as demands (n, r, d) on changes, and their gaps (n, r)."""
    x, relations = query.x.double().cpu(), query.region.layout.relations.double().cpu()
    left = x @ relations.T
    bound = torch.maximum(left, query.region.layout.bounds.double().cpu())
    return -relations.expand(len(x), -1, -1).numpy(), (left - bound).numpy()


def _intervals(region: Region, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return smallest and largest offsets (n, q), and the offset of a grid point."""
    lay = region.layout
    x, low, high = (
        t.double().cpu().numpy()[:, numbers] for t in (region.origin, region.lower, region.upper)
    )
    step, anchor = (t.double().cpu().numpy()[numbers] for t in (lay.step, lay.anchor))
    unit = np.where(step > 0, step, 1.0)
    phase = np.where(step > 0, anchor + unit * np.round((x - anchor) / unit) - x, 0.0)
    phase = np.where(np.abs(phase) <= lay.tolerance.double().cpu().numpy()[numbers], 0.0, phase)
    return np.clip(low - x, -FAR, 0.0), np.clip(high - x, 0.0, FAR), phase


def _options(
    f: Feature, region: Region, ranks: Percentiles | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values (n, k, c) of a label, the present one first, and which may be taken."""
    x = region.origin.double().cpu().numpy()
    columns = list(f.columns)
    home = x[:, None, columns]
    if f.one_hot:
        values = np.broadcast_to(np.eye(len(columns)), (len(x), len(columns), len(columns)))
        known = region.reachable[:, columns].cpu().numpy() & (x[:, columns] < 0.5)
    else:
        levels = ranks.grid(f) if ranks is not None else _levels(f)
        values = np.broadcast_to(levels[:, None], (len(x), len(levels), 1))
        column, tolerance = columns[0], float(region.layout.tolerance[columns[0]])
        low, high = (
            t[:, column, None].double().cpu().numpy() for t in (region.lower, region.upper)
        )
        known = (values[..., 0] >= low - tolerance) & (values[..., 0] <= high + tolerance)
        known &= np.abs(values[..., 0] - x[:, column, None]) > tolerance
        if f.allowed is not None:
            known &= np.isin(levels, _levels(f)[list(f.allowed_mask)])
    stay = np.ones((len(x), 1), dtype=bool)
    return np.concatenate([home, values], 1), np.concatenate([stay, known], 1)


def _levels(f: Feature) -> np.ndarray:
    return np.asarray(f.anchor + (f.step or 1.0) * np.arange(max(len(f.categories), 1)))


def _option_cost(
    f: Feature,
    values: np.ndarray,
    x: np.ndarray,
    scale: np.ndarray,
    kind: str,
    ranks: Percentiles | None,
) -> np.ndarray:
    """Return the costs (n, k) of the options of a label."""
    column = f.columns[0]
    if f.one_hot:
        if ranks is None:
            return np.full(values.shape[:2], f.weight)
        rare = 1 - np.concatenate([[0.0], ranks.share[list(f.columns)]])
        return np.broadcast_to(f.weight * rare, values.shape[:2]).copy()
    if ranks is None:
        return np.asarray(f.weight * np.abs(values[..., 0] - x[:, column, None]) / scale[column])
    return np.asarray(f.weight * ranks.price(x[:, column], values[..., 0], column, kind))


def _rules(
    space: FeatureSpace,
    labels: tuple[Feature, ...],
    options: list[tuple[np.ndarray, np.ndarray]],
    k: int,
) -> list[tuple[int, np.ndarray, int, np.ndarray]]:
    """Return the implications as "not this, or that"; what a row breaks itself is excused."""
    names = [f.name for f in labels]
    rules = []
    for rule in space.constraints:
        if not isinstance(rule, Implication):
            continue
        a, b = names.index(rule.feature), names.index(rule.then_feature)
        given = _has(labels[a], rule.values, options[a][0], k)
        then = _has(labels[b], rule.then_values, options[b][0], k)
        excused = given[:, 0] & ~then[:, 0]
        rules.append((a, ~given | excused[:, None], b, then))
    return rules


def _has(f: Feature, values: tuple[object, ...], options: np.ndarray, k: int) -> np.ndarray:
    """Tell (n, k) which options of a label are one of some values."""
    wanted = np.array([c in values for c in f.categories])
    if f.one_hot:
        has = (options > 0.5) @ wanted.astype(float) > 0.5
    else:
        near = np.abs(options - _levels(f)) < (f.step or 1.0) / 2
        has = (near & wanted).any(2)
    return np.pad(has, ((0, 0), (0, k - has.shape[1])))
