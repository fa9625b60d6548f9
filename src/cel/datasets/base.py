"""What every dataset offers: raw rows, folds and loaders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cel.datasets.splits import Split, cut, make_split
from cel.datasets.table import Table
from cel.errors import ConfigError
from cel.preprocessing import PreprocessingPipeline
from cel.protocols import Task
from cel.space import FeatureSpace, Target

if TYPE_CHECKING:
    import pandas as pd
    from torch.utils.data import DataLoader

__all__ = ["DatasetBase"]


class DatasetBase(ABC):
    """A table with a feature space and a target, cut into folds on request.

    Subclasses write `load`; rows are read once, when they are first needed.

    Attributes:
        pipeline: preprocessing whose steps are fitted anew in each fold; None means Min-Max for
            numbers and one-hot for categories.
    """

    pipeline: PreprocessingPipeline | None = None

    @abstractmethod
    def load(self) -> Table:
        """Return all rows, checked."""

    @cached_property
    def table(self) -> Table:
        """All rows in raw units."""
        return self.load()

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.table.name

    @property
    def frame(self) -> pd.DataFrame:
        """(n, p) raw features."""
        return self.table.frame

    @property
    def task(self) -> Task:
        """Classification or regression."""
        return self.table.target.task

    @property
    def raw_space(self) -> FeatureSpace:
        """Feature space in raw units."""
        return self.table.space

    @property
    def target(self) -> Target:
        """Outcome; the range of a regression target is known in each split."""
        return self.table.target

    def __len__(self) -> int:
        return len(self.table)

    def folds(self, n: int = 5, seed: int = 42) -> Iterator[Split]:
        """Yield `n` splits whose test parts cover every row exactly once.

        Folds are shuffled and, for classes, stratified; 15 % of each training part are set aside
        for validation. Scalers, bounds and target ranges see training and validation rows only.
        """
        for i, parts in enumerate(cut(self.table, n, seed)):
            yield make_split(self.table, parts, i, self.pipeline)

    def fold(self, i: int, n: int = 5, seed: int = 42) -> Split:
        """Return split `i` of `folds(n, seed)` without fitting the others."""
        for k, parts in enumerate(cut(self.table, n, seed)):
            if k == i:
                return make_split(self.table, parts, i, self.pipeline)
        raise ConfigError(f"there is no fold {i} among {n}; count from 0 to {n - 1}")

    def split(self, seed: int = 42) -> Split:
        """Return the first of five folds: 68 % training, 12 % validation, 20 % test rows."""
        return self._first if seed == 42 else self.fold(0, seed=seed)

    @cached_property
    def _first(self) -> Split:
        return self.fold(0)

    def train_dataloader(
        self, batch_size: int = 256, shuffle: bool = True, seed: int = 0
    ) -> DataLoader[Any]:
        """Return batches of the training rows of `split()`."""
        return self.split().loader("train", batch_size=batch_size, shuffle=shuffle, seed=seed)

    def valid_dataloader(self, batch_size: int = 1024) -> DataLoader[Any]:
        """Return batches of the validation rows of `split()`."""
        return self.split().loader("valid", batch_size=batch_size)

    def test_dataloader(self, batch_size: int = 1024) -> DataLoader[Any]:
        """Return batches of the test rows of `split()`."""
        return self.split().loader("test", batch_size=batch_size)
