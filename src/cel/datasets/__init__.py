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
from cel.lazy_names import lazy_names

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


__getattr__ = lazy_names(__name__, {"TabularRows": "cel.datasets.loaders"})  # loads torch
