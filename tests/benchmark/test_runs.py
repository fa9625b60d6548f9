"""Runs: only what is missing, and misbehaving methods harm nobody else."""

import json
import threading

import numpy as np
import pandas as pd
import pytest

from cel.benchmark import collect, open_run, run
from cel.benchmark.estimate import largest_first
from cel.benchmark.score_tables import cell_table
from cel.benchmark.supervisor import Supervisor
from cel.benchmark.tasks import WorkItem


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
        "limits": {"time_s": 2, "grace_s": 5, "train_s": 5, "memory_mb": 1500},
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


def test_parts_of_a_suite_gather_in_one_folder(tiny, tmp_path):
    whole, only = dict(tiny["methods"]), {"shells": tiny["methods"]["shells"]}
    run(tiny | {"methods": only, "datasets": ["moons"]}, tmp_path / "r")
    part = run(tiny | {"methods": only, "datasets": ["wine"], "folds": [0]}, tmp_path / "r")
    assert (part.ran, part.total) == (1, 1)
    assert set(_table(tmp_path / "r")["dataset"]) == {"moons", "wine"}
    late = run(tiny | {"methods": {"again": whole["again"]}}, tmp_path / "r")
    assert late.ran == 4
    assert set(_table(tmp_path / "r")["method"]) == {"shells", "again"}
    run(tiny | {"methods": only, "datasets": ["moons"], "seed": 1}, tmp_path / "r")
    assert set(_table(tmp_path / "r")["dataset"]) == {"moons"}


def test_a_run_can_be_read_where_its_methods_are_not_installed(tiny, tmp_path, monkeypatch):
    import sys

    from typer.testing import CliRunner

    from cel.cli.app import app
    from cel.report import write_report

    run(tiny | {"datasets": ["moons"], "folds": [0]}, tmp_path / "r")
    part = ["merge", str(tmp_path / "r"), "--out", str(tmp_path / "m")]
    assert CliRunner().invoke(app, part).exit_code == 0
    here = [p for p in sys.path if not p.endswith("benchmark")]
    monkeypatch.setattr(sys, "path", here)
    monkeypatch.delitem(sys.modules, "drill_methods", raising=False)
    for folder in ("r", "m"):
        assert set(_table(tmp_path / folder)["method"]) == {"shells", "slow", "again"}
    made = write_report(tmp_path / "r", tmp_path / "report")
    assert "shells" in made.page.read_text(encoding="utf8")


def test_stacked_training_makes_the_models_first(tiny, tmp_path):
    suite = tiny | {
        "classifiers": {"mlp": {"epochs": 3}}, "density": {"model": "maf", "epochs": 2},
        "methods": {"shells": tiny["methods"]["shells"]},
    }  # fmt: skip
    events = []
    summary = run(suite, tmp_path / "r", stack=True, watch=events.append)
    assert (summary.done, summary.failed) == (4, 0)
    stacks = [e["label"] for e in events if e["event"] == "stacked"]
    assert stacks == [
        f"{d}: 2 of {s}" for d in ("moons", "wine") for s in ("predictor", "density")
    ]
    first_cell = next(i for i, e in enumerate(events) if e.get("kind") == "cell")
    assert all(e["event"] != "stacked" for e in events[first_cell:])
    assert run(suite, tmp_path / "r", stack=True).ran == 0


def _supervised(tmp_path, monkeypatch, feed, jobs):
    monkeypatch.setattr(Supervisor, "_start", lambda self: None)
    monkeypatch.setattr(Supervisor, "_feed", lambda self, worker, task: feed(self, task))
    monkeypatch.setattr("cel.benchmark.supervisor.usable_cores", lambda: jobs)
    return Supervisor(tmp_path, jobs=jobs, report=print, log=tmp_path / "log")


def _stack(dataset):
    return WorkItem({}, dataset, None, None, [], ["a", "b"])


def _block(dataset, fold=0):
    return WorkItem({}, dataset, fold, "mlp", ["cell"])


def test_blocks_wait_for_the_stack_of_their_own_dataset_only(tmp_path, monkeypatch):
    other_explained, seen = threading.Event(), []

    def feed(supervisor, task):
        if task.is_stack and task.dataset == "adult":
            seen.append(("waited", other_explained.wait(10)))
        seen.append((task.dataset, task.is_stack))
        if not task.is_stack and task.dataset == "moons":
            other_explained.set()
        return False

    supervisor = _supervised(tmp_path, monkeypatch, feed, 2)
    supervisor.run([_block("adult"), _block("moons")], [_stack("adult"), _stack("moons")])
    assert seen.index(("moons", True)) < seen.index(("moons", False))
    assert seen.index(("moons", False)) < seen.index(("waited", True))
    assert seen.index(("adult", True)) < seen.index(("adult", False))
    assert len(seen) == 5


