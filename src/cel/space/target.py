"""What a model predicts: class labels or numbers with a range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import ConfigError, DataError
from cel.protocols import Task
from cel.registry import did_you_mean

__all__ = ["Target", "distinct"]


def distinct(labels: Any) -> tuple[np.ndarray, list[Any]]:
    """Return for every label its place among the different ones, and these, as plain values.

    >>> codes, labels = distinct(["no", "yes", "no"])
    >>> codes.tolist(), labels
    ([0, 1, 0], ['no', 'yes'])
    """
    flat = np.asarray(labels).ravel()
    try:
        codes, found = pd.factorize(flat, use_na_sentinel=False)
    except TypeError as error:
        raise DataError(f"labels must be plain values, not containers: {error}") from None
    return codes, found.tolist()


@dataclass(frozen=True, kw_only=True)
class Target:
    """The outcome column(s) of a table and how they become numbers.

    Classes become positions `0..K-1`; regression outputs are scaled by their training range to
    [0, 1], so that tolerances and distances mean the same on every dataset.

    >>> target = Target(names=("risk",), task=Task.CLASSIFICATION, classes=("Bad", "Good"))
    >>> target.encode(["Good", "Bad"])
    array([1, 0])
    >>> target.decode([1, 0]).tolist()
    ['Good', 'Bad']
    """

    names: tuple[str, ...]
    task: Task
    classes: tuple[Any, ...] = ()
    desired: Any = None
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.task is Task.CLASSIFICATION and len(self.classes) < 2:
            raise DataError(
                f"target {self.names[0]!r} has {len(self.classes)} class; two or more are needed"
            )
        if self.task is Task.CLASSIFICATION and self.desired is not None:
            self.position(self.desired)

    @property
    def n_outputs(self) -> int:
        """Number of classes, or of regression outputs."""
        return len(self.classes) if self.task is Task.CLASSIFICATION else len(self.names)

    @property
    def desired_position(self) -> int | None:
        """Position of the desirable class, if there is one."""
        return None if self.desired is None else self.position(self.desired)

    def position(self, label: Any) -> int:
        """Return the position of a class label."""
        for i, known in enumerate(self.classes):
            if known == label:
                return i
        hint = did_you_mean(str(label), map(str, self.classes))
        raise ConfigError(f"{self.names[0]!r} has no class {label!r}; {hint}")

    def place(self, label: Any, *, positions: bool = False) -> int:
        """Return the position of the class that a user means: labels before positions, always.

        Args:
            label: a label as plain value, numpy or pandas scalar.
            positions: whether a whole number may mean a position where no label is a number.

        >>> target = Target(names=("size",), task=Task.CLASSIFICATION, classes=(1, 2, 3))
        >>> target.place(np.int64(1)), target.place(3.0)
        (0, 2)
        """
        value = label.item() if isinstance(label, np.generic) else label
        for i, known in enumerate(self.classes):
            if known == value and isinstance(known, str) == isinstance(value, str):
                return i
        whole = isinstance(value, int) and not isinstance(value, bool)
        numbers = any(isinstance(c, int | float | np.number) for c in self.classes)
        if positions and whole and not numbers and 0 <= value < len(self.classes):
            return int(value)
        shown = [c.item() if isinstance(c, np.generic) else c for c in self.classes]
        hint = did_you_mean(str(value), map(str, shown))
        raise ConfigError(f"unknown target class {value!r}; the classes are {shown}; {hint}")

    def encode(self, y: Any) -> np.ndarray:
        """Return class positions (n,) or values scaled to the training range (n, m)."""
        values = np.asarray(y)
        if self.task is Task.REGRESSION:
            values = np.asarray(y, dtype=np.float64).reshape(len(values), -1)
            low, width = np.array(self.lower), np.array(self.upper) - np.array(self.lower)
            return np.asarray((values - low) / np.where(width > 0, width, 1.0))
        table = {label: i for i, label in enumerate(self.classes)}
        codes, labels = distinct(values)
        positions = np.array([self._lookup(table, v) for v in labels], dtype=np.int64)
        return np.asarray(positions[codes])

    def decode(self, y: Any) -> np.ndarray:
        """Return labels (n,) or values in original units (n, m)."""
        values = np.asarray(y)
        if self.task is Task.CLASSIFICATION:
            return np.array(self.classes, dtype=object)[values.astype(np.int64)]
        low, width = np.array(self.lower), np.array(self.upper) - np.array(self.lower)
        return np.asarray(low + values.reshape(len(values), -1) * np.where(width > 0, width, 1.0))

    def _lookup(self, table: dict[Any, int], label: Any) -> int:
        try:
            return table[label]
        except (KeyError, TypeError):
            hint = did_you_mean(str(label), map(str, self.classes))
            message = (
                f"target {self.names[0]!r}: label {label!r} is not one of its classes; {hint}"
            )
            raise DataError(message) from None
