"""Two tables side by side, cell by cell, with verdicts that know about noise."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark.collect import summarise
from cel.config import read_yaml

__all__ = ["compare_runs", "compare_with_paper", "paper_results", "verdict_counts"]

KEYS = ["dataset", "model", "method", "metric"]
ROUNDING = 0.005  # the paper prints two digits

# Printed name -> our metric. The paper's validity counts rows over all explained rows.
PAPER_METRICS = {
    "coverage": "coverage",
    "validity": "success",
    "sparsity": "sparsity_encoded",
    "proximity": "l2_hamming_encoded",
    "prob_plausibility": "prob_plausibility",
    "log_density": "log_density",
    "lof": "lof",
    "isolation_forest": "isolation_forest",
    "time_s": "time_s",
    "mae": "mae",
    "l1": "l1",
    "l2": "l2",
}
PAPER_MODELS = {
    ("classification", "mlp"): "mlp",
    ("classification", "lr"): "lr",
    ("regression", "mlp"): "mlp_regressor",
    ("regression", "lr"): "linear",
}
LOWER = {
    "sparsity", "proximity", "lof", "time_s", "mae", "l1", "l2", "sparsity_encoded",
    "l2_hamming_encoded", "unchanged",
}  # fmt: skip


def _folder() -> Path:
    return Path(str(resources.files("cel.benchmark"))) / "paper"


def paper_results() -> pd.DataFrame:
    """Return every printed value, with our names for models, methods and metrics beside it."""
    table = pd.read_csv(_folder() / "results.csv")
    regression = table["paradigm"] == "regression"
    tasks = np.where(regression, "regression", "classification")
    pairs = zip(tasks, table["model"], strict=True)
    table["our_model"] = [PAPER_MODELS[p] for p in pairs]
    global_glance = (table["paradigm"] == "global") & (table["method"] == "glance")
    table["our_method"] = np.where(global_glance, "glance_global", table["method"])
    table["our_metric"] = table["metric"].map(PAPER_METRICS)
    table["mean"] = pd.to_numeric(table["mean"], errors="coerce")
    table["std"] = pd.to_numeric(table["std"], errors="coerce")
    return table


def compare_with_paper(scores: pd.DataFrame) -> pd.DataFrame:
    """Put every printed cell beside ours.

    Verdicts: equal (within noise), better, worse, artefact (differs, and the printed value is
    known to be an artefact), ours_only (the paper's cell is blank), missing (we have no value).
    """
    ours = summarise(scores).rename(
        columns={"model": "our_model", "method": "our_method", "metric": "our_metric"}
    )
    keys = ["dataset", "our_model", "our_method", "our_metric"]
    table = paper_results().merge(
        ours[[*keys, "mean", "std", "folds"]], on=keys, how="left", suffixes=("_paper", "_ours")
    )
    there = set(zip(ours["dataset"], ours["our_model"], strict=True))
    pairs = zip(table["dataset"], table["our_model"], strict=True)
    table = table[[p in there for p in pairs]].reset_index(drop=True)
    rules = read_yaml(_folder() / "artefacts.yaml")["artefacts"]
    lines: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    outcomes = [_against_paper(line, rules) for line in lines]
    table["verdict"] = [v for v, _ in outcomes]
    table["reason"] = [r for _, r in outcomes]
    return table


def _against_paper(line: Mapping[str, Any], rules: list[dict[str, Any]]) -> tuple[str, str]:
    if pd.isna(line["mean_ours"]):
        return "missing", "no value on our side"
    if pd.isna(line["mean_paper"]):
        return "ours_only", "the printed cell is blank"
    verdict = _verdict(
        line["mean_ours"], line["std_ours"], line["mean_paper"], line["std_paper"], line["metric"]
    )
    reason = _artefact(line, rules)
    if verdict != "equal" and reason:
        return "artefact", reason
    return verdict, ""


def _artefact(line: Mapping[str, Any], rules: list[dict[str, Any]]) -> str:
    for rule in rules:
        named = {k: v for k, v in rule.items() if k != "reason"}
        if all(line[k] in v for k, v in named.items()):
            return str(rule["reason"])
    return ""


def _verdict(a: float, a_std: float, b: float, b_std: float, metric: str, folds: int = 5) -> str:
    """Compare two means of `folds` folds: equal when closer than twice the standard error."""
    spread = np.hypot(np.nan_to_num(a_std), np.nan_to_num(b_std)) / np.sqrt(folds)
    if abs(a - b) <= 2 * spread + ROUNDING * max(1.0, abs(b) if abs(b) > 100 else 1.0):
        return "equal"
    lower = metric in LOWER
    return "better" if (a < b) == lower else "worse"


def compare_runs(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Put two runs side by side; the verdict says how the second stands to the first."""
    from cel.metrics import METRICS

    a, b = summarise(first), summarise(second)
    table = a.merge(b, on=KEYS, how="outer", suffixes=("_first", "_second"))
    verdicts = []
    for line in table.to_dict("records"):
        if pd.isna(line["mean_first"]) or pd.isna(line["mean_second"]):
            verdicts.append("missing")
            continue
        name = line["metric"]
        better = METRICS.get(name).better if name in METRICS else "none"
        folds = int(min(line["folds_first"], line["folds_second"]))
        spread = np.hypot(
            np.nan_to_num(line["std_first"]), np.nan_to_num(line["std_second"])
        ) / np.sqrt(folds)
        gap = line["mean_second"] - line["mean_first"]
        if abs(gap) <= 2 * spread + 1e-9:
            verdicts.append("equal")
        elif better == "none":
            verdicts.append("differs")
        else:
            verdicts.append("better" if (gap > 0) == (better == "higher") else "worse")
    return table.assign(verdict=verdicts)


def verdict_counts(table: pd.DataFrame, by: str) -> pd.DataFrame:
    """Count verdicts per table, metric or method."""
    return pd.crosstab(table[by], table["verdict"])
