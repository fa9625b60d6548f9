"""Ten people, a model with three classes and a handful of training rows: small enough for paper.

A person has an age and weekly hours (both scaled), a job (a, b or c) and a sex (F or M). The
score is age + hours + 0.2 [job = c]; the model answers with the class whose mean score among the
training rows (0.4, 0.8 or 1.2) is nearest, so that the classes meet at 0.6 and 1.0.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from cel.protocols import Status, Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space import Feature, FeatureSpace, LinearRelation

__all__ = ["ExampleDensity", "ExampleMethod", "ExampleModel", "LineModel", "example",
           "example_context", "example_rows", "example_space", "regression_example"]  # fmt: skip

WEIGHTS = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.2, 0.0, 0.0])


class ExampleModel:
    """Puts a row into the class with the nearest mean score; linear in the row."""

    task = Task.CLASSIFICATION

    def __init__(self, *, scale: float = 10.0, random_state: int = 0) -> None:
        self.scale, self.random_state = scale, random_state

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings."""
        return {"scale": self.scale, "random_state": self.random_state}

    def set_params(self, **params: Any) -> Self:
        """Change settings."""
        self.__dict__.update(params)
        return self

    def fit(self, X: np.ndarray, y: np.ndarray) -> Self:
        """Remember the mean score of each class."""
        score = np.asarray(X, dtype=np.float64) @ WEIGHTS.double().numpy()
        self.classes_ = np.unique(y)
        self.centres_ = np.array([score[y == c].mean() for c in self.classes_])
        return self

    def linear_(self) -> tuple[Tensor, Tensor]:
        """Return W (K, d) and b (K,) such that logits = x W' + b."""
        centres = torch.as_tensor(self.centres_, dtype=torch.float32)
        return self.scale * centres[:, None] * WEIGHTS, -self.scale * centres.square() / 2

    def logits(self, x: Tensor) -> Tensor:
        """Return (n, K) logits."""
        weight, bias = self.linear_()
        return x @ weight.T.to(x.dtype) + bias.to(x.dtype)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return (n, K) probabilities."""
        rows = torch.as_tensor(np.asarray(X, dtype=np.float32))
        return self.logits(rows).softmax(-1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return (n,) labels."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])


class ExampleDensity:
    """log p = -10 [(age - m)^2 + (hours - m)^2] with m = 0.2, 0.4, 0.6 for the three classes."""

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return (n,) log-densities, up to a constant."""
        assert context is not None
        middle = torch.tensor([0.2, 0.4, 0.6], dtype=x.dtype)[context]
        return -10 * (x[:, :2] - middle[:, None]).square().sum(-1)


class ExampleMethod:
    """Raises the age until the score is 1.1."""

    def __init__(self, model: ExampleModel) -> None:
        self.model = model

    def explain(self, X: np.ndarray, target: Any = None) -> ExplanationResult:
        """Return one counterfactual per row."""
        x = np.asarray(X, dtype=np.float64)
        moved = x.copy()
        moved[:, 0] += 1.1 - x @ WEIGHTS.double().numpy()
        return _result(self.model, x, moved, np.full(len(x), Status.FOUND.value, dtype=object))


def example_space() -> FeatureSpace:
    """Two numbers and two categories; sex is protected and cannot change, age only rises."""
    features = (
        Feature(name="age", columns=(0,), direction="up"),
        Feature(name="hours", kind="integer", columns=(1,), step=0.1),
        Feature(name="job", kind="categorical", columns=(2, 3, 4), categories=("a", "b", "c")),
        Feature(
            name="sex",
            kind="categorical",
            columns=(5, 6),
            categories=("F", "M"),
            mutable=False,
            protected=True,
        ),
    )
    return FeatureSpace(features, (LinearRelation.of({"hours": 1.0, "age": -1.0}, 0.6),))


def example_rows(text: str) -> np.ndarray:
    """Encode rows written as `age hours job sex`, separated by commas; `-` is a missing row.

    >>> example_rows("0.2 0.3 a F").tolist()
    [[0.2, 0.3, 1.0, 0.0, 0.0, 1.0, 0.0]]
    """
    rows = []
    for part in text.split(","):
        if part.strip() == "-":
            rows.append([np.nan] * 7)
            continue
        age, hours, job, sex = part.split()
        jobs, sexes = [float(job == j) for j in "abc"], [float(sex == s) for s in "FM"]
        rows.append([float(age), float(hours), *jobs, *sexes])
    return np.array(rows)


