"""A raw feature space guessed from a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError
from cel.preprocessing.frame_checks import check_numbers
from cel.preprocessing.numbers import encode_numbers
from cel.registry import did_you_mean
from cel.space import Constraint, Direction, Feature, FeatureSpace

__all__ = ["check_table", "infer_space"]


def infer_space(
    frame: pd.DataFrame,
    *,
    max_categories: int = 1000,
    immutable: Collection[str] = (),
    protected: Collection[str] = (),
    directions: Mapping[str, Direction] | None = None,
    ordinal: Mapping[str, Sequence[Any]] | None = None,
    constraints: Sequence[Constraint] = (),
) -> FeatureSpace:
    """Return the raw space of a table: one feature per column, bounds from the observed range.

    Text, booleans and pandas categories become categorical features (ordered pandas categories
    ordinal ones), integer dtypes integer features of step 1, floats continuous features. Missing
    values are left out.

    Args:
        frame: (n, p) raw rows.
        max_categories: more levels than this in one column are an error.
        immutable: columns that may not change.
        protected: columns that are protected attributes.
        directions: columns that may only rise ("up") or fall ("down").
        ordinal: columns with ordered labels -> their labels from lowest to highest.
        constraints: relations and implications between the columns.

    >>> space = infer_space(pd.DataFrame({"age": [20, 30], "sex": ["f", "m"]}), immutable=["sex"])
    >>> [(f.name, f.kind, f.mutable) for f in space]
    [('age', 'integer', True), ('sex', 'categorical', False)]
    """
    directions, ordinal = directions or {}, ordinal or {}
    check_table(frame)
    names = [str(c) for c in frame.columns]
    for name in (*immutable, *protected, *directions, *ordinal):
        if name not in names:
            raise ConfigError(f"unknown column {name!r}; {did_you_mean(name, names)}")
    for name in names:
        if frame[name].isna().all():
            raise DataError(f"column {name!r} has no value in any row; drop it")
    features = []
    for i, name in enumerate(names):
        feature = _infer(frame.iloc[:, i], name, ordinal.get(name), max_categories)
        features.append(
            replace(
                feature,
                columns=(i,),
                mutable=name not in immutable,
                protected=name in protected,
                direction=directions.get(name, "any"),
            )
        )
    return FeatureSpace(tuple(features), tuple(constraints))


def check_table(frame: pd.DataFrame) -> None:
    """Raise unless the names of the columns can be names of features."""
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"expected a DataFrame, got {type(frame).__name__}")
    if frame.empty:
        raise DataError(f"a table of shape {frame.shape} has no values to look at")
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"column {twice[0]!r} occurs twice; rename or drop one of the two")
    for name in frame.columns:
        if not isinstance(name, str):
            raise DataError(f"column name {name!r} is no text; rename the column")


def _infer(
    values: pd.Series, name: str, ranks: Sequence[Any] | None, max_categories: int
) -> Feature:
    dtype = values.dtype
    if ranks is not None:
        return _ordinal(name, tuple(ranks))
    if isinstance(dtype, pd.CategoricalDtype) and dtype.ordered:
        return _ordinal(name, tuple(dtype.categories.tolist()))
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        return _number(values, name)
    if not _holds_labels(dtype):
        raise DataError(
            f"column {name!r} has dtype {dtype}; turn it into numbers or text, or drop it"
        )
    categories = _levels(values, name, max_categories)
    return Feature(name=name, kind="categorical", categories=categories)


def _holds_labels(dtype: Any) -> bool:
    kinds = (pd.CategoricalDtype, pd.StringDtype)
    return (
        isinstance(dtype, kinds)
        or dtype == np.dtype(object)
        or pd.api.types.is_bool_dtype(dtype)
        or (isinstance(dtype, pd.ArrowDtype) and pd.api.types.is_string_dtype(dtype))
    )


def _ordinal(name: str, categories: tuple[Any, ...]) -> Feature:
    upper = float(len(categories) - 1)
    return Feature(name=name, kind="ordinal", categories=categories, step=1.0, upper=upper)


def _number(values: pd.Series, name: str) -> Feature:
    numbers = encode_numbers(values, name)
    check_numbers(numbers, values, accepts_missing=True, complete=False)
    lower, upper = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    if pd.api.types.is_integer_dtype(values.dtype):
        return Feature(name=name, kind="integer", lower=lower, upper=upper, step=1.0)
    return Feature(name=name, lower=lower, upper=upper)


def _levels(values: pd.Series, name: str, limit: int) -> tuple[Any, ...]:
    if pd.api.types.is_bool_dtype(values.dtype):
        return (False, True)
    if isinstance(values.dtype, pd.CategoricalDtype):
        levels = values.cat.categories.tolist()
    else:
        levels = values.dropna().unique().tolist()
        levels = sorted(levels, key=lambda v: (type(v).__name__, v))
    if len(levels) > limit:
        raise DataError(
            f"column {name!r} has {len(levels)} categories, more than max_categories={limit}; "
            "drop it if it is an identifier, merge rare values, or raise max_categories"
        )
    return tuple(levels)
