"""Names for things, with helpful answers to wrong names and room for other packages."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from cel.errors import ConfigError

__all__ = ["Registry", "did_you_mean", "import_named", "look_in"]

T = TypeVar("T")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint with the nearest known names.

    >>> did_you_mean("wachtr", ["wachter", "dice"])
    "did you mean 'wachter'?"
    """
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(repr(n) for n in near) + "?"
    return f"known: {', '.join(known) or 'none'}"


def look_in(folder: str | os.PathLike[str]) -> None:
    """Let `module:attribute` find files of a folder, after everything that is installed.

    Being last, a file of that folder never takes the place of an installed module.
    """
    place = os.path.abspath(folder)
    if place not in sys.path:
        sys.path.append(place)
        importlib.invalidate_caches()


def import_named(name: str, kind: str = "object") -> Any:
    """Return what `module:attribute` names; only for names that the user wrote.

    >>> import_named("math:tau")
    6.283185307179586
    >>> import_named("sys:tau")
    Traceback (most recent call last):
    cel.errors.ConfigError: cannot import object 'sys:tau': 'sys' (built-in) has no 'tau'
    """
    module, _, attribute = name.partition(":")
    if not (module and attribute) or module.startswith("."):
        raise ConfigError(f"cannot import {kind} {name!r}: write it as module:attribute")
    try:
        home = importlib.import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == module.split(".")[0]
        hint = f"; go to the folder of {module}.py, or install it" if missing else ""
        raise ConfigError(f"cannot import {kind} {name!r}: {error}{hint}") from error
    if not hasattr(home, attribute):
        place = getattr(home, "__file__", None) or "built-in"
        raise ConfigError(
            f"cannot import {kind} {name!r}: {module!r} ({place}) has no {attribute!r}"
        )
    return getattr(home, attribute)


class Registry(Generic[T]):
    """A mapping from names to things that other packages can add to by entry point.

    >>> colours = Registry[str]("colour")
    >>> colours.add("red", "#f00")
    '#f00'
    >>> colours.get("red")
    '#f00'
    >>> colours.get("rod")
    Traceback (most recent call last):
    cel.errors.ConfigError: unknown colour 'rod'; did you mean 'red'?
    """

    def __init__(self, kind: str, *, group: str | None = None) -> None:
        self.kind, self.group = kind, group
        self._items: dict[str, T] = {}
        self._searched = group is None

    def add(self, name: str, item: T) -> T:
        """Register `item`; a second, different item under the same name is an error."""
        known = self._items.get(name)
        if known is not None and known is not item and not _same_definition(known, item):
            raise ConfigError(f"{self.kind} {name!r} is already registered as {known!r}")
        self._items[name] = item
        return item

    def get(self, name: str) -> T:
        """Return the item called `name`, or raise with the nearest known name."""
        if name not in self._items:
            self._search()
        try:
            return self._items[name]
        except KeyError:
            hint = did_you_mean(name, self._items)
            raise ConfigError(f"unknown {self.kind} {name!r}; {hint}") from None

    def named(self, name: str) -> T:
        """Return the item called `name`, or the one that `module:attribute` names.

        Only for names that the user wrote: what a file says must not import anything.
        """
        if ":" not in name:
            return self.get(name)
        found: T = import_named(name, self.kind)
        return found

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._search()
        return sorted(self._items)

    def items(self) -> list[tuple[str, T]]:
        """Return all pairs, sorted by name."""
        return [(name, self._items[name]) for name in self.names()]

    def __contains__(self, name: object) -> bool:
        return name in self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def _search(self) -> None:
        if self._searched or self.group is None:
            return
        self._searched = True
        for entry in entry_points(group=self.group):
            if entry.name not in self._items:
                self._items[entry.name] = entry.load()


def _same_definition(a: object, b: object) -> bool:
    """Tell whether `b` is `a` again, as after a module reload."""
    names = ("__module__", "__qualname__")
    return all(
        getattr(a, n, None) is not None and getattr(a, n, None) == getattr(b, n, None)
        for n in names
    )
