"""From raw tables to encoded matrices and exactly back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError, NotFittedError
from cel.preprocessing.category_codes import has_labels
from cel.preprocessing.encoders import OneHotEncoder, OrdinalEncoder
from cel.preprocessing.frame_checks import check_some_value
from cel.preprocessing.scalers import MinMaxScaler
from cel.preprocessing.schema import Schema, as_frame, as_matrix
from cel.preprocessing.step import Columns, Step
from cel.space import Feature, FeatureSpace
from cel.space.serialize import space_from_dict, space_to_dict

__all__ = ["PreprocessingPipeline"]

_CHUNK = 1 << 18  # encoded values per pass: little memory, and what is written stays in cache


class PreprocessingPipeline:
    """Invertible steps between a raw table and a float32 matrix, fitted on training rows only.

    The columns of the matrix follow the features of the raw space; the columns of one feature are
    neighbours. Numbers are exact to about 1e-7 of their training range (32-bit floats), so whole
    numbers come back exactly as long as they span less than some millions. Bounds of the encoded
    space are the declared ones where these are finite, else those of the training rows; values
    beyond them are encoded as they are.

    Args:
        steps: imputer, encoders and scalers, in this order; None means `OneHotEncoder()`,
            `OrdinalEncoder()`, `MinMaxScaler()`. They are copied before they are fitted.

    Attributes:
        raw_space_: the space given to `fit`.
        space_: the encoded space, constraints included.
        steps_: the fitted steps.

    >>> age = Feature(name="age", kind="integer", lower=0, upper=100, step=1)
    >>> job = Feature(name="job", kind="categorical", columns=(1,), categories=("no", "yes"))
    >>> frame = pd.DataFrame({"age": [20, 60, 40], "job": ["no", "yes", "yes"]})
    >>> pipeline = PreprocessingPipeline().fit(frame, FeatureSpace((age, job)))
    >>> x = pipeline.transform(frame)
    >>> x
    array([[0. , 1. , 0. ],
           [1. , 0. , 1. ],
           [0.5, 0. , 1. ]], dtype=float32)
    >>> pipeline.inverse_transform(x).equals(frame)
    True
    """

    raw_space_: FeatureSpace
    space_: FeatureSpace
    steps_: list[Step]
    schema_: Schema

    def __init__(self, steps: Sequence[Step] | None = None) -> None:
        self.steps = steps

    def fit(self, frame: Any, space: FeatureSpace) -> Self:
        """Learn from raw training rows, a DataFrame or an array (n, p) in the order of `space`."""
        self._fit(frame, space)
        return self

    def fit_transform(self, frame: Any, space: FeatureSpace) -> np.ndarray:
        """Learn from raw training rows and encode them, shape (n, d)."""
        return self._encode(self._fit(frame, space))

    def transform(self, frame: Any) -> np.ndarray:
        """Encode raw rows, a DataFrame or an array (n, p), as float32 (n, d)."""
        self._check_fitted()
        frame = as_frame(frame, tuple(self.schema_.dtypes))
        return self._encode(self.schema_.read(frame, self.steps_))

    def inverse_transform(self, x: Any, index: Any = None) -> pd.DataFrame:
        """Decode rows (n, d), array or tensor, to a table with the original columns and dtypes.

        One-hot blocks decode to their largest entry, ranks and grids to the nearest value.
        """
        self._check_fitted()
        matrix = as_matrix(x, self.space_.width)
        columns = {f.name: matrix[:, _place(f)] for f in self.space_}
        for step in reversed(self.steps_):
            columns = step.inverse_transform(columns)
        return self.schema_.write(columns, index)

    def encode_space(self, space: FeatureSpace) -> FeatureSpace:
        """Return raw features of the same names in encoded coordinates.

        For other constraints on the columns that the pipeline was fitted on: bounds, directions,
        allowed categories, immutable columns (with the flags of their gaps), relations.
        """
        self._check_fitted()
        if space.names != self.raw_space_.names:
            odd = sorted(set(space.names) ^ set(self.raw_space_.names)) or list(space.names)
            raise ConfigError(f"the pipeline was fitted on other columns; look at {odd[0]!r}")
        features = []
        for f, own in zip(space, self.raw_space_, strict=True):
            if not has_labels(f):
                lower = f.lower if np.isfinite(f.lower) else min(own.lower, f.upper)
                upper = f.upper if np.isfinite(f.upper) else max(own.upper, lower)
                f = replace(f, lower=lower, upper=upper)  # noqa: PLW2901
            features.append(f)
        encoded = _bounded(FeatureSpace(tuple(features), space.constraints), {})
        for step in self.steps_:
            encoded = step.encode_space(encoded)
        return encoded

    def to_dict(self) -> dict[str, Any]:
        """Return the fitted pipeline as JSON values."""
        self._check_fitted()
        return {
            "steps": [s.to_dict() for s in self.steps_],
            "raw_space": space_to_dict(self.raw_space_),
            "space": space_to_dict(self.space_),
            "dtypes": self.schema_.dtypes_to_dict(),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PreprocessingPipeline:
        """Return the fitted pipeline that `to_dict` wrote."""
        steps = [Step.from_dict(s) for s in data["steps"]]
        pipeline = cls(steps)
        pipeline.steps_ = steps
        pipeline.raw_space_ = space_from_dict(data["raw_space"])
        pipeline.space_ = space_from_dict(data["space"])
        pipeline.schema_ = Schema.from_dict(pipeline.raw_space_, data["dtypes"])
        return pipeline

    def __repr__(self) -> str:
        return f"PreprocessingPipeline({'' if self.steps is None else list(self.steps)})"

    def _fit(self, data: Any, space: FeatureSpace) -> Columns:
        """Fit all steps and return the raw columns of the rows."""
        frame = as_frame(data, space.names)
        if frame.empty:
            raise DataError(f"a table of shape {frame.shape} has nothing to fit; give some rows")
        steps = _ordered(self.steps)
        schema = Schema.of(frame, space)
        raw = schema.read(frame, steps)
        for f in space:
            check_some_value(raw[f.name], f)
        columns, encoded = raw, _bounded(space, raw)
        for step in steps:
            step.fit(columns, encoded)
            encoded = step.encode_space(encoded)
            columns = columns if step is steps[-1] else step.transform(columns)
        _check_encoded(encoded, steps)
        self.raw_space_, self.space_, self.steps_, self.schema_ = space, encoded, steps, schema
        return raw

    def _encode(self, raw: Columns) -> np.ndarray:
        """Apply the steps to some rows at a time and write the results into one matrix."""
        n = len(next(iter(raw.values())))
        out = np.empty((n, self.space_.width), dtype=np.float32)
        rows = max(1024, _CHUNK // self.space_.width)
        for start in range(0, n, rows):
            part = slice(start, start + rows)
            columns = {name: values[part] for name, values in raw.items()}
            for step in self.steps_:
                columns = step.transform(columns)
            for f in self.space_:
                out[part, _place(f)] = columns[f.name]
        return out

    def _check_fitted(self) -> None:
        if not hasattr(self, "space_"):
            raise NotFittedError("this PreprocessingPipeline is not fitted; call fit first")


def _place(feature: Feature) -> Any:
    """Return the slice of a block, or the column of a number or of ranks."""
    first = feature.columns[0]
    return slice(first, first + len(feature.columns)) if feature.one_hot else first


def _ordered(steps: Sequence[Step] | None) -> list[Step]:
    """Return copies of the steps, or the default ones, and check their order."""
    if steps is None:
        return [OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
    for first, second in pairwise(steps):
        if first.stage > second.stage:
            raise ConfigError(
                f"{second!r} comes after {first!r}; the order is imputer, encoders, scalers"
            )
    return [copy(s) for s in steps]


def _bounded(space: FeatureSpace, columns: Columns) -> FeatureSpace:
    """Return the space with finite bounds, and with grids anchored near the lower one."""
    none = np.zeros(0)
    features = [
        f if has_labels(f) else _bounded_feature(f, columns.get(f.name, none)) for f in space
    ]
    placed = tuple(f.at((i,)) for i, f in enumerate(features))
    return FeatureSpace(placed, space.constraints)


def _bounded_feature(feature: Feature, values: np.ndarray) -> Feature:
    lower, upper = feature.lower, feature.upper
    if not np.isfinite(lower):
        lower = min(float(np.nanmin(values)), upper)
    if not np.isfinite(upper):
        upper = max(float(np.nanmax(values)), lower)
    anchor = feature.anchor
    if feature.step is not None:
        # A far anchor would cost the digits of the grid once bounds are near 0 and 1.
        anchor += feature.step * round((lower - anchor) / feature.step)
    return replace(feature, lower=lower, upper=upper, anchor=anchor)


def _check_encoded(space: FeatureSpace, steps: Sequence[Step]) -> None:
    done = {name for s in steps if s.stage == 1 for name in s.features_}
    for f in space:
        if has_labels(f) and f.name not in done:
            raise ConfigError(
                f"no step encodes the {f.kind} feature {f.name!r}; add OneHotEncoder() or "
                "OrdinalEncoder()"
            )
