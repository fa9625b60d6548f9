"""What densities have in common: context, log p, samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import DataError
from cel.models.estimator import PytorchBase
from cel.models.inputs import FitRows, flat_labels, value_matrix
from cel.models.training.by_hand import negated
from cel.models.training.schedule import FLOW_PRESETS
from cel.protocols import Task

__all__ = ["GenerativePytorchMixin"]


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
            self.n_context_ = value_matrix(rows.y).shape[1]
        self.n_outputs_ = self.n_context_

    def _encode_target(self, y: np.ndarray | None) -> Tensor | None:
        if self.context_kind_ == "none":
            return None
        if y is None:
            raise DataError("a conditional density needs a context for the validation rows, too")
        tensor = (
            torch.from_numpy(flat_labels(y).astype(np.int64))
            if self._by_class
            else value_matrix(y)
        )
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

    @negated
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
