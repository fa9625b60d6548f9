"""The benchmark: suites, stages, a store that resumes, and the tables that come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cel.lazy_names import lazy_names

if TYPE_CHECKING:
    from cel.benchmark.plan import Block, Cell, Plan, make_plan
    from cel.benchmark.runner import RunSummary, open_run, run
    from cel.benchmark.score_tables import collect, summarise
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

# Workers begin to import while a run is planned (`hatched`): nothing heavy is loaded here.
_HOMES = {
    "score_tables": ("collect", "summarise"),
    "plan": ("Block", "Cell", "Plan", "make_plan"),
    "runner": ("RunSummary", "open_run", "run"),
    "spec": ("Limits", "MethodSpec", "Suite", "load_suite", "packaged_suites"),
    "store": ("Store",),
}
__getattr__ = lazy_names(
    __name__, {n: f"{__name__}.{module}" for module, names in _HOMES.items() for n in names}
)