def test_a_stack_that_is_tried_again_still_holds_its_blocks(tmp_path, monkeypatch):
    seen = []

    def feed(supervisor, task):
        seen.append(task.is_stack)
        if seen == [True]:
            supervisor._put(task)  # its worker died
        return False

    _supervised(tmp_path, monkeypatch, feed, 1).run([_block("moons")], [_stack("moons")])
    assert seen == [True, True, False]


def test_tasks_begin_with_the_largest_dataset(tmp_path, monkeypatch):
    given = [
        _block("moons"),
        _block("adult"),
        _block("wine"),
        _block("somebody's"),
        _block("heloc"),
    ]
    ordered = [t.dataset for t in largest_first(given)]
    assert ordered == ["somebody's", "adult", "heloc", "moons", "wine"]
    seen = []

    def feed(supervisor, task):
        seen.append((task.dataset, task.is_stack))
        return False

    supervisor = _supervised(tmp_path, monkeypatch, feed, 1)
    supervisor.run([_block("adult"), _block("moons"), _block("wine")], [_stack("adult")])
    assert seen == [("adult", True), ("adult", False), ("moons", False), ("wine", False)]


def test_a_shard_stacks_its_own_blocks_alone(tiny, tmp_path):
    suite = tiny | {"methods": {"shells": tiny["methods"]["shells"]}, "folds": [0, 1, 2, 3]}
    run(suite, tmp_path / "r", shard=(1, 2), stack=True)
    store, plan = open_run(tmp_path / "r")
    mine = {b.density_key for b in plan.shard(1, 2).blocks}
    assert set(store.keys("density")) == mine
    assert 0 < len(mine) < len(plan.blocks)


def test_a_stack_that_fails_leaves_its_models_to_the_blocks(tiny, tmp_path):
    suite = tiny | {
        "datasets": ["moons"], "methods": {"shells": tiny["methods"]["shells"]},
        "classifiers": {"mlp": {"epochs": 3, "lr": 1e30}},
    }  # fmt: skip
    events = []
    summary = run(suite, tmp_path / "r", stack=True, watch=events.append)
    assert any(e["event"] == "stack_failed" for e in events)
    assert (summary.ran, summary.done, summary.failed) == (2, 0, 2)
    store, plan = open_run(tmp_path / "r")
    assert cell_table(store, plan)["reason"].str.contains("loss was not finite").all()


def test_a_cell_has_the_scores_that_its_parts_give(tmp_path):
    """Dataset, model, density, method and orchestrator by hand: every score of the stored cell."""
    from cel.benchmark.keys import seed_of
    from cel.benchmark.metric_entries import metric_entries
    from cel.cf_methods import METHODS
    from cel.datasets import FileDataset
    from cel.metrics import MetricsOrchestrator
    from cel.models import MODELS
    from cel.result import EvaluationContext

    suite = {
        "name": "hand", "datasets": ["wine"], "folds": [1], "classifiers": {"lr": {}},
        "density": {"model": "gmm"}, "methods": {"wachter": {}, "ppcef": {}},
    }  # fmt: skip
    run(suite, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    (block,) = plan.blocks
    split = FileDataset(config_path="wine", binary=True).fold(1)
    model = MODELS.get("lr")(random_state=seed_of(block.predictor_key, "fit"))
    model.fit(split.loader("train"))
    x_train = np.concatenate([split.train.X, split.valid.X])

    def labels(x):
        return model.predict_proba(x).argmax(1)

    density = MODELS.get("gmm")(random_state=seed_of(block.density_key, "fit"))
    valid = (split.valid.X, labels(split.valid.X))
    density.fit(split.train.X, labels(split.train.X), space=split.space, valid=valid)
    context = EvaluationContext(
        model=model, density=density, x_train=x_train, y_train=labels(x_train),
        x_test=split.test.X, y_test=labels(split.test.X),
    )  # fmt: skip
    goal = split.target.desired_position
    rows = split.test.X[labels(split.test.X) != goal]
    for cell in block.cells:
        extra = {"gen_model": density} if cell.method.method == "ppcef" else {}
        seed = seed_of(cell.explain_key, "explain")
        cls, params = METHODS.get(cell.method.method), cell.method.params
        method = cls(model, random_state=seed, **extra, **params).fit(split)
        result = method.explain(rows, split.target.classes[goal]).with_context(context)
        scores = MetricsOrchestrator(metrics=metric_entries(plan.suite)).compute(result)
        table = collect(store, plan, times=False)
        stored = table[table["method"] == cell.method.label].set_index("metric")["value"]
        names = [n for n in stored.index if n in scores]
        assert len(names) > 20
        by_hand = np.array([float(scores[n]) for n in names])
        np.testing.assert_array_equal(by_hand, stored[names].to_numpy())
