"""Descent in a space of codes: what is judged are the rows that codes stand for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.gradient import Accept, Found, RowFunction, RowSlope, gradient_search
from cel.search.steppers import Stepper

__all__ = ["Decode", "latent_search"]

Decode = Callable[[Tensor, Tensor], Tensor]
"""(codes (a, q), row numbers (a,)) -> rows (a, d)."""


def latent_search(
    loss: RowFunction,
    start: Tensor,
    *,
    like: Tensor,
    decode: Decode,
    accept: Accept,
    cost: RowFunction,
    stepper: Stepper,
    steps: int,
    patience: int | None = None,
    stop_at_first: bool = False,
    budget: Budget | None = None,
    closed: RowSlope | None = None,
) -> tuple[Found, Tensor]:
    """Descend `loss` over codes and keep, for each row, the cheapest accepted decoded row.

    Args:
        loss: of codes (a, q).
        start: (n, q) first codes.
        like: (n, d) rows, for the shape of the answer.
        decode: the rows that codes stand for, as they are judged.
        accept: the test on decoded rows (a, d).
        cost: of accepted rows (a, d).
        stepper: moves codes.
        steps: of the descent.
        patience: steps without a cheaper answer after which a row ends.
        stop_at_first: end a row at its first accepted point.
        budget: ends the search early.
        closed: loss and gradient together where autograd is not needed.

    Returns:
        the answers as rows, and (n, q) their codes, NaN where there is none.

    >>> from cel.search import Adam
    >>> start = torch.tensor([[0.0]])
    >>> found, code = latent_search(
    ...     lambda z, rows: (z[:, 0] - 1) ** 2, start, like=torch.zeros(1, 2),
    ...     decode=lambda z, rows: torch.cat([z, 2 * z], 1),
    ...     accept=lambda x, rows: (x, x[:, 0] > 0.5), cost=lambda x, rows: x[:, 1],
    ...     stepper=Adam(0.25), steps=20, stop_at_first=True)
    >>> [round(v, 2) for v in found.x[0].tolist()]
    [0.73, 1.46]
    """
    last: list[Tensor] = []  # what the codes judged last stand for

    def judged(z: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen, ok = accept(decode(z, rows), rows)
        last[:] = [seen]
        return z, ok

    def price(z: Tensor, rows: Tensor) -> Tensor:
        return cost(last[0], rows)  # `Found.offer` asks for the cost of what it has just judged

    codes = gradient_search(
        loss,
        start,
        stepper=stepper,
        project=lambda z, rows: z,
        accept=judged,
        cost=price,
        steps=steps,
        patience=patience,
        stop_at_first=stop_at_first,
        budget=budget,
        closed=closed,
    )
    found, rows = Found.nothing(like), codes.ok.nonzero()[:, 0]
    with torch.no_grad():
        found.offer(decode(codes.x[rows], rows), rows, accept, cost)
    return found, codes.x