TRAIN = (
    "0.1 0.2 a F, 0.2 0.2 a M, 0.3 0.2 b F, 0.2 0.2 a M,"
    "0.4 0.4 a F, 0.3 0.4 b M, 0.5 0.4 b F, 0.4 0.2 c M,"
    "0.6 0.5 a M, 0.5 0.4 c F, 0.6 0.6 b M, 0.7 0.5 c F"
)
TEST = "0.7 0.7 a F, 0.6 0.8 b M, 0.2 0.9 b M, 0.9 0.6 a M, 0.1 0.1 a F, 0.4 0.3 b M"
ORIGINALS = (
    "0.2 0.2 a F, 0.3 0.2 b M, 0.4 0.3 a F, 0.1 0.1 a M, 0.2 0.1 b F,"
    "0.8 0.5 c M, 0.5 0.4 b F, 0.1 0.2 a M, 0.4 0.3 b M, 0.4 0.3 a F"
)
ANSWERS = (
    "0.6 0.5 a F, 0.3 0.8 c M, 0.5 0.35 a F, 0.5 0.3 a F, -,"
    "-, 0.5 0.4 c F, -, 0.4 0.3 b M, 0.3 1.2 a F"
)
STATUS = [
    "found",
    "found",
    "invalid",
    "invalid",
    "not_found",
    "not_applicable",
    "found",
    "infeasible",
    "invalid",
    "invalid",
]
SETS = (
    "0.6 0.5 a F, 0.7 0.5 a F, -, 0.3 0.8 c M, -, -,"
    "-, -, -, -, -, -, -, -, -, -, -, -,"
    "0.5 0.4 c F, 0.7 0.4 b F, 0.5 0.6 b F, -, -, -, -, -, -, -, -, -"
)


def example_context() -> EvaluationContext:
    """The model, a density, twelve training rows (one twice) and six held-out rows."""
    x_train, x_test = example_rows(TRAIN), example_rows(TEST)
    model = ExampleModel().fit(x_train, np.repeat([0, 1, 2], 4))
    return EvaluationContext(
        model=model,
        density=ExampleDensity(),
        x_train=x_train,
        y_train=model.predict(x_train),
        x_test=x_test,
        y_test=model.predict(x_test),
    )


def _result(
    model: Any, x: np.ndarray, cf: np.ndarray, status: np.ndarray, **more: Any
) -> ExplanationResult:
    have = ~np.isnan(cf).any(1)
    y_cfs = np.full(len(x), -1)
    y_cfs[have] = model.predict(cf[have])
    return ExplanationResult(
        x_origs=x,
        x_cfs=cf,
        y_origs=model.predict(x),
        y_cf_targets=np.full(len(x), 2),
        y_cfs=y_cfs,
        status=status,
        source_ids=np.arange(len(x)),
        space=example_space(),
        **more,
    )


def example() -> ExplanationResult:
    """Ten rows that want class 2: three found, four invalid, two without an answer, one done."""
    context = example_context()
    cf = example_rows(ANSWERS)
    cf[9, 2:5] = 0.5, 0.5, 0.0  # not a category at all
    return _result(
        context.model,
        example_rows(ORIGINALS),
        cf,
        np.array(STATUS, dtype=object),
        x_sets=example_rows(SETS).reshape(10, 3, 7),
        cf_group_ids=np.array([0, 1, 0, 0, -1, -1, 1, -1, 2, 1]),
        seconds={"fit": 0.5, "explain": 0.018, "fit_cpu": 0.4, "explain_cpu": 0.027},
        logs={"rule_length": [1, 2, 3], "conflict_rate": 0.25},
        method="example",
        context=context,
    )


class LineModel:
    """Two outputs of one number: x and 1 - x."""

    task = Task.REGRESSION

    def predict(self, X: Any) -> np.ndarray:
        """Return (n, 2) values."""
        x = np.asarray(X, dtype=np.float64)[:, :1]
        return np.hstack([x, 1 - x])


def regression_example() -> ExplanationResult:
    """Three rows: 0.2 -> 0.52 for 0.5 (found), 0.4 -> 0.6 for 0.7 (invalid), and no answer."""
    x, cf = np.array([[0.2], [0.4], [0.6]]), np.array([[0.52], [0.6], [np.nan]])
    model, wanted = LineModel(), np.array([[0.5], [0.7], [0.8]])
    return ExplanationResult(
        x_origs=x,
        x_cfs=cf,
        y_origs=model.predict(x),
        y_cf_targets=np.hstack([wanted, 1 - wanted]),
        y_cfs=model.predict(cf),
        status=np.array(["found", "invalid", "not_found"], dtype=object),
        source_ids=np.arange(3),
        space=FeatureSpace.continuous(1),
        context=EvaluationContext(model=model),
        method="example",
    )
