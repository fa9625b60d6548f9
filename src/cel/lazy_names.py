"""Public names of a package that are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: module of each name, or `module:attribute` where the attribute is called otherwise.

    >>> lazy_names("here", {"Root": "pathlib:Path"})("Root")
    <class 'pathlib.Path'>
    >>> lazy_names("here", {})("Root")
    Traceback (most recent call last):
    AttributeError: module 'here' has no attribute 'Root'
    """

    def find(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, own_name = homes[name].partition(":")
        return getattr(import_module(module), own_name or name)

    return find
