"""Stand-ins for models: black boxes, functions as models, and models that count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cel.protocols import Task

__all__ = ["BlackBox", "Counting", "RuleModel", "ScoreModel", "SoftmaxModel"]

ASKED = ("logits", "predict", "predict_proba")


class BlackBox:
    """A model that tells its predictions and nothing else: no scores, no weights, no trees.

    >>> from cel.testing.problems import PROBLEMS
    >>> p = PROBLEMS["binary_numeric"]()
    >>> hasattr(BlackBox(p.model), "logits"), hasattr(BlackBox(p.model), "linear_")
    (False, False)
    """

    def __init__(self, model: Any) -> None:
        self.task, self.predict = model.task, model.predict
        for name in ("classes_", "n_outputs_", "predict_proba", "space_", "pipeline_", "target_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))


class Counting:
    """A model that counts the rows it is asked about, in whatever way; the rest is the model's.

    Attributes:
        asked: rows of each call, in order.

    >>> from cel.testing.problems import PROBLEMS
    >>> p = PROBLEMS["binary_numeric"]()
    >>> model = Counting(p.model)
    >>> _ = model.predict(p.x), model.predict_proba(p.x[:3])
    >>> model.asked, model.rows
    ([12, 3], 15)
    """

    def __init__(self, model: Any) -> None:
        self.model, self.asked = model, list[int]()

    @property
    def rows(self) -> int:
        """All rows so far."""
        return sum(self.asked)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["model"], name)
        if name not in ASKED:
            return found

        def ask(x: Any) -> Any:
            self.asked.append(len(x))
            return found(x)

        return ask


class _Classifier:
    """What models of probabilities share."""

    task = Task.CLASSIFICATION

    def __init__(self, classes: int) -> None:
        self.classes_, self.n_outputs_ = np.arange(classes), classes

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities (n, K)."""
        raise NotImplementedError

    def predict(self, X: Any) -> np.ndarray:
        """Return class positions (n,)."""
        return np.asarray(self.predict_proba(X).argmax(1))


class RuleModel(_Classifier):
    """A black box that is sure of what a rule says: rows (n, d) to class positions (n,).

    >>> RuleModel(lambda x: x[:, 0] > 0.5).predict(np.array([[0.2], [0.9]]))
    array([0, 1])
    """

    def __init__(self, rule: Callable[[np.ndarray], Any], classes: int = 2) -> None:
        super().__init__(classes)
        self.rule = rule

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return 0.99 for what the rule says, the rest for the others (two classes)."""
        labels = np.asarray(self.rule(np.asarray(X))).astype(int)
        return np.asarray(0.01 + 0.98 * np.eye(self.n_outputs_)[labels])


class ScoreModel(_Classifier):
    """A black box of two classes from a function: rows (n, d) to the score (n,) of class 1.

    >>> ScoreModel(lambda x: x[:, 0]).predict_proba(np.array([[0.0]]))
    array([[0.5, 0.5]])
    """

    def __init__(self, function: Callable[[np.ndarray], Any]) -> None:
        super().__init__(2)
        self.function = function

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the logistic function of the score."""
        score = np.asarray(self.function(np.asarray(X, dtype=np.float64)))
        p = 1 / (1 + np.exp(-np.clip(score, -30, 30)))
        return np.stack([1 - p, p], 1)


class SoftmaxModel(_Classifier):
    """Linear scores of K classes, told as probabilities only.

    >>> SoftmaxModel([[0.0], [1.0]], [0.0, 0.0]).predict(np.array([[-1.0], [2.0]]))
    array([0, 1])
    """

    def __init__(self, W: Any, b: Any) -> None:
        self.W, self.b = np.asarray(W, dtype=float), np.asarray(b, dtype=float)
        super().__init__(len(self.b))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the softmax of the scores."""
        z = np.asarray(X, dtype=np.float64) @ self.W.T + self.b
        e = np.exp(z - z.max(1, keepdims=True))
        return np.asarray(e / e.sum(1, keepdims=True))
