"""Experiments run in the store of a run and leave its own table alone."""

import pandas as pd
import pytest

from cel.benchmark import collect, load_suite, open_run, run
from cel.benchmark.experiments import (
    _plan,
    _plans,
    experiment_scores,
    experiments,
    run_experiments,
    unanswered_as_nan,
)
from cel.benchmark.metric_entries import metric_entries
from cel.benchmark.plan import make_plan
from cel.benchmark.side_by_side import compare_with_paper, paper_results


@pytest.mark.slow
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


def test_an_experiment_runs_only_what_it_is_about():
    suite = load_suite("paper")
    made = {e.name: e.variant(suite) for e in experiments()}
    first = made["artelt_first_layer"]
    assert [m.label for m in first.methods] == ["artelt"]
    assert (list(first.classifiers), list(first.regressors)) == (["mlp"], [])
    adult = made["adult_stray_spaces"]
    assert (adult.datasets, adult.encoding) == (("adult",), "printed")
    assert made["cegp_theta_0"].datasets == suite.datasets
    listed = metric_entries(made["pooled_threshold"])
    pooled = [c if isinstance(c, str) else next(iter(c)) for c in listed]
    assert len(pooled) == 4
    assert "prob_plausibility" in pooled


def test_cells_are_computed_where_something_is_printed_and_nowhere_else():
    plan = make_plan(load_suite("paper"))
    table = paper_results().dropna(subset=["mean"])
    printed = set(zip(table["dataset"], table["our_model"], table["our_method"], strict=True))
    made = {e.name: _plan(e, plan) for e in experiments() if e.is_run}
    for name, part in made.items():
        places = {(c.dataset, c.model, c.method.label) for c in part.cells}
        assert places, name
        assert places <= printed, name
        assert len(part.cells) == 5 * len(places), name
    numeric = {"audit", "blobs", "digits", "heloc", "moons", "wine"}
    for name in ("artelt_first_layer", "cegp_theta_0"):
        assert {c.dataset for c in made[name].cells} == numeric, name
    everything = made["lof_duplicates"]
    with_lof = table[table["metric"] == "lof"]
    wanted = set(
        zip(with_lof["dataset"], with_lof["our_model"], with_lof["our_method"], strict=True)
    )
    assert {(c.dataset, c.model, c.method.label) for c in everything.cells} == wanted


def test_experiments_on_methods_are_lines_of_one_suite_with_the_same_keys():
    plan = make_plan(load_suite("paper"))
    together, *apart = _plans(experiments(), plan)
    alone = [e for e in experiments() if e.is_run and not e.suite]
    wanted = {c.score_key for e in alone for c in _plan(e, plan).cells}
    keys = [c.score_key for c in together.cells]
    assert set(keys) == wanted
    assert len(keys) == len(wanted)
    assert len(apart) == 3
    places = [(b.dataset, b.fold, b.model) for b in together.blocks]
    assert len(set(places)) == len(places), "one block for all of them"


def test_rows_without_an_answer_as_nan():
    lines = [
        ("a", 0.0, 0.0, None, None), ("b", 0.8, 0.5, 0.4, 0.25),
    ]  # fmt: skip
    scores = pd.DataFrame(
        [
            {"dataset": d, "model": "mlp", "method": "artelt", "fold": 0, "metric": m, "value": v}
            for d, *values in lines
            for m, v in zip(
                ("coverage", "success", "sparsity", "prob_plausibility"), values, strict=True
            )
            if v is not None
        ]
    )
    made = unanswered_as_nan(scores).set_index(["dataset", "metric"])["value"]
    assert made["a"].to_dict() == {
        "coverage": 0.0, "success": 1.0, "sparsity": 1.0, "prob_plausibility": 0.0
    }  # fmt: skip
    assert made["b"].to_dict() == pytest.approx(
        {"coverage": 0.8, "success": 0.7, "sparsity": 0.4, "prob_plausibility": 0.2}
    )


def test_what_we_do_not_have_is_explained_by_its_imitation_or_stays_missing():
    printed = paper_results()
    place = (printed["our_method"] == "artelt") & (printed["our_model"] == "mlp")
    cells = printed[place & (printed["dataset"] == "blobs") & printed["mean"].notna()]
    known = {"dataset": "blobs", "model": "mlp", "fold": 0, "reason": ""}
    ours = pd.DataFrame([{**known, "method": "cadex", "metric": "coverage", "value": 1.0}])
    tried = pd.DataFrame(
        {**known, "method": "artelt", "metric": m, "value": v, "experiment": "artelt_first_layer"}
        for m, v in (("coverage", 0.0), ("success", 1.0), ("sparsity_encoded", 0.5))
    )
    table = compare_with_paper(ours, tried)
    said = table[table["our_method"] == "artelt"].set_index("metric")["verdict"]
    assert said["coverage"] == said["validity"] == "explained"
    assert said["sparsity"] == "missing"
    assert said["isolation_forest"] == "missing"
    assert len(cells) == 6
