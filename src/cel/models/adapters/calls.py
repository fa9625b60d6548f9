"""How to ask each kind of foreign model, and which classes it means."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.exceptions import NotFittedError

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.models.adapters.frames import through_matrix
from cel.protocols import Task
from cel.space import Target

__all__ = [
    "Call", "Classes", "check_probabilities", "column_names", "find_call", "known_classes",
    "known_task", "two_columns",
]  # fmt: skip

PROBABILITY_TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Classes:
    """Class labels of a model from outside.

    Attributes:
        labels: (K,) labels in the order that CEL uses.
        theirs: labels in the order of the model's columns, as the model writes them.
        order: position in `labels` of each of the model's columns.
    """

    labels: np.ndarray = field(default_factory=lambda: np.array([]))
    theirs: np.ndarray = field(default_factory=lambda: np.array([]))
    order: list[int] = field(default_factory=list)


def column_names(model: Any) -> list[str] | None:
    """Return the columns that a fitted model reads, None where it does not say."""
    try:
        names = getattr(model, "feature_names_in_", None)
    except NotFittedError:
        return None
    if names is None or not len(names) or not all(isinstance(n, str) for n in names):
        return None
    return list(names)


class Call:
    """A foreign model with the way to ask it.

    Warnings that the model gives are shown once, not with every call.

    Args:
        model: the model.
        ask: rows to answers; None for modules, which are called elsewhere.
        decide: rows to labels, for a model that gives probabilities and may decide otherwise than
            by the likeliest class.
        output: what the answers are: "proba", "logits", "labels" or "values".
        arrays: whether the model takes arrays, not tables.
    """

    def __init__(
        self,
        model: Any,
        ask: Callable[[Any], Any] | None = None,
        *,
        output: str = "proba",
        arrays: bool = False,
        decide: Callable[[Any], Any] | None = None,
    ) -> None:
        self.model, self.ask, self.output, self.arrays = model, ask, output, arrays
        self.decide = decide
        self._told: set[tuple[str, str]] = set()

    def __call__(self, rows: Any) -> Any:
        """Return the model's answers for the rows."""
        if self.ask is None:
            raise UnsupportedError(f"{type(self.model).__name__} cannot be asked")
        return self._asked(self.ask, rows)

    def decisions(self, rows: Any) -> Any:
        """Return the labels that the model gives to the rows."""
        assert self.decide is not None
        return self._asked(self.decide, rows)

    def by_labels(self) -> Call:
        """Return a call that knows nothing but these labels."""
        return Call(self.model, self.decide, output="labels", arrays=self.arrays)

    def _asked(self, ask: Callable[[Any], Any], rows: Any) -> Any:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            answers = ask(self.columns(rows))
        for said in caught:
            key = (said.category.__name__, str(said.message))
            if key not in self._told:
                self._told.add(key)
                warnings.warn(said.message, said.category, stacklevel=2)
        return answers

    def columns(self, rows: Any) -> Any:
        """Return the columns that the model was fitted with, in its order."""
        names = column_names(self.model)
        if not isinstance(rows, pd.DataFrame):
            fits = names is not None and rows.shape[1] == len(names)
            return pd.DataFrame(rows, columns=names) if fits else rows
        if self.arrays or self._fitted_on_arrays(rows, names):
            return rows.to_numpy()
        if names is None:
            return rows
        missing = [n for n in names if n not in rows.columns]
        if missing:
            raise DataError(f"the model was fitted with a column {missing[0]!r} that is not there")
        return rows[names]

    def _fitted_on_arrays(self, rows: pd.DataFrame, names: list[str] | None) -> bool:
        """Tell whether a model that knows no names was fitted on arrays of this width."""
        if names is None:
            fits = getattr(self.model, "n_features_in_", None) == rows.shape[1]
        else:
            fits = len(names) == rows.shape[1] and not set(names) & set(rows.columns)
        numbers = all(pd.api.types.is_numeric_dtype(d) for d in rows.dtypes)
        return bool(fits and numbers)


def find_call(model: Any, task: Task, output: str) -> Call:
    """Return how to ask a model that is no torch module."""
    library, kind = type(model).__module__.split(".")[0], type(model).__name__
    if kind == "Booster" and library in ("xgboost", "lightgbm"):
        return _booster(model, library, task, output)
    if kind == "CatBoost":
        how = "Probability" if task is Task.CLASSIFICATION else "RawFormulaVal"
        return Call(
            model,
            lambda rows: model.predict(rows, prediction_type=how),
            output=_given(output, task),
        )
    if hasattr(model, "predict"):
        return _estimator(model, task, output)
    if callable(model):
        return Call(model, model, output=_given(output, task))
    raise UnsupportedError(
        f"cannot wrap a {type(model).__name__}; give an estimator with predict, a torch module, "
        "or a function from a DataFrame to probabilities"
    )


