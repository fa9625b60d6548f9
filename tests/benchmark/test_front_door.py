"""The commands of the README, run as a user runs them: processes in an empty folder."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

from cel.benchmark.shipped import shipped_table
from cel.benchmark.spec import load_suite
from cel.cf_methods import METHODS
from cel.protocols import Need

DOCS = Path(__file__).parents[2] / "docs"


def cel(*arguments, folder, **environment):
    """Run the command line in a folder and return what it printed."""
    command = [sys.executable, "-c", "from cel.cli import main; main()", *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=os.environ | environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_smoke_runs_every_method_and_the_report_finds_it(tmp_path):
    said = cel("run", "smoke", "-j", "2", folder=tmp_path)
    assert "0 failed" in said
    states = json.loads(cel("status", "runs/smoke", "--json", folder=tmp_path))["states"]
    assert set(states) == {"done"}
    scores = pd.read_parquet(tmp_path / "runs" / "smoke" / "scores.parquet")
    lines = {m.label: m.method for m in load_suite("smoke").methods}
    assert set(lines) == set(scores["method"])
    trees = {n for n, cls in METHODS.items() if Need.TREES in cls.needs}
    assert set(METHODS) - trees == set(lines.values()), "every method but those of trees"
    told = scores[scores["metric"] == "success"]
    assert told["value"].between(0, 1).all()
    success = told[told["method"] != "tcrex"]["value"]  # clipping into a box seldom suffices
    assert success.mean() > 0.9
    again = cel("run", "smoke", folder=tmp_path)
    assert f"0 of {len(told)} cells started" in again
    cel("report", folder=tmp_path)
    page = (tmp_path / "runs" / "smoke" / "report" / "index.html").read_text(encoding="utf8")
    assert "https://" not in page.split("<body", 1)[0]


def test_bring_only_your_method(tmp_path):
    """The method of the docs on one dataset of `quick`, beside the shipped scores."""
    text = (DOCS / "extending" / "method.md").read_text(encoding="utf8")
    (code,) = re.findall(r"```python\n(# shells.py.*?)```", text, re.DOTALL)
    (tmp_path / "mypkg.py").write_text(code)
    method = ["-m", "mypkg:RandomShells", "-d", "wine", "--fold", "0"]
    said = cel("run", "quick", *method, folder=tmp_path, PYTHONPATH=str(tmp_path))
    assert "2 of 2 cells started, 2 have scores" in said
    cel("report", folder=tmp_path)
    report = tmp_path / "runs" / "quick" / "report"
    board = pd.concat(pd.read_csv(p) for p in report.glob("scores*.csv"))
    shipped = set(shipped_table("quick")["method"])
    assert {"wachter_exact", "elastic_net", "cadex"} <= shipped
    assert {*shipped, "random_shells"} <= {*board["method"], "cearm"}  # cearm: of regression here
    assert set(board["source"]) == {"run", "shipped baseline"}
