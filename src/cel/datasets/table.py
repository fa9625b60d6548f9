"""A checked raw table: features, outcomes and what was noticed on the way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.config import Label
from cel.datasets.cards import space_of, target_of
from cel.datasets.order import balanced_sample, random_sample
from cel.datasets.raw import Raw, missing
from cel.datasets.specs import DatasetCard, FeatureSpec
from cel.errors import ConfigError, DataError
from cel.protocols import Task
from cel.registry import did_you_mean
from cel.space import FeatureSpace, Target

__all__ = ["Table", "build_table"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Table:
    """All rows of a dataset in raw units.

    Attributes:
        name: name of the dataset.
        frame: (n, p) features; numbers as int64 or float64, labels as pandas categories. The index
            holds the row numbers of the file.
        y: class positions (n,) int64, or numbers (n, m) float64.
        space: raw feature space.
        target: outcome; its range (regression) is open until rows are chosen for training.
        notes: what a user should know about these very rows.
    """

    name: str
    frame: pd.DataFrame
    y: np.ndarray
    space: FeatureSpace
    target: Target
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.frame)

    def take(self, rows: np.ndarray) -> Table:
        """Return the table of some rows, given as positions or a mask."""
        return replace(self, frame=self.frame.iloc[rows], y=self.y[rows])


def build_table(
    raw: Raw,
    card: DatasetCard,
    where: str,
    *,
    class_pair: Sequence[Label] | None = None,
    notes: tuple[str, ...] = (),
) -> Table:
    """Check the columns of a dataset against its card and keep the rows that the card asks for.

    Args:
        raw: columns as read; emptied on the way, so that memory is held once.
        card: what the columns must be.
        where: file name for messages.
        class_pair: restrict the rows to these two classes.
        notes: what was noticed while reading.
    """
    _check_gaps(raw, card, where)
    columns = {f.name: _feature(raw.values.pop(f.name), f, raw.rows, where) for f in card.features}
    frame = pd.DataFrame(columns, index=pd.Index(raw.rows, name="row"), copy=False)
    table = Table(
        name=card.name,
        frame=frame,
        y=_outcomes(raw, card, where),
        space=space_of(card),
        target=target_of(card),
        notes=notes,
    )
    table = _choose_rows(_restrict(table, class_pair, where), card)
    return _last_look(table, where)


def _check_gaps(raw: Raw, card: DatasetCard, where: str) -> None:
    for name, count in raw.gaps.items():
        if count == raw.total:
            raise DataError(f"{where}: column {name!r} has no value in any row; drop it")
        allowed = card.rows.missing == "keep" and name not in card.target.columns
        if count and card.rows.missing != "drop" and not allowed:
            row = raw.rows[int(missing(raw.values[name]).argmax())]
            raise DataError(
                f"{where}: column {name!r} is empty in row {row} (and {count - 1} more); fill it, "
                "or drop such rows with `rows: {missing: drop}` in the card"
            )


def _feature(column: np.ndarray, spec: FeatureSpec, rows: np.ndarray, where: str) -> Any:
    """Return the column with its final type, or raise for the first value that does not fit."""
    if spec.is_label:
        dtype = pd.CategoricalDtype(list(spec.categories), ordered=spec.kind == "ordinal")
        return pd.Categorical.from_codes(column, dtype=dtype)
    problem = "is infinite" if np.isinf(column).any() else ""
    bad = np.isinf(column)
    if not problem and spec.kind == "integer":
        bad = column != np.rint(column)
        bad &= ~np.isnan(column)
        problem = "is not a whole number; declare the feature continuous or correct the file"
    if not bad.any():
        bad = _outside(column, spec)
        problem = (
            f"is outside the bounds {spec.lower} .. {spec.upper} of the card; widen them, list it "
            "under `special`, or correct the file"
        )
    if bad.any():
        at = int(bad.argmax())
        raise DataError(
            f"{where}: column {spec.header!r}, row {rows[at]}: {column[at]:g} {problem}"
        )
    whole = spec.kind == "integer" and not np.isnan(column).any()
    return column.astype(np.int64) if whole else column


def _outside(column: np.ndarray, spec: FeatureSpec) -> np.ndarray:
    bad = np.zeros(len(column), dtype=bool)
    if spec.lower is not None:
        bad |= column < spec.lower
    if spec.upper is not None:
        bad |= column > spec.upper
    if spec.special and bad.any():
        bad &= ~np.isin(column, spec.special)
    return bad


def _outcomes(raw: Raw, card: DatasetCard, where: str) -> np.ndarray:
    columns = [raw.values.pop(name) for name in card.target.columns]
    if card.task is Task.CLASSIFICATION:
        return columns[0].astype(np.int64)
    y = np.stack(columns, axis=1)
    bad = ~np.isfinite(y).all(axis=1)
    if bad.any():
        row = raw.rows[int(bad.argmax())]
        raise DataError(f"{where}: the target is not finite in row {row}; correct the file")
    return y


def _restrict(table: Table, pair: Sequence[Label] | None, where: str) -> Table:
    """Keep two classes, which become positions 0 and 1 in the order given."""
    if pair is None:
        return table
    if table.target.task is Task.REGRESSION or len(set(pair)) != 2:
        raise ConfigError(f"class_pair {list(pair)} needs two different classes of {where}")
    first, second = (table.target.position(label) for label in pair)
    table = table.take((table.y == first) | (table.y == second))
    desired = table.target.desired if table.target.desired in pair else None
    target = replace(table.target, classes=tuple(pair), desired=desired)
    return replace(table, y=(table.y == second).astype(np.int64), target=target)


def _choose_rows(table: Table, card: DatasetCard) -> Table:
    for name, values in (card.rows.keep or {}).items():
        if name not in table.frame:
            hint = did_you_mean(name, table.space.names)
            raise ConfigError(
                f"{card.name}: rows.keep names {name!r}, which is no feature; {hint}"
            )
        table = table.take(table.frame[name].isin(list(values)).to_numpy())
    if card.rows.downsample and len(table):
        table = table.take(balanced_sample(table.frame, table.y, card.rows.seed))
    if card.rows.sample is not None and card.rows.sample < len(table):
        rows = random_sample(table.frame, table.y, card.rows.sample, card.rows.seed)
        table = table.take(rows)
    return table


def _last_look(table: Table, where: str) -> Table:
    if not len(table):
        raise DataError(f"{where}: no rows are left after the row filters of the card")
    if table.target.task is Task.CLASSIFICATION:
        present = np.unique(table.y)
        if len(present) < 2:
            label = table.target.classes[int(present[0])]
            raise DataError(
                f"{where}: column {table.target.names[0]!r} holds one class only ({label!r}); "
                "two or more are needed"
            )
    constant = [str(n) for n in table.frame.columns if _constant(table.frame[n])]
    if not constant:
        return table
    note = f"the same value in every row: {', '.join(constant)}"
    _log.info("%s: %s", where, note)
    return replace(table, notes=(*table.notes, note))


def _constant(column: pd.Series) -> bool:
    values = column.cat.codes if isinstance(column.dtype, pd.CategoricalDtype) else column
    return bool(values.min() == values.max())
