"""Tables that are larger than anybody wants in memory: peak memory and time by number of rows.

    OMP_NUM_THREADS=1 python benchmarks/many_rows.py [--rows 100000 1000000] [--way batches|cli]
        [--write]

A parquet file of the given size is written a part at a time; a child process explains it, by
`Explainer.explain_batches` (what is found is counted) or by `cel explain --data big.parquet --out
answers.parquet`. Half of the rows are refused by a logistic regression over four numbers and a
label, and want to be accepted; two columns may not change. Printed: CPU seconds, peak resident
memory of the child, and both per size: memory must not grow with the rows. `--write` puts the
table between its marks in docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from marked import put_between

PART = 50_000
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def people(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "income": rng.integers(10, 90, n) * 100,
            "debt": rng.gamma(2, 3, n).round(2),
            "age": rng.integers(20, 70, n),
            "rooms": rng.integers(1, 7, n),
            "job": rng.choice(["clerk", "nurse", "pilot"], n),
        }
    )


def accepted(rows):
    """Return probabilities (n, 2) of a model that everybody can have: a function of the table."""
    score = rows.income / 2000 - rows.debt / 4 + (rows.job == "pilot") - 1.4
    yes = 1 / (1 + np.exp(-4 * score.to_numpy(float)))
    return np.stack([1 - yes, yes], 1)


def fitted():
    from sklearn.compose import make_column_transformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = people(5000, 0)
    numbers = ["income", "debt", "age", "rooms"]
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), ["job"]))
    model = make_pipeline(columns, LogisticRegression(max_iter=500))
    return model.fit(frame, np.where(accepted(frame)[:, 1] > 0.5, "yes", "no")), frame


def write(path, rows):
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for k, at in enumerate(range(0, rows, PART)):
        table = pa.Table.from_pandas(people(min(PART, rows - at), 1 + k), preserve_index=False)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def by_batches(path):
    import cel

    model, frame = fitted()
    explainer = cel.Explainer(model, frame, target="yes", immutable=["age", "rooms"])
    found = asked = 0
    for part in explainer.explain_batches(path):
        found += int(part.found.sum())
        asked += len(part)
    print(f"{found} answers for {asked} rows")


def by_command(path):
    import skops.io
    from typer.testing import CliRunner

    from cel.cli.app import app

    folder = Path(path).parent
    model, frame = fitted()
    skops.io.dump(model, folder / "model.skops")
    frame.to_parquet(folder / "train.parquet")
    (folder / "rules.yaml").write_text("immutable: [age, rooms]\n")
    words = [
        "explain", "--model", folder / "model.skops", "--data", path, "--background",
        folder / "train.parquet", "--target", "yes", "--constraints", folder / "rules.yaml",
        "--out", folder / "answers.parquet",
    ]  # fmt: skip
    done = CliRunner().invoke(app, [str(w) for w in words])
    if done.exit_code:
        raise SystemExit(done.output)


def child(way, path):
    started = time.process_time()
    (by_batches if way == "batches" else by_command)(path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{time.process_time() - started:.1f} {peak:.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--way", choices=["batches", "cli"], default="batches")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.way, options.child)
        return
    lines = ["| rows | answers | CPU s | ms per row | peak MB |", "|---|---|---|---|---|"]
    print(*lines, sep="\n")
    for rows in options.rows:
        lines.append(measured(options.way, rows))
        print(lines[-1], flush=True)
    if options.write:
        put_between(PAGE, "many rows", "\n".join(lines))


def measured(way, rows):
    """Return the line of a table with so many rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "big.parquet")
        write(path, rows)
        words = [sys.executable, __file__, "--way", way, "--child", path]
        out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    seconds, peak = out.split()[-2:]
    found = re.search(r"(\d+) answers", out)
    answers = f"{int(found[1]):,}" if found else ""
    per_row = 1e3 * float(seconds) / rows
    return f"| {rows:,} | {answers} | {seconds} | {per_row:.2f} | {peak} |"


if __name__ == "__main__":
    main()
