"""Which cells are explained on a GPU: those whose search is shorter there, its start included.

A cell runs in a process of its own, which pays for its way to the device once. How much faster a
method is there was measured (`benchmarks/gpu_explain.py`); how long it takes on a core is known
from the shipped scores. Answers of a GPU equal those of the CPU but for rounding.
"""

from __future__ import annotations

from collections.abc import Mapping

from cel.benchmark.estimate import cell_seconds
from cel.benchmark.gpu_places import FASTER
from cel.benchmark.plan import Plan

__all__ = ["FASTER", "START_S", "pays", "worth_a_gpu"]

START_S = 1.0  # half a second to reach a device, measured, and as much to load models onto it


def pays(label: str, cpu_s: float, faster: Mapping[str, float]) -> bool:
    """Tell whether a cell that takes `cpu_s` on one core is done earlier on a GPU.

    >>> pays("a", 10.0, {"a": 5.0}), pays("a", 1.0, {"a": 5.0}), pays("b", 10.0, {"a": 5.0})
    (True, False, False)
    """
    return label in faster and START_S + cpu_s / faster[label] < cpu_s


def worth_a_gpu(plan: Plan) -> set[str]:
    """Return the score keys of the cells that are explained earlier on a GPU."""
    listed = [c for c in plan.cells if c.method.label in FASTER]
    times = cell_seconds(plan.suite, listed)
    return {c.score_key for c in listed if pays(c.method.label, times[c.score_key], FASTER)}
