"""Whether a method left everything as it was: rows, models, settings and modules."""

from __future__ import annotations

import gc
import os
import sys
import types
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch

__all__ = ["Witness"]

_WATCHED = ("cel", "builtins", "json", "math", "numpy", "os", "random", "torch")


class Witness:
    """Remembers what a method is given, and tells afterwards what has changed.

    Args:
        things: by name: splits, models, arrays, tensors; None is fine.

    >>> rows = np.zeros(3)
    >>> witness = Witness({"rows": rows})
    >>> rows += 1
    >>> witness.changes()
    ['rows']
    """

    def __init__(self, things: Mapping[str, Any]) -> None:
        _settle_torch()
        self._things = dict(things)
        self._sums = {name: _digest(thing) for name, thing in things.items()}
        self._settings, self._callables = _settings(), _callables()

    def changes(self) -> list[str]:
        """Return the names of what is not as it was."""
        out = [n for n, thing in self._things.items() if _digest(thing) != self._sums[n]]
        now = _settings()
        out += [name for name, value in self._settings.items() if now[name] != value]
        functions = _callables()
        out += [n for n, value in self._callables.items() if functions.get(n) is not value]
        return out


@lru_cache(maxsize=1)
def _settle_torch() -> None:
    """Let torch do now what it does at the first optimizer of a process.

    It imports its compiler, which wraps `torch.manual_seed` and sets a variable of the
    environment: no deed of the method that happens to train something first. Processes that are
    forked after this need not import it again, which takes longer than many searches.
    """
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def _digest(thing: Any) -> int:
    """Return a number that depends on every value of an array, a model or a split."""
    if isinstance(thing, torch.Tensor):
        thing = thing.detach().cpu().numpy()
    if isinstance(thing, np.ndarray):
        if thing.dtype == object:
            return zlib.crc32(repr(thing.tolist()).encode())
        return zlib.crc32(np.ascontiguousarray(thing).data)
    if hasattr(thing, "module_"):
        states = [*thing.module_.state_dict().values(), *thing.module_.parameters()]
        return hash(tuple(map(_digest, states)))
    if hasattr(thing, "train") and hasattr(thing, "test"):
        parts = [getattr(thing, p) for p in ("train", "valid", "test")]
        return hash(tuple(_digest(a) for p in parts for a in (p.X, p.y, p.index)))
    return 0


def _settings() -> dict[str, Any]:
    """Return the settings of the process that other methods would see."""
    return {
        "the working directory": _working_directory(),
        "the environment": dict(os.environ),
        "sys.path": list(sys.path),
        "sys.setrecursionlimit": sys.getrecursionlimit(),
        "gc": gc.isenabled(),
        "numpy.seterr": np.geterr(),
        "the default dtype of torch": torch.get_default_dtype(),
        "the number of threads of torch": torch.get_num_threads(),
        "the gradient mode": torch.is_grad_enabled(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


def _callables() -> dict[str, Any]:
    """Return the functions, classes and methods of the watched modules, by full name."""
    out: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and (name in _WATCHED or name.startswith("cel.")):
            for key, value in list(vars(module).items()):
                if callable(value):
                    out[f"{name}.{key}"] = value
                if isinstance(value, type) and value.__module__ == name:
                    members = vars(value).items()
                    out |= {f"{name}.{key}.{k}": v for k, v in members if callable(v)}
    return out
