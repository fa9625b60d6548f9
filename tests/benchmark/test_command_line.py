"""`cel run` to its end: exit codes, reasons, logs that can be followed, parts that are merged."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from cel.benchmark import run
from cel.cli.progress import PlainProgress

CLI = [sys.executable, "-c", "from cel.cli import main; main()"]
HERE = Path(__file__).parent


def cel(*arguments, folder):
    """Run the command line in a folder; return exit code, output and errors."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    done = subprocess.run(
        [*CLI, *map(str, arguments)], cwd=folder, capture_output=True, text=True, env=env
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def one(tiny):
    """One dataset, one model, one fold, one quick method."""
    plain = {**tiny, "datasets": tiny["datasets"][:1], "folds": [0]}
    plain["classifiers"] = {"lr": {}}
    plain["methods"] = {"shells": {"method": "drill_methods:Shells"}}
    return plain


def _write(folder, name, suite):
    path = folder / f"{name}.json"  # JSON is YAML
    path.write_text(json.dumps(suite))
    return path


@pytest.mark.slow
def test_failed_cells_end_with_code_1_and_their_reasons(one, tmp_path):
    broken = {**one["methods"], "raises": {"method": "drill_methods:Raises"}}
    suite = _write(tmp_path, "suite", {**one, "methods": broken})
    code, out, err = cel("run", suite, "--out", "r", folder=tmp_path)
    assert code == 1
    assert "1 failed" in out
    last = err.strip().splitlines()
    assert "raises" in last[-2]
    assert "broken on purpose" in last[-2]
    assert "--allow-failures" in last[-1]
    code, _, err = cel("run", suite, "--out", "r", "--allow-failures", folder=tmp_path)
    assert code == 0
    assert "broken on purpose" in err, "allowed, not hidden"
    code, out, _ = cel("run", suite, "--out", "r", "--json", folder=tmp_path)
    assert code == 1
    told = json.loads(out)
    assert (told["done"], told["failed"]) == (1, 1)
    assert "broken on purpose" in told["failures"][0]["reason"]
    assert cel("run", suite, "--out", "r", "-q", "--allow-failures", folder=tmp_path)[1] == ""


@pytest.mark.slow
def test_a_log_can_be_followed(one, tmp_path):
    suite = _write(tmp_path, "suite", one)
    code, out, err = cel("run", suite, "--out", "r", "-v", folder=tmp_path)
    assert code == 0, err
    assert "\x1b" not in out
    lines = out.splitlines()
    assert "1 of 1 cells to do in 1 blocks" in lines[0]
    assert any("training models of" in x for x in lines)
    assert any(x.startswith("done ") and x.endswith(" s") for x in lines)


@pytest.mark.slow
def test_a_run_into_a_file_shows_life_long_before_its_end(one, tmp_path):
    """As in a batch job: the file is read while the run goes on."""
    slow = {"hangs": {"method": "drill_methods:Hangs"}}
    limits = {"time_s": 20, "grace_s": 1}
    suite = _write(tmp_path, "suite", {**one, "methods": slow, "limits": limits})
    log, start = tmp_path / "slurm.out", time.monotonic()
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    with log.open("w") as file:
        running = subprocess.Popen(
            [*CLI, "run", str(suite), "--out", "r"],
            cwd=tmp_path, stdout=file, stderr=subprocess.STDOUT, env=env,
        )  # fmt: skip
        try:
            while running.poll() is None and "cells to do" not in log.read_text():
                time.sleep(0.2)
            assert running.poll() is None, "something was said before the end"
            assert time.monotonic() - start < 60
        finally:
            running.terminate()
            running.wait(30)


def test_a_beat_a_minute_while_nothing_else_happens():
    text = io.StringIO()
    with PlainProgress(Console(file=text, width=200), every=0.05) as progress:
        progress({"event": "plan", "total": 9, "open": 9, "blocks": 3})
        progress({"event": "start", "kind": "cell", "label": "wine/0/lr/dice"})
        time.sleep(1.0)
    lines = text.getvalue().splitlines()
    assert len(lines) >= 3
    assert all("0/9 cells" in x for x in lines)
    assert "at wine/0/lr/dice" in lines[-1]


@pytest.mark.slow
def test_failed_cells_do_not_displace_good_scores(one, tmp_path):
    run(one, tmp_path / "r")
    good = (tmp_path / "r" / "scores.parquet").read_bytes()
    worse = {**one, "methods": {"shells": {"method": "drill_methods:Raises"}}}
    summary = run(worse, tmp_path / "r")
    assert summary.failed == 1
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == good
    other = {**one, "methods": {"shells": {"method": "drill_methods:SlowShells"}}}
    assert run(other, tmp_path / "r").failed == 0
    suite = json.loads((tmp_path / "r" / "suite.json").read_text())
    assert suite["methods"]["shells"]["method"] == "drill_methods:SlowShells"


@pytest.mark.slow
def test_parts_of_a_suite_are_merged(one, tiny, tmp_path):
    names = tiny["datasets"][:2]
    whole = {**one, "datasets": names}
    for name in names:
        run({**whole, "datasets": [name]}, tmp_path / name)
    run(whole, tmp_path / "whole")
    code, _, err = cel("merge", *names, "--out", "merged", folder=tmp_path)
    assert code == 0, err
    merged = pd.read_parquet(tmp_path / "merged" / "scores.parquet")
    pd.testing.assert_frame_equal(
        merged, pd.read_parquet(tmp_path / "whole" / "scores.parquet"), check_like=True
    )
    code, out, _ = cel("status", "merged", "--json", folder=tmp_path)
    assert json.loads(out)["states"] == {"done": 2}
    run({**whole, "datasets": [names[0]], "seed": 7}, tmp_path / "seed")
    code, _, err = cel("merge", names[1], "seed", "--out", "refused", folder=tmp_path)
    assert code == 2
    assert "seed is 7" in err
    assert not (tmp_path / "refused").exists()
