"""The weights of a linear scikit-learn model over encoded rows, through its own preprocessing."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.models.adapters.calls import column_names
from cel.preprocessing.imputer import FLAG
from cel.protocols import Task
from cel.space import Feature, FeatureSpace

__all__ = ["affine_weights"]

PROBES = 256
AGREE = 1e-6  # of the sum of |weight * value|: what rounding may change

_LINEAR = (
    "LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis", "LinearSVC",
    "RidgeClassifier", "RidgeClassifierCV", "Perceptron",
)  # fmt: skip
_AFFINE = (
    "StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "OneHotEncoder",
    "OrdinalEncoder", "SimpleImputer", "PCA", "TruncatedSVD", "SelectKBest", "SelectFromModel",
    "VarianceThreshold",
)  # fmt: skip


def affine_weights(wrapped: Any) -> tuple[Tensor, Tensor] | None:
    """Return W (K, d) and b (K,) with scores = x W' + b over encoded rows, or None.

    Models are linear because of what they are: a linear classifier behind steps that scale,
    encode or project. Their weights over encoded rows are read off their decisions at the ends
    of every column, then compared with their decisions at random rows; where the two differ, as
    for an ordered label that the model takes apart, there are none. Scores are those of the
    decision function: logits of models with probabilities, distances of models with labels only.

    Args:
        wrapped: a `WrappedModel`.
    """
    space = wrapped.space_
    if wrapped.task is not Task.CLASSIFICATION or space is None or wrapped.pipeline_ is None:
        return None
    if not _is_linear(wrapped.model) or any(n.endswith(FLAG) for n in space.names):
        return None
    if len(wrapped._classes.order) != len(wrapped.classes_) or _reads_carried(wrapped):
        return None
    weight, bias = _read(wrapped, space)
    x = _random_rows(space)
    told, size = _decisions(wrapped, x), np.abs(x) @ np.abs(weight).T + np.abs(bias) + 1
    if not (np.abs(x @ weight.T + bias - told) <= AGREE * size).all():
        return None
    return torch.as_tensor(weight), torch.as_tensor(bias)


def _reads_carried(wrapped: Any) -> bool:
    """Tell whether columns that only travel along may be read by the model."""
    sheet = wrapped.encoding_.sheet
    carried = set() if sheet is None else set(sheet.carried)
    names = column_names(wrapped.model)
    return bool(carried if names is None else carried & set(names))


def _is(step: Any, *names: str) -> bool:
    return type(step).__name__ in names and type(step).__module__.startswith("sklearn.")


def _is_linear(model: Any) -> bool:
    final, before = model, []
    if _is(model, "Pipeline"):
        final, before = model.steps[-1][1], [step for _, step in model.steps[:-1]]
    if not all(_is_affine(s) for s in before):
        return False
    if _is(final, "SGDClassifier"):
        return len(final.classes_) == 2 and final.loss in ("log_loss", "hinge", "perceptron")
    if _is(final, "LogisticRegression") and len(final.classes_) > 2:
        return getattr(final, "solver", "") != "liblinear"
    return _is(final, *_LINEAR)


def _is_affine(step: Any) -> bool:
    if step is None or (isinstance(step, str) and step in ("passthrough", "drop")):
        return True
    if _is(step, "FunctionTransformer"):
        return step.func is None
    if _is(step, "Pipeline"):
        return all(_is_affine(s) for _, s in step.steps)
    if _is(step, "ColumnTransformer"):
        return all(_is_affine(s) for _, s, _ in step.transformers_)
    if _is(step, "FeatureUnion"):
        return all(_is_affine(s) for _, s in step.transformer_list)
    return _is(step, *_AFFINE) and not getattr(step, "clip", False)


def _decisions(wrapped: Any, x: np.ndarray) -> np.ndarray:
    """Return (n, K) decisions of encoded rows, in the order of the wrapped model's classes."""
    rows = wrapped._call.columns(wrapped._rows(x.astype(np.float32)))
    told = np.asarray(wrapped.model.decision_function(rows), dtype=np.float64)
    both = told if told.ndim == 2 else np.stack([np.zeros_like(told), told], 1)
    out = np.zeros_like(both)
    out[:, wrapped._classes.order] = both
    return out


def _read(wrapped: Any, space: FeatureSpace) -> tuple[np.ndarray, np.ndarray]:
    """Ask about a base row, and with one column at a time at its other end."""
    base = np.zeros(space.width)
    for f in space:
        base[list(f.columns)] = np.eye(len(f.columns))[0] if f.one_hot else _ends(f)[0]
    rows, away = [base], []
    for f in space:
        for k, column in enumerate(f.columns):
            row = base.copy()
            if f.one_hot:
                row[list(f.columns)] = np.eye(len(f.columns))[k]
                away.append(1.0)
            else:
                row[column] = _ends(f)[1]
                away.append(float(np.float32(row[column])) - float(np.float32(base[column])))
            rows.append(row)
    told = _decisions(wrapped, np.stack(rows))
    weight = np.zeros((told.shape[1], space.width))
    columns = [c for f in space for c in f.columns]
    weight[:, columns] = ((told[1:] - told[0]) / np.array(away)[:, None]).T
    return weight, told[0] - weight @ base.astype(np.float32).astype(np.float64)


def _ends(f: Feature) -> tuple[float, float]:
    """Return two values of a number that its column can hold."""
    low, high = f.lower, f.upper
    if not np.isfinite(low):
        low = f.anchor
    if not np.isfinite(high) or high <= low:
        high = low + (f.step or 1.0)
    if f.step:
        low, high = (f.anchor + f.step * round((v - f.anchor) / f.step) for v in (low, high))
        high = high if high > low else low + f.step
    return low, high


def _random_rows(space: FeatureSpace) -> np.ndarray:
    """Return decodable rows (m, d) from all over the space."""
    rng = np.random.default_rng(0)
    x = np.zeros((PROBES, space.width))
    for f in space:
        if f.one_hot:
            codes = rng.integers(len(f.columns), size=PROBES)
            x[:, list(f.columns)] = np.eye(len(f.columns))[codes]
            continue
        low, high = _ends(f)
        values = rng.uniform(low, high, PROBES)
        if f.step:
            values = f.anchor + f.step * np.round((values - f.anchor) / f.step)
        x[:, f.columns[0]] = values
    return x.astype(np.float32).astype(np.float64)
