"""One way to ask any model: tensors in, tensors out, every evaluation counted."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cel.errors import UnsupportedError, foreign_errors
from cel.protocols import Predictor, Task, positions
from cel.search import Budget

if TYPE_CHECKING:
    import pandas as pd

    from cel.models.relu_view import ReluView
    from cel.models.trees import TreeView
    from cel.models.trees.soft_trees import SoftTrees
    from cel.preprocessing import GivenRows
    from cel.space import FeatureSpace

__all__ = ["ModelView"]

CHUNK_VALUES = 2**24  # entries of one matrix handed to a model
SPREAD = 1000  # points that tell whether columns make a difference
MOST_REFUSALS = 50  # rows refused from the first on: then the model fails, not the rows
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
        self, model: Predictor, *, tolerance: float = 0.05, budget: Budget | None = None
    ) -> None:
        self.model: Any = model  # what it may offer beyond predictions is asked for here
        self.tolerance = tolerance
        self.budget = budget or Budget()
        self.task = Task(model.task)

    @property
    def reads_tables(self) -> bool:
        """Whether the model is asked with raw tables, as its owner asks it."""
        return bool(getattr(self.model, "reads_tables", False))

    def bound(self, decode: Callable[[Any], pd.DataFrame]) -> ModelView:
        """Return the view of a model that decodes points in another way; budgets are shared."""
        return ModelView(self.model.bound(decode), tolerance=self.tolerance, budget=self.budget)

    def reads_carried(self, given: GivenRows, rows: np.ndarray) -> bool:
        """Tell whether columns that only travel along make a difference to the model.

        Points all over the feature space are predicted twice, with what travels along taken from
        two different rows.
        """
        sheet = given.encoding.sheet
        if sheet is None or not sheet.carried:
            return False
        rng = np.random.default_rng(0)
        table = given.frame.iloc[rows]
        spread = given.decoder(rows)(_all_over(given.pipeline.space_, rng))
        points = [
            spread.assign(**{c: table[c].array.take(at) for c in sheet.carried})
            for at in rng.integers(len(rows), size=(2, len(spread)))
        ]
        ask = self.model.predict if self.task is Task.REGRESSION else self.model.predict_proba
        try:
            first, second = (np.asarray(ask(p)) for p in points)
        except foreign_errors():
            return True
        return not np.array_equal(first, second)

    def outcome_of_tables(self, frame: pd.DataFrame) -> tuple[np.ndarray, dict[int, str]]:
        """Predict the rows of a raw table; rows that the model refuses get its reason.

        An error that every row brings about is raised.
        """
        refused: dict[int, str] = {}
        errors: list[Exception] = []
        parts = self._halved(frame, 0, refused, errors)
        if errors and len(refused) == len(frame):
            raise errors[0]
        if not parts:
            return np.zeros(0, dtype=np.int64), {}
        known = next(p for start, p in parts if start not in refused)
        shape = (len(frame), *known.shape[1:])
        out = np.full(shape, -1 if known.ndim == 1 else np.nan, dtype=known.dtype)
        for start, part in parts:
            if start not in refused:
                out[start : start + len(part)] = part
        return out, refused

    def _halved(
        self, frame: pd.DataFrame, start: int, refused: dict[int, str], errors: list[Exception]
    ) -> list[tuple[int, np.ndarray]]:
        """Ask about all rows at once, about half of them after a failure, and so on."""
        if not len(frame):
            return []
        try:
            return [(start, self.outcome(frame))]
        except foreign_errors() as error:
            errors.append(error)
            if len(frame) == 1:
                refused[start] = f"the model refused it: {error}"
                return [(start, np.zeros(1))]
            if len(refused) > MOST_REFUSALS and len(refused) == start:
                raise
        half = len(frame) // 2
        first = self._halved(frame.iloc[:half], start, refused, errors)
        return first + self._halved(frame.iloc[half:], start + half, refused, errors)

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
        return self._decided(out)

    @torch.no_grad()
    def scores(self, x: Tensor) -> Tensor:
        """Return scores (n, K) or values (n, m) without gradients, in chunks."""
        if len(x) == 0:
            return torch.zeros(0, self.n_outputs, dtype=x.dtype, device=x.device)
        size = max(1, CHUNK_VALUES // max(x.shape[1], 1))
        if self.differentiable and x.device.type == "cpu":
            size = min(size, CHUNK_ROWS)
        if self.budget.strict:
            return torch.cat(self._timed_scores(x, size))
        return torch.cat([self._scores(part) for part in torch.split(x, size)])

    def _timed_scores(self, x: Tensor, size: int) -> list[Tensor]:
        """Ask about so many rows at once that the time limit can be kept."""
        parts, at, rate = [], 0, self.budget.rate
        while at < len(x):
            part = x[at : at + int(min(size, self.budget.rows_at_once(rate)))]
            began = self.budget.elapsed()
            parts.append(self._scores(part))
            took = self.budget.elapsed() - began
            rate = self.budget.rate = len(part) / max(took, 1e-9)
            at += len(part)
        return parts

    def _scores(self, x: Tensor) -> Tensor:
        self.budget.spend(len(x))
        if self.differentiable:
            out: Tensor = self.model.logits(x)
            return self._decided(out.to(x.dtype))
        rows = x.detach().cpu().numpy()
        if self.task is Task.REGRESSION:
            values = np.asarray(self.model.predict(rows), dtype=np.float64).reshape(len(rows), -1)
        else:
            proba = np.asarray(self.model.predict_proba(rows), dtype=np.float64)
            values = np.log(np.clip(proba, 1e-12, None))
        return self._decided(torch.as_tensor(values).to(x))

    def _decided(self, scores: Tensor) -> Tensor:
        """Move the scores of two classes so that the larger one is what the model decides on."""
        threshold = getattr(self.model, "threshold", None)
        if threshold is None:
            return scores
        odds = math.log(threshold / (1 - threshold))
        return scores - scores.new_tensor([0.0, odds])

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
        minus the largest |prediction - target|; for targets (n, 2 m) of lower and upper ends the
        distance to the nearer end.
        """
        if self.task is Task.REGRESSION and target.shape[-1] == 2 * scores.shape[-1]:
            low, high = target.chunk(2, -1)
            return torch.minimum(scores - low, high - scores).amin(-1)
        if self.task is Task.REGRESSION:
            return self.tolerance - (scores - target).abs().amax(-1)
        wanted = scores.gather(1, target[:, None])[:, 0]
        others = scores.scatter(1, target[:, None], -torch.inf).amax(-1)
        return wanted - others

    def margin(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the margins of the rows of `x` (n, d)."""
        return self.margin_of(self.scores(x), target)

    def outcome(self, x: Any) -> np.ndarray:
        """Predict encoded rows or a raw table: class positions (n,) or values (n, m)."""
        if self.task is Task.REGRESSION:
            values = np.asarray(self.model.predict(x), dtype=np.float64)
            return np.asarray(values.reshape(len(x), -1))
        decide = getattr(self.model, "decide", None)
        if decide is not None:
            return np.asarray(decide(x), dtype=np.int64)
        return positions(self.model, np.asarray(self.model.predict_proba(x)))

    def achieved(self, outcome: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Tell for each row whether the outcome is the wanted one."""
        if self.task is Task.REGRESSION and target.shape[1] == 2 * outcome.shape[1]:
            low, high = np.split(target, 2, axis=1)
            return np.asarray(((outcome >= low) & (outcome <= high)).all(1))
        if self.task is Task.REGRESSION:
            return np.asarray(np.abs(outcome - target).max(1) <= self.tolerance)
        return np.asarray(outcome == target)

    def trees(self) -> TreeView | None:
        """Return the trees behind the scores, or None for a model that has none.

        Raises `UnsupportedError` with the reason for a foreign model whose trees cannot be read.
        """
        read = getattr(self.model, "trees_", None)
        return None if read is None else read()

    def soft_trees(self) -> SoftTrees:
        """Return a copy of the trees in which every split sends a row both ways."""
        made: SoftTrees = self.model.soft_trees_()
        return made

    def relu(self) -> ReluView | None:
        """Return the layers behind the scores of a ReLU network, or None for another model.

        A linear model is a network without hidden layers. Raises `UnsupportedError` with the
        reason for a foreign module whose layers cannot be read.
        """
        parts = self.linear()
        if parts is not None:
            from cel.models.relu_view import ReluView

            weight, bias = (t.detach().double().cpu() for t in parts)
            return ReluView(((weight, bias),))
        read = getattr(self.model, "relu_", None)
        return None if read is None else read()

    def linear(self) -> tuple[Tensor, Tensor] | None:
        """Return (W (K, d), b (K,)) when the scores are linear in the input, else None."""
        parts = getattr(self.model, "linear_", None)
        return None if parts is None else parts()


def _all_over(space: FeatureSpace, rng: np.random.Generator) -> np.ndarray:
    """Return points (m, d) drawn uniformly from the box and the categories of a space."""
    x = rng.uniform(space.vector("lower"), space.vector("upper"), (SPREAD, space.width))
    for f in space.one_hot_features:
        codes = rng.integers(len(f.columns), size=SPREAD)
        x[:, list(f.columns)] = np.eye(len(f.columns))[codes]
    return x.astype(np.float32)
