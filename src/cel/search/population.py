"""Evolution of one population per row: all rows advance together, none sees another one.

A search says what individuals are worth and how they have children; the loop, the random numbers
of each row, the end of each row and the budget are here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from cel.search.budget import Budget
from cel.search.streams import RowStreams

__all__ = ["Breeder", "Patience", "evolve", "evolve_parts"]


class Breeder(Protocol):
    """What a population search fills in. Row numbers are positions in its batch of n rows."""

    draws: ClassVar[int]  # draws of a stream that one generation may use
    tolerance: ClassVar[float]  # by how much a goal must fall to count

    def first(self, stream: RowStreams) -> tuple[Tensor, Tensor]:
        """Return the first population (n, m, d) and its worth (n, m, ...)."""
        ...

    def breed(
        self, population: Tensor, worth: Tensor, rows: Tensor, stream: RowStreams
    ) -> tuple[Tensor, Tensor]:
        """Return the next population (a, m, d) of some rows (a,), and its worth."""
        ...

    def goal(self, worth: Tensor, rows: Tensor) -> Tensor:
        """Return what falls (a,) as long as the population of some rows gets better."""
        ...

    def open(self, worth: Tensor, stale: Tensor, rows: Tensor) -> Tensor:
        """Tell (a,) whether one more generation may help, `stale` (a,) after the last success."""
        ...


def evolve(
    breeder: Breeder, rng: RowStreams, *, generations: int, budget: Budget | None = None
) -> tuple[Tensor, Tensor]:
    """Return populations (n, m, d) and their worth after at most `generations` generations.

    Every row draws from its own stream, at places that depend on the generation alone: the same
    row has the same children in any batch. A row that is not open any more is left as it is.

    Args:
        breeder: the search.
        rng: one stream per row.
        generations: most generations of a row.
        budget: ends the search early.
    """
    population, worth = breeder.first(RowStreams(rng.keys, rng.draw))
    rows = torch.arange(len(population), device=population.device)
    calm = Patience(breeder.goal(worth, rows), tolerance=breeder.tolerance)
    for generation in range(generations):
        rows = rows[breeder.open(worth[rows], calm.stale[rows], rows)]
        if not len(rows) or (budget is not None and budget.expired):
            break
        stream = RowStreams(rng.keys[rows], rng.draw + breeder.draws * (generation + 1))
        population[rows], worth[rows] = breeder.breed(population[rows], worth[rows], rows, stream)
        calm.saw(breeder.goal(worth[rows], rows), rows)
    return population, worth


def evolve_parts(
    rows: Tensor,
    size: int,
    breeder: Callable[[Tensor], tuple[Breeder, RowStreams]],
    *,
    generations: int,
    budget: Budget | None = None,
) -> tuple[Tensor, Tensor]:
    """Evolve rows (n,) in parts of at most `size`, whose populations fit into the cache.

    Args:
        rows: row numbers.
        size: rows of a part, 1 at the least.
        breeder: the search of a part (a,), and the streams of its rows.
        generations: most generations of a row.
        budget: ends the search early.
    """
    parts = torch.split(rows, max(1, size))
    found = [evolve(*breeder(p), generations=generations, budget=budget) for p in parts]
    population, worth = (torch.cat(part) for part in zip(*found, strict=True))
    return population, worth


class Patience:
    """Counts, for each of n rows, the generations since something got better.

    >>> calm = Patience(torch.tensor([4.0, 4.0]), tolerance=0.5)
    >>> calm.saw(torch.tensor([3.0, 3.9]), torch.tensor([0, 1]))
    >>> calm.stale.tolist()
    [0.0, 1.0]
    """

    def __init__(self, value: Tensor, *, tolerance: float = 0.0) -> None:
        self.last, self.tolerance = value.clone(), tolerance
        self.stale = torch.zeros_like(value)

    def saw(self, value: Tensor, rows: Tensor) -> None:
        """Take note of the present values (a,) of some rows; lower ones are better."""
        better = self.last[rows] - value > self.tolerance
        self.stale[rows] = torch.where(better, torch.zeros_like(value), self.stale[rows] + 1)
        self.last[rows] = value
