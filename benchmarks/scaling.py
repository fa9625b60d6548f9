"""How a run scales with workers: measured on this machine, simulated from the estimate beyond.

    python benchmarks/scaling.py [--suite quick] [--measure 1,2] [--datasets wine,moons] [--dask]
    python benchmarks/scaling.py --asleep 1,2,4,8 [--write]

The simulation gives every block of the suite to the worker that is free first, longest first, with
the seconds of `cel run --dry-run`. No run with W workers is shorter than its longest block, so the
column `bound` says where more machines stop helping. `--measure` runs the named datasets
with so many workers, or dask workers, each time into a new folder. `--asleep` runs sixteen blocks
of lines that sleep (`benchmarks/asleep.py`) on so many dask workers of this machine: what the
engine itself costs shows as soon as workers want no core for their searches. `--write` puts its
table into docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from pathlib import Path

import asleep
from cel.benchmark import collect, load_suite, make_plan, open_run, run
from cel.benchmark.estimate import estimate
from cel.benchmark.processes import usable_cores
from marked import put_between

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
WORKERS = [1, 2, 4, 8, 16, 100, 800]


def simulated(suite):
    """Print the time of the suite for every number of workers."""
    made = estimate(make_plan(load_suite(suite)), None)
    alone, longest = made.wall(1), max(made.blocks)
    print(f"{suite}: {len(made.blocks)} blocks, {alone:.0f} core seconds, longest {longest:.0f} s")
    print("| workers | seconds | speed-up | efficiency | bound |\n|---|---|---|---|---|")
    for workers in WORKERS:
        wall = made.wall(workers)
        bound = "longest block" if wall <= 1.001 * longest else "work"
        share = alone / wall / workers
        print(f"| {workers} | {wall:.0f} | {alone / wall:.1f} | {share:.0%} | {bound} |")


def measured(suite, datasets, workers, engine):
    """Print the wall time of a part of the suite with so many workers."""
    part = load_suite(suite).narrowed(datasets=datasets)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run(part, Path(folder) / "run", jobs=workers, engine=engine)
        print(f"{workers} workers, {engine}: {time.perf_counter() - started:.1f} s", flush=True)


def sleeping(counts):
    """Return a table of runs on so many dask workers whose searches sleep."""
    suite = asleep.suite()
    blocks = len(asleep.DATASETS) * len(suite["folds"])
    block = asleep.LINES * asleep.SECONDS
    out = ["| dask workers | asleep, s | took, s | efficiency |", "|---|---|---|---|"]
    for workers in counts:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                run(suite, Path(folder) / "run", jobs=workers, engine="dask")
            took = time.perf_counter() - started
            scores = collect(*open_run(Path(folder) / "run"))
        done = scores.groupby(["dataset", "fold", "method"]).ngroups
        if done != blocks * asleep.LINES:
            raise SystemExit(f"{workers} workers: {done} cells of {blocks * asleep.LINES} scored")
        ideal = -(-blocks // workers) * block
        out.append(f"| {workers} | {ideal:.0f} | {took:.0f} | {ideal / took:.0%} |")
        print(out[-1], flush=True)
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--measure", default="")
    parser.add_argument("--datasets", default="wine,moons")
    parser.add_argument("--dask", action="store_true")
    parser.add_argument("--asleep", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.asleep:
        made = sleeping([int(count) for count in options.asleep.split(",")])
        if options.write:
            put_between(PAGE, "workers asleep", f"On {usable_cores()} cores:\n\n{made}")
        return
    engine = "dask" if options.dask else "local"
    simulated(options.suite)
    for count in filter(None, options.measure.split(",")):
        measured(options.suite, options.datasets.split(","), int(count), engine)


if __name__ == "__main__":
    main()
