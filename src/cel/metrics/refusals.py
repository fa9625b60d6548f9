"""Refuse results that cannot be scored honestly: wrong rows, wrong space, wrong model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cel.errors import DataError
from cel.protocols import Status, Task

if TYPE_CHECKING:
    from cel.metrics.evaluation import Evaluation

__all__ = ["check"]

DOUBT = 1e-3  # probabilities and values closer than this may differ between batch sizes


def check(ev: Evaluation) -> None:
    """Raise `DataError` when result, space, reference rows and model do not belong together."""
    _check_status(ev)
    _check_values(ev)
    _check_one_hot(ev)
    _check_reference_rows(ev)
    _check_predictions(ev)


def _check_status(ev: Evaluation) -> None:
    known = {s.value for s in Status}
    unknown = sorted({str(s) for s in ev.result.status} - known)
    if unknown:
        raise DataError(f"unknown status {unknown[0]!r}; the statuses are {sorted(known)}")
    labels, target = ev.result.y_origs, ev.result.y_cf_targets
    if labels.shape != target.shape or ev.result.y_cfs.shape != target.shape:
        raise DataError(
            f"predictions have shapes {labels.shape} and {ev.result.y_cfs.shape}, "
            f"targets {target.shape}"
        )


def _check_values(ev: Evaluation) -> None:
    """Rows with a candidate hold finite numbers on both sides."""
    have = np.flatnonzero(ev.result.has_candidate)
    for name, x in (("x_origs", ev.result.x_origs), ("x_cfs", ev.result.x_cfs)):
        bad = ~np.isfinite(x[have]).all(1)
        if bad.any():
            row = int(have[bad][0])
            raise DataError(
                f"row {row} has status {ev.result.status[row]!r} but {name} holds NaN or "
                "infinite values there"
            )


def _check_one_hot(ev: Evaluation) -> None:
    """Originals are one-hot where the space says so; all zeros stand for an unknown category."""
    x = ev.result.x_origs[np.isfinite(ev.result.x_origs).all(1)]
    for f in ev.space.one_hot_features:
        block = x[:, list(f.columns)]
        soft = (np.minimum(np.abs(block), np.abs(block - 1)) > 1e-4).any(1)
        if (soft | (block.sum(1) > 1.5)).any():
            raise DataError(
                f"columns {f.columns[0]}..{f.columns[-1]} should be one-hot for feature "
                f"{f.name!r} but are not; is this the space of these rows?"
            )


def _check_reference_rows(ev: Evaluation) -> None:
    c, read = ev.context, ev.references.trusts(ev.context)
    for rows, y, name in ((c.x_train, c.y_train, "train"), (c.x_test, c.y_test, "test")):
        if rows is None:
            continue
        if rows.ndim != 2 or rows.shape[1] != ev.space.width:
            raise DataError(
                f"x_{name} has shape {rows.shape}, the space of the result has "
                f"{ev.space.width} columns"
            )
        if not (read or np.isfinite(rows).all()):
            raise DataError(f"x_{name} holds NaN or infinite values")
        if y is not None and len(y) != len(rows):
            raise DataError(f"y_{name} has {len(y)} rows, x_{name} has {len(rows)}")
    if ev.labels is not None and (c.x_train is None or len(ev.labels) != len(c.x_train)):
        raise DataError(f"labels has {len(ev.labels)} rows, not those of x_train")


def _check_predictions(ev: Evaluation) -> None:
    """The stored predictions are the model's: otherwise rows or models were mixed up."""
    needed = "predict" if ev.task is Task.REGRESSION else "predict_proba"
    if not hasattr(ev.context.model, needed):
        return
    r = ev.result
    usable, have, before, after = ev.answers_of_model()
    for rows, said, y, name in ((usable, before, r.y_origs, "y_origs"),
                                (have, after, r.y_cfs, "y_cfs")):  # fmt: skip
        wrong = rows[_disagrees(ev, said, y[rows])] if len(rows) else rows
        if len(wrong):
            raise DataError(
                f"{name} disagrees with the model in {len(wrong)} of {len(rows)} rows, first in "
                f"row {wrong[0]}: the rows are out of order or the model is another one"
            )


def _disagrees(ev: Evaluation, said: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compare probabilities (n, K) or values (n, o) of the model with stored predictions."""
    if ev.task is Task.REGRESSION:
        return np.asarray(~(np.abs(said - y).max(1) <= DOUBT))
    inside = (y >= 0) & (y < said.shape[1])
    threshold = getattr(ev.context.model, "threshold", None)
    if threshold is not None:
        lead = np.where(y == 1, 1, -1) * (said[:, 1] - threshold)
        return np.asarray(~inside | (lead < -DOUBT))
    told = np.take_along_axis(said, np.where(inside, y, 0)[:, None].astype(np.int64), 1)[:, 0]
    return np.asarray(~inside | (said.max(1) - told > DOUBT))
