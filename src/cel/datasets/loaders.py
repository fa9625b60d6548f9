"""Batches for torch that carry their space, so that nothing else has to be passed along."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from cel.datasets.splits import Part, Rows, Split
from cel.errors import ConfigError
from cel.preprocessing import Encoding, PreprocessingPipeline
from cel.space import FeatureSpace, Target

__all__ = ["TabularRows", "make_loader"]


class TabularRows(TensorDataset):
    """Encoded rows and outcomes as tensors, with everything known about them.

    Attributes:
        rows: the rows as arrays and as a raw table.
        split: the fold they belong to.
        space: encoded feature space.
        pipeline: fitted preprocessing.
        target: outcome.
    """

    def __init__(self, rows: Rows, split: Split) -> None:
        super().__init__(torch.from_numpy(rows.X), torch.from_numpy(rows.y))
        self.rows, self.split = rows, split

    @property
    def encoding(self) -> Encoding:
        """How the rows were encoded."""
        return self.split.encoding

    @property
    def space(self) -> FeatureSpace:
        """Encoded feature space."""
        return self.split.space

    @property
    def pipeline(self) -> PreprocessingPipeline:
        """Fitted preprocessing."""
        return self.split.pipeline

    @property
    def target(self) -> Target:
        """Outcome."""
        return self.split.target


def make_loader(
    split: Split, part: Part, *, batch_size: int, shuffle: bool, seed: int
) -> DataLoader[Any]:
    """Return a loader over one part of a split; its random stream is its own."""
    if part not in ("train", "valid", "test"):
        raise ConfigError(f"unknown part {part!r}; use train, valid or test")
    dataset = TabularRows(getattr(split, part), split)
    stream = torch.Generator().manual_seed(seed)
    return DataLoader(dataset, batch_size=batch_size, shuffle=shuffle, generator=stream)
