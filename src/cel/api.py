"""The everyday call: a model, a table of people, a wish."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from cel.door import Explainer
from cel.errors import ConfigError
from cel.protocols import Task
from cel.result import ExplanationResult
from cel.space import FeatureSpace

__all__ = ["explain"]


def explain(
    model: Any,
    X: Any,
    background: Any = None,
    *,
    train: Any = None,
    target: Any = None,
    method: str | None = "auto",
    n: int = 1,
    time_limit: float | None = None,
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
) -> ExplanationResult:
    """Explain the rows of a table for any model, with a method chosen to fit the model.

    By default a portfolio answers (`auto`: exact searches for linear models and trees, tangents
    where there are gradients, known rows and sampling for black boxes, then few changes at a
    time); `logs["source"]` says for each row which part of it did. Name another with `method`.
    Constraints are checked together before any search. What did not change in an answer is the
    owner's, bit for bit; an answer is judged by the model as the very row that is shown. For
    repeated calls make an `Explainer` once.

    Args:
        model: a fitted CEL model, a scikit-learn estimator or pipeline, a boosted-tree model, a
            torch module, or a function DataFrame -> probabilities.
        X: rows to explain, in original units: a DataFrame, or an array of numbers.
        background: training rows in original units; they tell types, ranges and what is usual.
        train: another name of `background`.
        target: the wanted class as the model calls it; a set of classes; {class: probability}; a
            `cel.Target`; or a list with one per row. By default the opposite class. For regression
            a value, (lower, upper), ">= 200", "<= 200", "+10%", "-500": in original units.
        method: name of a method, see `cel list methods`; a bare name is the published algorithm.
        n: how many answers per row, the best first; see `result.to_frame(sets=True)`. The first
            does not depend on `n`.
        time_limit: seconds for the search; unanswered rows become `timeout`.
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
    >>> explain(model, train[:1], background=train, target="yes", immutable=("age",)).found
    array([ True])
    """
    explainer = Explainer(
        model,
        _one_background(background, train),
        target=target,
        method=method,
        constraints=constraints,
        immutable=immutable,
        increasing=increasing,
        decreasing=decreasing,
        ranges=ranges,
        allowed=allowed,
        relations=relations,
        implications=implications,
        max_changes=max_changes,
        weights=weights,
        space=space,
        start_outside=start_outside,
        task=task,
        classes=classes,
        columns=columns,
        on_error=on_error,
        **settings,
    )
    return explainer.explain(X, n=n, time_limit=time_limit)


def _one_background(background: Any, train: Any) -> Any:
    if background is not None and train is not None:
        raise ConfigError("background= and train= mean the same; give one of them")
    if background is None and train is None:
        raise ConfigError(
            "give background=, the table of training rows that the model was fitted on; it tells "
            "types, ranges and what is usual"
        )
    return train if background is None else background
