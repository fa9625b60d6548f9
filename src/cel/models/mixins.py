"""What classifiers, regressors and densities have in common."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import DataError, UnsupportedError
from cel.models.estimator import PytorchBase
from cel.models.inputs import FitRows
from cel.models.schedule import FLOW_PRESETS
from cel.protocols import Task
from cel.registry import did_you_mean

__all__ = ["ClassifierPytorchMixin", "GenerativePytorchMixin", "RegressionPytorchMixin"]


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
            self.classes_ = np.unique(_flat(rows.y))
        if len(self.classes_) < 2:
            raise DataError(f"y holds one class only, {self.classes_.tolist()}; two are needed")
        self.n_outputs_ = len(self.classes_)

    def _encode_target(self, y: np.ndarray | None) -> Tensor:
        """(n,) positions of the labels in `classes_`."""
        if y is None:
            raise DataError("validation rows need class labels, too")
        labels = _flat(y)
        place = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
        wrong = self.classes_[place] != labels
        if wrong.any():
            label = labels[wrong][0]
            hint = did_you_mean(str(label), map(str, self.classes_))
            raise DataError(f"label {label!r} was not seen in fit; {hint}")
        return torch.from_numpy(place.astype(np.int64))

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

    task: ClassVar[Task] = Task.REGRESSION

    def _learn_target(self, rows: FitRows) -> None:
        if rows.y is None:
            raise DataError(f"{type(self).__name__} needs values y")
        self.n_outputs_ = self._encode_target(rows.y).shape[1]

    def _encode_target(self, y: np.ndarray | None) -> Tensor:
        """(n, m) values."""
        if y is None:
            raise DataError("validation rows need values y, too")
        return _values(y)

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


class GenerativePytorchMixin(PytorchBase):
    """Conditional densities whose module maps rows and context to log p, (n, d), (n, c) -> (n,).

    The context is a class position (n,), one-hot for the module, or a value (n, m), handed on as
    it is. A density fitted without targets takes none. Modules sample through their method
    `sample(n, context, generator)`, with the context encoded, (n, c), or None.
    """

    presets = FLOW_PRESETS
    n_context_: int
    context_kind_: str
    """"class", "value" or "none"."""

    def _learn_target(self, rows: FitRows) -> None:
        """Integers are class positions, floating numbers are values, unless the target tells."""
        self.n_outputs_ = self.n_context_ = 0
        self.context_kind_ = "none"
        if rows.y is None:
            return
        task = rows.target.task if rows.target is not None else None
        whole = rows.y.ndim == 1 and rows.y.dtype.kind in "iub"
        if task is Task.CLASSIFICATION or (task is None and whole):
            self.context_kind_ = "class"
            known = rows.target.n_outputs if rows.target is not None else 0
            self.n_context_ = max(known, int(rows.y.max()) + 1)
        else:
            self.context_kind_ = "value"
            self.n_context_ = _values(rows.y).shape[1]
        self.n_outputs_ = self.n_context_

    def _encode_target(self, y: np.ndarray | None) -> Tensor | None:
        if self.context_kind_ == "none":
            return None
        if y is None:
            raise DataError("a conditional density needs a context for the validation rows, too")
        tensor = torch.from_numpy(_flat(y).astype(np.int64)) if self._by_class else _values(y)
        return self.encode_context(tensor, len(y))

    @property
    def _by_class(self) -> bool:
        return self.context_kind_ == "class"

    def encode_context(
        self, context: Tensor | None, n: int, dtype: torch.dtype = torch.float32
    ) -> Tensor | None:
        """Return the context as the module takes it, (n, c); one row serves all `n`."""
        if self.context_kind_ == "none":
            if context is not None:
                raise DataError("this density was fitted without targets and takes no context")
            return None
        if context is None:
            raise DataError(f"this density needs a context: a {self.context_kind_} for each row")
        context = torch.as_tensor(context)
        shape = tuple(context.shape)
        context = context.reshape(-1) if self._by_class else context.reshape(len(context), -1)
        wide = not self._by_class and context.shape[1] != self.n_context_
        if len(context) not in (1, n) or wide:
            wanted = f"({n},)" if self._by_class else f"({n}, {self.n_context_})"
            raise DataError(f"the context has shape {shape}, wanted {wanted}, or one row")
        if self._by_class:
            context = self._one_hot(context.long())
        return context.to(dtype).expand(n, -1)

    def _one_hot(self, positions: Tensor) -> Tensor:
        outside = (positions < 0) | (positions >= self.n_context_)
        if bool(outside.any()):
            raise DataError(
                f"class {int(positions[outside][0])} was not seen in fit; use 0 to "
                f"{self.n_context_ - 1}"
            )
        return nn.functional.one_hot(positions, self.n_context_)

    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        loss: Tensor = -module(*batch)
        return loss

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context), (n,), in the dtype of `x`; gradients reach `x`."""
        x = self._input(x)
        encoded = self.encode_context(context, len(x), x.dtype)
        batch = (x,) if encoded is None else (x, encoded.to(x.device))
        out: Tensor = self.frozen(x.dtype)(*batch)
        return out

    @torch.no_grad()
    def sample(
        self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw `n` rows (n, d); the same ones each time unless a generator is given."""
        encoded = self.encode_context(context, n)
        module: Any = self.frozen()
        device = next(self.module_.parameters(), torch.empty(0)).device
        if generator is None:
            generator = torch.Generator(device).manual_seed(self.random_state)
        drawn: Tensor = module.sample(
            n, None if encoded is None else encoded.to(device), generator
        )
        return drawn

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log density of rows given their targets."""
        rows = torch.from_numpy(self._over_rows(X, lambda part: part))
        context = None if y is None else torch.as_tensor(np.asarray(y))
        with torch.no_grad():
            return float(self.log_prob(rows, context).mean())

    def _state(self) -> dict[str, Any]:
        return {"context_kind_": self.context_kind_, "n_context_": self.n_context_}


def _flat(y: np.ndarray) -> np.ndarray:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"class labels must be of shape (n,), got {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError("a class label is not a number")
    return y


def _values(y: np.ndarray) -> Tensor:
    if y.dtype.kind not in "fiub":
        raise DataError(f"values of dtype {y.dtype} are not numbers")
    values = torch.from_numpy(np.array(y, dtype=np.float32).reshape(len(y), -1))
    if not bool(values.isfinite().all()):
        raise DataError("y holds a value that is not finite")
    return values
