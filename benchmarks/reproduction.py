"""Print or write docs/reproduction.md from the shipped scores of suite `paper`.

    python benchmarks/reproduction.py             # shipped scores
    python benchmarks/reproduction.py runs/paper  # a run
    python benchmarks/reproduction.py --write     # writes the page

Counts by verdict and table, the placebo, and what every experiment did to the cells it is about.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact

from cel.benchmark import collect, open_run
from cel.benchmark.experiments import DERIVED, experiment_scores, experiments
from cel.benchmark.shipped import shipped_table
from cel.benchmark.side_by_side import compare_with_paper, verdict_counts
from cel.benchmark.verdicts import placebo

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"


def read():
    runs = [a for a in sys.argv[1:] if a != "--write"]
    if runs:
        store, plan = open_run(runs[0])
        return collect(store, plan), experiment_scores(store, plan)
    scores, tried = shipped_table("paper"), shipped_table("paper", "experiments")
    there = set(tried["experiment"]) if len(tried) else set()
    derived = [
        DERIVED[e.derive](scores).assign(experiment=e.name)
        for e in experiments()
        if e.derive and not e.is_run and e.name not in there
    ]
    return scores, pd.concat([tried, *derived], ignore_index=True)


def line(*values):
    return "| " + " | ".join(str(v) for v in values) + " |"


def show(table, head):
    body = zip(table.index, table.to_numpy(), strict=True)
    out = [line(head, *table.columns), line(*["---"] * (1 + len(table.columns)))]
    return [*out, *(line(name, *values) for name, values in body), ""]


def with_sum(counts):
    return pd.concat([counts, counts.sum().to_frame("**all**").T])


def effects(scores, tried):
    """Cells that differ or are missing without experiments, and how each experiment ends there."""
    before = compare_with_paper(scores)
    lost = (before["verdict"] == "missing") & before["mean_paper"].notna()
    lost &= before["metric"] != "time_s"
    differing = before["verdict"].isin(["better", "worse"]) | lost
    lines = {}
    for experiment in experiments():
        part = tried[tried["experiment"] == experiment.name] if len(tried) else tried
        after = compare_with_paper(scores, part) if len(part) else before
        about = differing & np.array([experiment.claims(r) for r in before.to_dict("records")])
        said = after.loc[about, "verdict"]
        good = int((said == "explained").sum())
        bad = int((after.loc[about, "reason"].str.startswith("tried without success")).sum())
        found = (good, bad) if len(part) else ("not run", "not run")
        sets = part["dataset"].nunique() if len(part) else 0
        lines[experiment.name] = [sets, int(about.sum()), *found, experiment.reason]
    names = ["datasets", "cells", "explained", "not explained", "what is imitated"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)


def not_run(tried):
    """A sentence about the experiments that have no scores."""
    there = set(tried["experiment"]) if len(tried) else set()
    names = [f"`{e.name}`" for e in experiments() if e.name not in there]
    if not names:
        return "All of them were run.\n"
    return f"Not run: {', '.join(names)}. Their cells count as better, worse or missing.\n"


def reproduced(table):
    """Methods whose right pairings agree more often than wrong ones, and the others.

    Fisher's exact test, one-sided at 1 %, and at least one and a half times as often.
    """
    yes, no = [], []
    for name, row in table.drop(index="all").iterrows():
        right, wrong = row["right"] * row["cells"], row["wrong"] * row["wrong_cells"]
        counts = [[right, row["cells"] - right], [wrong, row["wrong_cells"] - wrong]]
        p = fisher_exact(np.rint(counts).astype(int), alternative="greater").pvalue
        (yes if p < 0.01 and row["right"] >= 1.5 * row["wrong"] else no).append(f"`{name}`")
    return yes, no


def missing_part(table):
    """Printed values that no cell of ours stands beside, by method and dataset."""
    lost = table[table["verdict"] == "missing"]
    told = []
    for method, part in lost.groupby("our_method"):
        where = part.groupby("dataset")["our_model"].agg(lambda m: ", ".join(sorted(set(m))))
        told.append(f"- `{method}`: " + "; ".join(f"{d} ({m})" for d, m in where.items()))
    return told


def page():
    """The whole page."""
    scores, tried = read()
    table = compare_with_paper(scores, tried)
    trivial = (table["mean_ours"] == 1) & (table["mean_paper"] == 1)
    ones = int((trivial & (table["verdict"] == "agrees")).sum())
    wrong = placebo(table).round(3).astype(object)
    wrong[["cells", "wrong_cells"]] = wrong[["cells", "wrong_cells"]].astype(int).astype(object)
    yes, no = reproduced(wrong)
    cells = scores.groupby(["dataset", "model", "method", "fold"]).ngroups
    names = ", ".join(sorted(scores["dataset"].unique()))
    parts = [
        HEAD, COUNTS.format(cells=cells, names=names),
        *show(with_sum(verdict_counts(table, "table")), "table"),
        f"{ones} of the agreeing cells are 1.00 = 1.00 (coverage or validity).\n", "By metric:\n",
        *show(with_sum(verdict_counts(table, "metric")), "metric"), "By method:\n",
        *show(with_sum(verdict_counts(table, "our_method")), "method"), MISSING,
        *missing_part(table), "", PLACEBO, *show(wrong, "method"),
        f"Reproduced by this measure: {', '.join(yes) or 'none'}.",
        f"Not reproduced: {', '.join(no)}.", "", EXPERIMENTS,
        *show(effects(scores, tried), "experiment"), not_run(tried), UNTRIED,
    ]  # fmt: skip
    return "\n".join(parts).rstrip() + "\n"


HEAD = """# Beside the printed tables

