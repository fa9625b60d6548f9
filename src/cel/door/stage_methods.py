"""Stages that the portfolio has in a form of its own: what they share is not searched twice."""

from __future__ import annotations

from cel.cf_methods.base import BaseCounterfactualMethod
from cel.cf_methods.local_methods.wachter import Wachter
from cel.cf_methods.query import Answer
from cel.cf_methods.tangent.ladder import climb
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.switches import search_switches_together

__all__ = ["OWN", "FirstTangents"]

STEPS = 12  # tangents; more of them move hardly an answer


class FirstTangents(Wachter):
    """Tangents with changes of categories, and nothing more: what they leave is for others."""

    def _solve(self, problem: NearestPoint, *, thorough: bool = True) -> Answer:
        return climb(problem, [lambda part: search_switches_together(part, steps=STEPS)])


OWN: dict[str, type[BaseCounterfactualMethod]] = {"wachter": FirstTangents}
"""By the names of the methods whose stages they are."""
