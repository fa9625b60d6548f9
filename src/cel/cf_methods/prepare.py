"""From what users pass to what methods work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from cel.cf_methods.view import ModelView
from cel.errors import ConfigError, DataError, MissingInputError
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space import FeatureSpace, Target
from cel.space.target import distinct

if TYPE_CHECKING:
    from cel.cf_methods.base import BaseCounterfactualMethod

__all__ = ["Prepared", "TrainingData", "prepare", "training_data"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Training rows as given, with whatever is known about their columns."""

    x: np.ndarray
    y: np.ndarray | None
    space: FeatureSpace
    pipeline: Any = None
    target: Target | None = None
    held_out: np.ndarray | None = None
    reserve: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """Checked rows, targets and predictions of one call of `explain`."""

    x: np.ndarray  # (n, d) float32
    source_ids: np.ndarray  # (n,)
    y: np.ndarray  # predictions
    target_values: np.ndarray  # (n,) or (n, o)
    bad: np.ndarray  # (n,) bool: NaN or infinite rows
    done: np.ndarray  # (n,) bool: already in the target class
    space: FeatureSpace
    pipeline: Any
    target: Target | None

    @property
    def todo(self) -> np.ndarray:
        """Rows that need an answer."""
        return np.asarray(~self.bad & ~self.done)


def training_data(data: Any, y: Any, model: Any, space: FeatureSpace | None) -> TrainingData:
    """Read training rows from a split, a loader, a frame or an array."""
    split = getattr(getattr(data, "dataset", None), "split", None) or data
    if hasattr(split, "train") and hasattr(split, "space"):
        return TrainingData(
            x=np.asarray(split.train.X, dtype=np.float32),
            y=np.asarray(split.train.y),
            space=space or split.space,
            pipeline=split.pipeline,
            target=split.target,
            held_out=np.asarray(split.test.X, dtype=np.float32),
            reserve=np.asarray(split.valid.X, dtype=np.float32),
        )
    pipeline = getattr(model, "pipeline_", None)
    target = getattr(model, "target_", None)
    x, _ = _encode(data, pipeline)
    known = space or getattr(model, "space_", None) or _observed_space(x)
    if known.width != x.shape[1]:
        raise DataError(f"expected rows of {known.width} columns, got {x.shape[1]}")
    if not np.isfinite(x).all():
        raise DataError(
            f"training rows hold {int((~np.isfinite(x)).sum())} NaN or infinite values"
        )
    outcomes = None if y is None else np.asarray(y)
    return TrainingData(x=x, y=outcomes, space=known, pipeline=pipeline, target=target)


def _observed_space(x: np.ndarray) -> FeatureSpace:
    space = FeatureSpace.continuous(x.shape[1])
    low, high = x.min(0), x.max(0)
    changes = {
        f"x{j}": {"lower": float(low[j]), "upper": float(high[j])} for j in range(x.shape[1])
    }
    return space.with_changes(**changes)


def _encode(X: Any, pipeline: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return (encoded rows, row labels)."""
    if hasattr(X, "X") and hasattr(X, "index"):  # Rows of a split
        return np.asarray(X.X, dtype=np.float32), np.asarray(X.index)
    if hasattr(X, "iloc"):
        if pipeline is None:
            raise MissingInputError(
                "a DataFrame needs a pipeline: train the model from a dataset, use cel.wrap(), "
                "or pass encoded rows as an array"
            )
        return np.asarray(pipeline.transform(X), dtype=np.float32), np.asarray(X.index)
    rows = X.detach().cpu().numpy() if isinstance(X, torch.Tensor) else np.asarray(X)
    if rows.ndim != 2:
        raise DataError(f"expected rows of shape (n, d), got shape {rows.shape}")
    return np.ascontiguousarray(rows, dtype=np.float32), np.arange(len(rows))


def prepare(method: BaseCounterfactualMethod, X: Any, target: Any, view: ModelView) -> Prepared:
    """Encode the rows, predict them, and settle every row's target."""
    pipeline = getattr(method, "pipeline_", None) or getattr(method.model, "pipeline_", None)
    outcome = getattr(method, "target_", None) or getattr(method.model, "target_", None)
    x, ids = _encode(X, pipeline)
    space = method.space or getattr(method, "space_", None)
    space = space or getattr(method.model, "space_", None)
    if space is None:
        raise MissingInputError(
            "no feature space: fit the model or the method on a dataset, or pass space="
        )
    if x.shape[1] != space.width:
        raise DataError(f"expected rows of {space.width} columns, got {x.shape[1]}")
    bad = ~np.isfinite(x).all(1)
    safe = np.where(bad[:, None], 0.0, x).astype(np.float32)
    y = view.outcome(safe) if len(x) else _no_outcome(view)
    wanted = y if method.keeps_class else _targets(target, y, view, outcome)
    kept = method.keeps_class or not len(x)
    done = np.zeros(len(x), dtype=bool) if kept else view.achieved(y, wanted)
    return Prepared(
        x=x, source_ids=ids, y=y, target_values=wanted, bad=bad, done=done & ~bad,
        space=space, pipeline=pipeline, target=outcome,
    )  # fmt: skip


def _no_outcome(view: ModelView) -> np.ndarray:
    if view.task is Task.REGRESSION:
        return np.zeros((0, view.n_outputs))
    return np.zeros(0, dtype=np.int64)


def _targets(target: Any, y: np.ndarray, view: ModelView, outcome: Target | None) -> np.ndarray:
    if view.task is Task.REGRESSION:
        return _values(target, y)
    if target is None and outcome is not None:
        target = outcome.desired
    if target is None:
        target = "opposite"
    if isinstance(target, str) and target == "opposite":
        if view.n_outputs != 2:
            raise ConfigError(
                f"with {view.n_outputs} classes say which one: explain(X, target=...)"
            )
        return 1 - y
    labels = np.asarray(target, dtype=object).ravel()
    if labels.size not in (1, len(y)):
        raise DataError(f"{labels.size} targets for {len(y)} rows")
    codes, found = distinct(labels)
    positions = np.array([_position(v, view, outcome) for v in found], dtype=np.int64)[codes]
    return np.array(np.broadcast_to(positions, y.shape))


def _position(label: Any, view: ModelView, outcome: Target | None) -> int:
    """Return the position of a class: labels first, and positions only where no label is one."""
    if outcome is not None:
        known = list(outcome.classes)
    else:
        known = np.asarray(getattr(view.model, "classes_", range(view.n_outputs))).tolist()
    if label in known:
        return known.index(label)
    whole = isinstance(label, int | np.integer) and not isinstance(label, bool)
    numbers = any(isinstance(c, int | float) for c in known)
    if whole and not numbers and 0 <= int(label) < view.n_outputs:
        return int(label)
    hint = did_you_mean(str(label), map(str, known))
    raise ConfigError(f"unknown target class {label!r}; the classes are {known}; {hint}")


def _values(target: Any, y: np.ndarray) -> np.ndarray:
    """Regression targets; by default the prediction plus 20 % of the range, inside the range."""
    if target is None:
        return np.asarray(np.clip(y + 0.2, 0.0, 1.0))
    values = np.asarray(target, dtype=np.float64)
    values = values[:, None] if values.ndim == 1 and len(values) == len(y) else values
    try:
        return np.array(np.broadcast_to(values, y.shape))
    except ValueError:
        raise DataError(f"targets of shape {values.shape} for outputs of {y.shape}") from None
