"""A shorter way to foreign models: arrays instead of tables, where the answers are the same bits.

Building a table for a model and taking it apart again inside its library costs milliseconds a
call. Boosters also take plain matrices. The way is used only after it gave exactly the answers of
the table, on random rows of the space.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import CelError
from cel.preprocessing.labels import has_labels
from cel.preprocessing.numbers import decode_numbers
from cel.space import FeatureSpace

__all__ = ["ArrayPath", "find_array_path"]

PROBES = 64

Ask = Callable[[np.ndarray], np.ndarray]
"""A matrix of numbers and category codes (n, c) -> what the model answers."""


class ArrayPath:
    """Decodes encoded rows to a matrix and asks the model's library for it.

    Args:
        wrapped: a `WrappedModel` with a pipeline.
        ask: how to ask for a matrix.
        names: columns of the matrix.
        codes: category codes of the library for each code of the pipeline, by column.
    """

    def __init__(
        self, wrapped: Any, ask: Ask, names: list[str], codes: dict[str, np.ndarray]
    ) -> None:
        self.pipeline, self.ask, self.names, self.codes = wrapped.pipeline_, ask, names, codes

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the model's answers for encoded rows (n, d)."""
        return self.ask(self.matrix(x))

    def matrix(self, x: np.ndarray) -> np.ndarray:
        """Return decoded rows as numbers and category codes (n, c), float64."""
        pipeline = self.pipeline
        columns = {
            f.name: x[:, f.columns[0] : f.columns[0] + len(f.columns)]
            if f.one_hot
            else x[:, f.columns[0]]
            for f in pipeline.space_
        }
        for step in reversed(pipeline.steps_):
            columns = step.inverse_transform(columns)
        out = np.empty((len(x), len(self.names)))
        for i, name in enumerate(self.names):
            values = columns[name]
            if name in self.codes:
                out[:, i] = self.codes[name][values]
                continue
            feature = pipeline.schema_.space[name]
            dtype = pipeline.schema_.dtypes[name]
            out[:, i] = decode_numbers(values.astype(np.float64), feature, dtype)
        return out


def find_array_path(wrapped: Any) -> ArrayPath | None:
    """Return a way that gives the same bits as tables do, or None."""
    pipeline, model = wrapped.pipeline_, wrapped.model
    if pipeline is None or not hasattr(pipeline, "schema_"):
        return None
    names = getattr(model, "feature_names_in_", None)
    names = [str(n) for n in (pipeline.schema_.dtypes if names is None else names)]
    codes = _codes(model, pipeline, names)
    ask = None if codes is None else _ask(model, names, bool(codes))
    if codes is None or ask is None:
        return None
    path = ArrayPath(wrapped, ask, names, codes)
    probes = _random_rows(wrapped.space_)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            short = np.asarray(path(probes))
    except (CelError, KeyError, TypeError, ValueError, UserWarning):
        return None  # the library wants a table
    long = np.asarray(wrapped._call(wrapped._rows(probes)))
    return path if short.shape == long.shape and np.array_equal(short, long) else None


def _codes(model: Any, pipeline: Any, names: list[str]) -> dict[str, np.ndarray] | None:
    """Return by which numbers the library knows the categories; None where that is unknown."""
    booster = getattr(model, "booster_", model)
    stored = list(getattr(booster, "pandas_categorical", None) or [])
    out = {}
    for name in names:
        feature, dtype = pipeline.schema_.space[name], pipeline.schema_.dtypes[name]
        if not has_labels(feature):
            if not pd.api.types.is_numeric_dtype(dtype):
                return None
            continue
        if not isinstance(dtype, pd.CategoricalDtype):
            return None
        known = pd.Index(stored.pop(0)) if stored else dtype.categories
        places = known.get_indexer(pd.Index(list(feature.categories)))
        out[name] = np.append(np.where(places < 0, np.nan, places.astype(np.float64)), np.nan)
    return out


def _ask(model: Any, names: list[str], labels: bool) -> Ask | None:
    library, kind = type(model).__module__.split(".")[0], type(model).__name__
    if library == "lightgbm":
        booster = getattr(model, "booster_", model)
        return _two_classes(booster.predict) if kind == "LGBMClassifier" else booster.predict
    if library == "xgboost" and hasattr(model, "get_booster"):
        return _xgboost(model, kind)
    if library == "sklearn" and not labels:
        call = model.predict_proba if hasattr(model, "predict_proba") else model.predict
        return lambda rows: call(pd.DataFrame(rows, columns=names))
    return None


def _two_classes(predict: Ask) -> Ask:
    def ask(rows: np.ndarray) -> np.ndarray:
        p = np.asarray(predict(rows))
        return p if p.ndim == 2 else np.vstack((1.0 - p, p)).T

    return ask


def _xgboost(model: Any, kind: str) -> Ask:
    booster = model.get_booster()
    best = getattr(model, "early_stopping_rounds", None) is not None
    stop = booster.best_iteration + 1 if best else 0

    def predict(rows: np.ndarray) -> np.ndarray:
        return np.asarray(
            booster.inplace_predict(
                rows.astype(np.float32), iteration_range=(0, stop), validate_features=False
            )
        )

    return _two_classes(predict) if kind == "XGBClassifier" else predict


def _random_rows(space: FeatureSpace, seed: int = 0) -> np.ndarray:
    """Return decodable rows (PROBES, d), float32."""
    rng = np.random.default_rng(seed)
    x = np.zeros((PROBES, space.width), dtype=np.float32)
    for f in space:
        if f.one_hot:
            choices = np.flatnonzero(f.allowed_mask)
            x[np.arange(PROBES), np.array(f.columns)[rng.choice(choices, PROBES)]] = 1.0
            continue
        low = f.lower if np.isfinite(f.lower) else -1.0
        high = f.upper if np.isfinite(f.upper) else 1.0
        values = rng.uniform(low, high, PROBES)
        if f.step:
            values = f.anchor + f.step * np.rint((values - f.anchor) / f.step)
        x[:, f.columns[0]] = values
    return x
