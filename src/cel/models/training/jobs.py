"""What the training loop is given and what it gives back."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor, nn

from cel.models.training.schedule import Schedule

__all__ = ["Job", "Outcome", "RowLoss"]

RowLoss = Callable[..., Tensor]
"""`loss(module, *batch)`: tables of shape (..., n, k) to one loss per row, (..., n)."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One model to train: its module (changed in place), loss, rows and schedule.

    Attributes:
        module: network on the device where it shall learn.
        loss: row losses of a batch, on the last axes only, so that it also serves a stack.
        train: tables with n rows each, on the same device; a batch has the same rows of each.
        valid: the same tables for the rows that decide when to stop.
        schedule: budgets and step sizes.
        seed: decides the order of the rows and the noise of dropout.
        name: what the progress bar and errors call the model.
    """

    module: nn.Module
    loss: RowLoss
    train: tuple[Tensor, ...]
    valid: tuple[Tensor, ...]
    schedule: Schedule
    seed: int = 0
    name: str = "model"


@dataclass(kw_only=True)
class Outcome:
    """What became of a job; its module holds the weights of `best_epoch`.

    `reason` is "patience", "epochs", "time", "diverged" or, for closed forms, "solved".
    """

    history: list[dict[str, float]] = field(default_factory=list)
    best_loss: float = math.inf
    best_epoch: int = 0
    reason: str = "epochs"
    reference: float = math.inf
    reference_epoch: int = 0

    @property
    def waited(self) -> int:
        """Epochs since the last improvement that counted."""
        return len(self.history) - self.reference_epoch

    @property
    def diverged(self) -> bool:
        """Whether the loss of the last epoch was not a finite number."""
        last = self.history[-1]
        return not (math.isfinite(last["train_loss"]) and math.isfinite(last["valid_loss"]))

    def add(self, row: dict[str, float], min_delta: float) -> bool:
        """Record an epoch and tell whether its weights are the best so far."""
        self.history.append(row)
        loss, epoch = row["valid_loss"], int(row["epoch"])
        margin = min_delta * abs(self.reference) if math.isfinite(self.reference) else 0.0
        if loss < self.reference - margin:
            self.reference, self.reference_epoch = loss, epoch
        if not loss < self.best_loss:
            return False
        self.best_loss, self.best_epoch = loss, epoch
        return True
