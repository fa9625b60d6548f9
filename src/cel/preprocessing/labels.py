"""Category labels to codes and back, without a loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
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
        order = dtype.categories.get_indexer(pd.Index(_object_array(categories)))
        return pd.Categorical.from_codes(np.append(order, -1)[np.maximum(codes, -1)], dtype=dtype)
    labels: Any = pd.Series(_object_array(categories)).astype(dtype)
    codes = np.maximum(codes, -1).astype(np.intp)
    if isinstance(dtype, np.dtype):
        fill = bool((codes < 0).any())
        return pd.api.extensions.take(labels.to_numpy(), codes, allow_fill=fill)
    return labels.array.take(codes, allow_fill=True)


def _object_array(categories: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(categories), dtype=object)
    out[:] = categories
    return out
