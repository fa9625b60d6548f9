"""From what users pass to what methods work on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.cf_methods.goals import Wish, read_goals
from cel.cf_methods.options import Asked
from cel.cf_methods.starts_inside import Starts, starts_inside
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError, DataError, MissingInputError
from cel.preprocessing import Encoding, GivenRows, PreprocessingPipeline
from cel.preprocessing.encoding import row_labels
from cel.protocols import Predictor, Task
from cel.space import FeatureSpace, Target
from cel.space.target import distinct

__all__ = ["Prepared", "TrainingData", "encoding_of", "prepare", "training_data"]


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    """Training rows as given, with whatever is known about their columns.

    Attributes:
        x: (m, d) encoded rows.
        y: recorded outcomes, or None.
        space: encoded features.
        encoding: how the rows are encoded.
        shown: what the model is asked about: the raw table where it was given, else `x`.
        split: the fold that the rows are from, or None.
    """

    x: np.ndarray
    y: np.ndarray | None
    space: FeatureSpace
    encoding: Encoding
    shown: Any
    split: Any = None
    reserve: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """Checked rows, targets and predictions of one call of `explain`."""

    x: np.ndarray  # (n, d) float32
    source_ids: np.ndarray  # (n,)
    y: np.ndarray  # predictions
    target_values: np.ndarray  # (n,) or (n, o)
    bad: np.ndarray  # (n,) bool: rows that cannot be read or asked about
    done: np.ndarray  # (n,) bool: already in the target class
    space: FeatureSpace
    encoding: Encoding
    starts: Starts  # where searches begin
    given: GivenRows | None = None  # the owner's rows, if a table was given
    reasons: np.ndarray | None = None  # (n,) why a row is bad or cannot be answered
    among: np.ndarray | None = None  # (n,) bool: rows of this group, None for all

    @property
    def pipeline(self) -> PreprocessingPipeline | None:
        """What encodes raw tables, or None."""
        return self.encoding.pipeline

    @property
    def target(self) -> Target | None:
        """The outcome, or None."""
        return self.encoding.target

    @property
    def todo(self) -> np.ndarray:
        """Rows that need an answer."""
        out = ~self.bad & ~self.done & ~self.starts.settled
        return np.asarray(out if self.among is None else out & self.among)

    def groups(self, view: ModelView) -> Iterator[tuple[Prepared, ModelView]]:
        """Yield parts whose rows can be searched together, each with a model that knows them."""
        if self.given is None or not view.reads_tables:
            yield self, view
            return
        rows = np.flatnonzero(self.todo)
        by_carried = len(rows) > 1 and view.reads_carried(self.given, rows)
        for part in self.given.groups(rows, by_carried=by_carried):
            among = np.zeros(len(self.x), dtype=bool)
            among[part] = True
            bound = view.bound(self.given.decoder(part)) if len(part) else view
            yield replace(self, among=among), bound


def encoding_of(method: Asked) -> Encoding:
    """Return what a method knows about rows: its own space, its training rows, its model."""
    fitted = getattr(method, "encoding_", None) or Encoding()
    known = Encoding(space=method.space).over(fitted.over(Encoding.of(method.model)))
    if known.space is None:
        raise MissingInputError(
            "no feature space: fit the model or the method on a dataset, or pass space="
        )
    return known


def training_data(data: Any, y: Any, model: Predictor, space: FeatureSpace | None) -> TrainingData:
    """Read training rows from a split, a loader, a frame or an array."""
    split = getattr(getattr(data, "dataset", None), "split", None) or data
    if hasattr(split, "train") and hasattr(split, "space"):
        known = Encoding(space=space).over(Encoding.of(split))
        x = np.asarray(split.train.X, dtype=np.float32)
        return TrainingData(
            x=x,
            y=np.asarray(split.train.y),
            space=space or split.space,
            encoding=known,
            shown=x,
            split=split,
            reserve=np.asarray(split.valid.X, dtype=np.float32),
        )
    known = Encoding(space=space).over(Encoding.of(model))
    x, _ = known.encode(data)
    features = known.space or _observed_space(x)
    if features.width != x.shape[1]:
        raise DataError(f"expected rows of {features.width} columns, got {x.shape[1]}")
    if not np.isfinite(x).all():
        raise DataError(
            f"training rows hold {int((~np.isfinite(x)).sum())} NaN or infinite values"
        )
    tables = isinstance(data, pd.DataFrame) and getattr(model, "reads_tables", False)
    return TrainingData(
        x=x,
        y=None if y is None else _recorded(np.asarray(y), model, known.target),
        space=features,
        encoding=replace(known, space=features),
        shown=data if tables else x,
    )


def _recorded(y: np.ndarray, model: Predictor, target: Target | None) -> np.ndarray:
    """Return recorded outcomes in the form of predictions: class positions (m,), or as they are.

    A label that the model does not know becomes -1: it never predicts it.
    """
    if getattr(model, "task", None) is not Task.CLASSIFICATION or y.ndim != 1:
        return y
    known = target or _labels_of(model, ModelView(model).n_outputs)
    codes, labels = distinct(y.astype(object))
    places = np.array([_place(known, label) for label in labels], dtype=np.int64)
    return np.asarray(places[codes])


def _place(known: Target, label: Any) -> int:
    try:
        return known.place(label, positions=True)
    except ConfigError:
        return -1


def _observed_space(x: np.ndarray) -> FeatureSpace:
    space = FeatureSpace.continuous(x.shape[1])
    low, high = x.min(0), x.max(0)
    changes = {
        f"x{j}": {"lower": float(low[j]), "upper": float(high[j])} for j in range(x.shape[1])
    }
    return space.with_changes(**changes)


def prepare(method: Asked, X: Any, target: Any, view: ModelView) -> Prepared:
    """Encode the rows, predict them as they were given, and settle every row's target."""
    encoding = encoding_of(method)
    space = encoding.space
    assert space is not None
    given = None
    if isinstance(X, pd.DataFrame) and encoding.pipeline is not None:
        given = GivenRows.read(X, encoding)
        x, ids = given.x, row_labels(X.index)
        reasons = given.problems.copy()
    else:
        x, ids = encoding.encode(X)
        reasons = None
    if x.shape[1] != space.width:
        raise DataError(f"expected rows of {space.width} columns, got {x.shape[1]}")
    bad = ~np.isfinite(x).all(1)
    y = _predicted(x, bad, given, view, reasons)
    if reasons is not None:
        bad = np.array([r is not None for r in reasons], dtype=bool)
        x = np.where(bad[:, None], np.float32(np.nan), x)
    done = np.zeros(len(x), dtype=bool)
    if method.keeps_class:
        wanted = y
    else:
        wanted = _wanted(method, target, y, view, encoding.target, positions=given is None)
        done = view.achieved(y, wanted) if len(x) else done
    return Prepared(
        x=x, source_ids=ids, y=y, target_values=wanted, bad=bad, done=done & ~bad, space=space,
        encoding=encoding, given=given, reasons=reasons,
        starts=starts_inside(x, space, bad | done, reasons),
    )  # fmt: skip


