"""Constructor arguments that every model takes."""

from __future__ import annotations

from typing import Literal, TypedDict

__all__ = ["TrainOptions"]


class TrainOptions(TypedDict, total=False):
    """Constructor arguments that every model takes."""

    random_state: int
    device: str
    preset: Literal["default", "paper"]
    epochs: int | None
    patience: int | None
    batch_size: int | None
    lr: float | None
    time_limit: float | None
    progress: bool
