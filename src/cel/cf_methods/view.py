"""One way to ask any model: tensors in, tensors out, every evaluation counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cel.errors import UnsupportedError
from cel.protocols import Task
from cel.search import Budget

if TYPE_CHECKING:
    from cel.models.trees import TreeView

__all__ = ["ModelView"]

CHUNK_VALUES = 2**24  # entries of one matrix handed to a model
CHUNK_ROWS = 1024  # of a network on the CPU: what its layers make of them stays in the cache


class ModelView:
    """A model as the searches see it.

    For classifiers `scores` are logits, or log-probabilities when the model has no logits; for
    regressors they are the predicted values. `margin` is positive exactly where a row has the
    wanted outcome.

    Args:
        model: any `Predictor`.
        tolerance: largest |prediction - target| of a regression answer, in units of the range.
        budget: counts evaluations.
    """

    def __init__(
        self, model: Any, *, tolerance: float = 0.05, budget: Budget | None = None
    ) -> None:
        self.model, self.tolerance = model, tolerance
        self.budget = budget or Budget()
        self.task = Task(model.task)

    @property
    def differentiable(self) -> bool:
        """Whether gradients reach the input."""
        return callable(getattr(self.model, "logits", None))

    def logits(self, x: Tensor) -> Tensor:
        """Return differentiable scores (n, K) or values (n, m)."""
        if not self.differentiable:
            raise UnsupportedError(
                f"{type(self.model).__name__} has no gradients; "
                "use a method that needs none, or an explicit surrogate"
            )
        self.budget.spend(len(x))
        out: Tensor = self.model.logits(x)
        return out

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """Return scores (n, K) or values (n, m) without gradients, in chunks."""
        if len(x) == 0:
            return torch.zeros(0, self.n_outputs, dtype=x.dtype, device=x.device)
        size = max(1, CHUNK_VALUES // max(x.shape[1], 1))
        if self.differentiable and x.device.type == "cpu":
            size = min(size, CHUNK_ROWS)
        return torch.cat([self._scores(part) for part in torch.split(x, size)])

    def _scores(self, x: Tensor) -> Tensor:
        self.budget.spend(len(x))
        if self.differentiable:
            out: Tensor = self.model.logits(x)
            return out.to(x.dtype)
        rows = x.detach().cpu().numpy()
        if self.task is Task.REGRESSION:
            values = np.asarray(self.model.predict(rows), dtype=np.float64).reshape(len(rows), -1)
        else:
            proba = np.asarray(self.model.predict_proba(rows), dtype=np.float64)
            values = np.log(np.clip(proba, 1e-12, None))
        return torch.as_tensor(values).to(x)

    @property
    def n_outputs(self) -> int:
        """Number of classes, or of regression outputs."""
        n = getattr(self.model, "n_outputs_", None)
        if n is not None:
            return int(n)
        return len(self.model.classes_) if self.task is Task.CLASSIFICATION else 1

    def margin_of(self, scores: Tensor, target: Tensor) -> Tensor:
        """Turn scores (n, K) into margins (n,): how far inside (+) or outside (-) the target.

        Classification: the target's score minus the best other one. Regression: the tolerance
        minus the largest |prediction - target|.
        """
        if self.task is Task.REGRESSION:
            return self.tolerance - (scores - target).abs().amax(-1)
        wanted = scores.gather(1, target[:, None])[:, 0]
        others = scores.scatter(1, target[:, None], -torch.inf).amax(-1)
        return wanted - others

    def margin(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the margins of the rows of `x` (n, d)."""
        return self.margin_of(self.scores(x), target)

    def outcome(self, x: np.ndarray) -> np.ndarray:
        """Predict as a user would: class positions (n,) or values (n, m)."""
        if self.task is Task.REGRESSION:
            values = np.asarray(self.model.predict(x), dtype=np.float64)
            return np.asarray(values.reshape(len(x), -1))
        return np.asarray(np.asarray(self.model.predict_proba(x)).argmax(1), dtype=np.int64)

    def achieved(self, outcome: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Tell for each row whether the outcome is the wanted one."""
        if self.task is Task.REGRESSION:
            return np.asarray(np.abs(outcome - target).max(1) <= self.tolerance)
        return np.asarray(outcome == target)

    def trees(self) -> TreeView | None:
        """Return the trees behind the scores, or None for a model that has none.

        Raises `UnsupportedError` with the reason for a foreign model whose trees cannot be read.
        """
        read = getattr(self.model, "trees_", None)
        return None if read is None else read()

    def linear(self) -> tuple[Tensor, Tensor] | None:
        """Return (W (K, d), b (K,)) when the scores are linear in the input, else None."""
        parts = getattr(self.model, "linear_", None)
        return None if parts is None else parts()
