"""How long and how fast a model learns."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any, Literal

from cel.errors import ConfigError

__all__ = ["FLOW_PRESETS", "PREDICTOR_PRESETS", "REGRESSOR_PRESETS", "Schedule"]

SMALLEST_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Budgets and step sizes of one training.

    Attributes:
        epochs: most looks at the validation rows, each after `passes` over the training rows.
        patience: epochs without a relative improvement of the validation loss before stopping.
        batch_size: rows per step, at most.
        min_batches: steps per epoch, at least: small tables get smaller batches, down to 32 rows.
        min_steps: steps in all that must be allowed: small tables get more epochs.
        passes: times that an epoch sees every training row before the validation rows are asked.
        lr: step size of Adam.
        min_delta: smallest relative improvement that counts against `patience`.
        weight_decay: coefficient of the L2 penalty (decoupled).
        clip: largest gradient norm of one model; None leaves gradients alone.
        decay: "cosine" lowers the step size to a hundredth over `epochs`.
        time_limit: seconds after which training ends with the best weights so far.

    >>> Schedule(epochs=10).override(lr=0.1, epochs=None)
    Schedule(epochs=10, patience=10, batch_size=256, min_batches=1, min_steps=1, passes=1, ...)
    """

    epochs: int = 100
    patience: int = 10
    batch_size: int = 256
    min_batches: int = 1
    min_steps: int = 1
    passes: int = 1
    lr: float = 1e-3
    min_delta: float = 1e-4
    weight_decay: float = 0.0
    clip: float | None = None
    decay: Literal["constant", "cosine"] = "constant"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "patience",
            "batch_size",
            "min_batches",
            "min_steps",
            "passes",
            "lr",
            "clip",
            "time_limit",
        ):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be positive, got {value!r}")
        if self.decay not in ("constant", "cosine"):
            raise ConfigError(f"unknown decay {self.decay!r}; use 'constant' or 'cosine'")

    def override(self, **changes: Any) -> Schedule:
        """Return a copy with other settings; None keeps the present one.

        A batch size or a number of epochs that is given holds for tables of every size.
        """
        known = {f.name for f in fields(self)}
        given = {k: v for k, v in changes.items() if v is not None and k in known}
        for name, least in (("batch_size", "min_batches"), ("epochs", "min_steps")):
            if name in given:
                given.setdefault(least, 1)
        return replace(self, **given)

    def for_rows(self, n: int) -> Schedule:
        """Return the schedule with batch size and epochs for a table of `n` rows.

        >>> small = Schedule(epochs=50, batch_size=512, min_batches=8, min_steps=1100)
        >>> fitted = small.for_rows(1000)
        >>> fitted.batch_size, fitted.epochs
        (96, 100)
        """
        size = self.batch_size
        if self.min_batches > 1:
            # Multiples of 32: folds that differ by a row have the same batches.
            fair = n // self.min_batches // SMALLEST_BATCH * SMALLEST_BATCH
            size = min(size, max(fair, SMALLEST_BATCH))
        steps = self.passes * ceil(max(n, 1) / size)  # of an epoch
        epochs = max(self.epochs, ceil(self.min_steps / steps))
        return replace(self, batch_size=size, epochs=epochs, min_batches=1, min_steps=1)


PREDICTOR_PRESETS = {
    "paper": Schedule(epochs=5000, patience=300, batch_size=128, lr=1e-3, min_delta=0.0),
    # The same batches and steps as the paper's: the same path, left earlier.
    "default": Schedule(epochs=300, patience=15, batch_size=128, lr=1e-3),
}
REGRESSOR_PRESETS = {
    "paper": PREDICTOR_PRESETS["paper"],
    "default": Schedule(epochs=200, patience=50, batch_size=128, lr=3e-3, decay="cosine"),
}
FLOW_PRESETS = {
    "paper": Schedule(epochs=2000, patience=100, batch_size=1024, lr=3e-3, min_delta=0.0),
    "default": Schedule(
        epochs=150,
        patience=40,
        batch_size=512,
        min_batches=4,
        min_steps=2200,
        lr=5e-3,
        clip=5.0,
        decay="cosine",
    ),
}
