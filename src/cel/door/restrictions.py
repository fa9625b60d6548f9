"""What may change and how: given as keywords, as a dict or as a YAML file, checked together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.config import read_yaml
from cel.door.contradictions import conflict
from cel.door.relation_text import read_implication, read_relation
from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space import Feature, FeatureSpace, Implication, LinearRelation

__all__ = ["Restrictions"]


@dataclass(frozen=True, kw_only=True)
class Restrictions:
    """What an answer must keep to, in the words and units of the table.

    Attributes:
        immutable: columns that may not change.
        increasing: columns that may only rise.
        decreasing: columns that may only fall.
        ranges: number column -> (lower, upper); None for an open end.
        allowed: column with labels -> labels that may be reached; the present one may stay.
        relations: "a <= b", "a + 2*b <= 10", or `LinearRelation`.
        implications: "job = pilot -> licence in A, B", or `Implication`.
        max_changes: how many columns may change at once, or None.
        weights: column -> how much dearer its changes are than others; 1 is usual.
    """

    immutable: tuple[str, ...] = ()
    increasing: tuple[str, ...] = ()
    decreasing: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    allowed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    relations: tuple[Any, ...] = ()
    implications: tuple[Any, ...] = ()
    max_changes: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, keywords: Mapping[str, Any], constraints: Any = None) -> Restrictions:
        """Read keywords and, if given, a dict or the path of a YAML file; nothing twice.

        >>> Restrictions.read({"immutable": "age"}, {"max_changes": 2}).max_changes
        2
        """
        given = {k: v for k, v in keywords.items() if not _empty(v)}
        more = _document(constraints)
        known = [f.name for f in fields(cls)]
        for key in more:
            if key not in known:
                raise ConfigError(f"unknown constraint {key!r}; {did_you_mean(str(key), known)}")
        twice = sorted(set(given) & set(more))
        if twice:
            raise ConfigError(f"{twice[0]!r} is given as keyword and in constraints=; give one")
        return cls(**{k: _READERS[k](k, v) for k, v in ({**given, **more}).items()})

    @property
    def empty(self) -> bool:
        """Whether nothing is restricted."""
        return self == Restrictions()

    def applied(
        self,
        space: FeatureSpace,
        table: pd.DataFrame | None,
        carried: Sequence[str],
        *,
        hard: bool,
    ) -> FeatureSpace:
        """Return raw features with the restrictions, or raise with everything that is wrong.

        Args:
            space: the raw features.
            table: background rows, for what lies outside of all of them.
            carried: columns that are no features and never change.
            hard: whether answers of rows that start outside a range must lie inside.
        """
        problems: list[str] = []
        columns = [*space.names, *carried]
        self._name_columns(columns, problems)
        rules = tuple(_labelled(r, space) for r in self._rules(columns, problems))
        features = []
        for f in space:
            try:
                features.append(self._feature(f, table, problems, hard=hard))
            except ConfigError as error:
                problems.append(str(error))
        _say(problems)
        try:
            made = FeatureSpace(tuple(features), (*space.constraints, *rules))
        except ConfigError as error:
            raise ConfigError(_plain(str(error))) from None
        clash = conflict(rules, {n: self.ranges[n] for n in self.ranges if n in space.names})
        if clash:
            raise ConfigError(f"these constraints contradict each other: {'; '.join(clash)}")
        return made

    # -- checks ------------------------------------------------------------------------------

    def _name_columns(self, columns: Sequence[str], problems: list[str]) -> None:
        for kind in ("immutable", "increasing", "decreasing", "ranges", "allowed", "weights"):
            for name in getattr(self, kind):
                if name not in columns:
                    hint = did_you_mean(str(name), columns)
                    problems.append(f"{kind}: unknown column {name!r}; {hint}")
        for name in sorted(set(self.increasing) & set(self.decreasing)):
            problems.append(f"{name!r} may neither rise nor fall; put it into immutable")

    def _rules(
        self, columns: Sequence[str], problems: list[str]
    ) -> tuple[LinearRelation | Implication, ...]:
        out: list[LinearRelation | Implication] = []
        for wish in self.relations:
            try:
                out += read_relation(wish, columns)
            except ConfigError as error:
                problems.append(f"relations: {error}")
        for wish in self.implications:
            try:
                rule = read_implication(wish, columns)
            except ConfigError as error:
                problems.append(f"implications: {error}")
                continue
            reach = self.allowed.get(rule.then_feature)
            if reach is not None and not set(rule.then_values) & set(reach):
                problems.append(f"{rule}: {rule.then_feature!r} may not become any of these")
            out.append(rule)
        return tuple(out)

    def _feature(
        self, f: Feature, table: pd.DataFrame | None, problems: list[str], *, hard: bool
    ) -> Feature:
        changes: dict[str, Any] = {}
        number = f.kind in ("continuous", "integer")
        if f.name in self.immutable:
            changes["mutable"] = False
        for way, names in (("up", self.increasing), ("down", self.decreasing)):
            if f.name in names and f.is_categorical:
                word = "increasing" if way == "up" else "decreasing"
                problems.append(
                    f"{word}: {f.name!r} has labels without an order; make it an ordered "
                    "pandas category, or restrict it with allowed="
                )
            elif f.name in names:
                changes["direction"] = way
        if f.name in self.ranges and not number:
            problems.append(f"ranges: {f.name!r} holds labels; use allowed= for it")
        elif f.name in self.ranges:
            changes |= self._range(f, table, problems) | {"hard": hard}
        if f.name in self.allowed and number:
            problems.append(f"allowed: {f.name!r} holds numbers; use ranges= for it")
        elif f.name in self.allowed:
            changes["allowed"] = self._labels(f, problems)
        if f.name in self.weights:
            changes["weight"] = self.weights[f.name]
        return replace(f, **changes) if changes else f

    def _range(
        self, f: Feature, table: pd.DataFrame | None, problems: list[str]
    ) -> dict[str, float]:
        low, high = self.ranges[f.name]
        if table is not None and f.name in table.columns:
            seen = pd.to_numeric(table[f.name], errors="coerce").to_numpy(float, na_value=np.nan)
            inside = (seen >= low) & (seen <= high)
            if not inside.any() and np.isfinite(seen).any():
                problems.append(
                    f"ranges: no background row has {f.name!r} {_interval(low, high)}; they "
                    f"reach from {np.nanmin(seen):g} to {np.nanmax(seen):g}"
                )
        ends = {"lower": f.lower if low == -math.inf else low}
        ends["upper"] = f.upper if high == math.inf else high
        if ends["lower"] > ends["upper"]:
            return {}
        return ends

    def _labels(self, f: Feature, problems: list[str]) -> tuple[Any, ...]:
        labels = self.allowed[f.name]
        for label in labels:
            if label not in f.categories:
                hint = did_you_mean(str(label), map(str, f.categories))
                problems.append(f"allowed: {f.name!r} has no label {label!r}; {hint}")
        return tuple(v for v in labels if v in f.categories)


def _labelled(rule: Any, space: FeatureSpace) -> Any:
    """Return an implication with the labels of its columns where it was written as text."""
    if not isinstance(rule, Implication):
        return rule
    first = _with_labels(rule.feature, rule.values, space)
    then = _with_labels(rule.then_feature, rule.then_values, space)
    return replace(rule, values=first, then_values=then)


def _with_labels(name: str, values: tuple[Any, ...], space: FeatureSpace) -> tuple[Any, ...]:
    labels = space[name].categories if name in space.names else ()
    by_text = {str(c): c for c in labels}
    return tuple(v if v in labels else by_text.get(str(v), v) for v in values)


def _say(problems: list[str]) -> None:
    if len(problems) == 1:
        raise ConfigError(problems[0])
    if problems:
        lines = "".join(f"\n- {p}" for p in problems)
        raise ConfigError(f"{len(problems)} constraints cannot be used:{lines}")


def _plain(text: str) -> str:
    return text.replace("unknown feature", "unknown column")


def _interval(low: float, high: float) -> str:
    if low == -math.inf:
        return f"at most {high:,g}"
    if high == math.inf:
        return f"at least {low:,g}"
    return f"in {low:,g} to {high:,g}"


def _empty(value: Any) -> bool:
    return value is None or (not isinstance(value, int | float | str) and len(value) == 0)


def _document(constraints: Any) -> Mapping[str, Any]:
    if constraints is None:
        return {}
    if isinstance(constraints, str | Path):
        return read_yaml(constraints)
    if isinstance(constraints, Mapping):
        return constraints
    raise ConfigError(
        f"constraints= takes a dict or the path of a YAML file, got {type(constraints).__name__}"
    )


def _columns(kind: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise ConfigError(f"{kind} takes names of columns, got {value!r}")
    return tuple(value)


def _ranges(kind: str, value: Any) -> dict[str, tuple[float, float]]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{kind} takes {{column: (lower, upper)}}, got {value!r}")
    out = {}
    for name, ends in value.items():
        try:
            low, high = ends
            pair = (
                -math.inf if low is None else float(low),
                math.inf if high is None else float(high),
            )
        except (TypeError, ValueError):
            raise ConfigError(
                f"ranges: {name!r} needs (lower, upper), numbers or None, got {ends!r}"
            ) from None
        if math.isnan(pair[0]) or math.isnan(pair[1]) or pair[0] > pair[1]:
            raise ConfigError(f"ranges: {name!r} reaches from {low} to {high}, which is empty")
        out[str(name)] = pair
    return out


def _allowed(kind: str, value: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{kind} takes {{column: [labels]}}, got {value!r}")
    out = {}
    for name, labels in value.items():
        one = isinstance(labels, str) or not isinstance(labels, Iterable)
        out[str(name)] = (labels,) if one else tuple(labels)
    return out


def _wishes(kind: str, value: Any) -> tuple[Any, ...]:
    single = isinstance(value, str | Mapping | LinearRelation | Implication)
    return (value,) if single else tuple(value)


def _changes(kind: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigError(f"max_changes is {value!r}; give a whole number of columns, 1 or more")
    return int(value)


def _weights(kind: str, value: Any) -> dict[str, float]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{kind} takes {{column: weight}}, got {value!r}")
    out = {}
    for name, weight in value.items():
        number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not number or not (math.isfinite(weight) and weight > 0):
            raise ConfigError(
                f"weights: {name!r} has weight {weight!r}; give a positive number, 1 is usual"
            )
        out[str(name)] = float(weight)
    return out


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "immutable": _columns,
    "increasing": _columns,
    "decreasing": _columns,
    "ranges": _ranges,
    "allowed": _allowed,
    "relations": _wishes,
    "implications": _wishes,
    "max_changes": _changes,
    "weights": _weights,
}
