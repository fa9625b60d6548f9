"""What a report is made from: the score table, the states of the cells, stored results."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from cel.benchmark import Plan, Store, Suite, collect, load_suite, open_run, packaged_suites
from cel.benchmark.origins import earlier_versions, kinship, origins
from cel.benchmark.plan import make_plan, paradigms_of
from cel.benchmark.row_scores import PAIR_COLUMNS, compare_rows, pool_common
from cel.benchmark.score_tables import cell_table
from cel.benchmark.shipped import guest_pairs, shipped_table
from cel.protocols import Task
from cel.report.appearance import method_title, scope_of
from cel.report.paper_tables import BASELINE, baseline_path, with_baselines

__all__ = ["RunData", "read_run", "versions_remark"]

# Settings that change numbers; what was selected from a suite does not.
SETTINGS = (
    "n_folds", "seed", "density", "judges", "target", "constraints", "encoding", "binary",
    "max_rows", "metric_params",
)  # fmt: skip


@dataclass(frozen=True)
class RunData:
    """A run as the report sees it.

    Attributes:
        store: where results are; None for shipped scores.
        plan: the cells.
        scores: long table: dataset, model, method, fold, metric, value, reason, source, paradigm.
        cells: one line per cell: dataset, model, method, fold, state, reason, rows, source,
            paradigm.
        remarks: what a reader should know about the data.
        parts: the runs that were brought together, if there are several.
        pairs: who beats whom how often, row by row: `cel.benchmark.row_scores.PAIR_COLUMNS`.
        common: means on own and on common rows: paradigm, dataset, model, method, rows, own,
            common, and metrics with and without `_own`.
    """

    store: Store | None
    plan: Plan
    scores: pd.DataFrame
    cells: pd.DataFrame
    remarks: tuple[str, ...] = ()
    parts: tuple[RunData, ...] = ()
    pairs: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=PAIR_COLUMNS))
    common: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def suite(self) -> Suite:
        """The suite that was run."""
        return self.plan.suite


def read_run(folder: str | Path, *, baselines: bool = True) -> RunData:
    """Read a run, and the shipped baselines of its suite where they can be compared.

    Args:
        folder: of the run.
        baselines: add methods from the shipped scores that are not in the run.
    """
    store, plan = open_run(folder)
    own, cells = collect(store, plan), cell_table(store, plan).drop(columns="key")
    differing = _differs(plan.suite) if baselines else "they were not asked for"
    scores = with_baselines(own, "" if differing else plan.suite.name)
    planned = scores["method"].isin([m.label for m in plan.suite.methods])
    scores = scores[(scores["source"] != BASELINE) | ~planned].reset_index(drop=True)
    added = sorted(set(scores.loc[scores["source"] == BASELINE, "method"]))
    cells["source"] = "run"
    shipped = scores[(scores["source"] == BASELINE) & (scores["metric"] == "rows")]
    if len(shipped):
        extra = shipped.rename(columns={"value": "rows"})[list(cells.columns.drop("state"))]
        cells = pd.concat([cells, extra.assign(state="done", reason="")], ignore_index=True)
    tasks = {b.dataset: b.task for b in plan.blocks}
    known = paradigms_of(plan)
    for table in (scores, cells):
        table["paradigm"] = [
            known.get((d, m)) or _paradigm(m, tasks[d])
            for d, m in zip(table["dataset"], table["method"], strict=True)
        ]
    pairs, common = _comparisons(store, plan, scores, "" if differing else plan.suite.name)
    remarks = _remarks(plan.suite.name, differing, added)
    if added:
        told = shipped_table(plan.suite.name, "origins")
        told = told[told["method"].isin(added)] if len(told) else told
        remarks += _relations(origins(store, plan), told)
        remarks += versions_remark(told, make_plan(load_suite(plan.suite.name)))
    return RunData(store, plan, scores, cells, remarks, pairs=pairs, common=common)


def _comparisons(
    store: Store, plan: Plan, scores: pd.DataFrame, suite: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Comparisons of rows: of the run, of shipped methods, and of the run with shipped ones."""
    pairs, common = compare_rows(store, plan)
    common = pool_common(common, ["paradigm", "dataset", "model"])
    added = set(scores.loc[scores["source"] == BASELINE, "method"])
    if not added:
        return pairs, common
    places = scores[["dataset", "model"]].drop_duplicates()
    theirs = shipped_table(suite, "pairs")
    if len(theirs):
        mine = theirs["a"].isin(added) & theirs["b"].isin(added)
        rows = shipped_table(suite, "rows")
        rows = rows[rows["method"].isin(added)] if len(rows) else rows
        crossed = guest_pairs(store, plan, rows)
        parts = [pairs, theirs[mine].merge(places, on=["dataset", "model"]), crossed]
        pairs = pd.concat([p for p in parts if len(p)], ignore_index=True)
    shared = shipped_table(suite, "common")
    if common.empty and len(shared):
        common = shared[shared["method"].isin(added)].merge(places, on=["dataset", "model"])
    return pairs, common


def _paradigm(method: str, task: Task) -> str:
    """The paradigm of a shipped line, which is not in the plan."""
    return "regression" if task is Task.REGRESSION else scope_of(method)


def _differs(suite: Suite) -> str:
    """Say why shipped scores cannot stand beside the scores of this suite; "" if they can."""
    if suite.name not in packaged_suites():
        return f"{suite.name!r} is not one of the packaged suites"
    packaged = load_suite(suite.name)
    for name in SETTINGS:
        if getattr(suite, name) != getattr(packaged, name):
            return f"the run changed {name}"
    for group in ("classifiers", "regressors"):
        known, mine = getattr(packaged, group), getattr(suite, group)
        changed = [m for m in mine if dict(mine[m]) != dict(known.get(m, {"": ""}))]
        if changed:
            return f"the run changed the model {changed[0]!r}"
    return ""


def versions_remark(told: pd.DataFrame, plan: Plan) -> tuple[str, ...]:
    """Say which shipped scores are of other versions than the methods that are installed.

    Args:
        told: what the scores belong to (`cel.benchmark.origins`).
        plan: of the packaged suite, made here.
    """
    earlier = [
        f"{method_title(line)} of version {then} (here {now})"
        for line, (then, now) in earlier_versions(told, plan).items()
    ]
    if not earlier:
        return ()
    return (f"Shipped scores of other versions than those installed: {', '.join(earlier)}.",)


def _relations(mine: pd.DataFrame, told: pd.DataFrame) -> tuple[str, ...]:
    """Say whether shipped scores belong to the models of this run."""
    same = kinship(mine, told)
    if not same.blocks:
        return ()
    if same.weights == same.blocks:
        return (f"Shipped scores belong to the very models of this run, in {same.blocks} blocks.",)
    if same.recipe < same.blocks:
        return (
            f"Models are trained otherwise than those of the shipped scores in "
            f"{same.blocks - same.recipe} of {same.blocks} blocks: compare with care.",
        )
    alike = "Shipped scores belong to models trained in the same way as those of this run"
    if not same.known:
        return (f"{alike}; their weights are not known.",)
    return (
        f"{alike}, in {same.weights} of {same.known} blocks with the same weights, else with "
        "others, as machines round otherwise.",
    )


def _remarks(suite: str, differing: str, added: list[str]) -> tuple[str, ...]:
    if added:
        titles = ", ".join(method_title(m) for m in added)
        shown = f"Shipped baseline scores stand in for methods that were not run: {titles}."
        return (f"{shown} Their times were taken on another machine.",)
    if differing and baseline_path(suite).exists():
        return (f"Shipped baseline scores are not shown, because {differing}.",)
    return ()
