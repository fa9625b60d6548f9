"""A model, what is usual, and what is allowed: fitted once, asked as often as needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from cel.cf_methods import BaseCounterfactualMethod
from cel.cf_methods.goals import Wish
from cel.cf_methods.local_methods.dice import DiCEIntervals
from cel.cf_methods.variants import named
from cel.datasets.chunks import table_chunks
from cel.door.given_tables import as_table, in_units, known_model, row_names
from cel.errors import ConfigError, DataError, MissingInputError
from cel.preprocessing import Encoding, frozen, infer_space
from cel.protocols import Need, Status, Task
from cel.registry import did_you_mean
from cel.result import ExplanationResult
from cel.space import FeatureSpace

__all__ = ["Explainer"]


class Explainer:
    """A model with its background rows, ready to explain rows one at a time or many at once.

    Everything that does not depend on the rows is done here, once: types and ranges are read off
    the background, the method is chosen and fitted. `explain` then takes milliseconds per row.

    Args:
        model: a fitted CEL model, a scikit-learn estimator or pipeline, a boosted-tree model, a
            torch module, or a function DataFrame -> probabilities.
        background: training rows in original units; they tell types, ranges and what is usual.
        target: what rows should become if `explain` is not told.
        method: name of a method, see `cel list methods`; a bare name is the published algorithm.
        immutable: columns that may not change.
        space: raw features with their constraints, see `cel.preprocessing.infer_space`.
        start_outside: for rows that start outside a declared range: "inside" answers lie inside
            or there is none; "widen" lets the range reach to the row.
        task: "classification" or "regression" where the model does not tell.
        classes: labels in the order of the model's outputs where the model does not tell.
        columns: names of the columns of arrays.
        on_error: what happens to a row that cannot be read or that the model refuses: "keep" it
            with status `error` and its reason in `result.reasons`, or "raise".
        **settings: further settings of the method.

    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"debt": [5.0, 4.0, 1.0, 0.0], "age": [40, 50, 40, 50]})
    >>> model = LogisticRegression().fit(train, ["no", "no", "yes", "yes"])
    >>> explainer = Explainer(model, train, target="yes", immutable="age")
    >>> explainer.explain(train[:1]).found, explainer.explain(train[1:2]).found
    (array([ True]), array([ True]))
    """

    def __init__(
        self,
        model: Any,
        background: Any,
        *,
        target: Any = None,
        method: str | None = None,
        immutable: Iterable[str] = (),
        space: FeatureSpace | None = None,
        start_outside: Literal["inside", "widen"] = "inside",
        task: Task | str | None = None,
        classes: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        on_error: Literal["keep", "raise"] = "keep",
        **settings: Any,
    ) -> None:
        _one_of("start_outside", start_outside, ("inside", "widen"))
        _one_of("on_error", on_error, ("keep", "raise"))
        self.target, self.columns, self.on_error = target, columns, on_error
        known, table = known_model(
            model, background, space=space, task=task, classes=classes, columns=columns
        )
        self.space = _features(known, table, space, immutable, start_outside)
        if Task(known.task) is Task.REGRESSION:
            known = in_units(known, table)
        self.model, self.background = known, table
        self._name = None if method == "auto" else method
        self._settings = settings
        self._fitted: dict[str, BaseCounterfactualMethod] = {}
        self._method(1)

    @property
    def task(self) -> Task:
        """What the model predicts."""
        return Task(self.model.task)

    def explain(
        self, rows: Any, target: Any = None, *, n: int = 1, time_limit: float | None = None
    ) -> ExplanationResult:
        """Return counterfactuals for rows in original units.

        Args:
            rows: a DataFrame, an array of numbers, or a list of records.
            target: what they should become; by default the target of the explainer.
            n: how many answers per row; see `result.to_frame(sets=True)`.
            time_limit: seconds for this call; unanswered rows become `timeout`.
        """
        names = row_names(self.model, self.background, rows, self.columns)
        if names is not None:
            rows = as_table(rows, names)
        wish = self.target if target is None else target
        if self.task is Task.REGRESSION:
            wish = _wish(wish)
        method = copy(self._method(n))
        if time_limit is not None:
            method.time_limit = time_limit
        result = method.explain(rows, wish)
        if self.on_error == "raise":
            _raise(result)
        return result

    def explain_batches(
        self, source: Any, target: Any = None, *, chunk: int = 10_000, n: int = 1
    ) -> Iterator[ExplanationResult]:
        """Yield results for the rows of a large table, a part at a time, at constant memory.

        Args:
            source: the path of a CSV or parquet file, a table, or an iterable of tables.
            target: what all rows should become; by default the target of the explainer.
            chunk: rows of a part.
            n: how many answers per row.
        """
        for rows in table_chunks(source, chunk):
            yield self.explain(rows, target, n=n)

    def _method(self, n: int) -> BaseCounterfactualMethod:
        """Return the fitted method for one answer per row, or for several."""
        settings = dict(self._settings)
        if n > 1:
            settings["total_CFs"] = n
        name, cls, published = _chosen(self.task, self._name, settings)
        key = f"{name} {settings.get('total_CFs')}"
        if key not in self._fitted:
            if Need.DENSITY in cls.needs and "gen_model" not in settings:
                raise MissingInputError(f"{name} needs a density; pass gen_model=")
            made = cls(self.model, space=self.space, **{**published, **settings})
            self._fitted[key] = made.fit(self.background)
        return self._fitted[key]


# -- features --------------------------------------------------------------------------------


def _features(
    known: Any,
    train: Any,
    space: FeatureSpace | None,
    immutable: Iterable[str],
    start_outside: str,
) -> FeatureSpace | None:
    """Return the encoded features with what may not change and ranges that hold."""
    encoding = Encoding.of(known)
    features = encoding.space
    names = (immutable,) if isinstance(immutable, str) else tuple(immutable)
    if features is None:
        if names:
            raise MissingInputError(
                "the model does not know its features; use cel.wrap(model, train)"
            )
        return None
    if space is not None and encoding.pipeline is not None:
        raw = space if start_outside == "widen" else _held(space, train)
        features = encoding.pipeline.encode_space(_in_order(raw, encoding))
    elif space is not None:
        features = space
    carried = () if encoding.sheet is None else encoding.sheet.carried
    raw_names = features.names if encoding.pipeline is None else encoding.pipeline.raw_space_.names
    for name in names:
        if name not in raw_names and name not in carried:
            known_names = [*raw_names, *carried]
            raise ConfigError(f"unknown feature {name!r}; {did_you_mean(name, known_names)}")
    return frozen(features, [n for n in names if n in raw_names])


def _in_order(space: FeatureSpace, encoding: Encoding) -> FeatureSpace:
    """Return the raw features with the grids of their columns' digits."""
    assert encoding.pipeline is not None
    own = encoding.pipeline.raw_space_
    features = []
    for f in own:
        new = space[f.name]
        if new.kind == "continuous" and new.step is None:
            new = replace(new, step=f.step, anchor=f.anchor)
        features.append(new.at(f.columns))
    return FeatureSpace(tuple(features), space.constraints)


