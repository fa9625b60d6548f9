"""Which stacks train on the device, in which order, and how many at once."""

import copy
import itertools
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cel.benchmark import cluster, estimate, kept_references, open_run, run
from cel.benchmark.estimate import BlockCost, block_costs, trains_as_measured
from cel.benchmark.gpu_places import FASTER, STACKS
from cel.benchmark.kept_references import references_of
from cel.benchmark.plan import make_plan
from cel.benchmark.row_scores import compare_finished, compare_rows, write_cell
from cel.benchmark.runner import _in_turn, pending_tasks
from cel.benchmark.spec import load_suite
from cel.benchmark.stack_placement import (
    ON_DEVICE,
    SMALL_S,
    TOGETHER,
    Passage,
    flow_order,
    longest_first,
    stacks_in_turn,
)
from cel.benchmark.stacked import stacks
from cel.benchmark.stages import Workbench
from cel.benchmark.store import Store
from cel.benchmark.supervisor import Supervisor
from cel.benchmark.tasks import WorkItem, next_block
from cel.benchmark.worker import work
from cel.datasets import load_dataset
from cel.datasets.catalogue import summarise
from cel.metrics import MetricsOrchestrator
from cel.metrics.example import example


def _stack(dataset, small=False):
    return WorkItem({}, dataset, None, None, [], ["a", "b"], small=small)


def _block(dataset, fold=0):
    return WorkItem({}, dataset, fold, "mlp", ["cell"])


def _both_machines(passages):
    trained = explained = 0.0
    for passage in passages:
        trained += passage.training
        explained = max(explained, trained) + passage.explaining
    return explained


@pytest.mark.parametrize("seed", range(8))
def test_no_order_of_stacks_ends_sooner(seed):
    times = np.random.default_rng(seed).uniform(1, 20, (6, 2))
    given = [Passage(_stack(str(i)), *pair) for i, pair in enumerate(times.tolist())]
    of = {id(p.stack): p for p in given}
    chosen = [of[id(stack)] for stack in flow_order(given)]
    best = min(map(_both_machines, itertools.permutations(given)))
    assert len(chosen) == 6
    assert _both_machines(chosen) == pytest.approx(best)


# -- which of them are small -----------------------------------------------------------------


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    plan = make_plan(load_suite("paper"))
    store = Store(tmp_path_factory.mktemp("empty"))
    return plan, store, block_costs(plan, store)


def test_small_datasets_may_train_on_cores_and_large_ones_go_first(paper):
    plan, store, costs = paper
    turn = stacks_in_turn(stacks(plan, store), plan.suite, costs, 16)
    small = [s.dataset for s in turn if s.small]
    large = [s.dataset for s in turn if not s.small]
    assert [s.dataset for s in turn] == large + small
    training, explaining = (
        {
            d: sum(getattr(c, of) for (name, _, _), c in costs.items() if name == d)
            for d in large + small
        }
        for of in ("training", "explaining")
    )
    assert {"adult", "scm20d"} <= set(large)
    assert {"wine", "moons", "law"} <= set(small)
    most = SMALL_S / TOGETHER
    assert max(training[d] for d in small) <= most < min(training[d] for d in large)
    slow = {d for d in large if ON_DEVICE * training[d] > explaining[d] / 16}
    quick = [d for d in large if d not in slow]  # soon trained, long to explain
    assert quick
    assert quick == sorted(quick, key=training.__getitem__)
    assert large == quick + sorted(slow, key=explaining.__getitem__, reverse=True)


def test_with_few_workers_all_train_on_the_device(paper):
    plan, store, costs = paper
    assert not any(s.small for s in stacks_in_turn(stacks(plan, store), plan.suite, costs, STACKS))


def test_models_that_nobody_has_measured_stay_on_the_device(paper):
    plan, store, costs = paper
    suite = plan.suite
    own = replace(suite, classifiers={"mlp": {"epochs": 10**6}, "lr": {}})
    assert not any(s.small for s in stacks_in_turn(stacks(plan, store), own, costs, 16))
    assert trains_as_measured(suite, "wine")
    assert trains_as_measured(load_suite("standard"), "wine")  # with kernels and mixtures
    assert not trains_as_measured(suite, "somebody's")
    for other in (
        {"classifiers": {"mlp": {"epochs": 10**6}}},
        {"regressors": {"mine:Model": {}}},
        {"density": {"model": "maf", "epochs": 10**6}},
        {"density": {**suite.density, "hidden": 4096}},
        {"density": {k: v for k, v in suite.density.items() if k != "preset"}},
        {"judges": {"flow": {"hidden": 4096}}},
    ):
        assert not trains_as_measured(replace(suite, **other), "wine")


