"""From encoded numbers to words: thresholds, values and shifts in original units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cel.errors import ConfigError
from cel.preprocessing import PreprocessingPipeline, without_gaps
from cel.preprocessing.imputer import FLAG
from cel.space import Feature, FeatureSpace

__all__ = ["Term", "Wording", "plain"]

_OPERATORS = ("=", "!=", "<=", ">", "between", "in", "any", "+")


def plain(value: Any) -> Any:
    """Return a number or a label as JSON can hold it; numbers keep six digits."""
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(f"{float(value):.6g}")
        return number + 0.0 if np.isfinite(number) else None
    return str(value)


@dataclass(frozen=True)
class Term:
    """A condition or an effect on one feature, in original units.

    Attributes:
        feature: name of the feature.
        operator: one of =, !=, <=, >, between, in, any, +.
        value: a pair for "between", a tuple of labels for "in", nothing for "any".

    >>> str(Term("age", "between", (30, 40))), str(Term("job", "in", ("a", "b")))
    ('30 < age <= 40', 'job in {a, b}')
    >>> str(Term("age", "+", -2.5))
    'age - 2.5'
    >>> str(Term("age__missing", "=", False))
    'age is known'
    """

    feature: str
    operator: str
    value: Any = None

    def __post_init__(self) -> None:
        if self.operator not in _OPERATORS:
            raise ConfigError(f"unknown operator {self.operator!r}; use one of {_OPERATORS}")

    def __str__(self) -> str:
        value = plain(self.value)
        if self.feature.endswith(FLAG) and isinstance(value, bool):
            gap = value is (self.operator == "=")
            return f"{self.feature.removesuffix(FLAG)} is {'missing' if gap else 'known'}"
        if self.operator == "any":
            return f"{self.feature} is anything"
        if self.operator == "between":
            return f"{value[0]} < {self.feature} <= {value[1]}"
        if self.operator == "in":
            return f"{self.feature} in {{{', '.join(map(str, value))}}}"
        if self.operator == "+" and isinstance(value, int | float):
            return f"{self.feature} {'+' if value >= 0 else '-'} {abs(value)}"
        return f"{self.feature} {self.operator} {value}"

    def to_dict(self) -> dict[str, Any]:
        """Return the term as JSON can hold it."""
        return {
            "feature": self.feature,
            "operator": self.operator,
            "value": plain(self.value),
        }


class Wording:
    """Decodes single encoded values, one feature at a time.

    Numbers are decoded by the line through the decoded ends of the training range; features
    whose pipeline is not a line are decoded value by value.

    Args:
        space: encoded features.
        pipeline: how rows are decoded, or None to keep encoded numbers.
        low: (d,) smallest training values.
        high: (d,) largest training values.
        base: (d,) any training row, for the columns that do not matter.
    """

    def __init__(
        self,
        space: FeatureSpace,
        pipeline: PreprocessingPipeline | None,
        low: np.ndarray,
        high: np.ndarray,
        base: Any,
    ) -> None:
        self.space, self.pipeline = space, pipeline
        self.low, self.high = np.asarray(low, float), np.asarray(high, float)
        self.base = without_gaps(np.asarray(base, dtype=np.float32), space)
        self._lines = self._learn_lines()

    def _rows(self, *parts: np.ndarray) -> Any:
        rows = np.repeat(self.base[None], len(parts), 0)
        columns = self.space.numeric_columns
        for row, part in zip(rows, parts, strict=True):
            row[columns] = part[columns]
        assert self.pipeline is not None
        return self.pipeline.inverse_transform(rows)

    def _learn_lines(self) -> dict[str, tuple[float, float]]:
        """Return (value at low, slope) of every feature whose decoding is a line."""
        if self.pipeline is None or not len(self.space.numeric_columns):
            return {}
        frame = self._rows(self.low, self.high, (self.low + self.high) / 2)
        lines = {}
        for f in self.space.numeric_features:
            if f.kind == "ordinal" or f.name not in frame.columns:
                continue
            first, last, middle = (float(v) for v in frame[f.name])
            width = self.high[f.columns[0]] - self.low[f.columns[0]]
            bent = abs(middle - (first + last) / 2) > 1e-3 * abs(last - first)
            if f.kind == "integer" or not bent:
                lines[f.name] = (first, (last - first) / width if width > 0 else 1.0)
        return lines

    def value(self, feature: Feature, encoded: float) -> Any:
        """Return a number or an ordered label in original units."""
        if feature.kind == "ordinal":
            rank = round((encoded - feature.anchor) / (feature.step or 1.0))
            return feature.categories[int(np.clip(rank, 0, len(feature.categories) - 1))]
        column = feature.columns[0]
        if feature.name in self._lines:
            first, slope = self._lines[feature.name]
            value = first + slope * (encoded - self.low[column])
            return round(value) if feature.kind == "integer" else float(value)
        if self.pipeline is None:
            return float(encoded)
        row = self.low.copy()
        row[column] = encoded
        frame = self._rows(row)
        return frame[feature.name].iloc[0] if feature.name in frame.columns else float(encoded)

    def shift(self, feature: Feature, encoded: float) -> float:
        """Return a difference in original units, in ranks for ordered labels."""
        if feature.kind == "ordinal":
            return encoded / (feature.step or 1.0)
        return encoded * self._lines.get(feature.name, (0.0, 1.0))[1]

    # -- terms -------------------------------------------------------------------------------

    def interval(self, feature: Feature, low: float, high: float) -> Term:
        """Word the half-open interval (low, high] of a numeric feature."""
        if np.isinf(low) and np.isinf(high):
            return Term(feature.name, "any")
        if np.isinf(low):
            return Term(feature.name, "<=", self.value(feature, high))
        if np.isinf(high):
            return Term(feature.name, ">", self.value(feature, low))
        return Term(feature.name, "between", (self.value(feature, low), self.value(feature, high)))

    def levels(self, feature: Feature, allowed: Sequence[bool]) -> Term:
        """Word a set of categories, as briefly as possible."""
        inside = [c for c, a in zip(feature.categories, allowed, strict=True) if a]
        outside = [c for c, a in zip(feature.categories, allowed, strict=True) if not a]
        if not outside:
            return Term(feature.name, "any")
        if len(inside) == 1:
            return Term(feature.name, "=", inside[0])
        if len(outside) == 1:
            return Term(feature.name, "!=", outside[0])
        return Term(feature.name, "in", tuple(inside))

    def edit(self, shift: np.ndarray, fixed: np.ndarray, value: np.ndarray) -> tuple[Term, ...]:
        """Word an edit (see `Edits`): what is set and what is added."""
        terms = []
        for f in self.space:
            columns = list(f.columns)
            if f.is_categorical and fixed[columns].any():
                terms.append(Term(f.name, "=", f.categories[int(value[columns].argmax())]))
            elif not f.is_categorical and fixed[columns[0]]:
                terms.append(Term(f.name, "=", self.value(f, float(value[columns[0]]))))
            elif not f.is_categorical and shift[columns[0]]:
                terms.append(Term(f.name, "+", self.shift(f, float(shift[columns[0]]))))
        return tuple(terms)
