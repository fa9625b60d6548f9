"""The benchmark: suites, stages, a store that resumes, and the tables that come out."""

from __future__ import annotations

from cel.benchmark.collect import collect, summarise
from cel.benchmark.plan import Block, Cell, Plan, make_plan
from cel.benchmark.runner import RunSummary, open_run, run
from cel.benchmark.spec import Limits, MethodSpec, Suite, load_suite, packaged_suites
from cel.benchmark.store import Store

__all__ = [
    "Block",
    "Cell",
    "Limits",
    "MethodSpec",
    "Plan",
    "RunSummary",
    "Store",
    "Suite",
    "collect",
    "load_suite",
    "make_plan",
    "open_run",
    "packaged_suites",
    "run",
    "summarise",
]
