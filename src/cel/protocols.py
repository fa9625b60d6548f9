"""What the parts of CEL expect from each other: tasks, scopes, needs and small protocols."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

__all__ = [
    "AnyPredictor",
    "DensityModel",
    "DifferentiablePredictor",
    "LogDensity",
    "Need",
    "Predictor",
    "Proof",
    "Scope",
    "Status",
    "Support",
    "Task",
    "positions",
]


class Task(StrEnum):
    """What a model predicts."""

    CLASSIFICATION = "classification"
    REGRESSION = "regression"


class Scope(StrEnum):
    """For whom one explanation is made: a row, a group of rows, or all of them."""

    LOCAL = "local"
    GROUP = "group"
    GLOBAL = "global"


class Need(StrEnum):
    """What a method must be given besides a model that predicts."""

    GRADIENTS = "gradients"
    PROBABILITIES = "probabilities"
    DENSITY = "density"
    TRAIN_ROWS = "train_rows"
    LINEAR_MODEL = "linear_model"
    TREES = "trees"
    RELU = "relu"


class Support(StrEnum):
    """What a method can honour; what is not declared is refused or reported, never ignored."""

    CONTINUOUS = "continuous"
    INTEGER = "integer"
    ORDINAL = "ordinal"
    CATEGORICAL = "categorical"
    IMMUTABLE = "immutable"
    BOUNDS = "bounds"
    DIRECTION = "direction"
    RELATIONS = "relations"
    MULTICLASS = "multiclass"
    MULTIOUTPUT = "multioutput"


class Status(StrEnum):
    """The one outcome of an explained row."""

    FOUND = "found"
    INVALID = "invalid"
    NOT_FOUND = "not_found"
    INFEASIBLE = "infeasible"
    NOT_APPLICABLE = "not_applicable"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def has_candidate(self) -> bool:
        """Whether rows of this status hold a counterfactual."""
        return self in (Status.FOUND, Status.INVALID)


class Proof(StrEnum):
    """How strongly the cost of a found row is known to be the least possible one.

    What is proved speaks of the model and of the feasible set as given, and of costs counted from
    where the search began: the row, or the nearest row inside its hard ranges. That no answer
    exists at all is told by `Status.INFEASIBLE`.
    """

    NONE = "none"
    OPTIMAL = "optimal"
    WITHIN_GAP = "within_gap"


@runtime_checkable
class AnyPredictor(Protocol):
    """What every model over encoded rows offers.

    `predict` gives class positions `0..K-1` of shape (n,) for classification and values of shape
    (n, m) for regression.
    """

    task: Task

    def predict(self, X: Any) -> np.ndarray:
        """Return class positions (n,) or values (n, m)."""
        ...


@runtime_checkable
class Predictor(AnyPredictor, Protocol):
    """Any black box over encoded rows; regressors refuse `predict_proba`."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K)."""
        ...


def positions(model: Any, proba: np.ndarray) -> np.ndarray:
    """Return the class positions (n,) that a model decides on with probabilities (n, K).

    The likeliest class; a model of two classes may have a `threshold` from which on the second
    one is predicted.

    >>> import numpy
    >>> positions(None, numpy.array([[0.4, 0.6]]))
    array([1])
    """
    threshold = getattr(model, "threshold", None)
    found: np.ndarray = proba.argmax(1) if threshold is None else proba[:, 1] >= threshold
    return found.astype("int64")


@runtime_checkable
class DifferentiablePredictor(AnyPredictor, Protocol):
    """A predictor whose output can be differentiated with respect to its input."""

    def logits(self, x: Tensor) -> Tensor:
        """Return (n, K) logits or (n, m) values; gradients reach `x`, parameters are frozen."""
        ...


@runtime_checkable
class LogDensity(Protocol):
    """What scores ask of a conditional density over encoded rows.

    The context is (n,) class positions, or (n, m) values for regression.
    """

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context) of shape (n,); gradients reach `x`."""
        ...


@runtime_checkable
class DensityModel(LogDensity, Protocol):
    """A conditional density that can be drawn from."""

    def sample(self, n: int, context: Tensor | None = None) -> Tensor:
        """Draw `n` rows; a context has `n` rows or one."""
        ...
