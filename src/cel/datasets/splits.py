"""Frozen rows and splits: what a fold hands to models, methods and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd

from cel.datasets.order import content_order
from cel.datasets.table import Table
from cel.errors import ConfigError, DataError
from cel.preprocessing import Encoding, PreprocessingPipeline
from cel.protocols import Task
from cel.space import FeatureSpace, Target

if TYPE_CHECKING:
    from torch.utils.data import DataLoader

__all__ = ["Part", "Rows", "Split", "cut", "make_split"]

Part = Literal["train", "valid", "test"]
VALID_SHARE = 0.15


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows of a dataset, encoded and raw.

    Attributes:
        X: (n, d) float32 encoded rows.
        y: (n,) int64 class positions, or (n, m) float32 values in units of the training range.
        index: (n,) int64 row numbers in the raw file.
        frame: (n, p) raw features.
    """

    X: np.ndarray
    y: np.ndarray
    index: np.ndarray
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split:
    """One fold: rows to fit, to stop early and to test, and how they were encoded.

    Attributes:
        train: rows for fitting.
        valid: rows for early stopping and thresholds.
        test: rows that nothing but explaining and scoring sees.
        encoding: features, pipeline and outcome; fitted on the rows of `train` and `valid`, whose
            ranges are those of a regression target.
        raw_space: raw feature space.
        name: name of the dataset.
        fold: number of the fold, from 0.
    """

    train: Rows
    valid: Rows
    test: Rows
    encoding: Encoding
    raw_space: FeatureSpace
    name: str
    fold: int

    @property
    def space(self) -> FeatureSpace:
        """Encoded feature space."""
        return cast(FeatureSpace, self.encoding.space)

    @property
    def pipeline(self) -> PreprocessingPipeline:
        """Fitted preprocessing."""
        return cast(PreprocessingPipeline, self.encoding.pipeline)

    @property
    def target(self) -> Target:
        """Outcome."""
        return cast(Target, self.encoding.target)

    def loader(
        self, part: Part, *, batch_size: int = 256, shuffle: bool = False, seed: int = 0
    ) -> DataLoader[Any]:
        """Return a loader over "train", "valid" or "test" whose dataset knows this split."""
        from cel.datasets.loaders import make_loader

        return make_loader(self, part, batch_size=batch_size, shuffle=shuffle, seed=seed)


def cut(table: Table, n: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield positions (train, valid, test) of each of `n` folds.

    Rows are put into content order first, so membership and order of the parts depend on what the
    rows hold, not on the order of the file. Classification is stratified.
    """
    from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

    _check_cut(table, n)
    order = content_order(table.frame, table.y)
    stratify = table.target.task is Task.CLASSIFICATION
    kind = StratifiedKFold if stratify else KFold
    folds = kind(n, shuffle=True, random_state=seed).split(order, table.y[order])
    for training, test in folds:
        rows = order[training]
        fit, valid = train_test_split(
            rows,
            test_size=VALID_SHARE,
            random_state=seed,
            stratify=table.y[rows] if stratify else None,
        )
        yield fit, valid, order[test]


def _check_cut(table: Table, n: int) -> None:
    if n < 2:
        raise ConfigError(f"folds(n={n}): two or more folds are needed")
    smallest, what = len(table), "it"
    classes = 1
    if table.target.task is Task.CLASSIFICATION:
        counts = np.bincount(table.y, minlength=table.target.n_outputs)
        counts = np.where(counts > 0, counts, len(table))
        what = f"class {table.target.classes[int(counts.argmin())]!r}"
        smallest, classes = int(counts.min()), int((counts < len(table)).sum())
    least = max(n, 2 * n // (n - 1) + 1)
    if smallest < least:
        raise DataError(
            f"dataset {table.name!r} cannot be cut into {n} folds: {what} has {smallest} rows, at "
            f"least {least} are needed; use fewer folds or join rare classes"
        )
    if VALID_SHARE * len(table) * (n - 1) / n < classes:
        raise DataError(
            f"dataset {table.name!r} has {len(table)} rows, too few to hold every one of its "
            f"{classes} classes in the validation rows of {n} folds"
        )


def make_split(
    table: Table,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray],
    fold: int,
    pipeline: PreprocessingPipeline | None = None,
) -> Split:
    """Fit the pipeline and the target range on the training positions and encode all parts."""
    training = np.concatenate(parts[:2])
    fresh = PreprocessingPipeline(None if pipeline is None else pipeline.steps)
    seen = table.frame.iloc[training]
    fresh.fit(seen, within_range(table.space, seen))
    target = _ranged(table.target, table.y[training])
    train, valid, test = (_rows(table, part, fresh, target) for part in parts)
    return Split(
        train=train,
        valid=valid,
        test=test,
        encoding=Encoding(space=fresh.space_, pipeline=fresh, target=target),
        raw_space=table.space,
        name=table.name,
        fold=fold,
    )


def within_range(space: FeatureSpace, frame: pd.DataFrame) -> FeatureSpace:
    """Close the bounds of numbers at the range of the given rows, inside what the card allows.

    Nobody is sent to a value that no training row has. Where the card and the rows have nothing in
    common (all rows hold a special code), the card's bounds stay.
    """
    features = []
    for f in space:
        if f.kind in ("continuous", "integer"):
            low = max(f.lower, float(frame[f.name].min()))
            high = min(f.upper, float(frame[f.name].max()))
            f = replace(f, lower=low, upper=high) if low <= high else f  # noqa: PLW2901
        features.append(f)
    return FeatureSpace(tuple(features), space.constraints)


def _ranged(target: Target, y: np.ndarray) -> Target:
    if target.task is Task.CLASSIFICATION:
        return target
    return replace(target, lower=tuple(y.min(0).tolist()), upper=tuple(y.max(0).tolist()))


def _rows(table: Table, part: np.ndarray, pipeline: PreprocessingPipeline, target: Target) -> Rows:
    frame, y = table.frame.iloc[part], table.y[part]
    if target.task is Task.REGRESSION:
        y = target.encode(y).astype(np.float32)
    return Rows(pipeline.transform(frame), y, frame.index.to_numpy(np.int64), frame)