def test_a_preset_is_part_of_the_estimate(paper):
    plan, store, costs = paper
    plain = replace(plan.suite, classifiers={"mlp": {}, "lr": {}}, density={})
    usual = block_costs(make_plan(plain), store)
    name = ("adult", 0, "mlp")
    autoencoder = 2.5 + 1.5 * 3.2  # about
    assert usual[name].training == pytest.approx(9 + 41 + autoencoder, abs=1)
    measured = estimate._timings()["preset"]["paper"]
    longer = costs[name].training - usual[name].training
    own = [measured[stage]["adult"] for stage in ("predictor", "density")]
    assert longer == pytest.approx(sum(own) - 9 - 41)
    assert costs[name].explaining == pytest.approx(usual[name].explaining)
    name = ("mixed", 0, "mlp")  # not measured: so many times the default
    other, plain = (
        block_costs(make_plan(replace(s, datasets=("mixed",))), store)[name].training
        for s in (plan.suite, plain)
    )
    times = measured["longer"]
    more = (times["predictor"] - 1) * 0.7 + (times["density"] - 1) * 3
    assert other - plain == pytest.approx(more)


def test_blocks_that_take_long_go_first():
    blocks = [_block("a"), _block("b"), _block("unknown"), _block("c")]
    costs = {(d, 0, "mlp"): BlockCost(100.0, s) for d, s in zip("abc", (1, 3, 2), strict=True)}
    assert [t.dataset for t in longest_first(blocks, costs)] == ["unknown", "b", "c", "a"]


def test_runs_on_the_cpu_keep_their_order(paper):
    plan, store, costs = paper
    tasks, first = pending_tasks(plan, store), stacks(plan, store)
    blocks, turn = _in_turn(plan, store, tasks, first, 16, "cpu")
    assert blocks[0].dataset == turn[0].dataset == "adult"
    assert not any(s.small for s in turn)
    _, turn = _in_turn(plan, store, tasks, first, 1, "cuda:0")
    training = {
        d: sum(c.training for k, c in costs.items() if k[0] == d) for d in plan.suite.datasets
    }
    ends = turn[0].dataset, turn[-1].dataset  # alone, the quickest to train goes first
    assert ends == (min(training, key=training.get), max(training, key=training.get))


# -- the supervisor --------------------------------------------------------------------------


class _Crowd:
    """Workers that only note who works beside whom."""

    def __init__(self, tmp_path, monkeypatch, jobs, device="cuda"):
        monkeypatch.setattr(Supervisor, "_start", lambda self: None)
        monkeypatch.setattr(Supervisor, "_feed", lambda _, worker, task: self.feed(task))
        monkeypatch.setattr("cel.benchmark.supervisor.usable_cores", lambda: jobs)
        self.supervisor = Supervisor(
            tmp_path, jobs=jobs, device=device, report=print, log=tmp_path / "log"
        )
        self.lock, self.all_here = threading.Lock(), threading.Barrier(jobs, timeout=10)
        self.meet, self.now, self.most, self.seen = set(), 0, 0, []

    def run(self, tasks, stacks):
        """Run all, and fail if somebody waits for ever."""
        running = threading.Thread(target=self.supervisor.run, args=(tasks, stacks), daemon=True)
        running.start()
        running.join(20)
        assert not running.is_alive()

    def feed(self, task):
        on_device = task.is_stack and task.device != "cpu"
        with self.lock:
            self.now += on_device
            self.most = max(self.most, self.now)
            self.seen.append((task.dataset, task.is_stack, task.device))
        if (task.dataset, task.is_stack) in self.meet:
            self.all_here.wait()  # so many at once, or the test fails
        with self.lock:
            self.now -= on_device
        return True


def test_few_stacks_train_at_once_and_others_explain_meanwhile(tmp_path, monkeypatch):
    crowd = _Crowd(tmp_path, monkeypatch, STACKS + 1)
    first = [_stack(str(i)) for i in range(STACKS)]
    crowd.meet = {(s.dataset, True) for s in first} | {("free", False)}
    crowd.run([_block("free"), _block("9")], [*first, _stack("9"), _stack("8")])
    assert crowd.most == STACKS
    assert {device for _, is_stack, device in crowd.seen if is_stack} == {""}
    assert sorted(d for d, is_stack, _ in crowd.seen if is_stack) == ["0", "1", "2", "3", "8", "9"]
    assert crowd.seen.index(("9", True, "")) < crowd.seen.index(("9", False, ""))


