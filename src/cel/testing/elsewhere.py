"""A second device that every machine has: it computes on the CPU and mixes with nothing.

A method that forgets `device=` where it makes a tensor, or that hands a tensor of a GPU to NumPy,
fails only where a GPU is. Inside `second_device()` the device called "meta" behaves like one:
tensors reach it and leave it by `.to(...)`, an operation on tensors of both devices is refused as
CUDA refuses it, and `numpy()` wants `.cpu()` first. Numbers are those of the CPU, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

__all__ = ["SECOND", "second_device"]

SECOND = "meta"
_aten = torch.ops.aten
_MOVES = (_aten._to_copy.default, _aten.copy_.default)
_PICKS = (
    _aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default,
    _aten._unsafe_index.Tensor, _aten._index_put_impl_.default,
)  # fmt: skip
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor)


class _There(Tensor):
    """A tensor of the second device around one of the CPU."""

    home: Tensor

    @staticmethod
    def __new__(cls: type[_There], inner: Tensor) -> _There:
        made: _There = Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device=torch.device(SECOND),
        )  # fmt: skip
        made.home = inner
        return made

    def __repr__(self, *, tensor_contents: str | None = None) -> str:  # type: ignore[override]
        return f"there({self.home!r})"

    def tolist(self) -> Any:
        """Return plain numbers, as a tensor of a GPU does."""
        return self.home.tolist()

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _computed(func, args, kwargs or {})


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class _FromData(TorchFunctionMode):
    """Tensors made from lists and arrays, also as positions, are made here and sent over."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            args = (args[0], _positions(args[1]), *args[2:])
        if func in _FROM_DATA and _is_second(kwargs.get("device")):
            here = func(*args, **{k: v for k, v in kwargs.items() if k != "device"})
            return here.to(SECOND)
        return func(*args, **kwargs)


def _positions(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_positions(i) for i in index)
    return torch.as_tensor(index) if isinstance(index, list | np.ndarray) else index


def _is_second(device: Any) -> bool:
    return device is not None and torch.device(device).type == SECOND


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU; its results are where the operation says."""
    tensors = [t for t in tree_flatten((args, kwargs))[0] if isinstance(t, Tensor)]
    there = [t for t in tensors if isinstance(t, _There)]
    if there and func not in _MOVES:
        _refuse_mixtures(func, args, tensors)
    goes = bool(there)
    if kwargs.get("device") is not None:
        goes = _is_second(kwargs["device"])
    elif func is _aten.copy_.default:
        goes = isinstance(args[0], _There)
    here: Callable[[Any], Any] = lambda t: t.home if isinstance(t, _There) else t  # noqa: E731
    plain = {k: "cpu" if k == "device" and _is_second(v) else v for k, v in kwargs.items()}
    out = func(*tree_map(here, args), **tree_map(here, plain))
    if not goes:
        return out
    sent = tree_map(lambda t: _There(t) if isinstance(t, Tensor) else t, out)
    return return_and_correct_aliasing(func, args, kwargs, sent)  # type: ignore[no-untyped-call]


def _refuse_mixtures(func: Any, args: Any, tensors: list[Tensor]) -> None:
    """Raise as CUDA does: only single numbers may be elsewhere, and the positions of rows."""
    picked = args[0] if func in _PICKS else None
    if isinstance(picked, _There):  # rows of a GPU's tensor may be named on the CPU
        named = {id(t) for t in args[1] if t is not None}
        tensors = [t for t in tensors if id(t) not in named]
    wrong = [t for t in tensors if not isinstance(t, _There) and t.dim() > 0]
    if wrong:
        shapes = ", ".join(str(tuple(t.shape)) for t in wrong)
        raise RuntimeError(f"{func}: expected all tensors on one device; on the CPU: {shapes}")


@contextmanager
def second_device() -> Iterator[str]:
    """Make the second device usable, and give its name.

    >>> with second_device() as there:
    ...     x = torch.arange(3, device=there)
    ...     (x + 1).cpu().tolist(), str((x + 1).device)
    ([1, 2, 3], 'meta')
    >>> with second_device() as there:
    ...     torch.ones(2, device=there) + torch.ones(2)
    Traceback (most recent call last):
    ...
    RuntimeError: aten.add.Tensor: expected all tensors on one device; on the CPU: (2,)
    """
    with _FromData(), _Operations():  # type: ignore[no-untyped-call]
        yield SECOND
