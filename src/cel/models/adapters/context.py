"""Where a wrapped model finds its space, pipeline and target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import DataLoader

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space import FeatureSpace, Target

__all__ = ["Context", "find_context"]


@dataclass(frozen=True, kw_only=True)
class Context:
    """What is known about the rows of a model; None where nothing is."""

    space: FeatureSpace | None = None
    pipeline: Any = None
    target: Target | None = None


def find_context(
    data: Any, *, target: Target | str | None, space: FeatureSpace | None, pipeline: Any
) -> Context:
    """Read what `data` knows; what is given explicitly comes first."""
    if isinstance(data, pd.DataFrame):
        return _from_frame(data, target, space, pipeline)
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
    pipeline = pipeline if pipeline is not None else getattr(source, "pipeline", None)
    space = space if space is not None else getattr(source, "space", None)
    if space is None and pipeline is not None:
        space = pipeline.space_
    return Context(
        space=space,
        pipeline=pipeline,
        target=target if target is not None else getattr(source, "target", None),
    )


def _from_frame(
    frame: pd.DataFrame, target: Target | str | None, space: FeatureSpace | None, pipeline: Any
) -> Context:
    from cel.preprocessing import (
        Imputer,
        MinMaxScaler,
        OneHotEncoder,
        OrdinalEncoder,
        PreprocessingPipeline,
        infer_space,
    )

    if isinstance(target, str):
        if target not in frame.columns:
            hint = did_you_mean(target, map(str, frame.columns))
            raise ConfigError(f"unknown column {target!r}; {hint}")
        outcome, frame = frame[target], frame.drop(columns=target)
        target = _target_of(outcome, target)
    if pipeline is None:
        steps = [Imputer(), OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
        pipeline = PreprocessingPipeline(steps).fit(frame, space or infer_space(frame))
    return Context(space=pipeline.space_, pipeline=pipeline, target=target)


def _target_of(values: pd.Series, name: str) -> Target:
    """Floating numbers are regression, everything else is classification."""
    if values.isna().any():
        raise DataError(f"target {name!r} has {int(values.isna().sum())} missing values")
    if pd.api.types.is_float_dtype(values.dtype):
        low, high = float(values.min()), float(values.max())
        return Target(names=(name,), task=Task.REGRESSION, lower=(low,), upper=(high,))
    labels = tuple(np.unique(values.to_numpy()).tolist())
    return Target(names=(name,), task=Task.CLASSIFICATION, classes=labels)
