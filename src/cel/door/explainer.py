"""A model, what is usual, and what is allowed: fitted once, asked as often as needed."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from cel.cf_methods import BaseCounterfactualMethod
from cel.cf_methods.goals import Wish
from cel.cf_methods.local_methods.dice import DiCEIntervals
from cel.cf_methods.variants import named
from cel.datasets.chunks import table_chunks
from cel.door.aimed import AimedModel, translated
from cel.door.given_tables import as_table, in_units, known_model, row_names
from cel.door.inferred import Inferred, dummy_groups, held_together, inferred
from cel.door.merging import merged, ordered_sets
from cel.door.portfolio import Portfolio
from cel.door.restrictions import Restrictions
from cel.door.setting_checks import check_call, check_settings
from cel.door.spaces import encoded_space, raw_space, seen_levels
from cel.door.wanted import Aim, read_aims, regression_wish
from cel.errors import ConfigError, DataError, MissingInputError, foreign_errors
from cel.preprocessing import Encoding
from cel.protocols import Need, Status, Task
from cel.result import ExplanationResult
from cel.space import FeatureSpace

__all__ = ["Explainer"]

SAME_ROWS = 20  # asked about twice


class Explainer:
    """A model with its background rows, ready to explain rows one at a time or many at once.

    Everything that does not depend on the rows is done here, once: types and ranges are read off
    the background, constraints are checked together, the method is chosen and fitted. What is
    left for `explain` are the calls of the model: seven to nine for a row of a small black box.
    `inferred` says what was read and chosen.

    Args:
        model: a fitted CEL model, a scikit-learn estimator or pipeline, a boosted-tree model, a
            torch module, or a function DataFrame -> probabilities.
        background: training rows in original units; they tell types, ranges and what is usual.
        target: what rows should become if `explain` is not told; see `cel.Target`.
        method: "auto", or the name of a method, see `cel list methods`; a bare name is the
            published algorithm.
        constraints: any of the following keywords as a dict, or as the path of a YAML file.
        immutable: columns that may not change.
        increasing: columns that may only rise.
        decreasing: columns that may only fall.
        ranges: number column -> (lower, upper), None for an open end.
        allowed: column with labels -> labels that may be reached.
        relations: linear relations between numbers, such as "open <= total".
        implications: such as "job = pilot -> licence in A, B".
        max_changes: how many columns may change at once.
        weights: column -> how much dearer its changes are than others.
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
        method: str | None = "auto",
        constraints: Mapping[str, Any] | str | Path | None = None,
        immutable: Iterable[str] = (),
        increasing: Iterable[str] = (),
        decreasing: Iterable[str] = (),
        ranges: Mapping[str, tuple[float | None, float | None]] | None = None,
        allowed: Mapping[str, Iterable[Any]] | None = None,
        relations: Iterable[Any] = (),
        implications: Iterable[Any] = (),
        max_changes: int | None = None,
        weights: Mapping[str, float] | None = None,
        space: FeatureSpace | None = None,
        start_outside: Literal["inside", "widen"] = "inside",
        task: Task | str | None = None,
        classes: Sequence[Any] | None = None,
        columns: Sequence[str] | None = None,
        on_error: Literal["keep", "raise"] = "keep",
        **settings: Any,
    ) -> None:
        check_settings(model, background, start_outside, on_error, method, settings)
        words = {
            "immutable": immutable, "increasing": increasing, "decreasing": decreasing,
            "ranges": ranges, "allowed": allowed, "relations": relations,
            "implications": implications, "max_changes": max_changes, "weights": weights,
        }  # fmt: skip
        self.restrictions = Restrictions.read(words, constraints)
        self.target, self.columns, self.on_error = target, columns, on_error
        self._outside, self._settings = start_outside, settings
        self._name = None if method == "auto" else method
        told: dict[str, Any] = {"task": task, "classes": classes, "columns": columns}
        known, table = known_model(model, background, space=space, **told)
        self.dummies = _dummies(known, table, space)
        self.raw = self._restricted(known, table, space)
        if self.raw is not None and self.raw is not space and known is not model:
            known, _ = known_model(model, background, space=self.raw, **told)
        if Task(known.task) is Task.REGRESSION:
            known = in_units(known, table)
        self.model, self.background = known, table
        self.space = encoded_space(known, self.raw, self.restrictions.max_changes)
        self._fitted: dict[str, BaseCounterfactualMethod] = {}
        self._method(known, 1)
        _warn_if_random(known, table)

    def __repr__(self) -> str:
        name = type(getattr(self.model, "model", self.model)).__name__
        return f"Explainer({name}, {len(self.background)} background rows)"

    def _restricted(
        self, known: Any, table: Any, space: FeatureSpace | None
    ) -> FeatureSpace | None:
        """Return the raw features with everything that restricts them; None if nothing does."""
        encoding = Encoding.of(known)
        idle = self.restrictions.empty and space is None and not self.dummies
        if idle and encoding.pipeline is None:
            return None
        if encoding.space is None:
            raise MissingInputError(
                "the model does not know its features; use cel.wrap(model, train)"
            )
        own = raw_space(encoding, space, table, hard=self._outside == "inside")
        carried = () if encoding.sheet is None else encoding.sheet.carried
        seen = table if isinstance(table, pd.DataFrame) else None
        hard = self._outside == "inside"
        made = self.restrictions.applied(own, seen, carried, hard=hard)
        if space is None and encoding.sheet is not None:
            made = seen_levels(made, table)
        if idle and made == own:
            return None
        together = held_together(made, self.dummies)
        return replace(made, constraints=(*made.constraints, *together)) if together else made

    @property
    def task(self) -> Task:
        """What the model predicts."""
        return Task(self.model.task)

    @cached_property
    def inferred(self) -> Inferred:
        """What was read off the background and what was chosen, as a small table."""
        encoding = Encoding.of(self.model)
        if encoding.pipeline is None or encoding.sheet is None:
            assert self.space is not None
            return inferred(self.space, (), {}, (), [self.chosen])
        raw = self.raw or encoding.pipeline.raw_space_
        digits = dict(encoding.sheet.decimals)
        notes = [self.chosen]
        if self.restrictions.max_changes is not None:
            notes.insert(0, f"At most {self.restrictions.max_changes} columns change at once.")
        return inferred(raw, encoding.sheet.carried, digits, self.dummies, notes)

    @cached_property
    def chosen(self) -> str:
        """Which method answers, and why, in a sentence."""
        if self._name is not None:
            return f"Method: {self._name}, as asked."
        method = self._method(self.model, 1)
        if not isinstance(method, Portfolio):
            return f"Method: {method.name}, for sets of answers."
        return method.reasoning()

    # -- the call ----------------------------------------------------------------------------

    def explain(
        self, rows: Any, target: Any = None, *, n: int = 1, time_limit: float | None = None
    ) -> ExplanationResult:
        """Return counterfactuals for rows in original units.

        Args:
            rows: a DataFrame, an array of numbers, or a list of records.
            target: what they should become; by default the target of the explainer.
            n: how many answers per row, the best first, then others that change other columns;
                see `result.to_frame(sets=True)`. The first does not depend on `n`.
            time_limit: seconds for this call; unanswered rows become `timeout`.
        """
        check_call(n, time_limit)
        names = row_names(self.model, self.background, rows, self.columns)
        if names is not None:
            rows = as_table(rows, names)
        wish = self.target if target is None else target
        result = self._answered(rows, wish, n, time_limit)
        if n > 1:
            result = ordered_sets(result, by_distance=self._name is not None)
        result = replace(result, logs={**result.logs, "chosen": self.chosen})
        if self.on_error == "raise":
            _raise(result)
        return self._with_inquiry(result, wish, time_limit)

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

    def _answered(
        self, rows: Any, wish: Any, n: int, time_limit: float | None
    ) -> ExplanationResult:
        if self.task is Task.REGRESSION:
            return self._run(self.model, rows, _number_wish(wish), n, time_limit)
        outcome = Encoding.of(self.model).target
        hard = bool(getattr(self.model, "hard", False))
        aims = None
        if outcome is not None and isinstance(rows, pd.DataFrame):
            threshold = getattr(self.model, "threshold", None)
            aims = read_aims(wish, len(rows), outcome, hard=hard, threshold=threshold)
        if aims is None:
            self._never_predicted(wish, outcome)
            return self._run(self.model, rows, wish, n, time_limit)
        return self._aimed(rows, aims, n, time_limit)

    def _aimed(
        self, rows: pd.DataFrame, aims: list[Aim], n: int, time_limit: float | None
    ) -> ExplanationResult:
        """Answer wishes that are more than a class: rows of one wish together."""
        aims = aims * len(rows) if len(aims) == 1 else aims
        parts = []
        for aim in dict.fromkeys(aims):
            at = np.array([i for i, a in enumerate(aims) if a == aim], dtype=np.int64)
            share = None if time_limit is None else time_limit * len(at) / len(aims)
            model = AimedModel(self.model, aim)
            found = self._run(model, rows.iloc[at], "wanted", n, share)
            parts.append((at, translated(found, self.model, aim)))
        if not parts:
            return self._run(self.model, rows, None, n, time_limit)
        return merged(parts, len(rows), rows)

    def _run(
        self, model: Any, rows: Any, wish: Any, n: int, time_limit: float | None
    ) -> ExplanationResult:
        method = copy(self._method(model, n))
        if isinstance(method, Portfolio):
            method.n = n
        if time_limit is not None:
            method.time_limit = time_limit
        method.strict_time = method.time_limit is not None
        return method.explain(rows, wish)

    def _method(self, model: Any, n: int) -> BaseCounterfactualMethod:
        """Return the fitted method for a model, seen through a wish or not."""
        settings = dict(self._settings)
        key = str(getattr(model, "aim", "")) + (f" {n}" if self._name and n > 1 else "")
        if key not in self._fitted:
            made = self._made(model, self.space, n, settings)
            self._fitted[key] = made.fit(self.background)
        return self._fitted[key]

    def _made(
        self, model: Any, space: FeatureSpace | None, n: int, settings: dict[str, Any]
    ) -> BaseCounterfactualMethod:
        if self._name is None and "total_CFs" not in settings:
            return Portfolio(model, space=space, dummies=self.dummies, **settings)
        name, cls, published = _named(self.task, self._name)
        if n > 1:
            if "total_CFs" not in cls.param_names():
                raise ConfigError(
                    f"{name} gives one answer per row; leave n=1, or leave out method="
                )
            settings["total_CFs"] = n
        if Need.DENSITY in cls.needs and "gen_model" not in settings:
            raise MissingInputError(
                f"{name} needs a density; train one, such as "
                "cel.models.MaskedAutoregressiveFlow().fit(split), and pass gen_model="
            )
        made: BaseCounterfactualMethod = cls(model, space=space, **{**published, **settings})
        return made

    # -- what is said ------------------------------------------------------------------------

    def _never_predicted(self, wish: Any, outcome: Any) -> None:
        """Warn before any search if the model predicts a wanted class for no background row."""
        method = self._method(self.model, 1)
        if outcome is None or wish is None or not hasattr(method, "train_"):
            return
        labels = [wish] if isinstance(wish, str) or np.ndim(wish) == 0 else list(wish)
        if labels == ["opposite"] and "opposite" not in outcome.classes:
            return
        seen = set(np.unique(method.train_.y.cpu().numpy()).tolist())
        for label in dict.fromkeys(labels):
            if outcome.place(label, positions=True) not in seen:
                warnings.warn(
                    f"the model predicts {label!r} for none of the {len(method.train_.x)} "
                    "background rows; it may never predict it",
                    UserWarning,
                    stacklevel=4,
                )

    def _with_inquiry(
        self, result: ExplanationResult, wish: Any, time_limit: float | None
    ) -> ExplanationResult:
        from cel.door.diagnosis import Inquiry

        return replace(result, inquiry=Inquiry(self, wish, time_limit))


