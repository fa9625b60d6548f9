"""Tables as matrices of numbers and category codes, and a shorter way to LightGBM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import UnsupportedError

__all__ = ["frame_matrix", "through_matrix"]

Ask = Callable[[Any], Any]


def frame_matrix(frame: pd.DataFrame, stored: list[Any] | None = None) -> np.ndarray:
    """Return a table as float64 numbers (n, c); categories become codes, missing values NaN.

    Args:
        frame: numbers, truth values and pandas categories.
        stored: the categories of each categorical column as a booster remembers them, in order;
            None for those of the table.

    >>> frame_matrix(pd.DataFrame({"a": [1, 2], "b": pd.Categorical(["y", "x"])}))
    array([[1., 1.],
           [2., 0.]])
    """
    known = list(stored or [])
    out = np.empty(frame.shape)
    for i, name in enumerate(frame.columns):
        values = frame[name]
        if isinstance(values.dtype, pd.CategoricalDtype):
            own = values.cat.categories
            codes = values.cat.codes.to_numpy()
            if known and not own.equals(wanted := pd.Index(known.pop(0))):
                codes = np.append(wanted.get_indexer(own), -1)[codes]
            out[:, i] = np.where(codes < 0, np.nan, codes)
        elif pd.api.types.is_numeric_dtype(values.dtype):
            out[:, i] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            raise UnsupportedError(
                f"column {name!r} reaches the trees as {values.dtype}, not as numbers or "
                "categories; encode it column by column"
            )
    return out


def through_matrix(model: Any, ask: Ask) -> Ask:
    """Return a way to ask a LightGBM estimator that gives it a matrix instead of a table.

    Taking a table apart costs LightGBM milliseconds a call. The first call goes both ways; unless
    the answers are the same bits, all later ones go the long way.
    """
    same: list[bool] = []

    def short(rows: pd.DataFrame) -> np.ndarray:
        booster = model.booster_
        matrix = frame_matrix(rows, booster.pandas_categorical)
        answers = np.asarray(booster.predict(matrix, num_threads=model.n_jobs or 0))
        if hasattr(model, "predict_proba") and answers.ndim == 1:
            return np.vstack((1.0 - answers, answers)).T
        return answers

    def asked(rows: Any) -> Any:
        if not isinstance(rows, pd.DataFrame) or not len(rows) or same == [False]:
            return ask(rows)
        if same:
            return short(rows)
        long = np.asarray(ask(rows))
        try:
            same.append(np.array_equal(short(rows), long))
        except UnsupportedError:
            same.append(False)
        return long

    return asked
