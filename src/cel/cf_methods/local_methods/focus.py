"""FOCUS (Lucic et al., 2022): descend a soft copy of the trees, ask the hard ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.view import ModelView
from cel.models.trees import TreeView
from cel.models.trees.soft_trees import SoftTrees
from cel.parameters import check_positive
from cel.protocols import Need, Predictor, Support
from cel.search import Adam, gradient_search
from cel.search.gradient import RowFunction
from cel.space import FeatureSpace

__all__ = ["FOCUS"]

CHECK_EVERY = 10  # steps between two looks at the real model
TINY = 1e-12


class FOCUS(LocalMixin, BaseCounterfactualMethod):
    """Descend `[f(x') is not the class] (1 - p(x')) + beta |x' - x|` through softened trees.

    In the copy, a split at a threshold sends a row left with weight
    `sigmoid(sharpness (threshold - x))`; a leaf counts by the product of its splits. Averaged
    votes of forests are the probabilities p; sums of boosted trees become so by a softmax with
    `temperature`. Where the hard trees say the class, only the distance is descended. Of all
    iterates that the real model accepts the nearest one is the answer.

    Args:
        model: a wrapped tree ensemble, see `cel.models.trees`.
        sharpness: slope of the sigmoids per unit of an encoded column.
        temperature: factor of the sums of boosted trees.
        beta: weight of the distance.
        lr: step size of Adam.
        steps: of the descent.
        options: see `Options`.

    References:
        Lucic, Oosterhuis, Haned and de Rijke: FOCUS: flexible optimizable counterfactual
        explanations for tree ensembles. AAAI 2022.
    """

    name = "focus"
    version: ClassVar[int] = 2  # rows with missing numbers are read
    needs = frozenset({Need.TREES, Need.TRAIN_ROWS})
    supports = frozenset(Support) - {Support.MULTIOUTPUT}
    reference = "Lucic et al., AAAI 2022, arXiv:1911.12199"
    _copies: ClassVar[int] = 1000
    _test_params: ClassVar[Mapping[str, Any]] = {"sharpness": 10.0, "lr": 0.02, "steps": 100}

    def __init__(
        self,
        model: Predictor,
        *,
        sharpness: float = 1.0,
        temperature: float = 1.0,
        beta: float = 0.01,
        lr: float = 0.001,
        steps: int = 1000,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.sharpness, self.temperature = sharpness, temperature
        self.beta, self.lr, self.steps = beta, lr, steps

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        check_positive(self, "sharpness", "temperature", "lr", "steps")
        check_positive(self, "beta", zero=True)

    def _fit(self, train: TrainRows) -> None:
        self.soft_ = ModelView(self.model).soft_trees()

    def _explain(self, query: Query) -> Answer:
        view = query.model.trees()
        assert view is not None
        found = gradient_search(
            self._loss(query, view, self.soft_), query.x, stepper=Adam(self.lr),
            project=query.project, accept=query.accept, cost=_distance(query),
            steps=self.steps, check_every=CHECK_EVERY, budget=query.budget,
        )  # fmt: skip
        return Answer(x=found.x)

    def _loss(self, query: Query, view: TreeView, soft: SoftTrees) -> RowFunction:
        far = _distance(query)

        def loss(x: Tensor, rows: Tensor) -> Tensor:
            target = query.target[rows]
            hard = torch.as_tensor(view.sums(x)).argmax(1).to(target.device)
            p = self._probability(soft(x, self.sharpness), view, target)
            return (hard != target).to(x) * (1 - p) + self.beta * far(x, rows)

        return loss

    def _probability(self, sums: Tensor, view: TreeView, target: Tensor) -> Tensor:
        """Return the soft probability (a,) of the wanted class."""
        if view.link == "mean":
            shares = sums / sums.sum(1, keepdim=True).clamp(min=TINY)
        else:
            shares = (self.temperature * sums).softmax(1)
        return shares.gather(1, target[:, None])[:, 0]


def _distance(query: Query) -> RowFunction:
    """Return the Euclidean distance to the rows; a changed category counts 1."""
    weight = torch.where(query.region.layout.numeric, 1.0, 0.5).to(query.x)

    def far(x: Tensor, rows: Tensor) -> Tensor:
        return ((x - query.x[rows]).square() @ weight + TINY).sqrt()

    return far
