"""The paper's ten tables from a score table, and shipped scores of methods that were not run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from cel.benchmark.experiment_outcomes import dropped_experiments
from cel.benchmark.shipped import shipped_table
from cel.benchmark.side_by_side import compare_with_paper, paper_results
from cel.report.entries import COLUMNS, Entry, Line, TableBuilder

__all__ = [
    "BASELINE",
    "Entry",
    "Line",
    "PaperTable",
    "baseline_path",
    "paper_tables",
    "with_baselines",
]

BASELINE = "shipped baseline"
CAPTIONS = {
    "cat_metrics_mlp": "Local methods on mixed-type datasets: metrics (MLP)",
    "cat_metrics_lr": "Local methods on mixed-type datasets: metrics (LR)",
    "num_metrics_mlp": "Local methods on numerical datasets: metrics (MLP)",
    "num_metrics_lr": "Local methods on numerical datasets: metrics (LR)",
    "global_metrics_mlp": "Global methods: metrics (MLP)",
    "global_metrics_lr": "Global methods: metrics (LR)",
    "group_metrics_mlp": "Group-wise methods: metrics (MLP)",
    "group_metrics_lr": "Group-wise methods: metrics (LR)",
    "regression_all_dnn": "Comparative regression results for the Multilayer Perceptron model",
    "regression_all_lr": "Comparative regression results for the Linear Regression model",
}


@dataclass(frozen=True)
class PaperTable:
    """One of the ten tables: `metrics` are ours, `titles` head the columns."""

    name: str
    caption: str
    paradigm: str
    model: str
    metrics: tuple[str, ...]
    titles: tuple[str, ...]
    lines: tuple[Line, ...]


def baseline_path(suite_name: str) -> Path:
    """Return where the shipped scores of a suite are, if there are any."""
    folder = Path(str(resources.files("cel.benchmark"))) / "baselines"
    return folder / f"{suite_name}.parquet"


def with_baselines(scores: pd.DataFrame, suite_name: str) -> pd.DataFrame:
    """Return the scores with a column `source`, and shipped scores of methods not among them.

    Only the datasets, models and folds of the run are added. Where a suite has no shipped scores
    the table stays as it is.
    """
    own = scores.assign(source="run")
    path = baseline_path(suite_name)
    if not suite_name or not path.exists():
        return own
    shipped = pd.read_parquet(path)
    where = ["dataset", "model", "fold"]
    places = scores[where].drop_duplicates()
    shipped = shipped[~shipped["method"].isin(set(scores["method"]))].merge(places, on=where)
    extra = shipped[list(scores.columns)].assign(source=BASELINE)
    return pd.concat([own, extra], ignore_index=True) if len(extra) else own


def paper_tables(scores: pd.DataFrame, cells: pd.DataFrame) -> list[PaperTable]:
    """Return those of the ten tables for which the run has datasets and methods.

    Args:
        scores: with the columns of `RunData.scores`.
        cells: with the columns of `RunData.cells`.
    """
    printed = paper_results()
    with np.errstate(over="ignore"):  # some printed deviations are as large as a double can be
        tried, dropped = shipped_table("paper", "experiments"), dropped_experiments()
        beside = compare_with_paper(scores, tried, dropped=dropped)
    tables = []
    for name, caption in CAPTIONS.items():
        spec = printed[printed["table"] == name]
        one = TableBuilder(spec, scores, cells, beside[beside["table"] == name])
        if lines := one.lines():
            tables.append(
                PaperTable(
                    name, caption, one.paradigm, one.model, tuple(one.metrics.values()),
                    tuple(COLUMNS[m][0] for m in one.metrics), tuple(lines),
                )
            )  # fmt: skip
    return tables
