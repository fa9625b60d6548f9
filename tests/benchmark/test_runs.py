"""Runs: only what is missing, and misbehaving methods harm nobody else."""

import json

import pandas as pd
import pytest

from cel.benchmark import collect, open_run, run
from cel.benchmark.collect import cell_table


def _table(folder):
    store, plan = open_run(folder)
    return collect(store, plan, times=False)


def test_second_run_starts_nothing_and_a_new_method_only_its_cells(tiny, tmp_path):
    first = run(tiny, tmp_path / "r")
    assert (first.ran, first.done, first.failed) == (12, 12, 0)
    before = (tmp_path / "r" / "scores.parquet").read_bytes()
    second = run(tiny, tmp_path / "r")
    assert (second.ran, second.done) == (0, 12)
    assert (tmp_path / "r" / "scores.parquet").read_bytes() == before
    more = tiny | {
        "methods": {
            **tiny["methods"],
            "new": {"method": "drill_methods:Shells", "params": {"random_state": 9}},
        }
    }
    third = run(more, tmp_path / "r")
    assert (third.ran, third.done) == (4, 16)


def test_metrics_can_be_recomputed_without_explaining_again(tiny, tmp_path):
    run(tiny, tmp_path / "r")
    store, _ = open_run(tmp_path / "r")
    explained = {
        k: (store.folder("explain", k) / "result.parquet").stat().st_mtime_ns
        for k in store.keys("explain")
    }
    again = run(tiny | {"extra_metrics": ["redundancy"]}, tmp_path / "r")
    assert again.ran == 12
    assert "redundancy" in set(_table(tmp_path / "r")["metric"])
    assert explained == {
        k: (store.folder("explain", k) / "result.parquet").stat().st_mtime_ns
        for k in store.keys("explain")
    }


def test_misbehaving_methods_become_rows(tiny, tmp_path):
    bad = {
        "name": "bad", "datasets": ["moons"], "folds": [0],
        "limits": {"time_s": 2, "grace_s": 1, "train_s": 3, "memory_mb": 1500},
        "methods": {
            "raises": {"method": "drill_methods:Raises"},
            "hangs": {"method": "drill_methods:Hangs"},
            "shape": {"method": "drill_methods:WrongShape"},
            "memory": {"method": "drill_methods:EatsMemory"},
            "dies": {"method": "drill_methods:Dies"},
            "good": {"method": "drill_methods:Shells"},
        },
    }  # fmt: skip
    summary = run(tiny | bad, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    cells = cell_table(store, plan).set_index("method")
    assert cells.loc["good", "state"] == "done"
    assert cells.loc["raises", "state"] == "error"
    assert "broken on purpose" in cells.loc["raises", "reason"]
    assert cells.loc["hangs", "state"] == "timeout"
    assert cells.loc["memory", "state"] == "memory"
    assert cells.loc["dies", "state"] == "died"
    assert cells.loc["shape", "state"] in ("error", "skip")
    assert "shape" in cells.loc["shape", "reason"]
    assert summary.done == 1
    trace = store.failure(cells.loc["raises", "key"])["traceback"]
    assert "drill_methods.py" in trace
    assert run(tiny | bad, tmp_path / "r").ran == 0


def test_failures_are_retried_when_asked(tiny, tmp_path):
    suite = tiny | {
        "datasets": ["moons"],
        "folds": [0],
        "methods": {"raises": {"method": "drill_methods:Raises"}},
    }
    assert run(suite, tmp_path / "r").failed == 1
    assert run(suite, tmp_path / "r").ran == 0
    assert run(suite, tmp_path / "r", retry_failed=True).ran == 1


def test_a_damaged_cell_is_computed_again(tiny, tmp_path):
    run(tiny, tmp_path / "r")
    before = _table(tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    victim = plan.cells[0]
    (store.folder("score", victim.score_key) / "scores.json").write_text("{")
    result = store.folder("explain", victim.explain_key) / "result.parquet"
    result.write_bytes(result.read_bytes()[:100])
    assert run(tiny, tmp_path / "r").ran == 1
    pd.testing.assert_frame_equal(_table(tmp_path / "r"), before)


def test_a_store_tells_where_it_stands(tiny, tmp_path):
    from typer.testing import CliRunner

    from cel.cli.app import app

    run(tiny, tmp_path / "r", shard=(1, 2))
    answer = CliRunner().invoke(app, ["status", str(tmp_path / "r"), "--json"])
    assert json.loads(answer.stdout)["states"] == {"done": 6, "missing": 6}
    dry = CliRunner().invoke(app, ["export", str(tmp_path / "r"), "csv"])
    assert dry.exit_code == 0
    assert len(pd.read_csv(tmp_path / "r" / "scores.csv")) > 100


@pytest.mark.slow
def test_jobs_and_shards_give_the_same_bytes(tiny, tmp_path):
    run(tiny, tmp_path / "one")
    wanted = (tmp_path / "one" / "scores.parquet").read_bytes()
    run(tiny, tmp_path / "two", jobs=2)
    assert (tmp_path / "two" / "scores.parquet").read_bytes() == wanted
    from typer.testing import CliRunner

    from cel.cli.app import app

    parts = [tmp_path / f"shard{i}" for i in (1, 2, 3)]
    for i, part in enumerate(parts, 1):
        run(tiny, part, shard=(i, 3))
    merged = tmp_path / "merged"
    answer = CliRunner().invoke(app, ["merge", *map(str, parts), "--out", str(merged)])
    assert answer.exit_code == 0, answer.output
    assert (merged / "scores.parquet").read_bytes() == wanted
