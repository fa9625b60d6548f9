"""Datasets: cards, raw tables, folds and loaders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.datasets.base import DatasetBase
from cel.datasets.cards import load_card
from cel.datasets.catalogue import DATASETS, load_dataset
from cel.datasets.causal_people import CausalPeople
from cel.datasets.file_dataset import FileDataset
from cel.datasets.mixed import MixedDistribution
from cel.datasets.specs import DatasetCard
from cel.datasets.splits import Rows, Split
from cel.datasets.table import Table

if TYPE_CHECKING:
    from cel.datasets.loaders import TabularRows

__all__ = [
    "DATASETS",
    "CausalPeople",
    "DatasetBase",
    "DatasetCard",
    "FileDataset",
    "MixedDistribution",
    "Rows",
    "Split",
    "Table",
    "TabularRows",
    "load_card",
    "load_dataset",
]


def __getattr__(name: str) -> object:
    if name == "TabularRows":  # loads torch
        from cel.datasets.loaders import TabularRows

        return TabularRows
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
