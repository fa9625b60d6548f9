"""What a worker is asked to do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import cel

__all__ = ["Fold", "WorkItem", "next_block"]

Fold = tuple[str, int | None]  # dataset and number


@dataclass
class WorkItem:
    """The open cells of one block; without fold and model, the models of several blocks."""

    suite: dict[str, Any]
    dataset: str
    fold: int | None
    model: str | None
    cells: list[str]
    densities: list[str] = field(default_factory=list)  # the blocks of a stack, by density key
    folders: list[str] = field(default_factory=list)  # where `module:attribute` is looked up
    facts: dict[str, Any] = field(default_factory=dict)  # of the methods, as the plan knows them
    gpu: list[str] = field(default_factory=list)  # of its cells, those explained on the device
    shelf: str | None = None  # folder of models that runs share
    small: bool = False  # of a stack: a core can train it while others fill the device
    device: str = ""  # of a stack: where it is trained now, if not on the device of the run
    version: str = cel.__version__  # a worker of another version refuses
    deaths: Counter[str] = field(default_factory=Counter)  # by cell, "" for the training

    def plain(self) -> dict[str, Any]:
        """Return what a worker has to know."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "deaths"}

    def line(self) -> str:
        """Return the task as one JSON line."""
        return json.dumps(self.plain(), default=str) + "\n"

    @property
    def of_fold(self) -> Fold:
        """The fold whose rows it explains."""
        return self.dataset, self.fold

    @property
    def is_stack(self) -> bool:
        """Whether it trains the models of several blocks instead of explaining one."""
        return self.model is None

    @property
    def label(self) -> str:
        """A short name for people."""
        return f"{self.dataset}/{self.fold}/{self.model}" if self.model else self.dataset


def next_block(blocks: Sequence[WorkItem], last: Fold | None, busy: Mapping[Fold, int]) -> int:
    """Return which of some waiting blocks a worker does next.

    One of the fold that it did last, whose rows and references it has; else the first of a fold
    that nobody is at, so that others keep theirs; else the first.

    Args:
        blocks: in turn, at least one.
        last: the fold of the worker's last block.
        busy: how many workers are at the blocks of a fold.
    """
    folds = [block.of_fold for block in blocks]
    if last in folds:
        return folds.index(last)
    return next((i for i, fold in enumerate(folds) if not busy.get(fold)), 0)
