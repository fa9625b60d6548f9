"""Models from outside: anything that predicts from raw tables or encoded rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import pandas as pd
from torch import nn

from cel.errors import ConfigError, UnsupportedError
from cel.models.adapters.calls import (
    Call,
    Classes,
    column_names,
    find_call,
    known_classes,
    known_task,
)
from cel.models.adapters.context import find_context
from cel.models.adapters.own_units import OwnUnits
from cel.models.adapters.wrapped import WrappedModel
from cel.models.adapters.wrapped_module import WrappedModule
from cel.models.estimator import PytorchBase
from cel.preprocessing import Encoding, PreprocessingPipeline
from cel.protocols import Task
from cel.space import FeatureSpace, Target

__all__ = ["Output", "WrappedModel", "WrappedModule", "wrap"]

Output = Literal["auto", "proba", "logits", "labels", "values"]


def wrap(
    model: Any,
    data: Any = None,
    *,
    target: Target | str | None = None,
    space: FeatureSpace | None = None,
    pipeline: PreprocessingPipeline | None = None,
    task: Task | str | None = None,
    classes: Sequence[Any] | None = None,
    output: Output = "auto",
    arrays: bool = False,
) -> WrappedModel:
    """Make a model from outside usable by every method.

    Takes scikit-learn estimators and pipelines, XGBoost, LightGBM and CatBoost models, a
    `torch.nn.Module`, or a function. All see raw tables with their own columns and dtypes; a
    module sees them as a tensor, columns in their order, labels as one column per category. With
    a pipeline a module sees encoded rows; with neither table nor pipeline everybody does.

    Args:
        model: the fitted model.
        data: where space, pipeline and target come from: a CEL dataset, split or loader, or a raw
            DataFrame of training rows.
        target: the outcome, or the name of its column in a DataFrame given as `data`.
        space: encoded space; with a DataFrame as `data`, its raw space.
        pipeline: what encodes and decodes raw tables.
        task: "classification" or "regression" where the model does not tell.
        classes: labels in the order of the model's outputs where the model does not tell.
        output: what the model gives: "proba" (n, K), or (n,) for the second of two classes;
            "logits"; "labels"; "values" (regression, in original units).
        arrays: whether the model takes arrays of numbers, not tables.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> frame = pd.DataFrame({"age": [20, 30, 60, 70]})
    >>> tree = DecisionTreeClassifier().fit(frame, ["no", "no", "yes", "yes"])
    >>> wrapped = wrap(tree, frame)
    >>> wrapped.predict(frame.iloc[:1]), wrapped.predict([[1.0]])  # 1.0 encodes the oldest
    (array(['no'], dtype=object), array(['yes'], dtype=object))
    """
    if output not in get_args(Output):
        raise ConfigError(f"unknown output {output!r}; use one of {', '.join(get_args(Output))}")
    if isinstance(model, WrappedModel | PytorchBase):
        raise UnsupportedError(f"{type(model).__name__} is a CEL model already; use it as it is")
    names = column_names(model)
    context = find_context(data, target=target, space=space, pipeline=pipeline, names=names)
    kind = known_task(model, context.target, task, classes, output)
    labels = Classes()
    if kind is Task.CLASSIFICATION:
        labels = known_classes(model, context.target, classes)
        context = replace(context, target=context.target or _target_of(labels))
    filler = _filler(data, context)
    if isinstance(model, nn.Module):
        call = Call(model, output="logits" if output == "auto" else output)
        units = None
        if isinstance(data, pd.DataFrame) and pipeline is None:
            units = OwnUnits.of(context)
        return WrappedModule(call, kind, context, labels, units=units)
    call = find_call(model, kind, output)
    call.arrays = arrays
    wrapped = WrappedModel(call, kind, context, labels, filler=filler)
    return wrapped.as_decided(data) if isinstance(data, pd.DataFrame) else wrapped


def _target_of(classes: Classes) -> Target:
    """Return the outcome of a model that names its classes and nothing else."""
    labels = tuple(classes.labels.tolist())
    return Target(names=("target",), task=Task.CLASSIFICATION, classes=labels)


def _filler(data: Any, encoding: Encoding) -> pd.DataFrame | None:
    """Return the first training row's values of columns that only travel along."""
    if encoding.sheet is None or not isinstance(data, pd.DataFrame):
        return None
    return data[list(encoding.sheet.carried)].iloc[:1]
