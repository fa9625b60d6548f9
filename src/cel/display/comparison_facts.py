"""What there is to show of a result: before, after, what changed, how likely and how usual."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cel.display.words import cell
from cel.preprocessing.category_codes import has_labels
from cel.protocols import Status, Task

if TYPE_CHECKING:
    from cel.result import ExplanationResult
    from cel.space import Feature

__all__ = ["Facts", "Surroundings", "asked"]

MOST_ROWS = 20_000  # background rows that are looked at


@dataclass(frozen=True, eq=False)
class Facts:
    """Some rows of a result side by side with their answers, in original units.

    Attributes:
        result: the result.
        rows: (m,) positions of the rows.
        before: the rows as they were given.
        after: their answers; a row without one stands for itself.
        names: columns that may change.
        moved: (m, p) bool, which of them did.
    """

    result: ExplanationResult
    rows: np.ndarray
    before: pd.DataFrame
    after: pd.DataFrame
    names: list[str]
    moved: np.ndarray

    @classmethod
    def of(cls, result: ExplanationResult, rows: np.ndarray | None = None) -> Facts:
        """Look at rows by position, by default at all of them."""
        rows = np.arange(len(result)) if rows is None else np.asarray(rows, dtype=np.int64)
        have = result.has_candidate[rows, None]
        x = np.where(have, result.x_cfs[rows], result.x_origs[rows])
        return cls(result, rows, *result.compared(x, rows))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def status(self) -> np.ndarray:
        """(m,) how each row ended."""
        return np.asarray(self.result.status[self.rows])

    @property
    def has_answer(self) -> np.ndarray:
        """(m,) bool: rows with a verified answer."""
        return np.asarray(self.result.found[self.rows])

    @property
    def labels(self) -> np.ndarray:
        """(m,) labels of the rows."""
        return np.asarray(self.result.source_ids[self.rows])

    @property
    def regression(self) -> bool:
        """Whether numbers are predicted."""
        return self.result.task is Task.REGRESSION

    @cached_property
    def now(self) -> list[str]:
        """(m,) what the model says of the rows."""
        return self._told("y_origs")

    @cached_property
    def wanted(self) -> list[str]:
        """(m,) what it should say."""
        return self._told("y_cf_targets")

    @cached_property
    def then(self) -> list[str]:
        """(m,) what it says of the answers."""
        return self._told("y_cfs")

    @cached_property
    def changed(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Cells (m,) before and after of the columns that change, by position in `names`."""
        return {
            int(j): (_objects(self.before[self.names[j]]), _objects(self.after[self.names[j]]))
            for j in np.flatnonzero(self.moved.any(0))
        }

    def _told(self, kind: str) -> list[str]:
        values = getattr(self.result, kind)[self.rows]
        target = self.result.target
        if self.regression:
            scaled = target is not None and len(target.lower) == values.shape[1]
            shown = target.decode(values) if target is not None and scaled else values
            return [" / ".join(cell(v, 5) for v in row) for row in np.asarray(shown)]
        classes = target.classes if target is not None else None
        return [_class(int(v), classes) for v in values]

    # -- how likely --------------------------------------------------------------------------

    @cached_property
    def chances(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Probabilities (m,) of the wanted class before and after; NaN where there is none.

        None without a model (results read from files), for regression, and for models that only
        give labels.
        """
        model = getattr(self.result.context, "model", None)
        if model is None or self.regression or getattr(model, "hard", False):
            return None
        out = np.full((2, len(self)), np.nan)
        readable = self.status != Status.ERROR.value
        answered = readable & self.result.has_candidate[self.rows]
        for k, (table, codes, use) in enumerate(
            (
                (self.before, self.result.x_origs, readable),
                (self.after, self.result.x_cfs, answered),
            )
        ):
            here = np.flatnonzero(use)
            if len(here):
                rows = self.rows[here]
                out[k, here] = asked(self.result, table.iloc[here], codes[rows], rows)
        return out[0], out[1]

    # -- how usual ---------------------------------------------------------------------------

    @cached_property
    def surroundings(self) -> Surroundings | None:
        """The background rows, None for results read from files."""
        context = self.result.context
        if context is None or context.x_train is None or not len(context.x_train):
            return None
        return Surroundings(self.result)

    @cached_property
    def usual(self) -> np.ndarray:
        """(m, p) shares in 0..1 of changed values, NaN for others.

        Numbers: background rows below the value, those at it counting half. Labels: background
        rows that have it.
        """
        out = np.full(self.moved.shape, np.nan)
        if self.surroundings is None:
            return out
        for j in np.flatnonzero(self.moved.any(0)):
            here = np.flatnonzero(self.moved[:, j])
            out[here, j] = self.surroundings.usual(
                self.names[j], self.after[self.names[j]].iloc[here]
            )
        return out

    def usual_text(self, row: int, column: int) -> str:
        """Return how usual a changed value is, in words, or nothing."""
        share = self.usual[row, column]
        if np.isnan(share):
            return ""
        labels = self.surroundings is not None and self.surroundings.labelled(self.names[column])
        return f"{share * 100:.0f} % {'have it' if labels else 'are lower'}"


def asked(
    result: ExplanationResult, table: pd.DataFrame, codes: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Return what the model says of points (m,): probability of the wanted class, or its value.

    Args:
        result: whose model is asked.
        table: the points in original units.
        codes: the same points encoded, (m, d).
        rows: (m,) the rows of the result that they stand for.
    """
    assert result.context is not None
    model: Any = result.context.model
    reads = result.given is not None and getattr(model, "reads_tables", False)
    points: Any = table if reads else np.asarray(codes, dtype=np.float32)
    if result.task is Task.REGRESSION:
        values = np.asarray(model.predict(points), dtype=np.float64).reshape(len(rows), -1)
        if result.target is not None and result.target.lower:
            values = result.target.decode(values)
        return np.asarray(values[:, 0])
    proba = np.asarray(model.predict_proba(points), dtype=np.float64)
    return np.asarray(proba[np.arange(len(rows)), result.y_cf_targets[rows]])


class Surroundings:
    """The background rows of a result in original units, at most 20,000 of them.

    Args:
        result: a result with its context.
    """

    def __init__(self, result: ExplanationResult) -> None:
        assert result.context is not None
        assert result.context.x_train is not None
        x = result.context.x_train
        self.result = result
        self.frame = result.decode(x[:: max(1, -(-len(x) // MOST_ROWS))])
        sheet = result.sheet
        for name, digits in (sheet.decimals if sheet is not None else {}).items():
            if name in self.frame and pd.api.types.is_float_dtype(self.frame[name].dtype):
                self.frame[name] = self.frame[name].round(digits)

    def feature(self, name: str) -> Feature:
        """Return a feature in original units where these are known."""
        pipeline = self.result.pipeline
        return self.result.space[name] if pipeline is None else pipeline.raw_space_[name]

    def labelled(self, name: str) -> bool:
        """Tell whether the values of a column are labels, not numbers."""
        return has_labels(self.feature(name))

    def numbers(self, name: str) -> np.ndarray:
        """Return the known numbers of a column, sorted."""
        values = pd.to_numeric(self.frame[name]).to_numpy(dtype=np.float64, na_value=np.nan)
        return np.sort(values[~np.isnan(values)])

    def shares(self, name: str) -> pd.Series:
        """Return the share of background rows of every label, the most frequent first."""
        return self.frame[name].astype(object).value_counts(normalize=True)

    def usual(self, name: str, values: pd.Series) -> np.ndarray:
        """Return how usual values (m,) of a column are; see `Facts.usual`."""
        if self.labelled(name):
            shares = self.shares(name).to_dict()
            return np.array([float(shares.get(v, 0.0)) for v in values.astype(object)])
        known = self.numbers(name)
        if not len(known):
            return np.full(len(values), np.nan)
        new = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
        slack = 1e-6 * (known[-1] - known[0])
        below = np.searchsorted(known, new - slack, side="left")
        up_to = np.searchsorted(known, new + slack, side="right")
        out = (below + up_to) / (2 * len(known))
        return np.where(np.isnan(new), np.nan, out)


def _objects(column: pd.Series) -> np.ndarray:
    return np.asarray(column.astype(object).to_numpy())


def _class(place: int, classes: tuple[Any, ...] | None) -> str:
    if place < 0:
        return "unknown"
    return str(place) if classes is None else cell(classes[place])
