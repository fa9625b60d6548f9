"""Models from outside: anything that predicts from raw tables or encoded rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.models.adapters.calls import (
    Call,
    Classes,
    check_probabilities,
    column_names,
    find_call,
    known_classes,
    known_task,
    two_columns,
)
from cel.models.adapters.context import find_context
from cel.models.adapters.own_units import OwnUnits
from cel.models.estimator import PytorchBase
from cel.models.inputs import as_matrix
from cel.models.layers import FrozenModule
from cel.models.relu_view import ReluView, module_layers
from cel.preprocessing import Encoded, Encoding, PreprocessingPipeline
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
    return WrappedModel(call, kind, context, labels, filler=filler)


def _target_of(classes: Classes) -> Target:
    """Return the outcome of a model that names its classes and nothing else."""
    labels = tuple(classes.labels.tolist())
    return Target(names=("target",), task=Task.CLASSIFICATION, classes=labels)


def _filler(data: Any, encoding: Encoding) -> pd.DataFrame | None:
    """Return the first training row's values of columns that only travel along."""
    if encoding.sheet is None or not isinstance(data, pd.DataFrame):
        return None
    return data[list(encoding.sheet.carried)].iloc[:1]


class WrappedModel(Encoded):
    """A black box over encoded rows and raw tables, made by `wrap`.

    Attributes:
        model: the model from outside.
        task: what it predicts.
        space_: encoded space, or None.
        pipeline_: what decodes rows for the model, or None.
        target_: the outcome, or None.
        classes_: labels in the order of `predict_proba`; empty for regression.
        hard: whether probabilities are only ones and zeros, because the model gives labels.
    """

    def __init__(
        self,
        call: Call,
        task: Task,
        encoding: Encoding,
        classes: Classes,
        *,
        filler: pd.DataFrame | None = None,
    ) -> None:
        self.model, self.task, self._call = call.model, task, call
        self.encoding_ = encoding
        self.classes_, self._classes = classes.labels, classes
        self.hard = call.output == "labels"
        self._trees: list[Any] = []  # shared by copies that decode in another way
        self._affine: list[Any] = []  # the same
        self.n_features_in_ = encoding.width
        self.n_outputs_ = len(self.classes_) or (self.target_.n_outputs if self.target_ else None)
        self._filler = filler
        self._decode: Callable[[Any], pd.DataFrame] = self._decoded

    @property
    def reads_tables(self) -> bool:
        """Whether the model is asked with raw tables."""
        return self.pipeline_ is not None

    def bound(self, decode: Callable[[Any], pd.DataFrame]) -> WrappedModel:
        """Return the same model with another way from encoded rows to raw tables."""
        out = copy(self)
        out._decode = decode
        return out

    def with_target(self, target: Target) -> WrappedModel:
        """Return the same model with an outcome that is known better."""
        out = copy(self)
        out.encoding_ = replace(self.encoding_, target=target)
        out.n_outputs_ = len(out.classes_) or target.n_outputs
        out._decode = out._decoded
        return out

    def _decoded(self, x: Any) -> pd.DataFrame:
        """Return encoded rows as the table that the model is shown."""
        frame = self.encoding_.decode(x)
        sheet = self.encoding_.sheet
        if sheet is None:
            return frame
        for name, digits in sheet.decimals.items():
            if name in frame.columns and pd.api.types.is_float_dtype(frame[name].dtype):
                frame[name] = frame[name].round(digits)
        if self._filler is not None:
            for name in self._filler.columns:
                values = self._filler[name].array.take(np.zeros(len(frame), dtype=np.intp))
                frame[name] = pd.Series(values, index=frame.index)
        return frame[[n for n in sheet.names if n in frame.columns]]

    def __repr__(self) -> str:
        return f"WrappedModel({self.model!r})"

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (n,), or values (n, m) in units of the target's training range."""
        if self.task is Task.CLASSIFICATION:
            return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
        values = np.asarray(self._answers(X), dtype=np.float64)
        values = values.reshape(len(values), -1)
        if self.target_ is not None and self.target_.lower:
            return self.target_.encode(values)
        return values

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K) in the order of `classes_`."""
        if self.task is Task.REGRESSION:
            raise UnsupportedError(f"{self!r} predicts values and has no probabilities")
        answers = self._answers(X)
        if self.hard:
            return self._from_labels(answers)
        scores = two_columns(np.asarray(answers, dtype=np.float64), self._call.output)
        if scores.shape[1] != len(self._classes.order):
            raise DataError(
                f"{type(self.model).__name__} gave {scores.shape[1]} columns for "
                f"{len(self._classes.order)} classes; name them with classes=[...]"
            )
        if self._call.output == "logits":
            scores = np.exp(scores - scores.max(1, keepdims=True))
            scores /= scores.sum(1, keepdims=True)
        check_probabilities(scores)
        return self._ordered(scores)

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy, or the mean R2 over outputs."""
        if self.task is Task.CLASSIFICATION:
            return float((self.predict(X) == np.asarray(y)).mean())
        truth = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        left = ((truth - self.predict(X)) ** 2).sum(0) / ((truth - truth.mean(0)) ** 2).sum(0)
        return float((1 - left).mean())

    def trees_(self) -> Any:
        """Return the model's trees as a `cel.models.trees.TreeView`, read once.

        Raises `UnsupportedError` with the reason where there are none that can be read.
        """
        if not self._trees:
            from cel.models.trees import tree_view

            self._trees.append(tree_view(self))
        return self._trees[0]

    def linear_(self) -> tuple[Tensor, Tensor] | None:
        """Return W (K, d) and b (K,) of a linear model over encoded rows, read once; else None."""
        if not self._affine:
            from cel.models.adapters.affine_weights import affine_weights

            plain = copy(self)
            plain._decode = plain._decoded
            self._affine.append(affine_weights(plain))
        parts: tuple[Tensor, Tensor] | None = self._affine[0]
        return parts

    def soft_trees_(self) -> Any:
        """Return a differentiable copy of the trees, `cel.models.trees.soft_trees.SoftTrees`."""
        from cel.models.trees.soft_trees import soft_trees

        return soft_trees(self, self.trees_())

    def _ordered(self, scores: np.ndarray) -> np.ndarray:
        """Return columns in the order of `classes_`; classes the model never saw get zero."""
        out = np.zeros((len(scores), len(self.classes_)))
        out[:, self._classes.order] = scores
        return out

    def _from_labels(self, answers: Any) -> np.ndarray:
        labels = np.asarray(answers).reshape(-1)
        hits = labels[:, None] == self._classes.theirs
        if not hits.any(1).all():
            raise DataError(f"the model predicted {labels[~hits.any(1)][0]!r}, an unknown label")
        return self._ordered(hits.astype(np.float64))

    def _answers(self, X: Any) -> Any:
        """Ask the model for all rows and check that it answers for each."""
        rows = self._rows(X)
        answers = self._call(rows)
        if len(answers) != len(rows):
            raise DataError(
                f"{type(self.model).__name__} gave {len(answers)} answers for {len(rows)} rows"
            )
        return answers

    def _rows(self, X: Any) -> Any:
        """Return rows as the model takes them: raw tables, or encoded arrays."""
        if isinstance(X, pd.DataFrame):
            sheet = self.encoding_.sheet
            return X if sheet is None else X[[n for n in sheet.names if n in X.columns]]
        x = as_matrix(X, width=self.n_features_in_)
        if self.pipeline_ is None:
            return x.detach().cpu().numpy()
        return self._decode(x)


