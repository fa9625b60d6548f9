"""What forked processes would each import again is imported once, before they are forked."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable

from cel.testing.untouched import settle_torch

__all__ = ["import_early"]

LIBRARIES = {
    "artelt": ("sklearn.mixture",),
    "cearm": ("botorch.fit", "botorch.models"),
    "glance": ("sklearn.cluster",),
    "group_ppcef": ("sklearn.cluster",),
    "tcrex": ("sklearn.tree",),
}
"""Modules of other packages that methods of CEL import when they run, not when they are loaded."""


def import_early(methods: Iterable[str]) -> None:
    """Import the compiler of torch, and the libraries of some methods as far as they are there.

    Methods that CEL does not have are left alone: their code runs in its own process only.

    Args:
        methods: names in the registry.
    """
    settle_torch()
    for library in sorted({m for name in methods for m in LIBRARIES.get(name, ())}):
        with contextlib.suppress(ImportError):  # the method itself says what it lacks
            importlib.import_module(library)
