"""Reports that are not of one run: shipped scores alone, and several runs on one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from cel.benchmark import Plan, load_suite, make_plan, packaged_suites
from cel.benchmark.plan import paradigms_of
from cel.benchmark.row_scores import PAIR_COLUMNS, compare_rows, pool_common
from cel.benchmark.shipped import cell_states, guest_pairs, sample_rows, shipped_table
from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.report.paper_tables import BASELINE, baseline_path
from cel.report.source import RunData, read_run, versions_remark

__all__ = ["gather_runs", "read_shipped", "shipped_suites"]

KEYS = ["dataset", "model", "method", "fold"]
ROWS_BETWEEN_RUNS = 500  # of a fold; enough to tell who is better


def shipped_suites() -> list[str]:
    """Return the packaged suites whose scores come with the package."""
    return [name for name in packaged_suites() if baseline_path(name).exists()]


def read_shipped(name: str) -> RunData:
    """Return the scores of a suite as they come with the package; nothing has to be run.

    Args:
        name: "quick", "standard" or "paper".
    """
    known = shipped_suites()
    if name not in known:
        raise ConfigError(f"no shipped scores of {name!r}; {did_you_mean(name, known)}")
    scores = pd.read_parquet(baseline_path(name)).assign(source=BASELINE)
    whole = load_suite(name)
    there = set(scores["dataset"])
    plan = make_plan(replace(whole, datasets=tuple(d for d in whole.datasets if d in there)))
    kinds = paradigms_of(plan)
    cells = cell_states(plan, scores, shipped_table(name, "blank")).assign(source=BASELINE)
    cells = cells[cells["method"].isin(set(scores["method"]))].reset_index(drop=True)
    scores = scores.reset_index(drop=True)
    for table in (scores, cells):
        places = zip(table["dataset"], table["method"], strict=True)
        table["paradigm"] = [kinds[p] for p in places]
    told = f"Scores of the suite {name} as they come with the package; single rows are not stored."
    left = [d for d in whole.datasets if d not in there]
    left += [m.label for m in whole.methods if m.label not in set(scores["method"])]
    if left:
        told += f" Not shipped: {', '.join(left)}."
    pairs, common = shipped_table(name, "pairs"), shipped_table(name, "common")
    if pairs.empty:
        told += " Without comparisons of single rows methods are ranked by their means."
        pairs = pd.DataFrame(columns=PAIR_COLUMNS)
    remarks = (told, *versions_remark(shipped_table(name, "origins"), plan))
    return RunData(None, plan, scores, cells, remarks, pairs=pairs, common=common)


def gather_runs(folders: Sequence[str | Path], *, baselines: bool = True) -> RunData:
    """Read one run, or bring several together on one page.

    Parts of one suite that complete each other become one run. A label that stands for different
    results in two runs gets the name of its run behind it.

    Args:
        folders: of the runs.
        baselines: add shipped scores of methods that were not run.
    """
    runs = {Path(f): read_run(f, baselines=baselines) for f in dict.fromkeys(map(str, folders))}
    if len(runs) == 1:
        return next(iter(runs.values()))
    names = _short_names(list(runs))
    clashing = _clashes(list(runs.values()))
    parts, remarks = [], list[str]()
    for path, run in runs.items():
        rename = {m: f"{m} ({names[path]})" for m in clashing}
        parts.append(_relabelled(run, rename))
        remarks += [r for r in run.remarks if r not in remarks]
    scores = _stacked([p.scores for p in parts], [*KEYS, "metric"])
    cells = _stacked([p.cells for p in parts], KEYS)
    suites = {p.suite.name for p in parts}
    remarks.insert(0, f"{len(parts)} runs together: {', '.join(names.values())}.")
    if len(suites) > 1:
        remarks.insert(1, "They are runs of different suites: settings and rows may differ.")
    pairs, common = _comparisons(parts)
    return replace(
        parts[0], scores=scores, cells=cells, remarks=tuple(remarks), parts=tuple(parts),
        pairs=pairs, common=common,
    )  # fmt: skip


def _comparisons(parts: list[RunData]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Comparisons of rows within each run, and between runs on the rows that both have."""
    pairs, common = [], list[pd.DataFrame]()
    seen: list[pd.DataFrame] = []
    for part in parts:
        if part.store is None:
            continue
        own, shared = compare_rows(part.store, part.plan)
        pairs += [own, *(guest_pairs(part.store, part.plan, rows) for rows in seen)]
        common.append(shared)
        seen.append(sample_rows(part.store, part.plan, limit=ROWS_BETWEEN_RUNS))
    table = pd.concat(common, ignore_index=True) if common else pd.DataFrame()
    table = pool_common(table, ["paradigm", "dataset", "model"])
    return pd.concat(pairs, ignore_index=True), table


def _short_names(paths: list[Path]) -> dict[Path, str]:
    """The last part of each path, and as much before it as tells them apart."""
    size = 1
    while True:
        names = {p: "/".join(p.absolute().parts[-size:]) for p in paths}
        if len(set(names.values())) == len(paths) or size > 20:
            return names
        size += 1


def _clashes(runs: list[RunData]) -> set[str]:
    """Labels under which two runs have a result of the same cell, or other settings."""
    seen: dict[tuple[object, ...], int] = {}
    specs: dict[str, object] = {}
    out: set[str] = set()
    for number, run in enumerate(runs):
        own = run.cells[run.cells["source"] != BASELINE]
        for key in own[KEYS].itertuples(index=False, name=None):
            if seen.setdefault(key, number) != number:
                out.add(str(key[2]))
        for spec in run.suite.methods:
            if specs.setdefault(spec.label, spec) != spec:
                out.add(spec.label)
    return out


def _relabelled(run: RunData, rename: dict[str, str]) -> RunData:
    """Rename the lines of a run; shipped scores of the same label keep it."""

    def named(table: pd.DataFrame) -> pd.DataFrame:
        own = table["source"] != BASELINE
        return table.assign(method=table["method"].mask(own, table["method"].replace(rename)))

    methods = tuple(replace(m, label=rename.get(m.label, m.label)) for m in run.suite.methods)
    blocks = tuple(
        replace(
            b,
            cells=tuple(
                replace(
                    c,
                    method=replace(c.method, label=rename.get(c.method.label, c.method.label)),
                )
                for c in b.cells
            ),
        )
        for b in run.plan.blocks
    )
    plan = Plan(replace(run.suite, methods=methods), blocks, run.plan.facts)
    return replace(run, plan=plan, scores=named(run.scores), cells=named(run.cells))


def _stacked(tables: list[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """One below the other; of lines with the same keys, own ones count before shipped ones."""
    table = pd.concat(tables, ignore_index=True)
    table["_shipped"] = table["source"] == BASELINE
    table = table.sort_values("_shipped", kind="stable").drop_duplicates(keys)
    return table.drop(columns="_shipped").reset_index(drop=True)
