"""Let functions written for tensors take arrays and give arrays back."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["array_in_array_out", "to_tensor"]

F = TypeVar("F", bound=Callable[..., Any])


def to_tensor(x: Any, like: Tensor | None = None) -> Tensor:
    """Return `x` as a floating tensor, on the device and with the dtype of `like` if given."""
    # Tables hand out read-only arrays, about which torch would warn.
    own = x if isinstance(x, Tensor) else np.require(x, requirements=["C", "W"])
    tensor = torch.as_tensor(own)
    if like is not None:
        return tensor.to(device=like.device, dtype=like.dtype)
    return tensor if tensor.is_floating_point() else tensor.to(torch.get_default_dtype())


def array_in_array_out(method: F) -> F:
    """Return arrays when the last positional argument is an array, tensors otherwise."""

    @wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        return result if isinstance(args[-1], Tensor) else _to_numpy(result)

    return wrapper  # type: ignore[return-value]


def _to_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _to_numpy(v) for k, v in value.items()}
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value