def _given(output: str, task: Task) -> str:
    if output != "auto":
        return output
    return "proba" if task is Task.CLASSIFICATION else "values"


def _estimator(model: Any, task: Task, output: str) -> Call:
    table = type(model).__module__.startswith("lightgbm") and hasattr(model, "booster_")
    if task is Task.REGRESSION:
        ask = through_matrix(model, model.predict) if table else model.predict
        return Call(model, ask, output="values")
    soft = hasattr(model, "predict_proba")
    if output == "labels" or (output == "auto" and not soft):
        return Call(model, model.predict, output="labels")
    if not soft:
        raise UnsupportedError(
            f"{type(model).__name__} has no predict_proba; say output='labels' to explain its "
            "hard decisions"
        )
    if table:  # LightGBM predicts the likeliest class
        return Call(model, through_matrix(model, model.predict_proba), output="proba")
    decide = model.predict if output == "auto" else None
    return Call(model, model.predict_proba, output="proba", decide=decide)


def _booster(model: Any, library: str, task: Task, output: str) -> Call:
    """Boosters of the native interfaces predict probabilities or values."""
    if library == "lightgbm":
        return Call(model, model.predict, output=_given(output, task))

    def ask(rows: Any) -> Any:
        import xgboost

        return model.predict(xgboost.DMatrix(rows, enable_categorical=True))

    return Call(model, ask, output=_given(output, task))


def known_task(model: Any, target: Target | None, task: Any, classes: Any, output: str) -> Task:
    """Return the task: as given, of the target, or of the estimator."""
    if task is not None:
        try:
            return Task(task)
        except ValueError:
            raise ConfigError(
                f"unknown task {task!r}; use 'classification' or 'regression'"
            ) from None
    if target is not None:
        return target.task
    if output == "values":
        return Task.REGRESSION
    if classes is not None or output in ("proba", "labels"):
        return Task.CLASSIFICATION
    if getattr(model, "_estimator_type", None) == "regressor" or _tagged_regressor(model):
        return Task.REGRESSION  # first: CatBoost's regressors have `classes_`, too
    if hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        return Task.CLASSIFICATION
    raise ConfigError(
        f"{type(model).__name__} does not tell what it predicts; give task='classification' with "
        "classes=[...], or task='regression'"
    )


def _tagged_regressor(model: Any) -> bool:
    tags = getattr(model, "__sklearn_tags__", None)
    return tags is not None and tags().estimator_type == "regressor"


def known_classes(model: Any, target: Target | None, classes: Sequence[Any] | None) -> Classes:
    """Return the labels of the target where there is one, else those of the model.

    A model fitted on positions 0..K-1 means the labels of the target in their order.
    """
    own = classes if classes is not None else getattr(model, "classes_", None)
    if own is None and target is None:
        fit = "; is it fitted? Fit it first, or give" if hasattr(model, "fit") else "; give"
        raise ConfigError(f"{type(model).__name__} names no classes{fit} classes=[...]")
    theirs = [] if own is None else np.asarray(own).tolist()
    labels = list(target.classes) if target is not None else theirs
    theirs = theirs or labels
    if all(c in labels for c in theirs):
        order = [labels.index(c) for c in theirs]
    elif theirs == list(range(len(labels))):
        order = theirs
    else:
        unknown = next(c for c in theirs if c not in labels)
        raise ConfigError(f"the model's class {unknown!r} is none of the target's {labels!r}")
    return Classes(labels=_array(labels), theirs=_array(theirs), order=order)


def _array(labels: list[Any]) -> np.ndarray:
    text = any(isinstance(c, str) for c in labels)
    return np.array(labels, dtype=object if text else None)


def two_columns(scores: np.ndarray, output: str) -> np.ndarray:
    """Give one number per row, the second of two classes, its counterpart."""
    if scores.ndim == 2 and scores.shape[1] > 1:
        return scores
    second = scores.reshape(len(scores), 1)
    first = 1 - second if output == "proba" else np.zeros_like(second)
    return np.hstack([first, second])


def check_probabilities(p: np.ndarray) -> None:
    """Refuse what is no distribution over classes, (n, K)."""
    if not np.isfinite(p).all():
        raise DataError("the model gave a probability that is not a number")
    off = np.abs(p.sum(1) - 1) > PROBABILITY_TOLERANCE
    if (p < -PROBABILITY_TOLERANCE).any() or off.any():
        raise DataError(
            f"the model gave {p[off][0].tolist() if off.any() else p.min()}, no probabilities; "
            "say output='logits' or output='labels'"
        )