def test_small_stacks_train_on_cores_while_the_device_is_full(tmp_path, monkeypatch):
    crowd = _Crowd(tmp_path, monkeypatch, STACKS + 2)
    large, small = [_stack(str(i)) for i in range(STACKS)], [_stack("s", True), _stack("t", True)]
    crowd.meet = {(s.dataset, True) for s in [*large, *small]}
    crowd.run([_block("s")], [*large, *small])
    assert crowd.most == STACKS
    assert ("s", True, "cpu") in crowd.seen
    assert ("t", True, "cpu") in crowd.seen
    assert crowd.seen[-1][:2] == ("s", False)


def test_a_small_stack_on_a_core_takes_no_place(tmp_path, monkeypatch):
    crowd, second = _Crowd(tmp_path, monkeypatch, 2), threading.Event()
    monkeypatch.setattr("cel.benchmark.supervisor.STACKS", 1)
    crowd.meet, usual, waited = {("a", True), ("s", True)}, crowd.feed, []

    def feed(task):
        if task.dataset == "b":
            second.set()
        out = usual(task)
        if task.dataset == "s":
            waited.append(second.wait(10))  # still at work when the next large one begins
        return out

    crowd.feed = feed
    crowd.run([], [_stack("a"), _stack("s", True), _stack("b")])
    assert waited == [True]


def test_small_stacks_train_on_a_device_that_is_free(tmp_path, monkeypatch):
    crowd = _Crowd(tmp_path, monkeypatch, 2)
    crowd.meet = {("s", True), ("t", True)}
    crowd.run([], [_stack("s", True), _stack("t", True)])
    assert [device for _, _, device in crowd.seen] == ["", ""]


def test_on_the_cpu_every_worker_trains(tmp_path, monkeypatch):
    crowd = _Crowd(tmp_path, monkeypatch, STACKS + 2, device="cpu")
    turn = [_stack(str(i)) for i in range(STACKS + 2)]
    crowd.meet = {(s.dataset, True) for s in turn}
    crowd.run([], turn)
    assert len(crowd.seen) == STACKS + 2


def test_a_stack_that_is_tried_again_gives_its_place_back(tmp_path, monkeypatch):
    crowd = _Crowd(tmp_path, monkeypatch, STACKS)
    monkeypatch.setattr("cel.benchmark.supervisor.STACKS", 1)
    usual, tried = crowd.feed, []

    def feed(task):
        if task.dataset == "a" and len(tried) < 3:
            tried.append(task)
            crowd.supervisor._put(task)  # its worker died
            return False
        return usual(task)

    crowd.feed = feed
    crowd.run([_block("a")], [_stack("a"), _stack("b"), _stack("c")])
    assert len(tried) == 3
    assert crowd.most == 1
    assert crowd.supervisor._places == 0
    assert sorted(crowd.seen) == [("a", False, ""), *((d, True, "") for d in "abc")]


# -- the worker ------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "used"), [("", "cuda"), ("cpu", "cpu")])
def test_a_stack_trains_where_it_was_put_for_the_shelf_of_the_run(
    asked, used, tiny, tmp_path, monkeypatch
):
    def train(suite, dataset, keys, store, device, say, shelf):
        (tmp_path / "where").write_text(f"{device} {Path(shelf.store.root).name[-4:]}")

    monkeypatch.setattr("cel.benchmark.stacked.train_together", train)
    suite = load_suite(tiny).to_dict()
    task = WorkItem(suite, "moons", None, None, [], ["a"], device=asked)
    task.shelf = str(tmp_path / "shelf")
    work(task.plain(), str(tmp_path / "r"), "cuda", print)
    assert (tmp_path / "where").read_text() == f"{used} cuda"


def test_kernels_and_mixtures_are_left_to_the_blocks_and_their_cores(tiny, tmp_path):
    suite = tiny | {
        "datasets": ["moons"], "methods": {"shells": tiny["methods"]["shells"]},
        "density": {"model": "maf", "epochs": 1},
        "judges": {"flow": {"model": "maf", "epochs": 1}, "kernel": {"model": "kde"}},
    }  # fmt: skip
    events = []
    summary = run(suite, tmp_path / "r", stack=True, watch=events.append)
    assert (summary.done, summary.failed) == (2, 0)
    stacked = [e["label"] for e in events if e["event"] == "stacked"]
    assert stacked == [f"moons: 2 of {s}" for s in ("predictor", "density", "judge.flow")]
    store, plan = open_run(tmp_path / "r")
    assert stacks(plan, store) == []
    elsewhere = Workbench(plan.suite, plan.blocks[0], store, "cuda")
    devices = {s: elsewhere.recipe(s)[0].device for s in ("density", "judge.flow", "judge.kernel")}
    assert devices == {"density": "cuda", "judge.flow": "cuda", "judge.kernel": "cpu"}


