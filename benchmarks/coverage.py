"""Share of rows answered and share of answers that are valid, per dataset, model and local method.

    CEL_DATA=... cel run paper --fold 0 --set max_rows=300 -j 8 --out runs/fold0
    python benchmarks/coverage.py runs/fold0 [more runs or exported parquet tables]

Prints the table of docs/methods.md ("coverage", or "coverage / validity" where an answer was not
valid) and how the rows of every cell below 0.95 ended.
"""

from __future__ import annotations

import sys

import pandas as pd

from cel.benchmark import collect, open_run
from cel.benchmark.score_tables import cell_table
from cel.cf_methods import METHODS
from cel.protocols import Scope

ENOUGH = 0.95


def read(folders):
    """Return the local cells of some runs: a wide table of scores, and cells without scores."""
    scores, cells = [], []
    for folder in folders:
        if folder.endswith(".parquet"):
            scores.append(pd.read_parquet(folder))
            continue
        store, plan = open_run(folder)
        scores.append(collect(store, plan))
        cells.append(cell_table(store, plan))
    local = [n for n, c in METHODS.items() if c.scope is Scope.LOCAL]
    table = pd.concat(scores).query("method in @local")
    states = pd.concat([pd.DataFrame(columns=["method", "state"]), *cells])
    states = states.query("method in @local and state != 'done'")
    keys = ["dataset", "model", "method"]
    return table.pivot_table(index=keys, columns="metric", values="value"), states, local


def shown(row):
    """Return a cell: coverage, and validity where it is below 1."""
    text = f"{row['coverage']:.2f}"
    valid = row["validity"]
    return text if pd.isna(valid) or valid > 0.995 else f"{text} / {valid:.2f}"


def main():
    wide, states, local = read(sys.argv[1:])
    cells = wide.apply(shown, axis=1).unstack("method").reindex(columns=local).fillna("")
    print("| dataset | model |", " | ".join(local), "|")
    print("|" + "---|" * (2 + len(local)))
    for (dataset, model), line in cells.iterrows():
        print(f"| {dataset} | {model} |", " | ".join(line), "|")
    low = wide[wide["coverage"] < ENOUGH]
    kinds = [c for c in wide.columns if c.startswith("rows_")]
    print(f"\n{len(low)} cells with coverage below {ENOUGH}, rows by status:")
    for (dataset, model, method), row in low.iterrows():
        ended = {k.removeprefix("rows_"): int(row[k]) for k in kinds if row[k] > 0}
        print(f"- {dataset} {model} {method}: {row['coverage']:.2f}, {ended}")
    print(f"\n{len(states)} cells without scores")
    for line in states.itertuples():
        print(f"- {line.dataset} {line.model} {line.method}: {line.state}, {line.reason}")


if __name__ == "__main__":
    main()
