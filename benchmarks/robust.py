"""What robustness costs and brings: the tables of docs/robust.md from a run of suite `robust`.

    cel run robust
    python benchmarks/robust.py [runs/robust] [--against wachter_exact,nice] [--write]

First table: means over rows, then folds, models and datasets. Every share is over rows that the
method answered; `answered` says how many those are. Second table: each robust method against each
rival on rows that both answered. A unit of the intervals and tests is a dataset: the mean over its
rows, folds and models. Intervals are bootstraps over datasets; the test is the exact two-sided
sign test, which with five datasets cannot give less than 0.0625. `--write` puts the tables into
docs/robust.md.
"""

from __future__ import annotations

import argparse
from math import comb
from pathlib import Path

import numpy as np
import pandas as pd

from cel.benchmark.row_scores import row_tables
from cel.benchmark.runner import open_run
from cel.cf_methods.variants import method_names
from cel.metrics.bootstrap import bootstrap_interval
from marked import put_between

ROBUST = (
    "roar", "roar_wide", "probe", "probe_strict", "rbr", "robust_nearest", "robust_nearest_stable",
)  # fmt: skip
AGAIN = [
    "retraining_seeds", "retraining_bootstrap", "retraining_folds", "retraining_perturbed",
    "retraining_shift",
]  # fmt: skip
OTHER = ["noise_robustness", "stability", "delta_validity", "certified_margin"]
PRICE = ["gower", "sparsity", "density_percentile"]
RETRAINED = "retrained"  # the mean of AGAIN
PAGE = Path(__file__).parents[1] / "docs" / "robust.md"


def rows_of(folder):
    """Return one line per row and method: dataset, model, fold, row, method, found, metrics."""
    store, plan = open_run(folder)
    parts = []
    for block in plan.blocks:
        for _, methods in row_tables(store, plan, block):
            for method, table in methods.items():
                where = {
                    "dataset": block.dataset, "model": block.model, "fold": block.fold,
                    "method": method,
                }  # fmt: skip
                parts.append(table.assign(**where).rename_axis("row").reset_index())
    rows = pd.concat(parts, ignore_index=True)
    asked = rows.groupby("dataset")["method"].nunique()
    left = sorted(asked.index[asked < rows["method"].nunique()])
    if left:
        print(f"left out, since some methods were not run there: {', '.join(left)}\n")
    rows = rows[~rows["dataset"].isin(left)]
    there = [m for m in AGAIN if m in rows]
    return rows.assign(**{RETRAINED: rows[there].mean(axis=1)})


def by_dataset(rows, columns):
    """Return (dataset, method) x columns: means over rows, then folds, then models."""
    known = [c for c in columns if c in rows]
    for level in (["dataset", "model", "fold", "method"], ["dataset", "model", "method"],
                  ["dataset", "method"]):  # fmt: skip
        rows = rows.groupby(level, sort=False)[known].mean().reset_index()
    return rows


def overview(rows):
    """Return the first table, robust methods first."""
    answered = by_dataset(rows.assign(answered=rows["found"].astype(float)), ["answered"])
    means = by_dataset(rows[rows["found"]], [RETRAINED, *AGAIN, *OTHER, *PRICE])
    both = means.merge(answered, on=["dataset", "method"], how="right")  # also where none is
    table = both.groupby("method", sort=False)
    table = table.mean(numeric_only=True)
    order = sorted(table.index, key=lambda m: (m not in ROBUST, -table.loc[m, RETRAINED]))
    return table.loc[order, ["answered", *[c for c in table if c != "answered"]]].reset_index()


def sign_test(wins, losses):
    """Return the exact two-sided p-value of a sign test; ties are left out.

    >>> sign_test(5, 0)
    0.0625
    """
    n = wins + losses
    if not n:
        return float("nan")
    tail = sum(comb(n, k) for k in range(min(wins, losses) + 1)) / 2**n
    return min(1.0, 2 * tail)


def duels(rows, rivals):
    """Return the second table: robust methods against rivals on rows that both answered."""
    lines = []
    keys = ["dataset", "model", "fold", "row"]
    methods = set(rows["method"])
    for mine in (m for m in ROBUST if m in methods):
        for rival in (r for r in rivals if r in methods):
            a, b = (rows[(rows["method"] == m) & rows["found"]] for m in (mine, rival))
            both = a.merge(b, on=keys, suffixes=("", "_rival"))
            for metric in (RETRAINED, "gower"):
                gap = both.assign(method="gap", gap=both[metric] - both[f"{metric}_rival"])
                units = by_dataset(gap, ["gap"])["gap"].dropna()
                low, high = bootstrap_interval(units.to_numpy(float))
                up, down = int((units > 1e-9).sum()), int((units < -1e-9).sum())
                lines.append(
                    {
                        "method": mine, "rival": rival, "metric": metric, "rows": len(both),
                        "difference": units.mean(), "low": low, "high": high,
                        "datasets": f"{up} of {len(units)} higher", "p": sign_test(up, down),
                    }
                )  # fmt: skip
    return pd.DataFrame(lines)


def markdown(table):
    shown = [[_plain(v) for v in line] for line in table.itertuples(index=False)]
    lines = [list(table.columns), ["---"] * len(table.columns), *shown]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _plain(value):
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.3g}"
    return str(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", nargs="?", default="runs/robust")
    parser.add_argument("--against", default="wachter_exact,nice")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rivals = given.against.split(",")
    if strangers := set(rivals) - set(method_names()):
        parser.error(f"unknown method {sorted(strangers)[0]!r}")
    rows = rows_of(given.run)
    means = by_dataset(rows[rows["found"]], [RETRAINED, "gower"])
    parts = [
        f"{len(rows)} rows of {rows['dataset'].nunique()} datasets and all lines.",
        markdown(overview(rows)),
        "Robust methods against two rivals, on rows that both answered:",
        markdown(duels(rows, rivals)),
        "By dataset:",
    ]
    for metric in (RETRAINED, "gower"):
        wide = means.pivot(index="dataset", columns="method", values=metric)
        parts.append(markdown(wide.rename_axis(f"{metric} by dataset").reset_index()))
    text = "\n\n".join(parts)
    print(text)
    if given.write:
        put_between(PAGE, "tables", text)


if __name__ == "__main__":
    main()
