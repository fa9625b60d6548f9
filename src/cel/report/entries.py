"""The lines of one table: numbers over folds, which of them are best, and why some are missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.side_by_side import paper_results
from cel.report.appearance import is_guest, method_order, metric_info

__all__ = ["COLUMNS", "Entry", "Line", "TableBuilder"]

# Printed name -> (column title, our metrics in order of preference).
COLUMNS = {
    "found": ("Found", ("success",)),
    "coverage": ("Cov.", ("coverage",)),
    "validity": ("Valid.", ("success",)),
    "sparsity": ("Spars.", ("sparsity_encoded", "sparsity")),
    "prob_plausibility": ("Prob. Plaus.", ("prob_plausibility",)),
    "log_density": ("Log Dens.", ("log_density",)),
    "lof": ("LOF", ("lof",)),
    "isolation_forest": ("IsoForest", ("isolation_forest",)),
    "proximity": ("L2-Ham.", ("l2_hamming_encoded", "l2_hamming")),
    "mae": ("MAE", ("mae",)),
    "l2": ("L2", ("l2",)),
    "l1": ("L1", ("l1",)),
    "time_s": ("Time (s)", ("time_s",)),
}


@dataclass(frozen=True)
class Entry:
    """One number of a table.

    Attributes:
        mean: over folds, NaN if there is none.
        std: sample standard deviation over folds.
        best: among the printed lines of its dataset.
        best_of_all: among all lines of its dataset.
        state: "done", "partial" (some folds are missing), or why there is no number.
        reason: in words; "" for complete entries.
        paper: (mean, std) as printed, NaN where the paper has nothing.
        verdict: how ours stands to the printed value; "" if there is none.
        artefact: which experiment gives the printed value, or which were tried; "" if none was.
    """

    mean: float
    std: float
    best: bool
    best_of_all: bool
    state: str
    reason: str
    paper: tuple[float, float]
    verdict: str
    artefact: str = ""


@dataclass(frozen=True)
class Line:
    """A method on a dataset; `printed` is false for methods that this table leaves out."""

    dataset: str
    method: str
    printed: bool
    entries: tuple[Entry, ...]


class TableBuilder:
    """Fills one table from scores and cells.

    Args:
        spec: the printed values of the table.
        scores: with the columns of `RunData.scores`.
        cells: with the columns of `RunData.cells`.
        beside: the printed values with our verdicts.
    """

    def __init__(
        self, spec: pd.DataFrame, scores: pd.DataFrame, cells: pd.DataFrame, beside: pd.DataFrame
    ) -> None:
        self.paradigm = str(spec["paradigm"].iloc[0])
        self.model = str(spec["our_model"].iloc[0])
        self.methods = list(spec["our_method"].unique())
        there = set(scores["metric"].unique())
        printed = list(spec["metric"].unique())
        if "validity" not in printed:  # means over found rows need the share that they cover
            printed.insert(0, "found")
        wanted = {m: next((o for o in COLUMNS[m][1] if o in there), "") for m in printed}
        self.metrics = {m: ours for m, ours in wanted.items() if ours}
        mine = (cells["model"] == self.model) & (cells["paradigm"] == self.paradigm)
        self.cells = cells[mine & cells["dataset"].isin(self._datasets(spec, cells[mine]))]
        keys = ["dataset", "method", "metric"]
        mine = (scores["model"] == self.model) & (scores["paradigm"] == self.paradigm)
        mine &= scores["metric"].isin(list(self.metrics.values()))
        self.values = dict(iter(scores[mine].groupby(keys)[["fold", "value", "reason"]]))
        lines: list[dict[str, Any]] = beside.to_dict("records")  # type: ignore[assignment]
        self.printed = {(x["dataset"], x["our_method"], x["metric"]): x for x in lines}
        self.order = list(spec["dataset"].unique())

    def _datasets(self, spec: pd.DataFrame, cells: pd.DataFrame) -> set[str]:
        """The printed ones and, of those that the paper does not have, the fitting kind."""
        known = set(paper_results()["dataset"])
        guests = set(cells["dataset"]) - known
        name = str(spec["table"].iloc[0])
        if name.startswith(("cat_", "num_")):
            guests = {d for d in guests if _has_labels(d) == name.startswith("cat_")}
        return set(spec["dataset"]) | guests

    def lines(self) -> list[Line]:
        """Return a line per dataset and method of the run, in the order of the paper."""
        there = set(self.cells["dataset"])
        order = [d for d in self.order if d in there] + sorted(there - set(self.order))
        return [line for dataset in order for line in self._of_dataset(dataset)]

    def _of_dataset(self, dataset: str) -> list[Line]:
        cells = self.cells[self.cells["dataset"] == dataset]
        there = set(cells["method"].unique())
        methods = [m for m in self.methods if m in there]
        methods += method_order(there - set(methods))
        visible = {m: m in self.methods or is_guest(m) for m in methods}
        of = {str(m): part for m, part in cells.groupby("method")}
        entries = {m: [self._entry(dataset, m, k, of[m]) for k in self.metrics] for m in methods}
        for i, ours in enumerate(self.metrics.values()):
            column = {m: entries[m][i] for m in methods}
            best = _best({m: e for m, e in column.items() if visible[m]}, ours)
            best_of_all = _best(column, ours)
            for m, e in column.items():
                entries[m][i] = replace(e, best=m in best, best_of_all=m in best_of_all)
        return [Line(dataset, m, visible[m], tuple(entries[m])) for m in methods]

    def _entry(self, dataset: str, method: str, metric: str, cells: pd.DataFrame) -> Entry:
        rows = self.values.get((dataset, method, self.metrics[metric]))
        values = np.array([]) if rows is None else rows["value"].dropna().to_numpy(float)
        mean = float(values.mean()) if len(values) else np.nan
        std = float(values.std(ddof=1)) if len(values) > 1 else np.nan
        state, reason = _state(cells, rows, len(values))
        paper, verdict, artefact = (np.nan, np.nan), "", ""
        line = self.printed.get((dataset, method, metric))
        if line is not None:
            paper = (float(line["mean_paper"]), float(line["std_paper"]))
            verdict = "" if np.isnan(paper[0]) else str(line["verdict"])
            artefact = str(line["reason"]) if verdict else ""
        return Entry(mean, std, False, False, state, reason, paper, verdict, artefact)


def _state(cells: pd.DataFrame, rows: pd.DataFrame | None, known: int) -> tuple[str, str]:
    """Say whether a number stands for all folds, and if not, why."""
    if known == len(cells):
        return "done", ""
    bad = cells[cells["state"] != "done"]
    folds: dict[str, list[str]] = {}
    for fold, state, why in zip(bad["fold"], bad["state"], bad["reason"], strict=True):
        folds.setdefault(f"{state}: {why}" if why else state, []).append(str(fold))
    if rows is not None:
        empty = rows[rows["value"].isna()]
        for fold, why in zip(empty["fold"], empty["reason"], strict=True):
            folds.setdefault(why or "no value", []).append(str(fold))
    reason = "; ".join(f"fold {', '.join(f)}: {why}" for why, f in folds.items())
    if known:
        return "partial", f"{known} of {len(cells)} folds. {reason}"
    return ("undefined" if bad.empty else str(bad["state"].mode()[0])), reason


def _best(column: dict[str, Entry], metric: str) -> set[str]:
    """Methods whose complete entry is best after rounding as printed."""
    better = metric_info(metric).better
    values = {m: round(e.mean, 2) for m, e in column.items() if e.state == "done"}
    if better == "none" or not values:
        return set()
    top = max(values.values()) if better == "higher" else min(values.values())
    return {m for m, v in values.items() if v == top}


def _has_labels(dataset: str) -> bool:
    from cel.datasets.cards import load_card

    return any(f.is_label for f in load_card(dataset).features)
