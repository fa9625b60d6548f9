"""Where a wrapped model finds its space, pipeline and target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import DataLoader

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.preprocessing import (
    Encoding,
    Imputer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PreprocessingPipeline,
    Sheet,
    carried_columns,
    infer_space,
    on_grids,
)
from cel.preprocessing.infer import check_table
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space import FeatureSpace, Target

__all__ = ["find_context"]


def find_context(
    data: Any,
    *,
    target: Target | str | None,
    space: FeatureSpace | None,
    pipeline: PreprocessingPipeline | None,
    names: Sequence[str] | None = None,
) -> Encoding:
    """Read what `data` knows; what is given explicitly comes first.

    Args:
        data: a CEL dataset, split or loader, or a raw DataFrame.
        target: the outcome, or the name of its column.
        space: encoded features; the raw ones for a DataFrame.
        pipeline: what encodes raw tables.
        names: the columns that the model reads, if it says so.
    """
    if isinstance(data, pd.DataFrame):
        return _from_frame(data, target, space, pipeline, names)
    if isinstance(target, str):
        raise ConfigError(f"target={target!r} names a column; give the DataFrame as data")
    source: Any = data.dataset if isinstance(data, DataLoader) else data
    if hasattr(source, "folds"):  # a dataset
        source = source.split()
    if source is not None and not hasattr(source, "space"):
        raise UnsupportedError(
            f"cannot read a feature space from {type(data).__name__}; give a CEL dataset, split "
            "or loader, or a DataFrame"
        )
    known = Encoding(pipeline=pipeline, space=space, target=target).over(Encoding.of(source))
    if known.space is None and known.pipeline is not None:
        return replace(known, space=known.pipeline.space_)
    return known


def _from_frame(
    frame: pd.DataFrame,
    target: Target | str | None,
    space: FeatureSpace | None,
    pipeline: PreprocessingPipeline | None,
    names: Sequence[str] | None,
) -> Encoding:
    if isinstance(target, str):
        if target not in frame.columns:
            hint = did_you_mean(target, map(str, frame.columns))
            raise ConfigError(f"unknown column {target!r}; {hint}")
        outcome, frame = frame[target], frame.drop(columns=target)
        target = _target_of(outcome, target)
    if names is not None and set(names) <= set(frame.columns):
        also = () if space is None else space.names
        frame = frame[[c for c in frame.columns if c in names or c in also]]
    if pipeline is not None:
        features = pipeline.raw_space_.names
    elif space is not None:
        features = space.names
    else:
        check_table(frame)
        carried = carried_columns(frame)
        features = tuple(c for c in frame.columns if c not in carried)
    sheet = Sheet.of(frame, [c for c in frame.columns if c not in features])
    if pipeline is None:
        if not features:
            raise DataError(f"none of the columns {list(frame.columns)} can be a feature")
        table = frame[[c for c in frame.columns if c in features]]
        raw = on_grids(space or infer_space(table), sheet.decimals)
        steps = [Imputer(), OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
        pipeline = PreprocessingPipeline(steps).fit(table, raw)
    return Encoding(space=pipeline.space_, pipeline=pipeline, target=target, sheet=sheet)


def _target_of(values: pd.Series, name: str) -> Target:
    """Floating numbers are regression, everything else is classification."""
    if values.isna().any():
        raise DataError(f"target {name!r} has {int(values.isna().sum())} missing values")
    if pd.api.types.is_float_dtype(values.dtype):
        low, high = float(values.min()), float(values.max())
        return Target(names=(name,), task=Task.REGRESSION, lower=(low,), upper=(high,))
    labels = tuple(np.unique(values.to_numpy()).tolist())
    return Target(names=(name,), task=Task.CLASSIFICATION, classes=labels)
