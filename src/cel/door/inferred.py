"""What was read off a background table: said, so that it can be corrected."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cel.space import Feature, FeatureSpace, Implication, LinearRelation

__all__ = ["Inferred", "dummy_groups", "held_together", "inferred"]

SHOWN = 4  # labels of a column


@dataclass(frozen=True, eq=False)
class Inferred:
    """What is known of each column, and what the search will do; prints as a small table.

    Attributes:
        table: one line per column: kind, values, digits, and how it may change.
        dummies: groups of 0/1 columns of which exactly one is 1.
        notes: what was chosen and why, one sentence each.
    """

    table: pd.DataFrame
    dummies: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join([self.table.to_string(), *self.notes])

    def _repr_html_(self) -> str:
        from cel.text import html

        lines = "".join(f"<p>{html(n)}</p>" for n in self.notes)
        return self.table.to_html(escape=True) + lines

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON values."""
        lines = self.table.reset_index().astype(str).to_dict("records")
        return {"columns": lines, "notes": list(self.notes)}


def inferred(
    space: FeatureSpace,
    carried: Sequence[str],
    digits: dict[str, int],
    dummies: tuple[tuple[str, ...], ...],
    notes: Sequence[str],
) -> Inferred:
    """Describe raw features."""
    group = {name: ", ".join(n for n in g if n != name) for g in dummies for name in g}
    lines = [_line(f, digits, group) for f in space]
    lines += [(name, "travels along", "", "never changes") for name in carried]
    table = pd.DataFrame(lines, columns=["column", "kind", "values", "changes"])
    said = [f"Exactly one of {', '.join(g)} is 1; they change together." for g in dummies]
    said += [f"Kept: {rule}." for rule in space.constraints if not _of_dummies(rule, dummies)]
    return Inferred(table.set_index("column"), dummies, (*said, *notes))


def _of_dummies(rule: Any, dummies: tuple[tuple[str, ...], ...]) -> bool:
    return any(set(rule.features) <= set(g) for g in dummies)


def _line(f: Feature, digits: dict[str, int], group: dict[str, str]) -> tuple[str, str, str, str]:
    if f.kind in ("categorical", "ordinal"):
        labels = [str(c) for c in f.categories]
        joint = " < " if f.kind == "ordinal" else ", "
        more = [f"... ({len(labels)})"] if len(labels) > SHOWN else []
        shown = joint.join(labels[:SHOWN] + more)
        kind = "ordered labels" if f.kind == "ordinal" else "labels"
        kind = "yes or no" if set(f.categories) == {False, True} else kind
    else:
        shown = f"{f.lower:,.6g} to {f.upper:,.6g}"
        kind = "whole number" if f.kind == "integer" or digits.get(f.name) == 0 else "number"
        if kind == "number" and f.name in digits:
            kind = f"number, {digits[f.name]} decimals"
    if f.name in group:
        kind = f"dummy, with {group[f.name]}"
    return f.name, kind, shown, _changes(f)


def _changes(f: Feature) -> str:
    if not f.mutable:
        return "never"
    words = {"any": "freely", "up": "only up", "down": "only down"}[f.direction]
    if f.allowed is not None:
        words = f"to {', '.join(map(str, f.allowed))}"
    if f.hard:
        words += ", inside its range"
    return words if f.weight == 1 else f"{words}, weight {f.weight:g}"


def dummy_groups(table: pd.DataFrame, names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return columns that were one column before: 0 or 1, and exactly one of them 1 in each row.

    They share what stands before their last `_`, `=`, `.` or `:`.

    >>> frame = pd.DataFrame({"job_a": [1, 0], "job_b": [0, 1], "age": [3, 4]})
    >>> dummy_groups(frame, list(frame.columns))
    (('job_a', 'job_b'),)
    """
    stems: dict[str, list[str]] = {}
    for name in names:
        stem = re.match(r"(.+)[_=.:]", name)
        if stem is not None and _zero_one(table[name]):
            stems.setdefault(stem[1], []).append(name)
    out = []
    for group in stems.values():
        if len(group) > 1 and (table[group].astype(float).sum(axis=1) == 1).all():
            out.append(tuple(group))
    return tuple(out)


def _zero_one(values: pd.Series) -> bool:
    if pd.api.types.is_bool_dtype(values.dtype) and not values.isna().any():
        return True
    if not pd.api.types.is_numeric_dtype(values.dtype) or values.isna().any():
        return False
    return bool(np.isin(values.to_numpy(float), (0.0, 1.0)).all())


def held_together(
    space: FeatureSpace, dummies: tuple[tuple[str, ...], ...]
) -> tuple[LinearRelation | Implication, ...]:
    """Return constraints that keep exactly one dummy of each group on."""
    out: list[LinearRelation | Implication] = []
    for group in dummies:
        if all(not space[n].is_categorical for n in group):
            out.append(LinearRelation.of(dict.fromkeys(group, 1.0), 1.0))
            out.append(LinearRelation.of(dict.fromkeys(group, -1.0), -1.0))
        elif all(space[n].is_categorical for n in group):
            pairs = [(a, b) for a in group for b in group if a != b]
            out += [Implication(a, (True,), b, (False,)) for a, b in pairs]
            if len(group) == 2:
                out += [Implication(a, (False,), b, (True,)) for a, b in pairs]
    return tuple(out)
