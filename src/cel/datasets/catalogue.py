"""Datasets by name, and one line about each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from cel.config import Label
from cel.datasets.base import DatasetBase
from cel.datasets.cards import card_names
from cel.datasets.file_dataset import FileDataset
from cel.datasets.specs import DatasetCard
from cel.errors import ConfigError, DataError
from cel.preprocessing import PreprocessingPipeline
from cel.protocols import Task
from cel.registry import Registry

__all__ = [
    "DATASETS",
    "Summary",
    "card_dataset",
    "describe_any",
    "load_dataset",
    "mismatches",
    "summarise",
]

DATASETS: Registry[Callable[..., DatasetBase]] = Registry("dataset", group="cel.datasets")
"""Name -> callable that takes options and returns a dataset."""


def _from_card(
    path: str | os.PathLike[str],
    *,
    data_path: str | os.PathLike[str] | None = None,
    binary: bool = False,
    class_pair: Sequence[Label] | None = None,
    pipeline: PreprocessingPipeline | None = None,
    **options: Any,
) -> FileDataset:
    return FileDataset(
        path,
        data_path,
        binary=binary,
        class_pair=class_pair,
        pipeline=pipeline,
        options=options,
    )


for _name in card_names():
    DATASETS.add(_name, partial(_from_card, _name))


def load_dataset(name: str | os.PathLike[str], **options: Any) -> DatasetBase:
    """Return a dataset by name, or by the path of its card.

    Args:
        name: a registered name (see `cel data list`) or the path of a .yaml card.
        options: `data_path`, `binary`, `class_pair` and `pipeline` as in `FileDataset`; generated
            datasets also take their own, such as `n` and `seed`.

    >>> dataset = load_dataset("wine", binary=True)
    >>> dataset.target.classes
    (1, 2)
    """
    text = os.fspath(name)
    if text.endswith((".yaml", ".yml")):
        return _from_card(text, **options)
    return DATASETS.get(text)(**options)


def card_dataset(name: str | os.PathLike[str]) -> FileDataset:
    """Return a dataset that has a card, which registered ones of other packages need not."""
    dataset = load_dataset(name)
    if not isinstance(dataset, FileDataset):
        raise ConfigError(f"{os.fspath(name)!r} has no card; describe it in its own package")
    return dataset


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One line about a dataset.

    Attributes:
        name: name of the dataset.
        task: classification or regression.
        rows: number of rows; from the card if the file is not at hand.
        categorical: number of features with labels, ordered ones included.
        numerical: number of features with numbers.
        classes: number of classes; None for regression.
        label_shares: class position -> share of the rows; empty for regression.
        found: whether the rows are at hand without a download.
        outputs: number of outcomes to predict at once.
        note: what to know before using it.
    """

    name: str
    task: str
    rows: int | None
    categorical: int
    numerical: int
    classes: int | None
    label_shares: dict[str, float]
    found: bool
    outputs: int = 1
    note: str = ""


def summarise(dataset: FileDataset) -> Summary:
    """Measure a dataset whose rows are at hand; quote its card if they are not."""
    card = dataset.card
    if card.generator is None and dataset.find() is None:
        return _quoted(card, "not found: run `cel data fetch` or set CEL_DATA")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the note says the same
            table = dataset.table
    except DataError as error:
        return _quoted(card, str(error))
    labels = sum(f.is_label for f in card.features)
    return Summary(
        name=card.name,
        task=card.task.value,
        rows=len(table),
        categorical=labels,
        numerical=len(card.features) - labels,
        classes=table.target.n_outputs if card.task is Task.CLASSIFICATION else None,
        label_shares=_shares(table.y, table.target.n_outputs) if table.target.classes else {},
        found=True,
        outputs=len(table.target.names),
        note="; ".join(table.notes),
    )


def describe_any(name: str) -> Summary:
    """Return one line about any registered dataset, those of other packages included.

    A dataset that cannot be loaded is a line, too: its note says why.
    """
    try:
        dataset = load_dataset(name)
        if isinstance(dataset, FileDataset):
            return summarise(dataset)
        table = dataset.table
    except (DataError, ConfigError, OSError) as error:
        return _unknown(name, str(error))
    space, target = dataset.raw_space, dataset.target
    labels = sum(f.categories is not None and len(f.categories) > 0 for f in space)
    classes = target.n_outputs if dataset.task is Task.CLASSIFICATION else None
    return Summary(
        name=name,
        task=dataset.task.value,
        rows=len(dataset),
        categorical=labels,
        numerical=len(space) - labels,
        classes=classes,
        label_shares=_shares(np.asarray(table.y), classes) if classes else {},
        found=True,
        outputs=len(target.names),
        note="of another package",
    )


def _unknown(name: str, note: str) -> Summary:
    return Summary(
        name=name, task="unknown", rows=None, categorical=0, numerical=0, classes=None,
        label_shares={}, found=False, note=note,
    )  # fmt: skip


def mismatches(found: Summary, card: DatasetCard) -> list[str]:
    """Return what differs from the paper's table; label shares agree to 0.1 %."""
    paper = card.paper
    if paper is None or not found.found:
        return []
    counts = ("rows", "categorical", "numerical", "classes")
    pairs = {name: (getattr(found, name), getattr(paper, name)) for name in counts}
    for i, share in enumerate(paper.label_shares):
        measured = 100 * found.label_shares.get(str(i), 0.0)
        if abs(measured - share) > 0.1:
            pairs[f"share of class {i}"] = (round(measured, 2), share)
    return [f"{k} is {a}, the paper has {b}" for k, (a, b) in pairs.items() if a != b]


def _shares(y: np.ndarray, classes: int) -> dict[str, float]:
    shares = np.bincount(y, minlength=classes) / len(y)
    return {str(i): round(float(s), 6) for i, s in enumerate(shares)}


def _quoted(card: DatasetCard, note: str) -> Summary:
    paper = card.paper
    labels = sum(f.is_label for f in card.features)
    shares = () if paper is None else paper.label_shares
    return Summary(
        name=card.name,
        task=card.task.value,
        rows=None if paper is None else paper.rows,
        categorical=labels,
        numerical=len(card.features) - labels,
        classes=len(card.target.classes) or None,
        label_shares={str(i): round(s / 100, 6) for i, s in enumerate(shares)},
        found=False,
        outputs=len(card.target.columns),
        note=note,
    )
