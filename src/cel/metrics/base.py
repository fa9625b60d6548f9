"""What a metric is: a small function with a name, a direction and the rows it looks at."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from cel.errors import ConfigError, DataError, MissingInputError, UnsupportedError
from cel.protocols import Task
from cel.registry import Registry, did_you_mean

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["METRICS", "NEEDS", "Metric", "Noted", "Score", "metric"]

Better = Literal["higher", "lower", "none"]
Rows = Literal["explained", "candidates", "found", "cell"]
Aggregate = Literal["mean", "median"]
Function = Callable[..., Any]

NEEDS = {
    "model": "the explained model; pass context=EvaluationContext(model=...)",
    "density": "a density; pass context=EvaluationContext(density=...)",
    "coach": "the density that methods may query; pass context=EvaluationContext(density=...)",
    "train": "training rows; pass context=EvaluationContext(x_train=..., y_train=...)",
    "test": "held-out rows; pass context=EvaluationContext(x_test=..., y_test=...)",
    "sets": "several counterfactuals per row; this method returned one (x_sets is None)",
    "method": "the fitted method; pass compute(result, method=...)",
    "protected": "a protected feature; no feature of the space has protected=True",
    "units": "a method that answers with groups, rules or directions (cf_group_ids or logs)",
}
EMPTY = {
    "explained": "no row needed an explanation",
    "candidates": "no row has a candidate",
    "found": "no row has a verified counterfactual",
}
ARROWS = {"higher": "↑", "lower": "↓", "none": " "}


class Noted(NamedTuple):
    """One value for all rows together, with a remark on how it came about."""

    value: float
    note: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """The outcome of one metric.

    Attributes:
        name: the name it was asked for.
        metric: the metric.
        value: the aggregate; NaN when it cannot be computed.
        positions: rows it looked at.
        values: one value per such row, or None for a value that belongs to all rows together.
        reason: why there is no value, or what to know about it; "" when there is nothing to say.
    """

    name: str
    metric: Metric
    value: float
    positions: np.ndarray
    values: np.ndarray | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Metric:
    """A measured quantity.

    Attributes:
        name: registry name.
        function: maps an `Evaluation` of n selected rows to (n,) values, a number or a `Noted`.
        better: "higher", "lower" or "none".
        unit: unit of the value.
        rows: rows it looks at; "cell" for values of the whole run, such as times.
        meaning: one plain sentence.
        formula: the definition, as text.
        needs: keys of `NEEDS`.
        reference: where it comes from.
        tasks: tasks for which it is defined.
        aggregate: how the values of the rows become one.
        aliases: other names.
        undefined: why a row may have no value.
        trains: whether it fits models like the explained one, where cells are scored.
    """

    name: str
    function: Function
    better: Better
    unit: str
    rows: Rows
    meaning: str
    formula: str
    needs: frozenset[str] = frozenset()
    reference: str = ""
    tasks: frozenset[Task] = frozenset(Task)
    aggregate: Aggregate = "mean"
    aliases: tuple[str, ...] = ()
    undefined: str = ""
    trains: bool = False

    def __post_init__(self) -> None:
        choices = {"better": ARROWS, "rows": (*EMPTY, "cell"), "aggregate": ("mean", "median")}
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"metric {self.name!r}: {name} is {getattr(self, name)!r}; "
                    f"use one of {', '.join(known)}"
                )
        for need in self.needs - set(NEEDS):
            hint = did_you_mean(need, NEEDS)
            raise ConfigError(f"metric {self.name!r}: unknown need {need!r}; {hint}")
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        object.__setattr__(self, "__qualname__", name)  # the registry knows it after a reload

    @property
    def arrow(self) -> str:
        """↑ when higher is better, ↓ when lower is."""
        return ARROWS[self.better]

    @property
    def parameters(self) -> dict[str, Any]:
        """Settings and their defaults, read from the signature."""
        kept = list(inspect.signature(self.function).parameters.values())[1:]
        return {p.name: p.default for p in kept}

    def check_parameters(self, params: Mapping[str, Any]) -> None:
        """Raise for settings that the metric does not have."""
        for name in params:
            if name not in self.parameters:
                hint = did_you_mean(name, self.parameters)
                raise ConfigError(f"metric {self.name!r} has no setting {name!r}; {hint}")

    def __call__(self, evaluation: Evaluation, **params: Any) -> Any:
        """Return what the function says about the rows that this metric looks at."""
        self.check_parameters(params)
        return self.function(evaluation.of(self.rows), **params)

    def score(self, evaluation: Evaluation, *, name: str = "", **params: Any) -> Score:
        """Return a value in every case; where there is none it is NaN with a reason."""
        self.check_parameters(params)
        view = evaluation.of(self.rows)
        try:
            self._refuse(view)
            found = self.function(view, **params)
        except (MissingInputError, UnsupportedError) as missing:
            found = Noted(math.nan, str(missing))
        return self._collect(found, name or self.name, view.positions)

    def _refuse(self, view: Evaluation) -> None:
        if view.task not in self.tasks:
            known = " and ".join(sorted(t.value for t in self.tasks))
            raise UnsupportedError(f"defined for {known} only")
        if self.rows != "cell" and not len(view):
            raise MissingInputError(EMPTY[self.rows])
        for need in sorted(self.needs):
            if not view.has(need):
                raise MissingInputError(f"needs {NEEDS[need]}")

    def _collect(self, found: Any, name: str, positions: np.ndarray) -> Score:
        if isinstance(found, Noted) or np.ndim(found) == 0:
            cell = found if isinstance(found, Noted) else Noted(float(found))
            return Score(
                name=name, metric=self, value=cell.value, positions=positions, reason=cell.note
            )
        values = np.asarray(found, dtype=np.float64)
        if values.shape != positions.shape:
            raise DataError(
                f"metric {self.name!r} gave values of shape {values.shape} "
                f"for {len(positions)} rows"
            )
        value = self.summarise(values)
        return Score(
            name=name,
            metric=self,
            value=value,
            positions=positions,
            values=values,
            reason=_remark(values, self.undefined),
        )

    def summarise(self, values: np.ndarray) -> float:
        """Return the mean or median of the values that are defined; NaN without any."""
        known = values[~np.isnan(values)]
        if not len(known):
            return math.nan
        return float(np.median(known) if self.aggregate == "median" else np.mean(known))


def _remark(values: np.ndarray, undefined: str) -> str:
    """Say how many values are undefined or infinite."""
    missing, infinite = int(np.isnan(values).sum()), int(np.isinf(values).sum())
    parts = []
    if missing:
        why = f": {undefined}" if undefined else ""
        parts.append(f"{missing} of {len(values)} rows have no value{why}")
    if infinite:
        parts.append(f"{infinite} of {len(values)} rows are infinite")
    return "; ".join(parts)


METRICS: Registry[Metric] = Registry("metric", group="cel.metrics")


def metric(
    name: str,
    *,
    better: Better,
    rows: Rows,
    meaning: str,
    formula: str,
    unit: str = "",
    needs: frozenset[str] | set[str] = frozenset(),
    reference: str = "",
    tasks: frozenset[Task] | set[Task] = frozenset(Task),
    aggregate: Aggregate = "mean",
    aliases: tuple[str, ...] = (),
    undefined: str = "",
    trains: bool = False,
) -> Callable[[Function], Metric]:
    """Register a function as a metric; its keyword arguments become settings.

    A metric of your own::

        @metric("rise", better="none", rows="found", meaning="How far the first column rises.",
                formula="x'_0 - x_0")
        def rise(ev):
            return ev.cf[:, 0] - ev.x[:, 0]

    >>> from cel.metrics import METRICS
    >>> METRICS.get("l2").arrow
    '↓'
    """

    def register(function: Function) -> Metric:
        made = Metric(
            name=name, function=function, better=better, unit=unit, rows=rows,
            meaning=meaning, formula=formula, needs=frozenset(needs), reference=reference,
            tasks=frozenset(tasks), aggregate=aggregate, aliases=aliases,
            undefined=undefined, trains=trains,
        )  # fmt: skip
        for label in (name, *aliases):
            METRICS.add(label, made)
        return made

    return register
