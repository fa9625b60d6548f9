"""Raw values of a label column become positions in the declared list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cel.config import Label
from cel.errors import DataError
from cel.registry import did_you_mean

__all__ = ["Labels"]

_MANY = 50


@dataclass(frozen=True)
class Labels:
    """The raw values that each label of a column stands for.

    Words match after trimming spaces; numbers match as numbers, so that `2`, `2.0` and `"2"` are
    one value.

    >>> Labels("y", (("no",), ("yes", "y"))).codes(pd.Series(["yes", " no", None]), "a.csv")
    array([ 1,  0, -1], dtype=int16)
    """

    column: str
    values: tuple[tuple[Label, ...], ...]

    @classmethod
    def of(cls, column: str, labels: Sequence[Label]) -> Labels:
        """Return labels that stand for themselves."""
        return cls(column, tuple((label,) for label in labels))

    @cached_property
    def verbatim(self) -> bool:
        """Whether some label is a word that looks like a number or a truth value ("007").

        Readers that guess types must then be told not to.
        """
        words = [v for group in self.values for v in group if isinstance(v, str)]
        return any(_number(w) is not None or w.lower() in ("true", "false") for w in words)

    @cached_property
    def _words(self) -> dict[str, int]:
        words = {str(v).strip(): i for i, group in enumerate(self.values) for v in group}
        for i, group in enumerate(self.values):
            for v in group:
                if isinstance(v, bool):
                    words |= {str(v).lower(): i, str(v).upper(): i}
        return words

    @cached_property
    def _numbers(self) -> dict[float, int]:
        numbers = (int, float)  # of which bool is one: False is 0 in a table
        return {
            float(v): i
            for i, group in enumerate(self.values)
            for v in group
            if isinstance(v, numbers)
        }

    def codes(self, column: pd.Series, where: str) -> np.ndarray:
        """Return the position of each value, -1 where it is missing, shape (n,)."""
        values = column.astype("category").cat
        levels = values.categories.tolist()
        table = np.empty(len(levels) + 1, dtype=np.int16)
        table[-1] = -1  # the code of missing values points here
        for i, level in enumerate(levels):
            table[i] = self._find(level, where, len(levels))
        return table[values.codes.to_numpy()]

    def _find(self, value: Any, where: str, distinct: int) -> int:
        found = self._words.get(value.strip() if isinstance(value, str) else str(value))
        if found is None and self._numbers:
            number = _number(value)
            found = None if number is None else self._numbers.get(number)
        if found is None:
            raise DataError(self._message(value, where, distinct))
        return found

    def _message(self, value: Any, where: str, distinct: int) -> str:
        known = len(self._words)
        hint = did_you_mean(str(value), self._words) if known <= _MANY else f"{known} are known"
        text = f"{where}: column {self.column!r} holds {value!r}, which the card does not list"
        if distinct > 2 * known + _MANY:
            return (
                f"{text}; it holds {distinct:,} different values where the card lists {known}: "
                "if it is a number declare it integer or continuous, if it is an id list it "
                "under `drop`"
            )
        return f"{text}; {hint} (add it to the card, or to read.na_values if it means missing)"


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None
