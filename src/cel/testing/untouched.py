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

__all__ = ["Witness", "settle_torch"]

_WATCHED = ("cel", "builtins", "json", "math", "numpy", "os", "random", "torch")

_Callables = dict[str, tuple[type | None, dict[str, Any]]]
"""By full name of a module or class: the class, None for a module, and what can be called."""


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
        settle_torch()
        self._things = dict(things)
        self._sums = {name: _digest(thing) for name, thing in things.items()}
        self._settings, self._callables = _settings(), _callables()

    def changes(self) -> list[str]:
        """Return the names of what is not as it was."""
        out = [n for n, thing in self._things.items() if _digest(thing) != self._sums[n]]
        now = _settings()
        out += [name for name, value in self._settings.items() if now[name] != value]
        return out + _altered(self._callables)


@lru_cache(maxsize=1)
def settle_torch() -> None:
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


def _callables() -> _Callables:
    """Return the functions, classes and methods of the watched modules, by where they are."""
    out: _Callables = {}
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and (name in _WATCHED or name.startswith("cel.")):
            own = {key: value for key, value in list(vars(module).items()) if callable(value)}
            out[name] = None, own
            for key, value in own.items():
                if isinstance(value, type) and value.__module__ == name:
                    members = {k: v for k, v in vars(value).items() if callable(v)}
                    out[f"{name}.{key}"] = value, members
    return out


def _altered(known: _Callables) -> list[str]:
    """Return the full names of callables that are not where they were.

    Looking each of them up is ten times as fast as collecting all of them again.
    """
    out = []
    for name, (owner, members) in known.items():
        now = getattr(sys.modules.get(name) if owner is None else owner, "__dict__", {})
        out += [f"{name}.{key}" for key, value in members.items() if now.get(key) is not value]
    return out
