"""CSV to encoded float32 arrays: CEL beside pandas.read_csv + scikit-learn's ColumnTransformer.

    CEL_DATA=... python benchmarks/data.py [--repeat 5] [--json FILE]

Both sides read the same columns of the same raw file, drop rows with gaps, scale numbers to [0, 1]
and one-hot encode labels (ranks for ordered ones). CEL's side is its normal path: search, sha256,
checks against the card, pipeline. Each side runs in a process of its own; memory is the growth of
the resident set over its value after imports and a warm-up on a tiny table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

DATASETS = ("adult", "give_me_some_credit")


def ours(name: str) -> np.ndarray:
    from cel.datasets import FileDataset
    from cel.preprocessing import PreprocessingPipeline

    table = all_rows(FileDataset(name))
    return PreprocessingPipeline().fit_transform(table.frame, table.space)


def all_rows(dataset):
    """Return the table before balancing, which both sides leave out."""
    from cel.datasets.reading import columns_of, read_columns
    from cel.datasets.table import build_table

    rows = dataset.card.rows.model_copy(update={"downsample": False})
    card = dataset.card.model_copy(update={"rows": rows})
    source, paths = dataset.files()
    values = read_columns(paths[0], columns_of(card), card, source.format)
    return build_table(values, card, name_of(paths[0]))


def name_of(path: Path) -> str:
    return str(path)


def theirs(name: str) -> np.ndarray:
    import pandas as pd
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder

    from cel.datasets import FileDataset

    dataset = FileDataset(name)
    card = dataset.card
    path = dataset.find()[1][0]
    used = [f.header for f in card.features]
    frame = pd.read_csv(path, usecols=[*used, *card.target.columns], skipinitialspace=True).dropna()
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


SIDES = {"cel": ours, "pandas + sklearn": theirs}


def resident() -> int:
    """Return the peak resident set of this process in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(side: str, name: str, repeat: int) -> None:
    """Child process: print seconds and bytes as JSON."""
    import pandas as pd  # noqa: F401
    import sklearn.compose
    import sklearn.preprocessing  # noqa: F401

    from cel.datasets import FileDataset

    FileDataset("wine").split()
    before = resident()
    start = time.perf_counter()
    encoded = SIDES[side](name)
    times = [time.perf_counter() - start]
    peak = resident() - before
    shape = encoded.shape
    size = encoded.nbytes
    del encoded
    for _ in range(repeat - 1):
        start = time.perf_counter()
        SIDES[side](name)
        times.append(time.perf_counter() - start)
    result = {"seconds": times, "peak": peak, "encoded": size, "shape": shape}
    print(json.dumps(result))


def child(side: str, name: str, repeat: int) -> dict:
    command = [sys.executable, __file__, "--side", side, "--dataset", name]
    output = subprocess.run(
        [*command, "--repeat", str(repeat)], check=True, capture_output=True, text=True
    )
    return json.loads(output.stdout.splitlines()[-1])


def compare(name: str, repeat: int) -> dict:
    runs = {side: child(side, name, repeat) for side in SIDES}
    mine, other = runs["cel"], runs["pandas + sklearn"]
    return {
        "dataset": name,
        "shape": mine["shape"],
        "cel_s": statistics.median(mine["seconds"]),
        "sklearn_s": statistics.median(other["seconds"]),
        "ratio": statistics.median(mine["seconds"]) / statistics.median(other["seconds"]),
        "encoded_mb": mine["encoded"] / 1e6,
        "cel_peak": mine["peak"] / mine["encoded"],
        "sklearn_peak": other["peak"] / mine["encoded"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--side", choices=sorted(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--dataset", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        measure(args.side, args.dataset, args.repeat)
        return
    rows = [compare(name, args.repeat) for name in DATASETS]
    print(f"{'dataset':22}{'rows x columns':>16}{'CEL':>9}{'sklearn':>9}{'ratio':>7}"
          f"{'encoded':>10}{'CEL peak':>10}{'sklearn':>9}")  # fmt: skip
    for r in rows:
        shape = f"{r['shape'][0]} x {r['shape'][1]}"
        print(f"{r['dataset']:22}{shape:>16}{r['cel_s']:8.3f}s{r['sklearn_s']:8.3f}s"
              f"{r['ratio']:7.2f}{r['encoded_mb']:8.1f}MB{r['cel_peak']:9.2f}x"
              f"{r['sklearn_peak']:8.2f}x")  # fmt: skip
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