`cel run paper` computes the cells of the paper's ten tables by the printed protocol: models
trained as the paper says, one column per category, no constraint honoured, the targets that were
run (local methods class 0, global and group methods class 1) and the quantile of plausibility that
was run (0.25). Logistic regression is convex and solved to the optimum. Up to 250 rows of a fold
are explained (1,250 of a dataset): a share of rows has a standard error of at most 1.5 points.
`cel compare RUN --with paper` puts every printed value beside ours.
`python benchmarks/reproduction.py` prints this page from the shipped scores.

*agrees*: within two pooled standard errors and within 10 %. *noise*: within the errors only, which
says little. *better*, *worse*: differs, and no experiment is about the cell. *explained*: an
experiment that imitates the suspected cause gives a score that agrees with print. *unexplained*:
experiments about the cell were run and do not. *not_comparable*: times, of another machine.
*ours_only*: blank in print. *missing*: printed, and no row of ours was answered, or the published
algorithm does not work for the model, and no experiment gives the printed value. A missing or
infinite deviation, or that of one fold, is no band.
"""
COUNTS = """## Counts

{cells} cells, five folds, both models, on {names}.
"""
MISSING = """Printed values without a score of ours:
"""
PLACEBO = """## The placebo

How often does our method agree with its printed namesake (right), and how often with *another*
printed method of the same table, dataset, model and metric (wrong)? Cells that are 1 on both sides
and times are left out. A method is called reproduced if the first share is at least one and a half
times the second and the difference is beyond chance (Fisher's exact test, one-sided, 1 %).
"""
EXPERIMENTS = """## Experiments

A reason counts only when its imitation gives the printed value, cell by cell.
`cel compare RUN --with paper --experiments` runs them in the folder of the run, with its models.
"Cells" are those that an experiment is about and that differ, or that are missing on our side;
cells of datasets on which it was not run are in neither of the two columns after it.
"""
UNTRIED = """What no experiment explains is better, worse, unexplained or missing, not excused.
"""


def main():
    text = page()
    if "--write" in sys.argv:
        PAGE.write_text(text)
        print(f"wrote {PAGE.name}")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
