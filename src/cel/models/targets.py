"""Targets as arrays and tensors of the right shape."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from cel.errors import DataError

__all__ = ["flat_labels", "value_matrix"]


def flat_labels(y: np.ndarray) -> np.ndarray:
    """Return class labels as (n,)."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise DataError(f"class labels must be of shape (n,), got {y.shape}")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError("a class label is not a number")
    return y


def value_matrix(y: np.ndarray) -> Tensor:
    """Return finite values as float32 (n, m)."""
    if y.dtype.kind not in "fiub":
        raise DataError(f"values of dtype {y.dtype} are not numbers")
    values = torch.from_numpy(np.array(y, dtype=np.float32).reshape(len(y), -1))
    if not bool(values.isfinite().all()):
        raise DataError("y holds a value that is not finite")
    return values
