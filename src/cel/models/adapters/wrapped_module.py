"""A torch module from outside, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.models.adapters.calls import (
    Call,
    Classes,
)
from cel.models.adapters.own_units import OwnUnits
from cel.models.adapters.wrapped import WrappedModel
from cel.models.inputs import as_matrix
from cel.models.layers import FrozenModule
from cel.models.relu_view import ReluView, module_layers
from cel.preprocessing import Encoding
from cel.protocols import Task

__all__ = ["WrappedModule"]


class WrappedModule(WrappedModel):
    """A `torch.nn.Module` with gradients.

    It sees the columns of its owner's table in their order and units (labels as one column per
    category, truth values as 0 and 1), or encoded rows where a pipeline was given.
    """

    def __init__(
        self,
        call: Call,
        task: Task,
        encoding: Encoding,
        classes: Classes,
        *,
        units: OwnUnits | None = None,
    ) -> None:
        super().__init__(call, task, encoding, classes)
        self._units = units
        if len(classes.order) != len(classes.labels):
            raise ConfigError(
                f"the module's classes {classes.theirs.tolist()} are not all of the target's "
                f"{classes.labels.tolist()}"
            )
        self._inverse = np.argsort(classes.order).tolist()
        self._frozen = FrozenModule(self.model)

    def __repr__(self) -> str:
        return f"WrappedModule({type(self.model).__name__})"

    def logits(self, x: Tensor) -> Tensor:
        """Return (n, K) logits or (n, m) values; gradients reach `x`, parameters are frozen."""
        if x.dim() != 2 or self.n_features_in_ not in (None, x.shape[1]):
            raise DataError(f"expected (n, {self.n_features_in_}) rows, got {tuple(x.shape)}")
        return self._outputs(x if self._units is None else self._units(x))

    def _outputs(self, x: Tensor) -> Tensor:
        """Return (n, K) logits or (n, m) values of rows as the module takes them."""
        home = next(self.model.parameters(), x)
        out: Tensor = self._frozen.as_dtype(x.dtype)(x.to(home.device))
        out = out.flatten(1) if out.dim() > 1 else out[:, None]
        if self.task is Task.REGRESSION:
            low, width = self._range(out)
            return (out - low) / width
        if self._call.output == "proba":
            both = out if out.shape[1] > 1 else torch.cat([1 - out, out], 1)
            return both.clamp(min=torch.finfo(out.dtype).tiny).log()[:, self._inverse]
        both = out if out.shape[1] > 1 else torch.cat([-out / 2, out / 2], 1)
        return both[:, self._inverse]

    def _range(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a value is measured from and in: (0, 1) unless it is in its owner's units.

        A module over encoded rows gives values in units of the training range already.
        """
        if self._units is None or self.target_ is None or not self.target_.lower:
            return torch.zeros(1).to(like), torch.ones(1).to(like)
        low, high = (torch.tensor(v).to(like) for v in (self.target_.lower, self.target_.upper))
        return low, torch.where(high > low, high - low, torch.ones_like(low))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K)."""
        if self.task is Task.REGRESSION:
            raise UnsupportedError(f"{self!r} predicts values and has no probabilities")
        return np.asarray(self._apply(X).softmax(1).cpu().numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (n,), or values (n, m) in units of the target's training range."""
        if self.task is Task.CLASSIFICATION:
            return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
        return np.asarray(self._apply(X).cpu().numpy())

    @torch.no_grad()
    def _apply(self, X: Any) -> Tensor:
        if self._units is not None and isinstance(X, pd.DataFrame):
            return self._outputs(self._units.of_table(X))
        return self.logits(as_matrix(X, pipeline=self.pipeline_, width=self.n_features_in_))

    def relu_(self) -> ReluView:
        """Return the module's layers over encoded rows, read anew and checked.

        Raises `UnsupportedError` with the reason where it is no chain of Linear and ReLU layers.
        """
        who = type(self.model).__name__
        if self.task is Task.CLASSIFICATION and self._call.output == "proba":
            raise UnsupportedError(f"{who} gives probabilities; its last layer is not linear")
        layers = module_layers(self.model, who)
        if self._units is not None:
            layers[0] = self._units.encoded(*layers[0])
        if self.task is Task.CLASSIFICATION:
            weight, bias = layers[-1]
            if len(bias) == 1:
                weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
            layers[-1] = weight[self._inverse], bias[self._inverse]
        else:
            weight, bias = layers[-1]
            low, width = self._range(bias)
            layers[-1] = weight / width[:, None], (bias - low) / width
        return ReluView(tuple(layers)).check(self.logits, who)

    @property
    def reads_tables(self) -> bool:
        """Whether raw tables reach the module without CEL's own scaling."""
        return self._units is not None

    def bound(self, decode: Callable[[Any], pd.DataFrame]) -> WrappedModel:
        """Return the module itself: points reach it by a smooth map, not by decoding."""
        return self
