"""Everything that the page shows, as JSON values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark import Block, Store
from cel.benchmark.ranking import rankings, short
from cel.benchmark.side_by_side import compare_with_paper
from cel.benchmark.verdicts import placebo
from cel.report.appearance import (
    PARADIGMS,
    RANKED,
    dataset_title,
    kind_of,
    method_colours,
    method_order,
    method_symbols,
    method_title,
    metric_info,
    model_title,
)
from cel.report.by_group import GroupOutcomes
from cel.report.citation import citation
from cel.report.decision_plane import decision_map
from cel.report.drilldown import Sample, encode_samples, stored_results, take_sample
from cel.report.figures import FIGURES, figure_parts
from cel.report.paper_tables import BASELINE, Entry, PaperTable
from cel.report.source import RunData
from cel.result import ExplanationResult

__all__ = ["page_data"]


def page_data(run: RunData, tables: Sequence[PaperTable]) -> dict[str, Any]:
    """Return the data of the page."""
    samples, groups = _from_results(run)
    return {
        "meta": _meta(run),
        **_names(run),
        "cells": _cells(run.cells),
        "values": _values(run),
        "tables": [_table(t) for t in tables],
        "placebo": _placebo(run),
        "figures": _figures(run.scores),
        "rankings": rankings(run.scores, run.pairs),
        "ranked": list(RANKED),
        "common": _records(run.common),
        "rows": encode_samples(samples),
        "groups": groups,
        "cite": citation(run),
    }


def _placebo(run: RunData) -> list[dict[str, Any]]:
    """How often values agree with print, rightly and wrongly paired; only for suite `paper`."""
    if run.suite.name != "paper":
        return []
    with np.errstate(over="ignore"):  # some printed deviations are as large as a double can be
        found = placebo(compare_with_paper(run.scores))
    return _records(found[found["cells"] > 0].reset_index())


def _meta(run: RunData) -> dict[str, Any]:
    rows = run.scores[(run.scores["metric"] == "rows") & (run.scores["source"] == "run")]
    spent = run.scores[(run.scores["metric"] == "time_s") & (run.scores["source"] == "run")]
    return {
        "suite": run.suite.name,
        "target": run.suite.target,
        "folds": len(run.suite.folds),
        "states": run.cells.loc[run.cells["source"] == "run", "state"].value_counts().to_dict(),
        "rows": int(rows["value"].sum()),
        "seconds": short(spent["value"].sum()),
        "remarks": list(run.remarks),
    }


def _names(run: RunData) -> dict[str, Any]:
    cells = run.cells
    methods = method_order(set(cells["method"]))
    colours, symbols = method_colours(methods), method_symbols(methods)
    sources = cells.drop_duplicates("method").set_index("method")["source"]
    paradigms = cells.groupby("method")["paradigm"].unique()
    there = set(run.scores["metric"])
    metrics = [m for m in RANKED if m in there]
    metrics += sorted(m for m in there - set(metrics) if not m.startswith("rows"))
    specs = {m.label: m for m in run.suite.methods}
    return {
        "paradigms": [p for p in PARADIGMS if p in set(cells["paradigm"])],
        "datasets": [_dataset(d) for d in dict.fromkeys(cells["dataset"])],
        "models": [{"name": m, "title": model_title(m)} for m in dict.fromkeys(cells["model"])],
        "methods": [
            {
                "name": m, "title": method_title(m), "kind": kind_of(m), "colour": colours[m],
                "symbol": symbols[m], "paradigms": list(paradigms[m]),
                "baseline": sources[m] == BASELINE,
                "settings": dict(specs[m].params) if m in specs else {},
            }
            for m in methods
        ],
        "metrics": [vars(metric_info(m)) for m in metrics],
    }  # fmt: skip


def _dataset(name: str) -> dict[str, Any]:
    from cel.datasets.cards import load_card

    card = load_card(name)
    return {
        "name": name, "title": dataset_title(name), "task": card.task.value,
        "features": len(card.features), "labels": sum(f.is_label for f in card.features),
        "protected": [f.name for f in card.features if f.protected],
        "description": card.description,
    }  # fmt: skip


def _cells(cells: pd.DataFrame) -> dict[str, Any]:
    names = ["dataset", "model", "method", "fold", "paradigm", "state", "reason"]
    out: dict[str, Any] = {n: cells[n].tolist() for n in names}
    out["rows"] = [None if pd.isna(r) else int(r) for r in cells["rows"]]
    return out


def _values(run: RunData) -> dict[str, Any]:
    """{metric: {"v": one value per cell, "why": {cell: reason}}} in the order of the cells."""
    keys = ["dataset", "model", "method", "fold"]
    place = {k: i for i, k in enumerate(run.cells[keys].itertuples(index=False, name=None))}
    out: dict[str, Any] = {}
    for metric, rows in run.scores.groupby("metric"):
        at = [place[k] for k in rows[keys].itertuples(index=False, name=None)]
        values = np.full(len(place), math.nan)
        values[at] = rows["value"]
        why = {i: r for i, r in zip(at, rows["reason"], strict=True) if r}
        out[str(metric)] = {"v": [short(v) for v in values], "why": why}
    return out


def _table(table: PaperTable) -> dict[str, Any]:
    return {
        "name": table.name, "caption": table.caption, "paradigm": table.paradigm,
        "model": table.model, "metrics": table.metrics, "titles": table.titles,
        "lines": [
            {"dataset": x.dataset, "method": x.method, "printed": x.printed,
             "entries": [_entry(e) for e in x.entries]}
            for x in table.lines
        ],
    }  # fmt: skip


def _entry(e: Entry) -> dict[str, Any]:
    """Only what is there, because there are thousands of them."""
    out: dict[str, Any] = {"m": short(e.mean), "s": short(e.std)}
    if e.state != "done":
        out |= {"state": e.state, "why": e.reason}
    if e.best or e.best_of_all:
        out["best"] = 2 * e.best + e.best_of_all
    if not math.isnan(e.paper[0]):
        out |= {"p": short(e.paper[0]), "ps": short(e.paper[1]), "verdict": e.verdict}
    if e.artefact:
        out["artefact"] = e.artefact
    return out


def _figures(scores: pd.DataFrame) -> list[dict[str, Any]]:
    out = []
    for spec in FIGURES:
        parts = figure_parts(spec, scores)
        if parts is not None:
            about = {"name": spec.name, "caption": spec.caption, "paradigm": spec.paradigm}
            out.append({**about, **vars(parts)})
    return out


def _from_results(run: RunData) -> tuple[list[Sample], list[dict[str, Any]]]:
    """Read every stored result once: sample rows, and outcomes by protected group."""
    outcomes = GroupOutcomes()
    samples: dict[tuple[str, str], Sample] = {}
    for store, block, results in _blocks(run):
        if not results:
            continue
        outcomes.add(block, results)
        place = (block.dataset, block.model)
        taken = take_sample(block, results)
        if place not in samples:
            samples[place] = taken.with_boundary(decision_map(store, block, results))
        elif samples[place].fold == block.fold and len(run.parts) > 1:
            samples[place] = samples[place].with_results(taken)
    return list(samples.values()), outcomes.records()


def _blocks(run: RunData) -> Iterator[tuple[Store, Block, dict[str, ExplanationResult]]]:
    """Stored results of the run, or of all runs that were brought together."""
    for part in run.parts or (run,):
        if part.store is not None:
            for block, results in stored_results(part.store, part.plan):
                yield part.store, block, results


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    return [{k: v if isinstance(v, str) else short(v) for k, v in x.items()} for x in lines]