def _held(space: FeatureSpace, train: Any) -> FeatureSpace:
    """Make the ranges hard that are declared, not only observed."""
    if not isinstance(train, pd.DataFrame):
        return space
    present = [n for n in space.names if n in train.columns]
    observed = infer_space(train[present]) if present else space
    features = []
    for f in space:
        if f.name in present and f.kind in ("continuous", "integer"):
            seen = observed[f.name]
            f = replace(f, hard=f.hard or (f.lower, f.upper) != (seen.lower, seen.upper))  # noqa: PLW2901
        features.append(f)
    return FeatureSpace(tuple(features), space.constraints)


# -- choices ---------------------------------------------------------------------------------


def _wish(target: Any) -> Wish:
    if target is None:
        raise ConfigError(
            "say what the prediction should become: target=200, (100, 200), '>= 200', '<= 200', "
            "'+10%' or '-500'"
        )
    return Wish(target)


def _chosen(
    task: Task, method: str | None, settings: dict[str, Any]
) -> tuple[str, Any, dict[str, Any]]:
    """Return name and class of the method, and the settings that its name stands for."""
    if task is Task.REGRESSION and method in (None, "dice"):
        return "dice", DiCEIntervals, {}
    several = "total_CFs" in settings
    name = method or ("dice_closest" if several else "auto")
    return name, *named(name)


def _one_of(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigError(f"{name} is {value!r}; use {' or '.join(map(repr, choices))}")


def _raise(result: ExplanationResult) -> None:
    wrong = np.flatnonzero(result.status == Status.ERROR.value)
    if len(wrong):
        why = "" if result.reasons is None else f": {result.reasons[wrong[0]]}"
        raise DataError(f"row {result.source_ids[wrong[0]]!r}{why}")
