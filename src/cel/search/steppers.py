"""Descent steps with one optimiser state per row, so that rows can stop and restart alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Adam", "Fista", "Prox", "State", "Stepper", "soft_threshold"]

Prox = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(point (a, d), step size (a, d) or (a, 1), row numbers (a,)) -> point after the proximal map."""


def soft_threshold(x: Tensor, amount: Tensor | float) -> Tensor:
    """Shrink towards zero: the proximal map of `amount * |x|`.

    >>> soft_threshold(torch.tensor([2.0, -0.5]), 1.0)
    tensor([1., -0.])
    """
    return x.sign() * (x.abs() - amount).clamp(min=0)


@dataclass
class State:
    """Tensors whose first axis runs over rows."""

    tensors: dict[str, Tensor] = field(default_factory=dict)

    def select(self, rows: Tensor) -> State:
        """Keep some rows."""
        return State({k: v[rows] for k, v in self.tensors.items()})

    def point(self, x: Tensor) -> Tensor:
        """Return the iterate itself, where `x` is only the place of the next gradient."""
        return self.tensors.get("iterate", x)


class Stepper(Protocol):
    """One descent step for a batch of rows."""

    def start(self, x: Tensor) -> State:
        """Return a fresh state for the rows of `x` (a, d)."""
        ...

    def step(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Return the moved rows; `state` is updated in place."""
        ...


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), elementwise, with a step counter per row.

    The proximal map is taken in Adam's own metric: its step is `lr / (sqrt(v) + eps)` in each
    coordinate. With the plain `lr` instead, an L1 term stops every coordinate that has a small
    gradient.

    Args:
        lr: step size.
        betas: memories of the mean and of the square.
        eps: floor of the root of the square.
        prox: proximal map.
        max_norm: gradients of a row that are longer are shortened to this, so that one steep
            place does not slow the row for the length of the memory.
    """

    lr: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    prox: Prox | None = None
    max_norm: float | None = None

    def start(self, x: Tensor) -> State:
        """Return a fresh state."""
        zeros = torch.zeros_like(x)
        return State({"m": zeros, "v": zeros.clone(), "t": torch.zeros_like(x[:, :1])})

    def step(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Return the rows after one bias-corrected step."""
        s, (b1, b2) = state.tensors, self.betas
        if self.max_norm is not None:
            grad = grad * (self.max_norm / grad.norm(dim=1, keepdim=True).clamp(min=self.max_norm))
        s["t"] = s["t"] + 1
        s["m"] = b1 * s["m"] + (1 - b1) * grad
        s["v"] = b2 * s["v"] + (1 - b2) * grad * grad
        mean = s["m"] / torch.rsub(torch.pow(b1, s["t"]), 1)
        var = s["v"] / torch.rsub(torch.pow(b2, s["t"]), 1)
        eta = var.sqrt_().add_(self.eps).reciprocal_().mul_(self.lr)
        moved = x - eta * mean
        return moved if self.prox is None else self.prox(moved, eta, rows)


@dataclass(frozen=True)
class Fista:
    """Accelerated proximal gradient (Beck and Teboulle, 2009), steps decaying as sqrt(1 - t/T).

    The gradient must be taken at `x`, the extrapolated point; the proximal point, which is the one
    to be judged, is kept in the state.
    """

    lr: float = 0.01
    steps: int = 1000
    prox: Prox | None = None

    def start(self, x: Tensor) -> State:
        """Return a fresh state."""
        return State({"iterate": x.clone(), "t": torch.zeros_like(x[:, :1])})

    def step(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Return the next extrapolated point."""
        s = state.tensors
        lr = self.lr * torch.rsub(s["t"] / self.steps, 1).clamp_(min=1e-4).sqrt_()
        moved = x - lr * grad
        new = moved if self.prox is None else self.prox(moved, lr, rows)
        s["t"] = s["t"] + 1
        out = new + s["t"] / (s["t"] + 3) * (new - s["iterate"])
        s["iterate"] = new
        return out
