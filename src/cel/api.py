"""The everyday call: a model, a table of people, a wish."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from cel.cf_methods import BaseCounterfactualMethod
from cel.cf_methods.goals import Wish
from cel.cf_methods.local_methods.dice import DiCEIntervals
from cel.cf_methods.variants import named
from cel.errors import ConfigError, DataError, MissingInputError
from cel.models import PytorchBase, WrappedModel, wrap
from cel.models.adapters import SurrogateModel
from cel.preprocessing import Encoding, frozen, infer_space
from cel.protocols import Need, Status, Task
from cel.registry import did_you_mean
from cel.result import ExplanationResult
from cel.space import FeatureSpace, Target

__all__ = ["explain"]

_OURS = PytorchBase | WrappedModel | SurrogateModel


def explain(
    model: Any,
    X: Any,
    *,
    train: Any,
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
) -> ExplanationResult:
    """Explain the rows of a table for any model, with a method chosen to fit the model.

    By default a portfolio answers (`auto`: exact searches for linear models and trees, tangents
    where there are gradients, known rows and sampling for black boxes), `logs["source"]` says for
    each row which part of it did; sets of `total_CFs` answers come from DiCE. Name another with
    `method`. What did not change in an answer is the owner's, bit for bit; an answer is judged by
    the model as the very row that is shown.

    Args:
        model: a fitted CEL model, a scikit-learn estimator or pipeline, a boosted-tree model, a
            torch module, or a function DataFrame -> probabilities.
        X: rows to explain, in original units: a DataFrame, or an array of numbers.
        train: training rows in original units; they tell types, ranges and what is usual.
        target: the wanted class as the model calls it, or one per row; by default the opposite
            one. For regression a value, (lower, upper), ">= 200", "<= 200", "+10%", "-500", a
            goal of `cel.cf_methods.goals`, or one per row: in original units.
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
        settings: further settings of the method.

    >>> import pandas as pd
    >>> from sklearn.linear_model import LogisticRegression
    >>> train = pd.DataFrame({"debt": [5.0, 4.0, 1.0, 0.0], "age": [40, 50, 40, 50]})
    >>> model = LogisticRegression().fit(train, ["no", "no", "yes", "yes"])
    >>> explain(model, train[:1], train=train, target="yes", immutable=("age",)).found
    array([ True])
    """
    _one_of("start_outside", start_outside, ("inside", "widen"))
    _one_of("on_error", on_error, ("keep", "raise"))
    known, train, X = _known(model, train, X, space, task, classes, columns)
    features = _features(known, train, space, immutable, start_outside)
    wish = target
    if Task(known.task) is Task.REGRESSION:
        known, wish = _in_units(known, train), _wish(target)
    name, cls, published = _chosen(known, method, settings)
    if Need.DENSITY in cls.needs and "gen_model" not in settings:
        raise MissingInputError(f"{name} needs a density; pass gen_model=")
    chosen: BaseCounterfactualMethod = cls(known, space=features, **{**published, **settings})
    result = chosen.fit(train).explain(X, wish)
    if on_error == "raise":
        _raise(result)
    return result


# -- what was given --------------------------------------------------------------------------


def _known(
    model: Any,
    train: Any,
    X: Any,
    space: FeatureSpace | None,
    task: Task | str | None,
    classes: Sequence[Any] | None,
    columns: Sequence[str] | None,
) -> tuple[Any, Any, Any]:
    """Return (a model of ours, training rows, rows), rows as tables wherever that is possible."""
    if isinstance(model, _OURS):
        pipeline = model.pipeline_
        if pipeline is None:
            return model, train, X
        names = list(columns or pipeline.raw_space_.names)
        return model, _table(train, names), _table(X, names)
    array = not isinstance(train, pd.DataFrame) and _is_array(train)
    train = _table(train, list(columns) if columns is not None else None)
    if not isinstance(train, pd.DataFrame):
        return wrap(model, train, task=task, classes=classes, space=space), train, X
    known = wrap(model, train, task=task, classes=classes, space=space, arrays=array)
    names = list(train.columns)
    shown = known.encoding_.sheet
    if shown is not None and _is_array(X) and np.shape(X)[1:] == (len(shown.names),):
        names = list(shown.names)
    return known, train, _table(X, names)


def _is_array(data: Any) -> bool:
    return isinstance(data, np.ndarray) or hasattr(data, "detach")


def _table(data: Any, names: list[str] | None) -> Any:
    """Return arrays, lists of records and tables of other libraries as DataFrames."""
    if isinstance(data, pd.DataFrame) or hasattr(data, "split") or hasattr(data, "dataset"):
        return data
    if isinstance(data, pd.Series):
        raise DataError(
            "expected a DataFrame, got a Series; use rows.to_frame().T or rows.iloc[:1]"
        )
    if hasattr(data, "to_pandas"):
        return data.to_pandas()
    if isinstance(data, list) and data and isinstance(data[0], dict):
        return pd.DataFrame(data)
    if not _is_array(data):
        return data
    array = data.detach().cpu().numpy() if hasattr(data, "detach") else data
    if array.ndim != 2:
        raise DataError(f"expected rows of shape (n, d), got shape {array.shape}")
    names = names or [f"x{j}" for j in range(array.shape[1])]
    if array.shape[1] != len(names):
        raise DataError(
            f"the rows have {array.shape[1]} columns, but {len(names)} are known: {names[:8]}"
        )
    return pd.DataFrame(array, columns=names).infer_objects()


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


# -- regression ------------------------------------------------------------------------------


def _in_units(known: Any, train: Any) -> Any:
    """Give a regressor that knows no range the range of its predictions for training rows."""
    if not isinstance(known, WrappedModel) or known.pipeline_ is None:
        return known
    if known.target_ is not None and known.target_.lower:
        return known
    values = np.asarray(known.predict(train), dtype=np.float64).reshape(len(train), -1)
    names = tuple(f"output {j}" for j in range(values.shape[1]))
    if known.target_ is not None:
        names = known.target_.names
    return known.with_target(
        Target(
            names=names if values.shape[1] > 1 else names[:1],
            task=Task.REGRESSION,
            lower=tuple(values.min(0).tolist()),
            upper=tuple(values.max(0).tolist()),
        )
    )


def _wish(target: Any) -> Wish:
    if target is None:
        raise ConfigError(
            "say what the prediction should become: target=200, (100, 200), '>= 200', '<= 200', "
            "'+10%' or '-500'"
        )
    return Wish(target)


def _chosen(
    known: Any, method: str | None, settings: dict[str, Any]
) -> tuple[str, Any, dict[str, Any]]:
    """Return name and class of the method, and the settings that its name stands for."""
    if Task(known.task) is Task.REGRESSION and method in (None, "dice"):
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
