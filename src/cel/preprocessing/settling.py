"""Searched numbers made presentable: the digits of their column, inside what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.preprocessing.category_codes import has_labels
from cel.preprocessing.imputer import without_gaps
from cel.preprocessing.numbers import encode_numbers
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.space import FeatureSpace, LinearRelation

__all__ = ["NumberRules", "RawRelation", "keep_relations"]

SLACK = 1e-9  # of the size of the numbers: rounding of 64-bit sums
NUDGE = 1e-7  # of the range, for columns with very many digits


@dataclass(frozen=True)
class NumberRules:
    """What one number column may hold, in original units.

    Attributes:
        lower: smallest value.
        upper: largest value.
        decimals: digits after the point, None for as many as there are.
        sign: +1 if it may only rise, -1 if it may only fall, 0 otherwise.
        hard: whether answers must lie inside even if their row does not.
    """

    lower: float
    upper: float
    decimals: int | None
    sign: int
    hard: bool

    @classmethod
    def of(
        cls,
        pipeline: PreprocessingPipeline,
        space: FeatureSpace,
        frame: pd.DataFrame,
        decimals: Mapping[str, int],
    ) -> dict[str, NumberRules]:
        """Read the bounds of all number columns; those of `space` are in encoded units."""
        ends = _decoded_ends(pipeline, space)
        out = {}
        for f in pipeline.raw_space_:
            if has_labels(f):
                continue
            code = space[f.name]
            digits = decimals.get(f.name)
            if pd.api.types.is_integer_dtype(frame[f.name].dtype) or f.kind == "integer":
                whole = f.step is None or float(f.step).is_integer()
                digits = 0 if whole else digits
            own = pipeline.space_[f.name]
            lower, upper = (
                getattr(f, name)
                if getattr(code, name) == getattr(own, name) and np.isfinite(getattr(f, name))
                else end
                for name, end in zip(("lower", "upper"), ends[f.name], strict=True)
            )
            sign = {"up": 1, "down": -1}.get(code.direction, 0)
            out[f.name] = cls(lower, upper, digits, sign, code.hard)
        return out

    def settle(self, decoded: Any, before: pd.Series, moved: np.ndarray) -> np.ndarray:
        """Return decoded numbers (m,) with the column's digits, back inside the bounds."""
        values = encode_numbers(pd.Series(decoded), str(before.name)).astype(np.float64)
        old = _old(before)
        low, high = self._ends(old)
        rounded = values if self.decimals is None else np.round(values, self.decimals)
        rounded = np.where(rounded > high, self._towards(high, -1), rounded)
        rounded = np.where(rounded < low, self._towards(low, +1), rounded)
        return np.where(moved, rounded, values)

    def _ends(self, old: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        known = ~np.isnan(old) & (not self.hard)
        low = np.where(known, np.fmin(self.lower, old), self.lower)
        high = np.where(known, np.fmax(self.upper, old), self.upper)
        if self.sign > 0:
            low = np.fmax(low, old)
        if self.sign < 0:
            high = np.fmin(high, old)
        return low, high

    def _towards(self, ends: np.ndarray, sign: int) -> np.ndarray:
        """Return the last presentable values inside the ends, down (-1) or up (+1)."""
        if self.decimals is None:
            return ends
        unit = 10.0**self.decimals
        near = np.round(ends, self.decimals)
        off = (near - ends) * sign < -SLACK * np.maximum(np.abs(ends), 1.0)
        return np.asarray(np.where(off, np.round(near + sign / unit, self.decimals), near))

    def keep(self, before: pd.Series, after: pd.Series) -> np.ndarray:
        """(m,) bool: whether values that changed are inside."""
        old, new = _old(before), _old(after)
        low, high = self._ends(old)
        slack = SLACK * np.maximum(np.abs(new), 1.0)
        inside = (new >= low - slack) & (new <= high + slack)
        still = (old == new) & (not self.hard)
        return np.asarray(inside | still | np.isnan(new))

    @property
    def nudge(self) -> float:
        """The smallest step that can be shown."""
        if self.decimals is not None:
            return float(10.0**-self.decimals)
        return NUDGE * max(self.upper - self.lower, abs(self.lower), abs(self.upper), 1e-300)


@dataclass(frozen=True)
class RawRelation:
    """A linear relation in original units, with what may be done to keep it.

    Attributes:
        relation: the relation.
        bounds: of its columns.
    """

    relation: LinearRelation
    bounds: Mapping[str, NumberRules]

    @classmethod
    def of(cls, raw: FeatureSpace, bounds: Mapping[str, NumberRules]) -> list[RawRelation]:
        """Return the relations between number columns."""
        linear = [c for c in raw.constraints if isinstance(c, LinearRelation)]
        return [cls(c, bounds) for c in linear if all(n in bounds for n in c.features)]

    def excess(self, columns: Mapping[str, Any]) -> np.ndarray:
        """(m,) left side minus bound; NaN where a number is missing."""
        parts = [c * _old(pd.Series(columns[n])) for n, c in self.relation.terms]
        return np.asarray(np.sum(parts, axis=0) - self.relation.bound)

    def _slack(self, columns: Mapping[str, Any]) -> np.ndarray:
        parts = [np.abs(c * _old(pd.Series(columns[n]))) for n, c in self.relation.terms]
        return np.asarray(SLACK * np.maximum(np.sum(parts, axis=0), 1.0))

    def broken(self, before: Any, after: Any) -> np.ndarray:
        """(m,) bool: what is broken more than the row itself breaks it."""
        allowed = np.fmax(np.nan_to_num(self.excess(before), nan=0.0), 0.0)
        worse: np.ndarray = self.excess(after) > allowed + self._slack(after)
        return np.asarray(worse & ~np.isnan(self.excess(after)))

    def kept(self, before: Any, after: Any) -> np.ndarray:
        """(m,) bool: whether answers keep the relation."""
        return ~self.broken(before, after)


def keep_relations(
    relations: list[RawRelation],
    values: dict[str, Any],
    before: pd.DataFrame,
    moved: np.ndarray,
    raw: FeatureSpace,
) -> bool:
    """Nudge changed numbers of broken relations one step to the safe side; tell whether any."""
    nudged = False
    for relation in relations:
        after = {
            n: _after(before[n], values.get(n), moved[:, raw.names.index(n)])
            for n in relation.relation.features
        }
        broken = relation.broken(before, after)
        if not broken.any():
            continue
        for name, c in relation.relation.terms:
            j = raw.names.index(name)
            at = broken & moved[:, j]
            if name not in values or not at.any():
                continue
            bounds = relation.bounds[name]
            stepped = _old(pd.Series(values[name])) - np.sign(c) * bounds.nudge
            if bounds.decimals is not None:
                stepped = np.round(stepped, bounds.decimals)
            low, high = bounds._ends(_old(before[name]))
            values[name] = np.where(at, np.clip(stepped, low, high), values[name])
            nudged = True
    return nudged


def _after(before: pd.Series, values: Any, moved: np.ndarray) -> np.ndarray:
    """(m,) new numbers where a cell moved; elsewhere the owner's, whatever was decoded."""
    old = _old(before)
    return old if values is None else np.where(moved, _old(pd.Series(values)), old)


def _old(values: pd.Series) -> np.ndarray:
    if pd.api.types.is_numeric_dtype(values.dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _decoded_ends(
    pipeline: PreprocessingPipeline, space: FeatureSpace
) -> dict[str, tuple[float, float]]:
    """Return the bounds of an encoded space in original units."""
    rows = np.zeros((2, space.width))
    for f in space.numeric_features:
        rows[:, f.columns[0]] = np.nan_to_num([f.lower, f.upper], posinf=0.0, neginf=0.0)
    frame = pipeline.inverse_transform(without_gaps(rows, space))
    out = {}
    for f in pipeline.raw_space_:
        if not has_labels(f):
            low, high = _old(frame[f.name])
            code = space[f.name]
            out[f.name] = (
                float(low) if np.isfinite(code.lower) else -np.inf,
                float(high) if np.isfinite(code.upper) else np.inf,
            )
    return out
