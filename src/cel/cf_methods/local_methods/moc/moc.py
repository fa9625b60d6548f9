"""MOC: counterfactuals as trade-offs, by a genetic search for four objectives at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.moc.front_search import (
    Fronts,
    FrontSettings,
    front_of,
)
from cel.cf_methods.local_methods.moc.gower_parts import Reference
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.parameters import at_least, check_positive, check_shares
from cel.protocols import Need, Predictor, Support, Task
from cel.space import FeatureSpace

__all__ = ["MOC"]


class MOC(LocalMixin, BaseCounterfactualMethod):
    """Search the trade-offs between outcome, nearness, sparsity and likeness to data.

    NSGA-II on four objectives, all minimised: how far the prediction is from the wanted one; the
    Gower distance to the row; the number of changed features; the mean Gower distance to the `k`
    nearest training rows. At first a feature differs from the row with a probability that grows
    with the spread of the prediction along it. Children mix two parents, mutate, and give some
    features back to the row. People survive by front, then by how lonely they are among objectives
    and features. Individuals of the first front that have the outcome are kept in `x_sets`, and
    the nearest of them is put forward; `logs["front"]` holds the objectives of the whole front.

    Args:
        model: any predictor.
        mu: individuals per row.
        generations: most generations.
        patience: generations without growth of the dominated volume after which a row ends; None
            to use all.
        p_rec: probability that two parents are mixed.
        p_rec_gen: probability that a feature of theirs is.
        p_mut: probability that a child mutates.
        p_mut_gen: probability that a feature of it does.
        p_use_orig: probability that a feature of a child is given back to the row.
        k: training rows to which likeness is measured.
        penalty: individuals that miss the outcome by more end in the last fronts; None for none.
        donors: share of the first individuals that are near training rows with the outcome.
        ice_points: values of each feature that are tried for the first individuals.
        max_rows: training rows kept for the last objective, drawn once; None for all.
        **options: see `Options`.

    Reference: Dandl, Molnar, Binder and Bischl, Multi-objective counterfactual explanations,
    PPSN 2020.
    """

    name: ClassVar[str] = "moc"
    tasks: ClassVar[frozenset[Task]] = frozenset(Task)
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS, Need.PROBABILITIES})
    supports: ClassVar[frozenset[Support]] = frozenset(Support)
    reference: ClassVar[str] = "Dandl et al., PPSN 2020, arXiv:2004.11165"
    version: ClassVar[int] = 2
    takes_intervals: ClassVar[bool] = True
    _test_params: ClassVar[Mapping[str, Any]] = {"mu": 20, "generations": 25, "ice_points": 6}

    def __init__(
        self,
        model: Predictor,
        *,
        mu: int = 40,
        generations: int = 60,
        patience: int | None = 10,
        p_rec: float = 0.71,
        p_rec_gen: float = 0.62,
        p_mut: float = 0.73,
        p_mut_gen: float = 0.5,
        p_use_orig: float = 0.4,
        k: int = 1,
        penalty: float | None = None,
        donors: float = 0.5,
        ice_points: int = 10,
        max_rows: int | None = 500,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.mu, self.generations, self.patience = mu, generations, patience
        self.p_rec, self.p_rec_gen = p_rec, p_rec_gen
        self.p_mut, self.p_mut_gen, self.p_use_orig = p_mut, p_mut_gen, p_use_orig
        self.k, self.penalty, self.donors = k, penalty, donors
        self.ice_points, self.max_rows = ice_points, max_rows

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "generations", "k")
        at_least(self, 2, "mu", "ice_points")
        at_least(self, 1, "patience", "max_rows")
        at_least(self, 0, "penalty")
        names = ["p_rec", "p_rec_gen", "p_mut", "p_mut_gen", "p_use_orig", "donors"]
        check_shares(self, names, closed=True)

    def _fit(self, train: TrainRows) -> None:
        x, y = train.x.to(self._device()), train.y.to(self._device())
        sd = x.std(0)
        if self.max_rows is not None and len(x) > self.max_rows:
            rng = np.random.default_rng(self.random_state)
            some = np.sort(rng.choice(len(x), self.max_rows, replace=False))
            x, y = x[torch.as_tensor(some)], y[torch.as_tensor(some)]
        unit = torch.as_tensor(_gower_units(self.space_)).to(x)
        self.known_ = Reference(x=x, y=y, unit=unit, sd=sd)

    def _explain(self, query: Query) -> Answer:
        stuck = query.region.fixed.all(1)
        fronts = front_of(query, self.known_, self._settings())
        sets = _valid_first(fronts, query)
        return Answer(
            x=sets[:, 0],
            sets=sets,
            infeasible=stuck,
            row_logs={"front": _told(fronts)},
        )

    def _copies_per_row(self) -> int:
        return 20 * self.mu + 4 * self.ice_points * len(self.space_)

    def _settings(self) -> FrontSettings:
        return FrontSettings(
            mu=self.mu,
            generations=self.generations,
            patience=self.patience,
            p_rec=self.p_rec,
            p_rec_gen=self.p_rec_gen,
            p_mut=self.p_mut,
            p_mut_gen=self.p_mut_gen,
            p_use_orig=self.p_use_orig,
            k=self.k,
            penalty=self.penalty,
            donors=self.donors,
            ice_points=self.ice_points,
        )


def _gower_units(space: FeatureSpace) -> np.ndarray:
    """Return (d,) what a difference of each column adds to the Gower distance.

    A change of category switches two columns, each of which counts half.
    """
    width = space.vector("upper") - space.vector("lower")
    unit = 1 / np.where(np.isfinite(width) & (width > 0), width, 1.0)
    for f in space.one_hot_features:
        unit[list(f.columns)] = 0.5
    return np.asarray(unit / len(space))


def _valid_first(fronts: Fronts, query: Query) -> Tensor:
    """Return the people of the first fronts with the wanted outcome, nearest first, NaN padded."""
    good = fronts.first & (fronts.values[..., 0] == 0)
    good &= (fronts.x != query.x[:, None, :]).any(-1)
    price = fronts.values[..., 1].masked_fill(~good, torch.inf)
    order = price.argsort(dim=1, stable=True)
    x = fronts.x.gather(1, order[..., None].expand_as(fronts.x))
    keep = good.gather(1, order)[..., None]
    return torch.where(keep, x, torch.full_like(x, torch.nan))


def _told(fronts: Fronts) -> list[list[list[float]]]:
    """Return the objectives of each first front, row by row."""
    values, first = fronts.values.cpu().numpy(), fronts.first.cpu().numpy()
    return [v[f].round(6).tolist() for v, f in zip(values, first, strict=True)]
