"""Are the results of two checkouts equal to the byte? Checksums of all that a suite stores.

    python benchmarks/bytes.py runs/now                                # run smoke, checksums
    python benchmarks/bytes.py runs/now --suite quick
    python benchmarks/bytes.py runs/now --against runs/before          # compare two folders
    python benchmarks/bytes.py runs/now --against runs/before --checkout ../before

With `--checkout` the other folder is filled by the code of that checkout. Models are trained anew
in both folders. For every cell there are two checksums: of the explanation (counterfactuals,
sets, classes, states, proofs) and of its scores without times. Files are not compared as such,
since they hold times. A method whose version has risen may differ; the command ends with 1 where
another one does, or where a cell is missing on one side.

Names of lines and packaged suites change. `benchmarks/bytes_smoke.yaml` and `bytes_quick.yaml`
name classes instead, so that old checkouts understand them, too:

    python benchmarks/bytes.py runs/now --suite benchmarks/bytes_smoke.yaml \\
        --against runs/before --checkout ../before
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
    if Path(suite).is_file():
        suite = str(Path(suite).resolve())
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
    """Return {(cell, "answers", "scores" or "version"): what it is}; keys play no part."""
    from cel.result import ExplanationResult

    root, out = Path(folder) / "run", {}
    facts = json.loads((root / "methods.json").read_text())
    for stage in ("explain", "score"):
        for place in sorted((root / "objects" / stage).glob("*")):
            spec = json.loads((place / "spec.json").read_text())
            cell = "/".join(str(spec[k]) for k in ("dataset", "fold", "model", "method"))
            if stage == "explain":
                result = ExplanationResult.from_parquet(place / "result.parquet")
                out[cell, "answers"] = digest(*(getattr(result, a, None) for a in ARRAYS))
            else:
                scores = json.loads((place / "scores.json").read_text())
                out[cell, "scores"] = digest(json.dumps(scores, sort_keys=True))
                out[cell, "version"] = facts[spec["implementation"]]["version"]
    return out


def table(now, before=None):
    """Return one line per cell: checksums, and with another run whether they are equal."""
    lines = []
    for cell in sorted({cell for cell, _ in (*now, *(before or ()))}):
        line = {"cell": cell} | {w: now.get((cell, w), "") for w in ("answers", "scores")}
        if before is not None:
            line["answers equal"], line["scores equal"] = (
                now.get((cell, w)) == before.get((cell, w)) for w in ("answers", "scores")
            )
        was, is_ = ((before or now).get((cell, "version")), now.get((cell, "version")))
        line["version"] = str(is_) if was == is_ else f"{was} -> {is_}"
        lines.append(line)
    return pd.DataFrame(lines)


def verdict(found):
    """Return the cells that are equal, those that may differ, and those that must not."""
    equal = found["answers equal"] & found["scores equal"]
    risen = found["version"].str.contains("->") & ~found["version"].str.contains("None")
    return [list(found.loc[w, "cell"]) for w in (equal, ~equal & risen, ~equal & ~risen)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suite", default="smoke", help="a packaged suite or a file")
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
    whole = digest(json.dumps(sorted((*k, str(v)) for k, v in now.items())))
    print(f"{len(found)} cells, all together {whole}")
    if before is not None:
        equal, risen, wrong = verdict(found)
        print(f"{len(equal)} equal, {len(risen)} of methods whose version has risen")
        print(f"{len(wrong)} differ that should not: {', '.join(wrong) or 'none'}")
        sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
