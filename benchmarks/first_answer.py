"""Time the first counterfactual of the README, from an empty folder after installation.

    python benchmarks/first_answer.py

The first block below "A first counterfactual" is run as printed by a fresh Python in an empty
folder, with an empty cache and no data folder. Prints seconds on the clock and of the processor;
what counts is that both are far below two minutes.
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def main() -> None:
    text = README.read_text(encoding="utf8").split("## A first counterfactual", 1)[1]
    block = re.search(r"^```python\n(.*?)^```", text, re.S | re.M)
    assert block is not None
    with tempfile.TemporaryDirectory() as folder:
        hidden = ("CEL_", "XDG_", "HOME")
        known = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", block.group(1)], cwd=folder, text=True, capture_output=True,
            env={**known, "HOME": folder}, check=False,
        )  # fmt: skip
        seconds = time.perf_counter() - started
    print(done.stdout[-600:] + done.stderr[-600:])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{seconds:.1f} s on the clock, {used.ru_utime + used.ru_stime:.1f} s of the processor")
    raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