# -- choices ---------------------------------------------------------------------------------


def _dummies(known: Any, table: Any, space: FeatureSpace | None) -> tuple[tuple[str, ...], ...]:
    """Return the dummies that belong together; none where the owner said what the columns are."""
    pipeline = Encoding.of(known).pipeline
    if space is not None or pipeline is None or not isinstance(table, pd.DataFrame):
        return ()
    names = [n for n in pipeline.raw_space_.names if n in table.columns]
    return dummy_groups(table, names)


def _warn_if_random(known: Any, table: Any) -> None:
    """Warn if the model says different things of the same rows."""
    if not isinstance(table, pd.DataFrame) or not getattr(known, "reads_tables", False):
        return
    rows = table.head(SAME_ROWS)
    ask = known.predict if Task(known.task) is Task.REGRESSION else known.predict_proba
    try:
        first, second = np.asarray(ask(rows)), np.asarray(ask(rows))
    except foreign_errors():
        return
    if not np.allclose(first, second, atol=1e-6):
        warnings.warn(
            "the model predicts different things for the same rows; answers may not hold when "
            "they are asked about again",
            UserWarning,
            stacklevel=3,
        )


def _number_wish(target: Any) -> Wish:
    if target is None:
        raise ConfigError(
            "say what the prediction should become: target=200, (100, 200), '>= 200', '<= 200', "
            "'+10%' or '-500'"
        )
    return Wish(regression_wish(target))


def _named(task: Task, method: str | None) -> tuple[str, Any, dict[str, Any]]:
    """Return name and class of the method, and the settings that its name stands for."""
    if task is Task.REGRESSION and method in (None, "dice"):
        return "dice", DiCEIntervals, {}
    name = method or "dice_closest"
    return name, *named(name)


def _raise(result: ExplanationResult) -> None:
    wrong = np.flatnonzero(result.status == Status.ERROR.value)
    if len(wrong):
        why = "" if result.reasons is None else f": {result.reasons[wrong[0]]}"
        raise DataError(f"row {result.source_ids[wrong[0]]!r}{why}")
