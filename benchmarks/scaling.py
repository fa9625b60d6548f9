"""How a run scales with workers: measured on this machine, simulated from the estimate beyond.

    python benchmarks/scaling.py [--suite quick] [--measure 1,2] [--datasets wine,moons] [--dask]

The simulation gives every block of the suite to the worker that is free first, longest first, with
the seconds of `cel run --dry-run`. No run with W workers is shorter than its longest block, so the
column `bound` says where more machines stop helping. `--measure` runs the named datasets
with so many workers, or dask workers, each time into a new folder.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from cel.benchmark import load_suite, make_plan, run
from cel.benchmark.estimate import estimate

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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="quick")
    parser.add_argument("--measure", default="")
    parser.add_argument("--datasets", default="wine,moons")
    parser.add_argument("--dask", action="store_true")
    options = parser.parse_args()
    engine = "dask" if options.dask else "local"
    simulated(options.suite)
    for count in filter(None, options.measure.split(",")):
        measured(options.suite, options.datasets.split(","), int(count), engine)


if __name__ == "__main__":
    main()
