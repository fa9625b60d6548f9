"""Margins of classes: what searches climb, and what acceptance asks for."""

from __future__ import annotations

from torch import Tensor

from cel.cf_methods.query import MARGIN, Query
from cel.search.gradient import Accept, RowFunction

__all__ = ["AIM", "accept_beyond", "class_margin"]

AIM = 1.5 * MARGIN  # searches head a little beyond the margin that is asked for


def class_margin(query: Query) -> RowFunction:
    """Return the score of the wanted class minus the best other one, differentiable."""
    return lambda x, rows: query.model.margin_of(query.model.logits(x), query.target[rows])


def accept_beyond(query: Query, margin: float) -> Accept:
    """Return a test that asks for the wanted class by at least `margin`, in scores."""
    if margin <= MARGIN:
        return query.accept

    def accept(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        seen: Tensor = query.region.select(rows).snap(x)
        return seen, query.model.margin(seen, query.target[rows]) >= margin

    return accept
