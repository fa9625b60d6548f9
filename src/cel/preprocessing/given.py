"""The owner's rows beside their codes: what did not change stays the owner's, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from cel.errors import DataError
from cel.preprocessing.category_codes import has_labels
from cel.preprocessing.encoding import Encoding
from cel.preprocessing.frame_checks import check_columns
from cel.preprocessing.imputer import companions
from cel.preprocessing.pipeline import PreprocessingPipeline
from cel.preprocessing.readable import readable_rows
from cel.preprocessing.schema import to_array
from cel.preprocessing.settling import NumberRules, RawRelation, keep_relations
from cel.preprocessing.table_cells import equal_cells, put_cells
from cel.space import Feature, FeatureSpace

__all__ = ["GivenRows", "RowDecoder"]

TURNS = 3  # a value may need a nudge for each of several relations
SAME = 5e-7  # codes that are nearer than this are equal: half of what regions tell apart


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as they were given, and as they are searched.

    Attributes:
        frame: (n, any) the owner's rows, never modified.
        x: (n, d) their codes; NaN where a row cannot be read.
        problems: (n,) None, or why a row cannot be read.
        unseen: (n, p) bool, raw features whose category training rows do not have.
        encoding: how they were encoded.
    """

    frame: pd.DataFrame
    x: np.ndarray
    problems: np.ndarray
    unseen: np.ndarray
    encoding: Encoding

    @classmethod
    def read(cls, frame: pd.DataFrame, encoding: Encoding) -> GivenRows:
        """Encode what can be read; every other row gets its reason."""
        pipeline = _pipeline(encoding)
        names = pipeline.raw_space_.names
        _check_columns(frame, encoding)
        readable = readable_rows(frame[list(names)], pipeline)
        x = np.asarray(pipeline.transform(readable.frame), dtype=np.float32)
        x[readable.unseen[:, _owner(pipeline)]] = 0.0
        x[readable.bad] = np.nan
        return cls(frame, x, readable.problems, readable.unseen, encoding)

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def pipeline(self) -> PreprocessingPipeline:
        """What encodes the rows."""
        return _pipeline(self.encoding)

    @property
    def raw(self) -> FeatureSpace:
        """The raw features."""
        return self.pipeline.raw_space_

    @property
    def bad(self) -> np.ndarray:
        """(n,) bool: rows that cannot be read."""
        return np.array([p is not None for p in self.problems], dtype=bool)

    @cached_property
    def owner(self) -> np.ndarray:
        """(d,) the raw feature of each encoded column, flags of gaps with their numbers."""
        return _owner(self.pipeline)

    def decoder(self, rows: np.ndarray) -> RowDecoder:
        """Return what decodes the search around some rows, which share what travels along."""
        return RowDecoder(self, rows)

    def groups(self, rows: np.ndarray, *, by_carried: bool) -> list[np.ndarray]:
        """Cut rows into groups that share unseen categories and, if asked, carried columns."""
        sheet = self.encoding.sheet
        keys = [
            self.frame[f.name].iloc[rows].astype(object).where(self.unseen[rows, j], None)
            for j, f in enumerate(self.raw)
            if self.unseen[rows, j].any()
        ]
        if by_carried and sheet is not None:
            keys += [self.frame[n].iloc[rows].astype(str) for n in sheet.carried]
        if not keys or not len(rows):
            return [rows]
        table = pd.concat([k.reset_index(drop=True) for k in keys], axis=1)
        number = table.groupby(list(table.columns), dropna=False, sort=False).ngroup().to_numpy()
        return [rows[number == k] for k in range(int(number.max()) + 1)]

    # -- answers in original units -----------------------------------------------------------

    def answers(self, x: np.ndarray, rows: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """Return the rows with the changes of some points, and the codes of just that.

        Args:
            x: (m, d) codes of counterfactuals.
            rows: (m,) the rows that they answer; numbers may repeat.
        """
        frame, moved = self._write(x, rows)
        for _ in range(TURNS):
            codes = self._codes(frame, moved, rows)
            before = moved
            frame, moved = self._write(codes, rows)  # what `written` gives back for the codes
            if np.array_equal(before, moved):
                break
        return frame, codes

    def written(self, x: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
        """Return the rows with the changes of the codes that `answers` gave."""
        return self._write(x, rows)[0]

    def moved(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(m, p) bool: the columns whose value is another one than the owner's."""
        return self._write(x, rows)[1]

    def keeps(self, frame: pd.DataFrame, rows: np.ndarray) -> np.ndarray:
        """(m,) bool: whether answers keep bounds, directions and relations in original units."""
        ok = np.ones(len(rows), dtype=bool)
        before = self.frame.iloc[rows]
        for f in self.raw:
            if not has_labels(f):
                ok &= self._bounds[f.name].keep(before[f.name], frame[f.name])
        for relation in self._relations:
            ok &= relation.kept(before, frame)
        return ok

    def _write(self, x: np.ndarray, rows: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        before = self.frame.iloc[rows]
        moved = self._recoded(x, rows)
        decoded = self.pipeline.inverse_transform(np.nan_to_num(x))
        values: dict[str, Any] = {}
        for j, f in enumerate(self.raw):
            if moved[:, j].any():
                values[f.name] = self._values(f, decoded[f.name], before[f.name], moved[:, j])
        for _ in range(TURNS):
            if not keep_relations(self._relations, values, before, moved, self.raw):
                break
        out = {name: before[name] for name in before.columns}
        for j, f in enumerate(self.raw):
            if f.name in values:
                same = equal_cells(before[f.name], values[f.name])
                moved[:, j] &= ~same
                out[f.name] = put_cells(before[f.name], moved[:, j], values[f.name])
        columns = [s.set_axis(before.index) for s in out.values()]
        frame = pd.concat(columns, axis=1) if columns else before
        return frame.set_axis(before.columns, axis=1), moved

    def _values(
        self, feature: Feature, decoded: pd.Series, before: pd.Series, moved: np.ndarray
    ) -> Any:
        """Return decoded values of one column, (m,), numbers with the digits of the column."""
        if has_labels(feature):
            return decoded
        return self._bounds[feature.name].settle(decoded, before, moved)

    def _recoded(self, x: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """(m, p) bool: raw features whose codes differ."""
        away = np.abs(x - self.x[rows]) > SAME
        parts = [away[:, self.owner == j].any(1) for j in range(len(self.raw))]
        return np.stack(parts, axis=1)

    def _codes(self, frame: pd.DataFrame, moved: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the codes of answers: those of the row wherever the value is the owner's."""
        if not moved.any():
            return np.asarray(self.x[rows])
        usable = readable_rows(frame[list(self.raw.names)], self.pipeline).frame
        codes = self.pipeline.transform(usable)
        return np.asarray(np.where(moved[:, self.owner], codes, self.x[rows]))

    @cached_property
    def _bounds(self) -> dict[str, NumberRules]:
        sheet = self.encoding.sheet
        decimals = {} if sheet is None else sheet.decimals
        space = self.encoding.space or self.pipeline.space_
        return NumberRules.of(self.pipeline, space, self.frame, decimals)

    @cached_property
    def _relations(self) -> list[RawRelation]:
        return RawRelation.of(self.raw, self._bounds)


class RowDecoder:
    """Decodes searched points to what the owner's model is shown.

    Values that the given rows hold are given back exactly, numbers get the digits of their column,
    and what only travels along is that of the first of the rows.

    Args:
        given: the owner's rows.
        rows: (m,) the rows that are searched together; they share what travels along.
    """

    def __init__(self, given: GivenRows, rows: np.ndarray) -> None:
        self.pipeline, sheet = given.pipeline, given.encoding.sheet
        self.decimals = {} if sheet is None else sheet.decimals
        first = given.frame.iloc[rows[:1]]
        self.names = list(self.pipeline.raw_space_.names)
        self.carried: dict[str, Any] = {}
        if sheet is not None:
            self.names = list(sheet.names)
            self.carried = {n: first[n] for n in sheet.carried}
        self.codebooks = {
            f.name: _codebook(given, rows, f)
            for f in self.pipeline.raw_space_
            if not has_labels(f)
        }
        self.unseen = {
            f.name: (list(self.pipeline.space_[f.name].columns), first[f.name])
            for j, f in enumerate(self.pipeline.raw_space_)
            if given.unseen[rows[:1], j].any()
        }

    def __call__(self, x: Any) -> pd.DataFrame:
        """Return the table (m, all columns of the model) of encoded points (m, d)."""
        x = to_array(x)
        frame = self.pipeline.inverse_transform(x)
        columns = {name: frame[name] for name in frame.columns}
        for name, (codes, values) in self.codebooks.items():
            column = self.pipeline.space_[name].columns[0]
            columns[name] = self._number(name, frame[name], x[:, column], codes, values)
        for name, (block, value) in self.unseen.items():
            here = (np.abs(x[:, block]) < SAME).all(1)
            columns[name] = put_cells(frame[name], here, _repeat(value, len(x)))
        for name, value in self.carried.items():
            columns[name] = _repeat(value, len(x))
        return pd.DataFrame({name: columns[name] for name in self.names})

    def _number(
        self, name: str, decoded: pd.Series, x: np.ndarray, codes: np.ndarray, values: np.ndarray
    ) -> pd.Series:
        out = decoded.to_numpy()
        if not isinstance(decoded.dtype, np.dtype) or not len(codes):
            return decoded
        digits = self.decimals.get(name)
        if digits is not None and out.dtype.kind == "f":
            out = np.round(out, digits)
        place = np.searchsorted(codes, x).clip(max=len(codes) - 1)
        known = (codes[place] == x) & ~np.isnan(np.asarray(out, dtype=np.float64))
        kind = np.result_type(out, values)
        return pd.Series(np.where(known, values[place].astype(kind), out.astype(kind)))


def _codebook(
    given: GivenRows, rows: np.ndarray, feature: Feature
) -> tuple[np.ndarray, np.ndarray]:
    """Return (sorted codes, values) of a number column, exactly as it was given."""
    raw = given.frame[feature.name].iloc[rows]
    nothing = np.zeros(0, dtype=np.float32), np.zeros(0)
    if not isinstance(raw.dtype, np.dtype) or raw.dtype.kind not in "iuf":
        return nothing
    values = raw.to_numpy()
    codes = given.x[rows, given.pipeline.space_[feature.name].columns[0]]
    usable = ~np.isnan(values.astype(np.float64)) & ~np.isnan(codes)
    codes, first = np.unique(codes[usable], return_index=True)
    return codes, values[usable][first]


def _repeat(value: pd.Series, n: int) -> pd.Series:
    return pd.Series(value.array.take(np.zeros(n, dtype=np.intp)))


def _owner(pipeline: PreprocessingPipeline) -> np.ndarray:
    raw, space = pipeline.raw_space_.names, pipeline.space_
    out = np.zeros(space.width, dtype=np.int64)
    for j, name in enumerate(raw):
        for part in companions(space, name):
            out[list(space[part].columns)] = j
    return out


def _pipeline(encoding: Encoding) -> PreprocessingPipeline:
    assert encoding.pipeline is not None
    return encoding.pipeline


def _check_columns(frame: pd.DataFrame, encoding: Encoding) -> None:
    """Raise unless every column that the model is shown is there."""
    names = list(_pipeline(encoding).raw_space_.names)
    if encoding.sheet is not None:
        names = list(encoding.sheet.names)
    kept = [c for c in frame.columns if c in names]
    twice = frame.columns[frame.columns.duplicated()]
    if len(twice):
        raise DataError(f"column {twice[0]!r} occurs twice; rename or drop one of the two")
    missing = [n for n in names if n not in kept]
    if missing and len(frame.columns) == len(kept):
        raise DataError(
            f"column {missing[0]!r} of the training table is missing in the rows; add it, or drop "
            "it from the training table if it is the outcome"
        )
    check_columns(frame[kept] if not missing else frame, names)
