"""Print the numbers of docs/reproduction.md from the shipped scores of suite `paper`.

    python benchmarks/reproduction.py            # shipped scores
    python benchmarks/reproduction.py runs/paper # a run

Counts by verdict and table, the placebo, and what every experiment did to the cells it is about.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd

from cel.benchmark import collect, open_run
from cel.benchmark.experiments import DERIVED, experiment_scores, experiments
from cel.benchmark.shipped import shipped_table
from cel.benchmark.side_by_side import compare_with_paper, verdict_counts
from cel.benchmark.verdicts import placebo


def read():
    if len(sys.argv) > 1:
        store, plan = open_run(sys.argv[1])
        return collect(store, plan), experiment_scores(store, plan)
    scores, tried = shipped_table("paper"), shipped_table("paper", "experiments")
    derived = [
        DERIVED[e.derive](scores).assign(experiment=e.name) for e in experiments() if e.derive
    ]
    return scores, pd.concat([tried, *derived], ignore_index=True)


def line(*values):
    print("| " + " | ".join(str(v) for v in values) + " |")


def show(table, head):
    line(head, *table.columns)
    line(*["---"] * (1 + len(table.columns)))
    for name, values in zip(table.index, table.to_numpy(), strict=True):
        line(name, *values)
    print()


def with_sum(counts):
    return pd.concat([counts, counts.sum().to_frame("**all**").T])


def effects(scores, tried):
    """Cells that differ without experiments, and how each experiment ends for them."""
    before = compare_with_paper(scores)
    differing = before["verdict"].isin(["better", "worse"])
    lines = {}
    for experiment in experiments():
        part = tried[tried["experiment"] == experiment.name] if len(tried) else tried
        after = compare_with_paper(scores, part) if len(part) else before
        about = differing & np.array([experiment.claims(r) for r in before.to_dict("records")])
        said = after.loc[about, "verdict"]
        lines[experiment.name] = [
            int(about.sum()), int((said == "explained").sum()), int((said == "unexplained").sum()),
            experiment.reason,
        ]  # fmt: skip
    names = ["differing cells", "explained", "not explained", "what is imitated"]
    return pd.DataFrame.from_dict(lines, orient="index", columns=names)


def main():
    scores, tried = read()
    table = compare_with_paper(scores, tried)
    for by in ("table", "metric", "our_method"):
        show(with_sum(verdict_counts(table, by)), by)
    trivial = (table["mean_ours"] == 1) & (table["mean_paper"] == 1)
    print(f"{int((trivial & (table['verdict'] == 'agrees')).sum())} agreeing cells are 1 = 1\n")
    show(placebo(table).round(3), "method")
    show(effects(scores, tried), "experiment")


if __name__ == "__main__":
    main()
