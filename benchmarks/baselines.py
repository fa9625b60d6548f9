"""Write the scores that come with the package, from one or several runs of a suite.

    python benchmarks/baselines.py quick runs/quick
    python benchmarks/baselines.py paper runs/paper scores.parquet

Sources are folders of runs or exported tables; where two have the same cell, the later one counts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from cel.benchmark import collect, open_run
from cel.report.tables import baseline_path

CELL = ["dataset", "model", "method", "fold"]


def read(source):
    if Path(source).is_dir():
        return collect(*open_run(source))
    return pd.read_parquet(source)


def main():
    suite, *sources = sys.argv[1:]
    tables = [read(s).assign(source=i) for i, s in enumerate(sources)]
    table = pd.concat(tables, ignore_index=True)
    latest = table.groupby(CELL)["source"].transform("max")
    table = table[table["source"] == latest].drop(columns="source")
    table = table.sort_values([*CELL, "metric"], ignore_index=True)
    path = baseline_path(suite)
    table.to_parquet(path, index=False, compression="zstd")
    cells = table.groupby(CELL).ngroups
    print(f"{cells} cells, {len(table)} lines, {path.stat().st_size / 1024:.0f} kB in {path.name}")
    print(table.groupby(["dataset", "model"])["method"].nunique().unstack().to_string())


if __name__ == "__main__":
    main()
