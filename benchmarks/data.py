"""CSV to encoded float32 arrays: CEL beside pandas.read_csv + scikit-learn's ColumnTransformer.

    CEL_DATA=... python benchmarks/data.py [--repeat 5] [--json FILE]

Both sides read the same columns of the same raw file, drop rows with gaps, scale numbers to [0, 1]
and one-hot encode labels (ranks for ordered ones). CEL's side is its normal path: search, sha256,
checks against the card, pipeline. Times are the best of some runs in which both sides take turns.
Memory is the growth of the resident set of a fresh process, in which the side has encoded a small
file before so that its code is loaded, in multiples of the encoded array (Linux only).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DATASETS = ("adult", "give_me_some_credit")


def ours(name: str) -> np.ndarray:
    from cel.datasets import FileDataset
    from cel.preprocessing import PreprocessingPipeline

    dataset = FileDataset(name)
    rows = dataset.card.rows.model_copy(update={"downsample": False})
    # Both sides leave out the balancing of classes.
    dataset.card = dataset.card.model_copy(update={"rows": rows})
    return PreprocessingPipeline().fit_transform(dataset.frame, dataset.raw_space)


def theirs(name: str) -> np.ndarray:
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder

    from cel.datasets import FileDataset

    dataset = FileDataset(name)
    card = dataset.card
    path = dataset.find()[1][0]
    used = [f.header for f in card.features]
    frame = pd.read_csv(
        path, usecols=[*used, *card.target.columns], skipinitialspace=True
    ).dropna()
    kinds = {k: [f for f in card.features if f.kind == k] for k in ("categorical", "ordinal")}
    numbers = [f.header for f in card.features if not f.is_label]
    one_hot = OneHotEncoder(
        categories=[list(f.categories) for f in kinds["categorical"]],
        sparse_output=False,
        dtype=np.float32,
    )
    ranks = OrdinalEncoder(
        categories=[list(f.categories) for f in kinds["ordinal"]], dtype=np.float32
    )
    transformer = ColumnTransformer(
        [
            ("numbers", MinMaxScaler(), numbers),
            ("labels", one_hot, [f.header for f in kinds["categorical"]]),
            ("ranks", ranks, [f.header for f in kinds["ordinal"]]),
        ]
    )
    return transformer.fit_transform(frame).astype(np.float32)


SIDES = {"cel": ours, "sklearn": theirs}


def memory(field: str) -> int:
    """Return VmRSS (now) or VmHWM (peak) of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_memory(side: str, name: str) -> dict:
    """Return the growth of the resident set while one side encodes a file, code already loaded."""
    SIDES[side]("law")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = memory("VmRSS")
    encoded = SIDES[side](name)
    return {"peak": memory("VmHWM") - before, "bytes": encoded.nbytes, "shape": encoded.shape}


def measure_time(name: str, repeat: int) -> dict:
    """Return the best of some runs of each side, which take turns."""
    best = dict.fromkeys(SIDES, float("inf"))
    for _ in range(repeat + 1):  # the first round warms up imports and the file cache
        for side, run in SIDES.items():
            start = time.perf_counter()
            run(name)
            best[side] = min(best[side], time.perf_counter() - start)
    return best


def child(*arguments: str) -> dict:
    command = [sys.executable, __file__, *arguments]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(output.stdout.splitlines()[-1])


def compare(name: str, repeat: int) -> dict:
    seconds = child("--time", name, "--repeat", str(repeat))
    mine, other = (child("--memory", side, name) for side in SIDES)
    return {
        "dataset": name,
        "shape": mine["shape"],
        "cel_s": seconds["cel"],
        "sklearn_s": seconds["sklearn"],
        "ratio": seconds["cel"] / seconds["sklearn"],
        "encoded_mb": mine["bytes"] / 1e6,
        "cel_peak": mine["peak"] / mine["bytes"],
        "sklearn_peak": other["peak"] / mine["bytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    parser.add_argument("--time", help=argparse.SUPPRESS)
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.time:
        print(json.dumps(measure_time(args.time, args.repeat)))
        return
    if args.memory:
        print(json.dumps(measure_memory(*args.memory)))
        return
    rows = [compare(name, args.repeat) for name in DATASETS]
    print(
        "dataset               rows x columns     CEL  sklearn  ratio  encoded  CEL peak  sklearn"
    )
    for r in rows:
        shape = f"{r['shape'][0]} x {r['shape'][1]}"
        print(
            f"{r['dataset']:21} {shape:>14} {r['cel_s']:6.3f}s {r['sklearn_s']:7.3f}s "
            f"{r['ratio']:6.2f} {r['encoded_mb']:6.1f}MB {r['cel_peak']:8.2f}x "
            f"{r['sklearn_peak']:7.2f}x"
        )
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
