"""How one feature follows from others: given equations, and equations learnt from rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Mechanism", "kernel", "least_squares", "network", "nothing"]

KERNEL_ROWS = 400  # training rows that a kernel regression stands on
RIDGE = 1e-2  # of a kernel regression, and 1e-6 of it of a linear one
NETWORK_ROWS = 2000  # training rows that a network sees
NETWORK_STEPS = 200
UNITS = 12
DECAY = 1e-4


@dataclass(frozen=True, eq=False)
class Mechanism:
    """How a feature follows from its parents.

    Attributes:
        parents: names of the parents.
        weights: (k,) one per column of the parents, for a linear mechanism; or None.
        function: (a, k) columns of the parents -> (a,), differentiable; or None.
    """

    parents: tuple[str, ...]
    weights: Tensor | None = None
    function: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def linear(cls, weights: Mapping[str, float]) -> Mechanism:
        """Return a linear mechanism of parents that are one number each.

        >>> Mechanism.linear({"income": 0.5, "age": 0.1}).parents
        ('income', 'age')
        """
        values = torch.tensor([float(w) for w in weights.values()], dtype=torch.float64)
        return cls(tuple(weights), values)

    def __call__(self, parents: Tensor) -> Tensor:
        """Return the part (a,) of the feature that the columns (a, k) of its parents explain."""
        if self.function is not None:
            return self.function(parents)
        assert self.weights is not None
        return parents @ self.weights.to(parents)


def nothing(parents: Tensor) -> Tensor:
    """Explain nothing (a,), whatever the parents (a, k)."""
    return parents[:, 0] * 0


def least_squares(parents: tuple[str, ...], inputs: Tensor, outcome: Tensor) -> Mechanism:
    """Learn a linear mechanism from columns (m, k) of the parents and the feature (m,)."""
    centred = inputs - inputs.mean(0)
    square = centred.T @ centred
    ridge = 1e-8 * square.diagonal().mean().clamp(min=1e-12) * torch.eye(len(square)).to(square)
    weights = torch.linalg.solve(square + ridge, centred.T @ (outcome - outcome.mean()))
    return Mechanism(parents, weights=weights)


def kernel(parents: tuple[str, ...], inputs: Tensor, outcome: Tensor) -> Mechanism:
    """Learn a mechanism by ridge regression with a Gaussian kernel."""
    step = max(1, len(inputs) // KERNEL_ROWS)
    known, value = inputs[::step], outcome[::step]
    unit = known.std(0).clamp(min=1e-6) * known.shape[1] ** 0.5

    def close(a: Tensor, b: Tensor) -> Tensor:
        return torch.exp(-0.5 * torch.cdist(a / unit.to(a), b / unit.to(a)).square())

    matrix = close(known, known) + RIDGE * torch.eye(len(known), dtype=known.dtype)
    weights = torch.linalg.solve(matrix, value - value.mean())

    def function(x: Tensor) -> Tensor:
        out: Tensor = (close(x, known.to(x)) @ weights.to(x)) + value.mean().to(x)
        return out

    return Mechanism(parents, function=function)


def network(parents: tuple[str, ...], inputs: Tensor, outcome: Tensor, seed: int = 0) -> Mechanism:
    """Learn a mechanism by a network of one hidden layer: least squares with a little decay.

    All rows at once (at most `NETWORK_ROWS`), L-BFGS, float64; columns and outcome in units of
    their spread.
    """
    step = max(1, -(-len(inputs) // NETWORK_ROWS))
    known, value = inputs[::step], outcome[::step]
    middle, unit = known.mean(0), known.std(0).clamp(min=1e-6)
    level, height = value.mean(), value.std().clamp(min=1e-9)
    rows, wanted = (known - middle) / unit, (value - level) / height
    rng = torch.Generator().manual_seed(seed)
    first = torch.randn(rows.shape[1] + 1, UNITS, generator=rng, dtype=rows.dtype)
    weights = [first, torch.randn(UNITS, generator=rng, dtype=rows.dtype) / UNITS]
    weights = [w.requires_grad_(True) for w in weights]

    def output(x: Tensor, hidden: Tensor, last: Tensor) -> Tensor:
        return torch.tanh(x @ hidden[:-1] + hidden[-1]) @ last

    descent = torch.optim.LBFGS(weights, max_iter=NETWORK_STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        descent.zero_grad()
        missed = (output(rows, *weights) - wanted).square().mean()
        decay = torch.stack([w.square().sum() for w in weights]).sum()
        value = missed + DECAY * decay
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        descent.step(loss)  # type: ignore[no-untyped-call]
    hidden, last = (w.detach() for w in weights)

    def function(x: Tensor) -> Tensor:
        at = (x - middle.to(x)) / unit.to(x)
        return output(at, hidden.to(x), last.to(x)) * height.to(x) + level.to(x)

    return Mechanism(parents, function=function)
