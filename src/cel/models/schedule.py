"""How long and how fast a model learns."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from cel.errors import ConfigError

__all__ = ["FLOW_PRESETS", "PREDICTOR_PRESETS", "REGRESSOR_PRESETS", "Schedule"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Budgets and step sizes of one training.

    Attributes:
        epochs: most passes over the training rows.
        patience: epochs without a relative improvement of the validation loss before stopping.
        batch_size: rows per step.
        lr: step size of Adam.
        min_delta: smallest relative improvement that counts against `patience`.
        weight_decay: coefficient of the L2 penalty (decoupled).
        clip: largest gradient norm of one model; None leaves gradients alone.
        decay: "cosine" lowers the step size to a hundredth over `epochs`.
        time_limit: seconds after which training ends with the best weights so far.

    >>> Schedule(epochs=10).override(lr=0.1, epochs=None)
    Schedule(epochs=10, patience=10, batch_size=256, lr=0.1, ...)
    """

    epochs: int = 100
    patience: int = 10
    batch_size: int = 256
    lr: float = 1e-3
    min_delta: float = 1e-4
    weight_decay: float = 0.0
    clip: float | None = None
    decay: Literal["constant", "cosine"] = "constant"
    time_limit: float | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "lr", "clip", "time_limit"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} must be positive, got {value!r}")
        if self.decay not in ("constant", "cosine"):
            raise ConfigError(f"unknown decay {self.decay!r}; use 'constant' or 'cosine'")

    def override(self, **changes: Any) -> Schedule:
        """Return a copy with other settings; None keeps the present one."""
        known = {f.name for f in fields(self)}
        given = {k: v for k, v in changes.items() if v is not None and k in known}
        return replace(self, **given)


PREDICTOR_PRESETS = {
    "paper": Schedule(epochs=5000, patience=300, batch_size=128, lr=1e-3, min_delta=0.0),
    "default": Schedule(epochs=300, patience=15, batch_size=256, lr=1e-3, min_delta=1e-4),
}
REGRESSOR_PRESETS = {
    "paper": PREDICTOR_PRESETS["paper"],
    "default": Schedule(epochs=200, patience=50, batch_size=128, lr=3e-3, decay="cosine"),
}
FLOW_PRESETS = {
    "paper": Schedule(epochs=2000, patience=100, batch_size=1024, lr=3e-3, min_delta=0.0),
    "default": Schedule(
        epochs=300, patience=20, batch_size=512, lr=3e-3, min_delta=1e-4, clip=5.0
    ),
}