class WrappedModule(WrappedModel):
    """A `torch.nn.Module` with gradients.

    It sees the columns of its owner's table in their order and units (labels as one column per
    category, truth values as 0 and 1), or encoded rows where a pipeline was given.
    """

    def __init__(
        self,
        call: Call,
        task: Task,
        encoding: Encoding,
        classes: Classes,
        *,
        units: OwnUnits | None = None,
    ) -> None:
        super().__init__(call, task, encoding, classes)
        self._units = units
        if len(classes.order) != len(classes.labels):
            raise ConfigError(
                f"the module's classes {classes.theirs.tolist()} are not all of the target's "
                f"{classes.labels.tolist()}"
            )
        self._inverse = np.argsort(classes.order).tolist()
        self._frozen = FrozenModule(self.model)

    def __repr__(self) -> str:
        return f"WrappedModule({type(self.model).__name__})"

    def logits(self, x: Tensor) -> Tensor:
        """Return (n, K) logits or (n, m) values; gradients reach `x`, parameters are frozen."""
        if x.dim() != 2 or self.n_features_in_ not in (None, x.shape[1]):
            raise DataError(f"expected (n, {self.n_features_in_}) rows, got {tuple(x.shape)}")
        return self._outputs(x if self._units is None else self._units(x))

    def _outputs(self, x: Tensor) -> Tensor:
        """Return (n, K) logits or (n, m) values of rows as the module takes them."""
        home = next(self.model.parameters(), x)
        out: Tensor = self._frozen.as_dtype(x.dtype)(x.to(home.device))
        out = out.flatten(1) if out.dim() > 1 else out[:, None]
        if self.task is Task.REGRESSION:
            low, width = self._range(out)
            return (out - low) / width
        if self._call.output == "proba":
            both = out if out.shape[1] > 1 else torch.cat([1 - out, out], 1)
            return both.clamp(min=torch.finfo(out.dtype).tiny).log()[:, self._inverse]
        both = out if out.shape[1] > 1 else torch.cat([-out / 2, out / 2], 1)
        return both[:, self._inverse]

    def _range(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return what a value is measured from and in: (0, 1) unless it is in its owner's units.

        A module over encoded rows gives values in units of the training range already.
        """
        if self._units is None or self.target_ is None or not self.target_.lower:
            return torch.zeros(1).to(like), torch.ones(1).to(like)
        low, high = (torch.tensor(v).to(like) for v in (self.target_.lower, self.target_.upper))
        return low, torch.where(high > low, high - low, torch.ones_like(low))

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities (n, K)."""
        if self.task is Task.REGRESSION:
            raise UnsupportedError(f"{self!r} predicts values and has no probabilities")
        return np.asarray(self._apply(X).softmax(1).cpu().numpy())

    def predict(self, X: Any) -> np.ndarray:
        """Return labels (n,), or values (n, m) in units of the target's training range."""
        if self.task is Task.CLASSIFICATION:
            return np.asarray(self.classes_[self.predict_proba(X).argmax(1)])
        return np.asarray(self._apply(X).cpu().numpy())

    @torch.no_grad()
    def _apply(self, X: Any) -> Tensor:
        if self._units is not None and isinstance(X, pd.DataFrame):
            return self._outputs(self._units.of_table(X))
        return self.logits(as_matrix(X, pipeline=self.pipeline_, width=self.n_features_in_))

    def relu_(self) -> ReluView:
        """Return the module's layers over encoded rows, read anew and checked.

        Raises `UnsupportedError` with the reason where it is no chain of Linear and ReLU layers.
        """
        who = type(self.model).__name__
        if self.task is Task.CLASSIFICATION and self._call.output == "proba":
            raise UnsupportedError(f"{who} gives probabilities; its last layer is not linear")
        layers = module_layers(self.model, who)
        if self._units is not None:
            layers[0] = self._units.encoded(*layers[0])
        if self.task is Task.CLASSIFICATION:
            weight, bias = layers[-1]
            if len(bias) == 1:
                weight, bias = torch.cat([-weight, weight]) / 2, torch.cat([-bias, bias]) / 2
            layers[-1] = weight[self._inverse], bias[self._inverse]
        else:
            weight, bias = layers[-1]
            low, width = self._range(bias)
            layers[-1] = weight / width[:, None], (bias - low) / width
        return ReluView(tuple(layers)).check(self.logits, who)

    @property
    def reads_tables(self) -> bool:
        """Whether raw tables reach the module without CEL's own scaling."""
        return self._units is not None

    def bound(self, decode: Callable[[Any], pd.DataFrame]) -> WrappedModel:
        """Return the module itself: points reach it by a smooth map, not by decoding."""
        return self
