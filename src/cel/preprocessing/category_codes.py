"""Category labels to codes and back, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from cel.space import Feature

__all__ = ["MISSING", "UNKNOWN", "decode_labels", "encode_labels", "has_labels"]

MISSING = -1
UNKNOWN = -2


def has_labels(feature: Feature) -> bool:
    """Tell whether the raw values of a feature are labels, ordered or not."""
    return feature.kind in ("categorical", "ordinal")


def encode_labels(values: pd.Series, categories: Sequence[Any]) -> np.ndarray:
    """Return the position of each value in `categories`, shape (n,), int32.

    Missing values become `MISSING`, values that are not listed `UNKNOWN`. Only the distinct values
    are looked up, so the cost per row is one integer gather.

    >>> encode_labels(pd.Series(["b", None, "z"]), ("a", "b")).tolist()
    [1, -1, -2]
    """
    if isinstance(values.dtype, pd.CategoricalDtype):
        codes, distinct = values.cat.codes.to_numpy(), values.cat.categories
    else:
        codes, distinct = pd.factorize(values)
    position = {label: i for i, label in enumerate(categories)}
    found = [position.get(label, UNKNOWN) for label in distinct.tolist()]
    return np.array([*found, MISSING], dtype=np.int32)[codes]


def decode_labels(codes: np.ndarray, categories: Sequence[Any], dtype: Any) -> Any:
    """Return labels (n,) of the given pandas dtype; negative codes become missing values.

    >>> decode_labels(np.array([1, 0]), ("a", "b"), np.dtype(object))
    array(['b', 'a'], dtype=object)
    """
    if isinstance(dtype, pd.CategoricalDtype):
        order = _order(tuple(categories), dtype)
        return pd.Categorical.from_codes(order[np.maximum(codes, -1)], dtype=dtype)
    labels: Any = pd.Series(_object_array(categories)).astype(dtype)
    codes = np.maximum(codes, -1).astype(np.intp)
    if isinstance(dtype, np.dtype):
        fill = bool((codes < 0).any())
        return pd.api.extensions.take(labels.to_numpy(), codes, allow_fill=fill)
    return labels.array.take(codes, allow_fill=True)


@lru_cache(maxsize=512)
def _order(categories: tuple[Any, ...], dtype: pd.CategoricalDtype) -> np.ndarray:
    """Return the code of each category in a pandas dtype, and -1 for none at the end."""
    return np.append(dtype.categories.get_indexer(pd.Index(_object_array(categories))), -1)


def _object_array(categories: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(categories), dtype=object)
    out[:] = categories
    return out
