"""Models and tables as they are handed in, made into what methods know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError
from cel.models import PytorchBase, WrappedModel, wrap
from cel.models.adapters import SurrogateModel
from cel.protocols import Task
from cel.space import FeatureSpace, Target

__all__ = ["as_table", "in_units", "known_model", "row_names"]

_OURS = PytorchBase | WrappedModel | SurrogateModel


def known_model(
    model: Any,
    background: Any,
    *,
    space: FeatureSpace | None,
    task: Task | str | None,
    classes: Sequence[Any] | None,
    columns: Sequence[str] | None,
) -> tuple[Any, Any]:
    """Return (a model of ours, training rows), rows as a table wherever that is possible."""
    if isinstance(model, _OURS):
        if model.pipeline_ is None:
            return model, background
        return model, as_table(background, list(columns or model.pipeline_.raw_space_.names))
    array = not isinstance(background, pd.DataFrame) and _is_array(background)
    table = as_table(background, list(columns) if columns is not None else None)
    arrays = array and isinstance(table, pd.DataFrame)
    return wrap(model, table, task=task, classes=classes, space=space, arrays=arrays), table


def row_names(known: Any, background: Any, X: Any, columns: Sequence[str] | None) -> Any:
    """Return the names of the columns of rows that come as an array; None if they are codes."""
    pipeline = getattr(known, "pipeline_", None)
    if not isinstance(background, pd.DataFrame) or pipeline is None:
        return None
    if columns is not None:
        return list(columns)
    shown = known.encoding_.sheet
    if shown is None:
        return list(pipeline.raw_space_.names)
    if _is_array(X) and np.shape(X)[1:] == (len(shown.names),):
        return list(shown.names)
    return list(background.columns)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or hasattr(data, "detach")


def as_table(data: Any, names: list[str] | None) -> Any:
    """Return arrays, records, lists of them and tables of other libraries as DataFrames."""
    if isinstance(data, pd.DataFrame) or hasattr(data, "split") or hasattr(data, "dataset"):
        return data
    if isinstance(data, pd.Series):
        raise DataError(
            "expected a DataFrame, got a Series; use rows.to_frame().T or rows.iloc[:1]"
        )
    if hasattr(data, "to_pandas"):
        return data.to_pandas()
    if isinstance(data, dict):  # a record
        data = [data]
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return pd.DataFrame(data)
    if not _is_array(data):
        return data
    array = data.detach().cpu().numpy() if hasattr(data, "detach") else data
    if array.ndim != 2:
        raise DataError(f"expected rows of shape (n, d), got shape {array.shape}")
    names = names or [f"x{j}" for j in range(array.shape[1])]
    if array.shape[1] != len(names):
        raise DataError(
            f"the rows have {array.shape[1]} columns, but {len(names)} are known: {names[:8]}"
        )
    return pd.DataFrame(array, columns=names).infer_objects()


def in_units(known: Any, background: Any) -> Any:
    """Give a regressor that knows no range the range of its predictions for training rows."""
    if not isinstance(known, WrappedModel) or known.pipeline_ is None:
        return known
    if known.target_ is not None and known.target_.lower:
        return known
    values = np.asarray(known.predict(background), dtype=np.float64).reshape(len(background), -1)
    names = tuple(f"output {j}" for j in range(values.shape[1]))
    if known.target_ is not None:
        names = known.target_.names
    return known.with_target(
        Target(
            names=names if values.shape[1] > 1 else names[:1],
            task=Task.REGRESSION,
            lower=tuple(values.min(0).tolist()),
            upper=tuple(values.max(0).tolist()),
        )
    )
