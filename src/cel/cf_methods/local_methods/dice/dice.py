"""DiCE: a set of diverse counterfactuals per row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.local_methods.dice.dpp import Diversity, GradientSettings, gradient_sets
from cel.cf_methods.local_methods.dice.genetic import GeneticSettings, genetic_sets
from cel.cf_methods.local_methods.dice.known_rows import neighbour_sets, small_changes_back
from cel.cf_methods.local_methods.dice.sampling import random_sets
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError, NotFittedError, UnsupportedError
from cel.protocols import Need, Predictor
from cel.space import FeatureSpace
from cel.space.distances import mad_scale

__all__ = ["DiCE"]

Search = Literal["random", "gradient", "kdtree", "genetic"]
TOTAL = {"random": 100, "gradient": 4, "kdtree": 4, "genetic": 4}


class DiCE(LocalMixin, BaseCounterfactualMethod):
    """Find `total_CFs` counterfactuals per row; all are kept, one is put forward.

    Four searches: "random" (default, as in published comparisons) redraws one more random feature
    of many copies until enough are valid; "gradient" minimises
    `mean hinge + a / (k d) sum dist - b det K`, with `K_ij = 1 / (1 + dist_ij)`, over whole sets;
    "kdtree" takes near training rows of the target class; "genetic" crosses and mutates them.
    `dist` is L1 over the median absolute deviation of each number (its range before `fit`), and
    one per label column. Afterwards small changes of numbers are given back where the outcome
    allows it.

    Changed from the library: any number of classes (hinge on the margin to the best other class);
    one-hot blocks stay on the simplex instead of paying a penalty; immutable features of near
    training rows are set to the row's own instead of dropping the neighbour; the genetic search
    draws mutations from the whole range and parents from the fitter half.

    Args:
        model: any classifier; "gradient" needs one with logits.
        method: "random", "gradient", "kdtree" or "genetic".
        total_CFs: size of a set; by default 100 for "random" and 4 otherwise.
        select: "closest" puts the member nearest to the row forward, "first" the first one.
        posthoc_sparsity: quantile of |x - median| below which a change of a number counts as
            small; None keeps all changes. Needs `fit`.
        samples: copies per row of the random search.
        proximity_weight: weight of the distance; by default .5 for "gradient", .2 for "genetic".
        diversity_weight: weight of the diversity ("gradient").
        sparsity_weight: weight of the number of changes ("kdtree" 1, "genetic" .2 by default).
        diversity: "dpp", "logdet" (for k of 30 and more, where det K underflows) or "avg_dist".
        lr: step size ("gradient").
        max_iter: steps ("gradient", 5000) or generations ("genetic", 500).
        patience: steps without a better set after which a row ends ("gradient").
        **options: see `Options`.

    Reference: Mothilal, Sharma and Tan, Explaining machine learning classifiers through diverse
    counterfactual explanations, FAT* 2020.
    """

    name: ClassVar[str] = "dice"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.PROBABILITIES})
    version: ClassVar[int] = 3
    reference: ClassVar[str] = "Mothilal et al., FAT* 2020, arXiv:1905.07697"
    _test_params: ClassVar[Mapping[str, Any]] = {"total_CFs": 10, "samples": 200}

    def __init__(
        self,
        model: Predictor,
        *,
        method: Search = "random",
        total_CFs: int | None = None,
        select: Literal["closest", "first"] = "closest",
        posthoc_sparsity: float | None = 0.1,
        samples: int = 1000,
        proximity_weight: float | None = None,
        diversity_weight: float = 1.0,
        sparsity_weight: float | None = None,
        diversity: Diversity = "dpp",
        lr: float = 0.05,
        max_iter: int | None = None,
        patience: int = 100,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.method, self.total_CFs, self.select = method, total_CFs, select
        self.posthoc_sparsity, self.samples = posthoc_sparsity, samples
        self.proximity_weight, self.diversity_weight = proximity_weight, diversity_weight
        self.sparsity_weight, self.diversity, self.lr = sparsity_weight, diversity, lr
        self.max_iter, self.patience = max_iter, patience

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        if self.method == "gradient" and not model.differentiable:
            raise UnsupportedError(
                f"DiCE(method='gradient') needs gradients; {type(self.model).__name__} has no "
                "logits(). Use method='random', 'kdtree' or 'genetic'"
            )

    def _fit(self, train: TrainRows) -> None:
        x = train.x.cpu().numpy().astype(np.float64)
        off_centre = np.abs(x - np.median(x, axis=0))
        self.mad_ = torch.as_tensor(mad_scale(x, self.space_), dtype=train.x.dtype)
        small = np.quantile(off_centre, self.posthoc_sparsity or 0.0, axis=0)
        self.small_ = torch.as_tensor(small, dtype=train.x.dtype).minimum(self.mad_)

    def _explain(self, query: Query) -> Answer:
        weight = self._weight(query)
        sets = self._sets(query, weight)
        if self.posthoc_sparsity is not None and hasattr(self, "small_"):
            sets = small_changes_back(query, sets, self.small_.to(query.x))
        distance = ((sets - query.x[:, None, :]).abs() * weight).sum(-1)
        distance = torch.nan_to_num(distance, nan=torch.inf)
        if self.select == "first":
            distance = torch.where(distance.isfinite(), torch.zeros_like(distance), distance)
        best = distance.argmin(1)
        x = sets[query.rows(), best]
        return Answer(x=x, sets=sets, infeasible=query.region.fixed.all(1))

    def _weight(self, query: Query) -> Tensor:
        """Return (d,) one over the unit of each number, one for label columns."""
        lay = query.region.layout
        width = lay.upper - lay.lower
        known = torch.where((width > 1e-9) & width.isfinite(), width, torch.ones_like(width))
        unit = self.mad_.to(query.x) if hasattr(self, "mad_") else known
        return torch.where(lay.numeric, 1 / unit, torch.ones_like(unit))

    def _sets(self, query: Query, weight: Tensor) -> Tensor:
        k = self._size()
        if k < 1:
            raise ConfigError(f"total_CFs must be at least 1, got {k}")
        train = getattr(self, "train_", None)
        if self.method == "random":
            samples = max(self.samples, k)
            return random_sets(query, k=k, samples=samples, seed=self.random_state)
        if self.method == "gradient":
            return gradient_sets(query, weight, self._gradient_settings(k))
        if self.method == "genetic":
            return genetic_sets(query, train, weight, self._genetic_settings(k))
        if train is None:
            raise NotFittedError("DiCE(method='kdtree') needs training rows; call fit(...) first")
        wanted = 1.0 if self.sparsity_weight is None else self.sparsity_weight
        return neighbour_sets(query, train, k=k, sparsity_weight=wanted)

    def _size(self) -> int:
        return TOTAL[self.method] if self.total_CFs is None else self.total_CFs

    def _copies_per_row(self) -> int:
        many = {"random": 3 * max(self.samples, self._size()), "gradient": 40 * self._size()}
        return max(self._copies, many.get(self.method, 60 * self._size()))

    def _gradient_settings(self, k: int) -> GradientSettings:
        return GradientSettings(
            k=k,
            proximity_weight=0.5 if self.proximity_weight is None else self.proximity_weight,
            diversity_weight=self.diversity_weight,
            diversity=self.diversity,
            lr=self.lr,
            steps=5000 if self.max_iter is None else self.max_iter,
            patience=self.patience,
        )

    def _genetic_settings(self, k: int) -> GeneticSettings:
        return GeneticSettings(
            k=k,
            proximity_weight=0.2 if self.proximity_weight is None else self.proximity_weight,
            sparsity_weight=0.2 if self.sparsity_weight is None else self.sparsity_weight,
            generations=500 if self.max_iter is None else self.max_iter,
        )
