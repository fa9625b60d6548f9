"""Are the results of two checkouts equal to the byte? Checksums of all that a suite stores.

    python benchmarks/bytes.py runs/now                                # run smoke, checksums
    python benchmarks/bytes.py runs/now --suite quick
    python benchmarks/bytes.py runs/now --against runs/before          # compare two folders
    python benchmarks/bytes.py runs/now --against runs/before --checkout ../before

With `--checkout` the other folder is filled by the code of that checkout. Models are trained anew
in both folders. For every cell there are two checksums: of the explanation (counterfactuals,
sets, classes, states, proofs) and of its scores without times. Files are not compared as such,
since they hold times. The command ends with 1 where anything differs or is missing on one side.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
ARRAYS = (
    "source_ids", "x_origs", "x_cfs", "x_sets", "y_origs", "y_cfs", "y_cf_targets", "status",
    "bound", "proof",
)  # fmt: skip


def fill(folder, suite, checkout, jobs):
    """Run a suite with the code of a checkout; what a folder holds already is kept."""
    code = (
        "import sys; from cel.benchmark import run; "
        "run(sys.argv[1], sys.argv[2], jobs=int(sys.argv[3]))"
    )
    own = {"PYTHONPATH": str(Path(checkout).resolve() / "src"), "OMP_NUM_THREADS": "1"}
    own["CEL_STORE"] = str(Path(folder).resolve() / "models")  # not the user's trained models
    command = [sys.executable, "-c", code, suite, str(Path(folder).resolve() / "run"), str(jobs)]
    subprocess.run(command, check=True, env=os.environ | own, cwd=checkout)


def digest(*parts):
    """Return 16 digits for arrays, texts and numbers."""
    made = hashlib.blake2b(digest_size=8)
    for part in parts:
        if part is None:
            made.update(b"none")
            continue
        values = np.asarray(part)
        if values.dtype == object or values.dtype.kind in "US":
            made.update(json.dumps(values.tolist(), default=str).encode())
        else:
            made.update(f"{values.dtype}{values.shape}".encode())
            made.update(np.ascontiguousarray(values).tobytes())
    return made.hexdigest()


def told(folder):
    """Return {(cell, "answers" or "scores"): checksum} of a folder; keys play no part."""
    from cel.result import ExplanationResult

    out = {}
    for stage in ("explain", "score"):
        for place in sorted((Path(folder) / "run" / "objects" / stage).glob("*")):
            spec = json.loads((place / "spec.json").read_text())
            cell = "/".join(str(spec[k]) for k in ("dataset", "fold", "model", "method"))
            if stage == "explain":
                result = ExplanationResult.from_parquet(place / "result.parquet")
                out[cell, "answers"] = digest(*(getattr(result, a, None) for a in ARRAYS))
            else:
                scores = json.loads((place / "scores.json").read_text())
                out[cell, "scores"] = digest(json.dumps(scores, sort_keys=True))
    return out


def table(now, before=None):
    """Return one line per cell: checksums, and whether they are equal."""
    cells = sorted({cell for cell, _ in (*now, *(before or ()))})
    lines = []
    for cell in cells:
        line = {"cell": cell}
        for what in ("answers", "scores"):
            line[what] = now.get((cell, what), "")
            if before is not None:
                same = now.get((cell, what)) == before.get((cell, what))
                line[f"{what} equal"] = same
        lines.append(line)
    return pd.DataFrame(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suite", default="smoke")
    parser.add_argument("--against", type=Path, help="another folder of this command")
    parser.add_argument("--checkout", type=Path, help="fill the other folder with its code")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    fill(options.folder, options.suite, ROOT, options.jobs)
    if options.checkout is not None:
        fill(options.against, options.suite, options.checkout, options.jobs)
    now = told(options.folder)
    before = None if options.against is None else told(options.against)
    found = table(now, before)
    with pd.option_context("display.max_rows", None, "display.width", 200):
        print(found.to_string(index=False))
    whole = digest(json.dumps(sorted((*k, v) for k, v in now.items())))
    print(f"{len(found)} cells, all together {whole}")
    if before is not None:
        other = found[~(found["answers equal"] & found["scores equal"])]
        print(f"{len(found) - len(other)} equal, {len(other)} not: {', '.join(other['cell'])}")
        sys.exit(1 if len(other) else 0)


if __name__ == "__main__":
    main()
