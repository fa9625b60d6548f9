"""The fold of a block; a worker keeps the last two."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cel.benchmark.plan import Block
from cel.benchmark.printed_form import encoded_card
from cel.benchmark.spec import Suite
from cel.datasets.file_dataset import FileDataset

__all__ = ["fold_of"]


def fold_of(suite: Suite, block: Block) -> Any:
    """Return the `Split` of a block, in the encoding of the suite."""
    kind = block.dataset, suite.binary, suite.encoding
    return _fold(*kind, block.fold, suite.n_folds, suite.seed)


@lru_cache(maxsize=2)
def _dataset(name: str, binary: bool, encoding: str) -> Any:
    from cel.datasets import load_dataset

    dataset = load_dataset(name, binary=binary)
    if encoding != "card" and isinstance(dataset, FileDataset):
        dataset.card = encoded_card(dataset.card, encoding)
    return dataset


@lru_cache(maxsize=2)
def _fold(name: str, binary: bool, encoding: str, fold: int, n_folds: int, seed: int) -> Any:
    return _dataset(name, binary, encoding).fold(fold, n_folds, seed)
