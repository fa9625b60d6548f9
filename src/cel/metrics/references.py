"""Things that are expensive to fit and equal for every method: fitted once, then shared."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

import numpy as np

__all__ = ["References", "fingerprint"]

T = TypeVar("T")

OF_ROWS = ("isolation_forest", "lof", "mad", "neighbours")  # kinds that may know only rows


def fingerprint(*arrays: np.ndarray | None) -> str:
    """Return a short text that is equal for equal arrays.

    >>> fingerprint(np.zeros(2)) == fingerprint(np.zeros(2))
    True
    >>> fingerprint(np.zeros(2)) == fingerprint(np.ones(2))
    False
    """
    digest = hashlib.blake2b(digest_size=12)
    for x in arrays:
        if x is None:
            digest.update(b"none")
            continue
        digest.update(f"{x.dtype.str}{x.shape}".encode())
        digest.update(np.ascontiguousarray(x).view(np.uint8).data)
    return digest.hexdigest()


class References:
    """A store of fitted references, shared by all methods scored with it.

    Rows are known by content, so that results of different methods on the same fold share; models
    and densities by identity. After a model was fitted again in place, call `clear`.

    Attributes:
        fits: how often each kind of reference was fitted.

    >>> shared = References()
    >>> shared.get("answer", (1,), lambda: 42), shared.get("answer", (1,), lambda: 43)
    (42, 42)
    >>> shared.fits["answer"]
    1
    """

    def __init__(self) -> None:
        self.fits: Counter[str] = Counter()
        self._items: dict[tuple[Hashable, ...], Any] = {}
        self._alive: dict[int, Any] = {}
        self._trusted: dict[int, str] = {}
        self._of_rows: set[tuple[Hashable, ...]] = set()

    def get(
        self,
        kind: str,
        key: tuple[Hashable, ...],
        build: Callable[[], T],
        *,
        of_rows: bool = False,
    ) -> T:
        """Return the reference of this kind and key, fitting it if it is new.

        Args:
            kind: of reference.
            key: what tells it from others of its kind, rows first (`rows_of`).
            build: fits it.
            of_rows: whether it depends on the training rows alone.
        """
        full = (kind, *key)
        if full not in self._items:
            if of_rows and kind in OF_ROWS:
                self._of_rows.add(full)
            self._items[full] = build()
            self.fits[kind] += 1
        found: T = self._items[full]
        return found

    def identity(self, thing: Any) -> int:
        """Return a key for an object that stays its own as long as this store lives."""
        self._alive[id(thing)] = thing
        return id(thing)

    @classmethod
    def trusting(cls, context: Any) -> References:
        """Return an empty store that trusts the rows of a context."""
        made = cls()
        made.trust(context)
        return made

    def trust(self, context: Any) -> None:
        """Take it that the rows of a context never change, so that they are read only once."""
        self._trusted.setdefault(self.identity(context), "")

    def trusts(self, context: Any) -> bool:
        """Tell whether the rows of a context were read before and never change."""
        return bool(self._trusted.get(id(context)))

    def rows_of(self, context: Any) -> str:
        """Return a text that is equal for contexts with equal rows."""
        known = self._trusted.get(id(context), "")
        if not known:
            c = context
            known = fingerprint(c.x_train, c.y_train, c.x_test, c.y_test)
            if id(context) in self._trusted:
                self._trusted[id(context)] = known
        return known

    def inherit(self, other: References, before: Any, context: Any) -> None:
        """Take over what another store fitted on the training rows alone, if rows are the same.

        Args:
            other: the store.
            before: the context of its rows.
            context: that of the rows here.
        """
        old, new = before.x_train, context.x_train
        if old is None or new is None or old.dtype != new.dtype or not np.array_equal(old, new):
            return
        there, here = other.rows_of(before), self.rows_of(context)
        for kind, rows, *rest in other._of_rows:
            if rows == there:
                full = (kind, here, *rest)
                self._items[full] = other._items[kind, rows, *rest]
                self._of_rows.add(full)

    def clear(self) -> None:
        """Forget everything; the counter keeps counting."""
        self._items.clear()
        self._of_rows.clear()
        self._trusted.clear()
        self._alive.clear()

    def __len__(self) -> int:
        return len(self._items)
