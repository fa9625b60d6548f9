"""Models that runs share: trained once, by one of several, and never taken damaged."""

import json
import os
import threading
import time

import pytest

from cel.benchmark import Store, run
from cel.benchmark import shelf as shelf_module
from cel.benchmark.estimate import estimate
from cel.benchmark.plan import make_plan
from cel.benchmark.shelf import Shelf, may_be_shared
from cel.benchmark.spec import load_suite
from cel.errors import StoreError

KEY = "0" * 32


def small(tiny, **changes):
    methods = {"shells": tiny["methods"]["shells"]}
    return tiny | {"datasets": ["wine"], "folds": [0], "methods": methods} | changes


def borrowed(folder):
    lines = [json.loads(t) for t in (folder / "log.jsonl").read_text().splitlines()]
    return [e["borrowed"] for e in lines if e["event"] == "stage" and "borrowed" in e]


def model_of(folder, stage="predictor"):
    (path,) = (folder / "objects" / stage).glob("*/model.safetensors")
    return path


def trained_into(store, text="model"):
    def train():
        with store.writing("predictor", KEY, {}) as folder:
            (folder / "model.safetensors").write_text(text)

    return train


def test_a_second_run_borrows_models_and_gets_the_same_scores(tiny, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    run(small(tiny), first, shelf=tmp_path / "shelf")
    summary = run(small(tiny), second, shelf=tmp_path / "shelf")
    assert summary.complete
    assert (borrowed(first), borrowed(second)) == ([False, False], [True, True])
    assert (first / "scores.parquet").read_bytes() == (second / "scores.parquet").read_bytes()
    assert model_of(second).read_bytes() == model_of(first).read_bytes()
    assert not model_of(second).is_symlink()  # a run folder is whole without the shelf


def test_a_damaged_model_is_thrown_away_and_trained_again(tiny, tmp_path):
    run(small(tiny), tmp_path / "first", shelf=tmp_path / "shelf")
    (kept,) = (tmp_path / "shelf").glob("*/objects/predictor/*/model.safetensors")
    good = kept.read_bytes()
    kept.write_bytes(good[:-7])
    assert run(small(tiny), tmp_path / "second", shelf=tmp_path / "shelf").complete
    assert borrowed(tmp_path / "second") == [False, True]
    assert kept.read_bytes() == good


def test_a_foreign_folder_is_refused_before_anything_is_trained(tiny, tmp_path):
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / f"{shelf_module.cel.__version__}-cpu").mkdir()
    (tmp_path / "shelf" / f"{shelf_module.cel.__version__}-cpu" / "letters.txt").write_text("mine")
    with pytest.raises(StoreError, match="not a CEL store"):
        run(small(tiny), tmp_path / "r", shelf=tmp_path / "shelf")
    assert not (tmp_path / "r").exists()


def test_what_modules_of_the_user_train_is_not_shared(tiny):
    suite = load_suite(small(tiny, classifiers={"mine:Model": {}}))
    own = load_suite(small(tiny, density={"model": "mine:Density"}))
    (block,) = make_plan(load_suite(small(tiny))).blocks
    assert may_be_shared(load_suite(small(tiny)), block, "density")
    assert not may_be_shared(own, block, "density")
    assert may_be_shared(own, block, "predictor")
    from dataclasses import replace

    assert not may_be_shared(suite, replace(block, model="mine:Model"), "predictor")


def test_of_two_runs_at_once_one_trains_and_the_other_waits(tmp_path):
    stores = [Store(tmp_path / name) for name in "ab"]
    trainings, results = [], []

    def obtain(store):
        def train():
            trainings.append(store.root.name)
            time.sleep(0.6)
            trained_into(store)()

        results.append(Shelf(tmp_path / "shelf").obtain(store, "predictor", KEY, train))

    threads = [threading.Thread(target=obtain, args=(s,)) for s in stores]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(trainings) == 1
    assert sorted(results) == [False, True]
    assert all(s.sound("predictor", KEY) for s in stores)
    assert not list((tmp_path / "shelf").glob("*/claims/*"))


def test_the_claim_of_a_dead_process_goes_to_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf_module, "DEAD_S", 0.5)
    shelf, store = Shelf(tmp_path / "shelf"), Store(tmp_path / "a")
    claim = shelf._claim("predictor", KEY)
    claim.parent.mkdir()
    claim.write_text("")  # nobody touches it
    os.utime(claim, (1, 1))
    started = time.monotonic()
    assert not shelf.obtain(store, "predictor", KEY, trained_into(store))
    assert 0.5 <= time.monotonic() - started < 5
    assert not list(claim.parent.iterdir())


def test_a_claim_that_is_alive_is_left_alone_until_patience_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(shelf_module, "DEAD_S", 0.5)
    monkeypatch.setattr(shelf_module, "BEAT_S", 0.1)
    shelf, store = Shelf(tmp_path / "shelf"), Store(tmp_path / "a")
    with shelf._claimed("predictor", KEY) as mine:
        assert mine
        begun = time.monotonic()
        options = {"patience_s": 1.5}
        assert not shelf.obtain(store, "predictor", KEY, trained_into(store), **options)
        assert time.monotonic() - begun > 1.5
        assert shelf._claim("predictor", KEY).exists()


def test_a_training_that_fails_gives_its_claim_back(tmp_path):
    shelf, store = Shelf(tmp_path / "shelf"), Store(tmp_path / "a")

    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shelf.obtain(store, "predictor", KEY, fail)
    assert not list(shelf._claim("predictor", KEY).parent.iterdir())
    assert not shelf.obtain(store, "predictor", KEY, trained_into(store))


def test_the_estimate_counts_judges_and_knows_what_can_be_borrowed(tiny, tmp_path):
    suite = load_suite(small(tiny, judges={"mixture": {"model": "gmm"}}))
    plan = make_plan(suite)
    before = estimate(plan, None).stages
    assert before["judge"] > 0
    shelf = Shelf(tmp_path / "shelf")
    (block,) = plan.blocks
    with shelf.store.writing("judge", block.judge_keys["mixture"], {}) as folder:
        (folder / "model.safetensors").write_text("model")
    after = estimate(plan, None, shelf.store).stages
    assert after["judge"] == 0
    assert after["density"] == before["density"] > 0