def test_workers_compare_the_methods_of_their_finished_blocks(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("cel.benchmark.runner.write_scores", lambda store, plan: None)
    run(tiny | {"datasets": ["moons"]}, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    kept = set(store.keys("pairs"))
    assert len(kept) == len(plan.blocks) == 2
    found = compare_rows(store, plan)
    for key in kept:
        _forget(store.folder("pairs", key))
    fresh = compare_rows(store, plan)
    for one, other in zip(found, fresh, strict=True):
        assert len(one)
        assert one.equals(other)
    cell = plan.blocks[0].cells[0]
    _forget(store.folder("score", cell.score_key))
    compare_finished(store, plan)
    assert len(set(store.keys("pairs"))) == 1


def _forget(folder):
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


# -- how long cells take ---------------------------------------------------------------------


def _table(path, seconds, method="dice", reason=""):
    names = {"time_s": seconds, "time_cpu_s": seconds / 2, "time_explain_s": seconds / 4}
    lines = [
        ("wine", "lr", method, fold, metric, value, reason if metric != "rows" else "")
        for fold in (0, 1)
        for metric, value in (names | {"rows": 50.0}).items()
    ]
    columns = ["dataset", "model", "method", "fold", "metric", "value", "reason"]
    pd.DataFrame(lines, columns=columns).to_parquet(path)


def test_a_suite_asks_its_own_scores_first(tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "_FOLDER", tmp_path)
    (tmp_path / "baselines").mkdir()
    for name, seconds in (("paper", 8.0), ("quick", 20.0), ("standard", 40.0)):
        _table(tmp_path / "baselines" / f"{name}.parquet", seconds)
    for name, seconds in (("paper", 8.0), ("quick", 20.0), ("mine", 40.0)):
        core, search, rows = estimate._shipped(name)["wine", "dice"]
        assert (core, search, rows) == (seconds / 2, seconds / 8, 50.0)


def test_seconds_of_a_gpu_are_told_as_those_of_a_core(tmp_path):
    _table(tmp_path / "gpu.parquet", 2.0, reason="on cuda, not on a core")
    _table(tmp_path / "cores.parquet", 2.0)
    _table(tmp_path / "other.parquet", 2.0, method="ppcef", reason="on cuda, not on a core")
    there = estimate._measured(tmp_path / "gpu.parquet")["wine", "dice"]
    here = estimate._measured(tmp_path / "cores.parquet")["wine", "dice"]
    assert there == pytest.approx((FASTER["dice"] * here[0], FASTER["dice"] * here[1], 50.0))
    assert estimate._measured(tmp_path / "other.parquet")["wine", "ppcef"] == here


def test_times_of_a_gpu_are_marked(tmp_path):
    scores = MetricsOrchestrator(metrics=["l2", "time_s"]).compute(example())
    for device, reasons in (("cpu", {}), ("cuda:1", {"time_s": "on cuda:1, not on a core"})):
        write_cell(tmp_path, scores, example(), device)
        document = json.loads((tmp_path / "scores.json").read_text())
        assert document["reasons"] == reasons
        assert json.loads((tmp_path / "times.json").read_text())["time_s"] == scores["time_s"]


def test_scoring_pays_for_rows_and_references():
    known = estimate._Known(None, None, "paper")
    small, large = known.scoring("wine", 30, 0), known.scoring("adult", 30, 0)
    assert large > 3 * small
    assert known.scoring("wine", 30, 2) > 2 * small
    assert known.scoring("adult", 1, 0) > 10 * (large - known.scoring("adult", 29, 0))


def test_sizes_of_tables_are_as_packaged():
    table = estimate._timings()["size"]
    for name in ("blobs", "moons", "wine", "digits"):  # need no file
        assert table[name] == summarise(load_dataset(name)).rows
    assert set(table) == set(load_suite("paper").datasets)


# -- dask ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "kind", "most"),
    [("cuda", "stack", STACKS), ("cpu", "stack", STACKS + 2), ("cuda", "block", STACKS + 2)],
)
def test_few_stacks_train_at_once_on_a_machine_of_a_cluster(
    tmp_path, monkeypatch, device, kind, most
):
    lock, counts = threading.Lock(), [0, 0]

    class Noting:
        def __init__(self, *_, **__):
            pass

        def run(self, _):
            with lock:
                counts[0] += 1
                counts[1] = max(counts)
            for _ in range(50):  # until as many are here as may be
                if counts[1] >= most:
                    break
                threading.Event().wait(0.1)
            with lock:
                counts[0] -= 1

    monkeypatch.setattr(cluster, "Supervisor", Noting)
    monkeypatch.setattr(cluster, "_nursery", lambda *_: None)
    suite = {"limits": {"memory_mb": 1}}
    task = WorkItem(suite, "a", *((None, None) if kind == "stack" else (0, "lr")), [])
    ask = (task.plain(), str(tmp_path), device)
    threads = [threading.Thread(target=cluster.run_task, args=ask) for _ in range(STACKS + 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert counts == [0, most]


def test_cells_that_methods_refuse_take_no_time():
    plan = make_plan(load_suite("paper").narrowed(datasets=["scm20d"], folds=[0]))
    made = estimate.estimate(plan, None)
    refused = {label for label, seconds in made.methods.items() if seconds == 0.0}
    assert refused == {"globe_ce", "globe_ce_informed", "tcrex", "tcrex_donor"}
    assert made.guessed == set()


# -- blocks of one fold ----------------------------------------------------------------------


def test_a_worker_stays_with_its_fold_and_leaves_others_theirs():
    blocks = [_block("a", 0), _block("a", 1), _block("a", 1), _block("b", 0)]
    assert next_block(blocks, None, {}) == 0
    assert next_block(blocks, ("a", 1), {("a", 0): 1, ("a", 1): 1}) == 1
    assert next_block(blocks, ("b", 0), {}) == 3
    assert next_block(blocks, ("c", 0), {("a", 0): 1}) == 1
    assert next_block(blocks, None, {("a", 0): 1, ("a", 1): 2}) == 3
    assert next_block(blocks, None, {("a", 0): 1, ("a", 1): 2, ("b", 0): 1}) == 0
    assert next_block(blocks, None, {("a", 0): 0}) == 0  # somebody was, and has finished


def test_two_workers_each_do_both_blocks_of_a_fold(tmp_path, monkeypatch):
    crowd, mine = _Crowd(tmp_path, monkeypatch, 2, "cpu"), {}
    crowd.meet = {("a", False)}  # both begin together, twice
    usual = crowd.feed

    def feed(task):
        mine.setdefault(threading.get_ident(), []).append(task.fold)
        return usual(task)

    monkeypatch.setattr(Supervisor, "_start", lambda self: SimpleNamespace(poll=lambda: None))
    monkeypatch.setattr(Supervisor, "_end", lambda *_: None)
    monkeypatch.setattr(crowd, "feed", feed)
    monkeypatch.setattr("cel.benchmark.supervisor.HATCHES", False)
    crowd.run([_block("a", 0), _block("a", 0), _block("a", 1), _block("a", 1)], [])
    assert sorted(mine.values()) == [[0, 0], [1, 1]]


def test_references_of_rows_are_kept_for_the_next_block_of_a_fold(monkeypatch):
    monkeypatch.setattr(kept_references, "_last", [])
    result, names = example(), ["lof", "isolation_forest", "mad", "ynn", "density_percentile"]
    names.append({"lof": {"as": "near", "among": "target"}})
    plain = result.context
    other = replace(plain, model=copy.copy(plain.model), y_test=None)
    moved = replace(plain, x_train=plain.x_train + np.float32(1e-3))
    fits, values = [], []
    for context in (plain, other, moved):
        judge = MetricsOrchestrator(metrics=names, references=references_of(context))
        values.append([s.value for s in judge.compute(result, context).scores])
        fits.append(dict(judge.references.fits))
        alone = MetricsOrchestrator(metrics=names).compute(result, context)
        assert values[-1] == [s.value for s in alone.scores]
    of_rows = {"isolation_forest": 1, "mad": 1, "neighbours": 1}
    assert fits[0]["lof"] > fits[1]["lof"] > 0  # those of a class depend on the model
    assert of_rows.items() <= fits[0].items()
    assert not of_rows.keys() & fits[1].keys()
    assert fits[2] == fits[0]