def _predicted(
    x: np.ndarray,
    bad: np.ndarray,
    given: GivenRows | None,
    view: ModelView,
    reasons: np.ndarray | None,
) -> np.ndarray:
    """Predict the rows as they were given; rows that the model refuses get its reason."""
    if not len(x):
        return _no_outcome(view)
    if given is None or not view.reads_tables:
        return view.outcome(np.where(bad[:, None], 0.0, x).astype(np.float32))
    readable = np.flatnonzero(~bad)
    y, refused = view.outcome_of_tables(given.frame.iloc[readable])
    assert reasons is not None
    for row, reason in refused.items():
        reasons[readable[row]] = reason
    shape = (len(x), *y.shape[1:])
    out = np.full(shape, -1, dtype=y.dtype) if y.ndim == 1 else np.full(shape, np.nan)
    out[readable] = y
    return out


def _no_outcome(view: ModelView) -> np.ndarray:
    if view.task is Task.REGRESSION:
        return np.zeros((0, view.n_outputs))
    return np.zeros(0, dtype=np.int64)


def _wanted(
    method: Asked,
    target: Any,
    y: np.ndarray,
    view: ModelView,
    outcome: Target | None,
    *,
    positions: bool,
) -> np.ndarray:
    """Return what each row should become: classes (n,), values (n, o) or their ends (n, 2 o)."""
    if view.task is Task.CLASSIFICATION:
        return _targets(target, y, view, outcome, positions=positions)
    if not isinstance(target, Wish):
        return _values(target, y)
    goals = read_goals(target.wish, y, outcome)
    return goals.ends if method.takes_intervals else goals.aims(y, method.tolerance)


def _targets(
    target: Any, y: np.ndarray, view: ModelView, outcome: Target | None, *, positions: bool
) -> np.ndarray:
    if target is None and outcome is not None:
        target = outcome.desired
    if target is None:
        target = "opposite"
    known = outcome or _labels_of(view.model, view.n_outputs)
    if isinstance(target, str) and target == "opposite" and "opposite" not in known.classes:
        if view.n_outputs != 2:
            raise ConfigError(
                f"with {view.n_outputs} classes say which one: explain(X, target=...)"
            )
        return np.where(y >= 0, 1 - y, 0)
    labels = np.asarray(target, dtype=object).ravel()
    if labels.size not in (1, len(y)):
        raise DataError(f"{labels.size} targets for {len(y)} rows")
    codes, found = distinct(labels)
    places = [known.place(v, positions=positions) for v in found]
    return np.array(np.broadcast_to(np.array(places, dtype=np.int64)[codes], y.shape))


def _labels_of(model: Any, outputs: int) -> Target:
    """Return the labels of a model that has no target: its own, or positions."""
    own = np.asarray(getattr(model, "classes_", range(outputs))).tolist()
    return Target(names=("class",), task=Task.CLASSIFICATION, classes=tuple(own))


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
