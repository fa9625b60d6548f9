"""A model from outside as a black box over encoded rows and raw tables."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from cel.errors import DataError, UnsupportedError, foreign_errors
from cel.models.adapters.calls import (
    Call,
    Classes,
    check_probabilities,
    two_columns,
)
from cel.models.adapters.decisions import Rule, decision_rule, stated_threshold
from cel.models.inputs import as_matrix
from cel.preprocessing import Encoded, Encoding
from cel.protocols import Task, positions
from cel.space import Target

__all__ = ["WrappedModel"]

RULE_ROWS = 1000  # that show how labels follow from probabilities


class WrappedModel(Encoded):
    """A black box over encoded rows and raw tables, made by `wrap`.

    Attributes:
        model: the model from outside.
        task: what it predicts.
        space_: encoded space, or None.
        pipeline_: what decodes rows for the model, or None.
        target_: the outcome, or None.
        classes_: labels in the order of `predict_proba`; empty for regression.
        hard: whether probabilities are only ones and zeros, because the model gives labels.
        rule: how labels follow from probabilities (`cel.models.adapters.decisions`).
    """

    def __init__(
        self,
        call: Call,
        task: Task,
        encoding: Encoding,
        classes: Classes,
        *,
        filler: pd.DataFrame | None = None,
    ) -> None:
        self.model, self.task, self._call = call.model, task, call
        self.encoding_ = encoding
        self.classes_, self._classes = classes.labels, classes
        self.hard = call.output == "labels"
        self.rule: Rule = "likeliest"
        self._trees: list[Any] = []  # shared by copies that decode in another way
        self._affine: list[Any] = []  # the same
        self.n_features_in_ = encoding.width
        self.n_outputs_ = len(self.classes_) or (self.target_.n_outputs if self.target_ else None)
        self._filler = filler
        self._decode: Callable[[Any], pd.DataFrame] = self._decoded

    @property
    def threshold(self) -> float | None:
        """Probability from which on the second of two classes is predicted; None: if likelier."""
        return self.rule if isinstance(self.rule, float) else None

    @property
    def reads_tables(self) -> bool:
        """Whether the model is asked with raw tables."""
        return self.pipeline_ is not None

    def bound(self, decode: Callable[[Any], pd.DataFrame]) -> WrappedModel:
        """Return the same model with another way from encoded rows to raw tables."""
        out = copy(self)
        out._decode = decode
        return out

    def with_target(self, target: Target) -> WrappedModel:
        """Return the same model with an outcome that is known better."""
        out = copy(self)
        out.encoding_ = replace(self.encoding_, target=target)
        out.n_outputs_ = len(out.classes_) or target.n_outputs
        out._decode = out._decoded
        return out

    def _decoded(self, x: Any) -> pd.DataFrame:
        """Return encoded rows as the table that the model is shown."""
        frame = self.encoding_.decode(x)
        sheet = self.encoding_.sheet
        if sheet is None:
            return frame
        for name, digits in sheet.decimals.items():
            if name in frame.columns and pd.api.types.is_float_dtype(frame[name].dtype):
                frame[name] = frame[name].round(digits)
        if self._filler is not None:
            for name in self._filler.columns:
                values = self._filler[name].array.take(np.zeros(len(frame), dtype=np.intp))
                frame[name] = pd.Series(values, index=frame.index)
        return frame[[n for n in sheet.names if n in frame.columns]]

    def __repr__(self) -> str:
        return f"WrappedModel({self.model!r})"

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (n,), or values (n, m) in units of the target's training range."""
        if self.task is Task.CLASSIFICATION:
            return np.asarray(self.classes_[self.decide(X)])
        values = np.asarray(self._answers(X), dtype=np.float64)
        values = values.reshape(len(values), -1)
        if self.target_ is not None and self.target_.lower:
            return self.target_.encode(values)
        return values

    def decide(self, X: Any) -> np.ndarray:
        """Return the positions (n,) in `classes_` of the labels that the model itself predicts."""
        own = self._own_labels(X)
        return positions(self, self.predict_proba(X)) if own is None else own

    def as_decided(self, frame: pd.DataFrame) -> WrappedModel:
        """Return the model with its rule from probabilities to labels, as some raw rows show it.

        Where there is none, its labels alone are explained.
        """
        rows = frame.iloc[:: max(1, -(-len(frame) // RULE_ROWS))]
        stated = stated_threshold(self.model, self._classes.order)

        def ask(some: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
            own = self._own_labels(some)
            proba = self.predict_proba(some)
            return proba, proba.argmax(1) if own is None else own

        try:
            if self._own_labels(rows) is None:
                return self
            rule = decision_rule(stated, ask, rows)
            if rule == "labels" and (ask(rows)[1] != ask(rows)[1]).any():
                return self  # it says other things every time
        except foreign_errors():
            return self  # it refuses some of the rows
        if rule == "likeliest":
            return self
        out = copy(self)
        out.rule = rule
        if rule == "labels":
            out._call, out.hard = self._call.by_labels(), True
            warnings.warn(
                f"{type(self.model).__name__}.predict does not follow its probabilities; what it "
                "predicts is explained, without them",
                UserWarning,
                stacklevel=3,
            )
        out._decode = out._decoded
        return out

    def _own_labels(self, X: Any) -> np.ndarray | None:
        """Return positions (n,) of the model's own labels; None where it names classes only."""
        if self._call.decide is None or self.hard or not len(X):
            return None
        answers = np.asarray(self._call.decisions(self._rows(X))).reshape(-1)
        hits = answers[:, None] == self._classes.theirs
        if hits.shape != (len(X), len(self._classes.order)) or not hits.any(1).all():
            return None
        order = np.asarray(self._classes.order, dtype=np.int64)
        return np.asarray(order[hits.argmax(1)])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K) in the order of `classes_`."""
        if self.task is Task.REGRESSION:
            raise UnsupportedError(f"{self!r} predicts values and has no probabilities")
        answers = self._answers(X)
        if self.hard:
            return self._from_labels(answers)
        scores = two_columns(np.asarray(answers, dtype=np.float64), self._call.output)
        if scores.shape[1] != len(self._classes.order):
            raise DataError(
                f"{type(self.model).__name__} gave {scores.shape[1]} columns for "
                f"{len(self._classes.order)} classes; name them with classes=[...]"
            )
        if self._call.output == "logits":
            scores = np.exp(scores - scores.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
        check_probabilities(scores)
        return self._ordered(scores)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy, or the mean R2 over outputs."""
        if self.task is Task.CLASSIFICATION:
            return float((self.predict(X) == np.asarray(y)).mean())
        truth = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        left = ((truth - self.predict(X)) ** 2).sum(0) / ((truth - truth.mean(0)) ** 2).sum(0)
        return float((1 - left).mean())

    def trees_(self) -> Any:
        """Return the model's trees as a `cel.models.trees.TreeView`, read once.

        Raises `UnsupportedError` with the reason where there are none that can be read.
        """
        if self.rule != "likeliest":
            raise UnsupportedError(f"{type(self.model).__name__} decides otherwise than its trees")
        if not self._trees:
            from cel.models.trees import tree_view

            self._trees.append(tree_view(self))
        return self._trees[0]

    def linear_(self) -> tuple[Tensor, Tensor] | None:
        """Return W (K, d) and b (K,) of a linear model over encoded rows, read once; else None."""
        if not self._affine:
            from cel.models.adapters.affine_weights import affine_weights

            plain = copy(self)
            plain._decode = plain._decoded
            self._affine.append(affine_weights(plain))
        parts: tuple[Tensor, Tensor] | None = self._affine[0]
        return parts

    def soft_trees_(self) -> Any:
        """Return a differentiable copy of the trees, `cel.models.trees.soft_trees.SoftTrees`."""
        from cel.models.trees.soft_trees import soft_trees

        return soft_trees(self, self.trees_())

    def _ordered(self, scores: np.ndarray) -> np.ndarray:
        """Return columns in the order of `classes_`; classes the model never saw get zero."""
        out = np.zeros((len(scores), len(self.classes_)))
        out[:, self._classes.order] = scores
        return out

    def _from_labels(self, answers: Any) -> np.ndarray:
        labels = np.asarray(answers).reshape(-1)
        hits = labels[:, None] == self._classes.theirs
        if not hits.any(1).all():
            raise DataError(f"the model predicted {labels[~hits.any(1)][0]!r}, an unknown label")
        return self._ordered(hits.astype(np.float64))

    def _answers(self, X: Any) -> Any:
        """Ask the model for all rows and check that it answers for each."""
        rows = self._rows(X)
        answers = self._call(rows)
        if len(answers) != len(rows):
            raise DataError(
                f"{type(self.model).__name__} gave {len(answers)} answers for {len(rows)} rows"
            )
        return answers

    def _rows(self, X: Any) -> Any:
        """Return rows as the model takes them: raw tables, or encoded arrays."""
        if isinstance(X, pd.DataFrame):
            sheet = self.encoding_.sheet
            return X if sheet is None else X[[n for n in sheet.names if n in X.columns]]
        x = as_matrix(X, width=self.n_features_in_)
        if self.pipeline_ is None:
            return x.detach().cpu().numpy()
        return self._decode(x)
