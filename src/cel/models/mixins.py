"""What classifiers and what regressors have in common."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import DataError, UnsupportedError
from cel.models.estimator import PytorchBase
from cel.models.inputs import FitRows, flat_labels, value_matrix
from cel.models.training.by_hand import cross_entropy_slope, sloped
from cel.models.training.schedule import REGRESSOR_PRESETS
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space import Target

__all__ = ["ClassifierPytorchMixin", "RegressionPytorchMixin"]


class _Differentiable(PytorchBase):
    """Models whose module maps rows (n, d) to outputs (n, K)."""

    def logits(self, x: Tensor) -> Tensor:
        """Return (n, K) logits, or (n, m) values, in the dtype of `x`.

        The module is in eval mode and its parameters are frozen; gradients reach `x`.
        """
        x = self._input(x)
        out: Tensor = self.frozen(x.dtype)(x)
        return out


class ClassifierPytorchMixin(_Differentiable):
    """Labels to positions, cross entropy, probabilities, accuracy."""

    task: ClassVar[Task] = Task.CLASSIFICATION
    classes_: np.ndarray

    def _learn_target(self, rows: FitRows) -> None:
        if rows.y is None:
            raise DataError(f"{type(self).__name__} needs class labels y")
        if rows.target is not None:
            self.classes_ = np.arange(rows.target.n_outputs)
        else:
            self.classes_ = np.unique(flat_labels(rows.y))
            if len(self.classes_) > 1:
                labels = tuple(self.classes_.tolist())
                own = Target(names=("y",), task=Task.CLASSIFICATION, classes=labels)
                self.encoding_ = replace(self.encoding_, target=own)
        if len(self.classes_) < 2:
            raise DataError(f"y holds one class only, {self.classes_.tolist()}; two are needed")
        self.n_outputs_ = len(self.classes_)

    def _encode_target(self, y: np.ndarray | None) -> Tensor:
        """(n,) positions of the labels in `classes_`."""
        if y is None:
            raise DataError("validation rows need class labels, too")
        labels = flat_labels(y)
        place = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        wrong = self.classes_[place] != labels
        if wrong.any():
            label = labels[wrong].tolist()[0]
            hint = did_you_mean(str(label), map(str, self.classes_))
            raise DataError(f"label {label!r} was not seen in fit; {hint}")
        return torch.from_numpy(place.astype(np.int64))

    @sloped(cross_entropy_slope)
    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        x, y = batch
        logits: Tensor = module(x)
        return -logits.log_softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K)."""
        return self._over_rows(X, lambda x: self.logits(x).softmax(-1))

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable labels (n,)."""
        positions = self._over_rows(X, lambda x: self.logits(x).argmax(-1))
        return np.asarray(self.classes_[positions])

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy."""
        return float((self.predict(X) == np.asarray(y)).mean())

    def _state(self) -> dict[str, Any]:
        return {"classes_": self.classes_.tolist()}


class RegressionPytorchMixin(_Differentiable):
    """Values (n, m), squared error, R2."""

    presets = REGRESSOR_PRESETS
    task: ClassVar[Task] = Task.REGRESSION

    def _learn_target(self, rows: FitRows) -> None:
        if rows.y is None:
            raise DataError(f"{type(self).__name__} needs values y")
        self.n_outputs_ = self._encode_target(rows.y).shape[1]

    def _encode_target(self, y: np.ndarray | None) -> Tensor:
        """(n, m) values."""
        if y is None:
            raise DataError("validation rows need values y, too")
        return value_matrix(y)

    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        x, y = batch
        loss: Tensor = (module(x) - y).square().mean(-1)
        return loss

    def predict(self, X: Any) -> np.ndarray:
        """Return values (n, m) in the units of training."""
        return self._over_rows(X, self.logits)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Regression has no probabilities."""
        raise UnsupportedError(f"{type(self).__name__} predicts values and has no probabilities")

    def score(self, X: Any, y: Any) -> float:
        """Return R2, averaged over outputs; constant outputs are left out."""
        truth = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        residual = ((truth - self.predict(X)) ** 2).sum(0)
        spread = ((truth - truth.mean(0)) ** 2).sum(0)
        told = spread > 0
        return float((1 - residual[told] / spread[told]).mean()) if told.any() else float("nan")
