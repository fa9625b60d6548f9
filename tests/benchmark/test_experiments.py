"""Experiments run in the store of a run and leave its own table alone."""

import pytest

from cel.benchmark import collect, load_suite, open_run, run
from cel.benchmark.experiments import experiment_scores, run_experiments

pytestmark = pytest.mark.slow


def test_experiments_use_the_models_of_the_run(tmp_path):
    plain = load_suite("paper").to_dict()
    suite = plain | {
        "datasets": ["wine"], "folds": [0], "classifiers": {"lr": {}}, "max_rows": 5,
        "density": {"model": "gmm"}, "extra_metrics": [],
        "methods": {m: plain["methods"][m] for m in ("sace", "dice")},
    }  # fmt: skip
    run(suite, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    before, models = collect(store, plan, times=False), store.keys("predictor")
    names = ["sace_constant_row", "pooled_threshold", "unanswered_as_original"]
    assert run_experiments(store, plan, names) == 3
    assert run_experiments(store, plan, names) == 0
    assert store.keys("predictor") == models
    after = collect(*open_run(tmp_path / "r"), times=False)
    assert after.equals(before)
    scores = experiment_scores(store, plan, names)
    assert set(scores["experiment"]) == set(names)
    constant = scores[scores["experiment"] == "sace_constant_row"]
    assert set(constant["method"]) == {"sace"}
    wide = constant.set_index("metric")["value"]
    mine = before[before["method"] == "sace"].set_index("metric")["value"]
    assert wide["success"] > mine["success"], "a constant row answers everybody"
