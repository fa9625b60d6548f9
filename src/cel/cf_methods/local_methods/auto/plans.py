"""Which methods a portfolio tries, by kind of model and by wish; a table, not code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.protocols import Task

__all__ = ["PLANS", "Kind", "Stage", "Wish", "kind_of"]

Kind = Literal["linear", "trees", "differentiable", "black_box"]
Wish = Literal["near", "sparse", "plausible", "proof"]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One method of a plan.

    Attributes:
        method: registry name; a method that is not installed or refuses is passed over.
        params: its settings.
        wishes: for which wishes it runs; () for all.
        every: whether it sees all rows, or only those without an answer.
    """

    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    every: bool = False


_DONORS = Stage(method="nice", params={"donors": 4, "finish": True, "justified": False})
_CLOSE_DONORS = Stage(
    method="nice",
    params={"donors": 4, "finish": True, "justified": False, "reward": "proximity"},
    wishes=("near",),
    every=True,
)
_REAL = Stage(method="nearest", wishes=("plausible",))
_SPHERES = Stage(method="growing_spheres")
_LAST = Stage(method="dice", params={"total_CFs": 20})

PLANS: dict[tuple[Kind, Task], tuple[Stage, ...]] = {
    ("linear", Task.CLASSIFICATION): (
        _REAL,
        Stage(method="actionable"),
        Stage(method="wachter"),
        _DONORS,
    ),
    ("trees", Task.CLASSIFICATION): (
        _REAL,
        Stage(method="exact_tree", wishes=("proof",), every=True),
        Stage(method="cells", wishes=("near", "sparse", "proof")),
        _DONORS,
        _SPHERES,
    ),
    ("differentiable", Task.CLASSIFICATION): (
        _REAL,
        Stage(method="exact_relu", wishes=("proof",), every=True),
        Stage(method="wachter"),
        _DONORS,
        _SPHERES,
    ),
    ("black_box", Task.CLASSIFICATION): (_REAL, _DONORS, _CLOSE_DONORS, _SPHERES, _LAST),
    ("linear", Task.REGRESSION): (Stage(method="wachter"), Stage(method="globe_ce")),
    ("trees", Task.REGRESSION): (Stage(method="cells"), Stage(method="cearm")),
    ("differentiable", Task.REGRESSION): (
        Stage(method="exact_relu", wishes=("proof",), every=True),
        Stage(method="wachter"),
        Stage(method="cearm"),
    ),
    ("black_box", Task.REGRESSION): (Stage(method="cearm"), Stage(method="tcrex")),
}
"""What is tried for a kind of model, in order."""


def kind_of(view: ModelView) -> Kind:
    """Return what can be seen of a model: weights, trees, gradients, or only answers."""
    if view.linear() is not None:
        return "linear"
    try:
        trees = view.trees()
    except UnsupportedError:  # such as trees behind a step that mixes columns
        trees = None
    if trees is not None:
        return "trees"
    return "differentiable" if view.differentiable else "black_box"
