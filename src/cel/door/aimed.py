"""A model seen through a wish: two outcomes, as wanted or not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.view import ModelView
from cel.door.wanted import Aim
from cel.preprocessing import Encoded, Encoding
from cel.protocols import Task
from cel.result import ExplanationResult
from cel.space import Target

__all__ = ["AimedModel", "translated"]

CLEAR = 1e-9  # what tells the two outcomes apart where they are just as likely


class AimedModel(Encoded):
    """A classifier whose classes are "other" and "wanted".

    Every method then searches for the wish itself: a set of classes, or a probability. Gradients,
    weights and trees of the model are passed on where the wish leaves them what they are.

    Args:
        model: the model.
        aim: the wish.
    """

    task = Task.CLASSIFICATION
    n_outputs_ = 2

    def __init__(self, model: Any, aim: Aim) -> None:
        self.model, self.aim = model, aim
        outcome = Target(names=("wish",), task=Task.CLASSIFICATION, classes=("other", "wanted"))
        self.encoding_ = replace(Encoding.of(model), target=outcome)
        self.classes_ = np.array(["other", "wanted"], dtype=object)
        self.n_features_in_ = getattr(model, "n_features_in_", None)
        self.device = getattr(model, "device", "cpu")
        if callable(getattr(model, "decide", None)):
            self.decide = self._decide
        binary = aim.at_least is not None and len(model.classes_) == 2
        if callable(getattr(model, "logits", None)):
            self.logits = self._logits
        if binary and callable(getattr(model, "linear_", None)):
            self.linear_ = self._linear
        if binary and callable(getattr(model, "trees_", None)):
            self.trees_ = self._shifted_trees

    def __repr__(self) -> str:
        return f"AimedModel({self.model!r})"

    @property
    def reads_tables(self) -> bool:
        """Whether the model is asked with raw tables."""
        return bool(getattr(self.model, "reads_tables", False))

    def bound(self, decode: Callable[[Any], Any]) -> AimedModel:
        """Return the same view of a model that decodes in another way."""
        return AimedModel(self.model.bound(decode), self.aim)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return (n, 2): a row is as wanted exactly where the second is the larger."""
        proba = np.asarray(self.model.predict_proba(X), dtype=np.float64)
        wanted = 1 / (1 + np.exp(-np.clip(self.aim.margin(proba), -27, 27)))
        met = self.aim.met(proba)
        wanted = np.where(met, np.fmax(wanted, 0.5 + CLEAR), np.fmin(wanted, 0.5 - CLEAR))
        return np.stack([1 - wanted, wanted], 1)

    def predict(self, X: Any) -> np.ndarray:
        """Return "other" or "wanted", shape (n,)."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])

    def _decide(self, X: Any) -> np.ndarray:
        """Return 1 (n,) where a row is as wanted, by what the model itself predicts."""
        if self.aim.at_least is not None and not self.aim.label:
            return np.asarray(self.predict_proba(X).argmax(1))
        return np.isin(self.model.decide(X), self.aim.classes).astype(np.int64)

    @property
    def _odds(self) -> float:
        assert self.aim.at_least is not None
        return math.log(self.aim.at_least / (1 - self.aim.at_least))

    def _logits(self, x: Tensor) -> Tensor:
        scores = self.model.logits(x)
        inside = torch.zeros(scores.shape[1], dtype=torch.bool, device=scores.device)
        inside[list(self.aim.classes)] = True
        if self.aim.at_least is None:
            away = scores[:, inside].amax(1) - scores[:, ~inside].amax(1)
        else:
            away = scores[:, inside][:, 0] - scores[:, ~inside].logsumexp(1) - self._odds
        return torch.stack([torch.zeros_like(away), away], 1)

    def _linear(self) -> tuple[Tensor, Tensor] | None:
        parts = self.model.linear_()
        if parts is None:
            return None
        weight, bias = parts
        yes = self.aim.classes[0]
        order = [1 - yes, yes]
        shift = torch.tensor([self._odds, 0.0]).to(bias)
        return weight[order], bias[order] + shift

    def _shifted_trees(self) -> Any:
        view = self.model.trees_()
        if view is None or view.link == "identity":
            return None
        yes = self.aim.classes[0]
        order, p = [1 - yes, yes], self.aim.at_least or 0.5
        value, base = view.value[:, order], view.base[order]
        if view.link == "mean":
            share = np.array([p, 1 - p])
            return replace(view, value=value * share, base=base * share, absent=view.absent[order])
        shift = np.array([self._odds, 0.0])
        return replace(view, value=value, base=base + shift, absent=view.absent[order])


def translated(result: ExplanationResult, model: Any, aim: Aim) -> ExplanationResult:
    """Return a result about a wish with the classes of the model itself."""
    bad = np.asarray(result.y_origs) < 0
    y = np.full(len(result), -1, dtype=np.int64)
    use = np.flatnonzero(~bad & (result.status != "error"))
    if len(use):
        asked = result.x_origs[use] if result.rows is None else result.rows.iloc[use]
        y[use] = ModelView(model).outcome(asked)
    wanted = np.full(len(result), aim.classes[0], dtype=np.int64)
    y_cfs = np.full(len(result), -1, dtype=np.int64)
    have = np.flatnonzero(result.has_candidate)
    if len(have):
        answers = result._answers(result.x_cfs[have], have) if result.rows is not None else None
        after = np.asarray(model.predict_proba(result.x_cfs[have] if answers is None else answers))
        y_cfs[have] = ModelView(model).outcome(result.x_cfs[have] if answers is None else answers)
        wanted[have] = aim.best(after)
    context = result.context
    if context is not None:
        own = context.model.model if isinstance(context.model, AimedModel) else model
        context = replace(context, model=own, y_train=None)
    return replace(
        result, y_origs=y, y_cf_targets=wanted, y_cfs=y_cfs, target=Encoding.of(model).target,
        context=context,
    )  # fmt: skip
