"""The orchestrator, its suites, scores, comparisons and answers to bad input."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from cel.errors import ConfigError, DataError
from cel.metrics import (
    METRICS,
    Cell,
    Evaluation,
    Metric,
    MetricsOrchestrator,
    References,
    compare,
    packaged_suites,
    pareto,
)
from cel.metrics.docs import render
from cel.metrics.example import ExampleMethod, ExampleModel, example, regression_example
from cel.metrics.suites import choose
from cel.result import EvaluationContext

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def result():
    return example()


def judge(*names, **options):
    return MetricsOrchestrator(metrics=list(names), **options)


# -- suites -----------------------------------------------------------------------------------


def test_packaged_suites_hold_known_metrics():
    names = ["default", "density", "fairness", "full", "outliers", "robustness"]
    assert packaged_suites() == [f"{n}.yaml" for n in names]
    for name in packaged_suites():
        assert MetricsOrchestrator(conf_path=name).choices


def test_full_suite_names_every_metric():
    names = {c.metric.name for c in MetricsOrchestrator("full.yaml").choices}
    assert names == {m.name for _, m in METRICS.items()}


def test_suffix_may_be_left_out():
    assert len(MetricsOrchestrator("default").choices) == len(MetricsOrchestrator().choices)


def test_own_file(tmp_path, result):
    path = tmp_path / "mine.yaml"
    path.write_text("metrics:\n  - l2\n  - prob_plausibility: {quantile: 0.0, as: easy}\n")
    scores = MetricsOrchestrator(conf_path=path).compute(result)
    assert list(scores) == ["l2", "easy"]
    assert scores["easy"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (["coverge"], "did you mean 'coverage'"),
        ([{"lof": {"neighbours": 3}}], "no setting 'neighbours'"),
        ([{"prob_plausibility": {"quantil": 0.5}}], "did you mean 'quantile'"),
        (["l2", "l2"], "listed twice"),
        ([{"l2": 3}], "settings must be"),
        ([{"l2": {}, "l1": {}}], "expected `name`"),
        ("l2", "must be a list"),
        ([3], "expected `name`"),
    ],
)
def test_mistakes_in_a_suite_are_named(entries, words):
    with pytest.raises(ConfigError, match=words):
        choose(entries)


def test_unknown_suite_and_unknown_key(tmp_path):
    with pytest.raises(ConfigError, match=r"did you mean 'default\.yaml'"):
        _ = MetricsOrchestrator("defualt.yaml").choices
    path = tmp_path / "mine.yaml"
    path.write_text("metric: [l2]\n")
    with pytest.raises(ConfigError, match="unknown key 'metric'"):
        _ = MetricsOrchestrator(path).choices


def test_values_of_settings_are_checked(result):
    wrong = [
        {"prob_plausibility": {"quantile": 2}},
        {"lof": {"among": "some"}},
        {"lof": {"k": 0}},
        {"ynn": {"k": 0}},
        {"noise_robustness": {"draws": 0}},
        {"delta_validity": {"delta": -1}},
        {"effectiveness_auc": {"budget": 0}},
        {"cost_gap": {"cost": "validity"}},
        {"cost_gap": {"by": "all"}},
        {"cost_gap": {"feature": "sx"}},
        {"retraining_seeds": {"n_models": 0}},
    ]
    for entry in wrong:
        with pytest.raises(ConfigError):
            judge(entry).compute(result)


# -- scores -----------------------------------------------------------------------------------


def test_scores_are_a_mapping_with_reasons(result):
    scores = judge("coverage", "unchanged", "mae", "log_density").compute(result)
    assert scores["actionability"] == scores["unchanged"] == pytest.approx(1 / 7)
    assert math.isnan(scores["mae"])
    assert scores.reasons == {"mae": "defined for regression only"}
    assert dict(scores).keys() == {"coverage", "unchanged", "mae", "log_density"}
    with pytest.raises(KeyError, match="did you mean 'coverage'"):
        scores["coverag"]


def test_frame_and_rows(result):
    scores = judge("coverage", "l2", "time_s").compute(result)
    frame = scores.to_frame()
    assert frame.loc["coverage", "better"] == "higher"
    assert frame.loc["l2", "n"] == 3
    rows = scores.per_row()
    assert list(rows.columns) == ["status", "coverage", "l2"]
    assert rows["l2"].dropna().index.tolist() == [0, 1, 6]
    assert rows["l2"].mean() == pytest.approx(scores["l2"])


def test_repr_shows_directions_and_reasons(result):
    text = repr(judge("coverage", "l2", "mae").compute(result))
    assert "coverage ↑ 0.7778" in text
    assert "l2       ↓ 0.3667" in text
    assert "not available: defined for regression only" in text
    assert "<table" in judge("l2").compute(result)._repr_html_()


def test_bootstrap_brackets_the_value_and_is_seeded(result):
    scores = judge("coverage", "lof_median", "time_s", "mae").compute(result)
    first, second = scores.bootstrap(seed=1), scores.bootstrap(seed=1)
    pd.testing.assert_frame_equal(first, second)
    assert first.loc["coverage", "lower"] <= scores["coverage"] <= first.loc["coverage", "upper"]
    assert first.loc["time_s", "lower":].isna().all()
    assert first.loc["mae", "lower":].isna().all()
    with pytest.raises(ConfigError, match="level"):
        scores.bootstrap(level=95)


def test_bootstrap_of_a_mean_has_the_normal_width():
    random = np.random.default_rng(0)
    values = random.normal(size=2000)
    from cel.metrics.bootstrap import bootstrap_interval

    low, high = bootstrap_interval(values, level=0.95, n=2000, seed=0)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(2000), rel=0.1)


def test_own_metric_by_registry_object(result):
    mine = Metric(
        name="rise", function=lambda ev, scale=1.0: scale * (ev.cf[:, 0] - ev.x[:, 0]),
        better="none", unit="", rows="found", meaning="", formula="",
    )  # fmt: skip
    view = Evaluation(result=result, context=result.context)
    assert mine.score(view, scale=2.0).value == pytest.approx(0.8 / 3)
    assert mine.arrow == " "


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"better": "up"}, "better is 'up'"),
        ({"rows": "all"}, "rows is 'all'"),
        ({"aggregate": "max"}, "aggregate is 'max'"),
        ({"needs": frozenset({"densty"})}, "did you mean 'density'"),
    ],
)
def test_a_metric_that_is_declared_wrongly_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        replace(METRICS.get("l2"), **changes)


def test_wrong_number_of_values_is_an_error(result):
    wrong = replace(METRICS.get("l2"), function=lambda ev: np.zeros(2))
    with pytest.raises(DataError, match="for 3 rows"):
        wrong.score(Evaluation(result=result, context=result.context))


# -- references -------------------------------------------------------------------------------


def test_references_are_fitted_once_for_all_methods(result):
    shared = References()
    for _ in range(3):
        again = example()  # other objects with equal rows, as another method's result
        context = replace(
            again.context, model=result.context.model, density=result.context.density
        )
        MetricsOrchestrator("default.yaml", references=shared).compute(again, context)
    assert shared.fits == {
        "mad": 1, "lof": 1, "isolation_forest": 1, "levels": 1,
        "held_out_log_density": 1,
    }  # fmt: skip


def test_rows_that_are_trusted_are_read_once(result, monkeypatch):
    from cel.metrics import references as module

    read, plain = [], module.fingerprint
    monkeypatch.setattr(module, "fingerprint", lambda *x: read.append(x) or plain(*x))
    for trusted, expected in ((False, 3), (True, 1)):
        judge, context = MetricsOrchestrator(metrics=["lof", "ynn"]), replace(result.context)
        read.clear()
        if trusted:
            judge.references.trust(context)
        scores = [judge.compute(result, context)["lof"] for _ in range(3)]
        assert len(read) == expected
        assert scores == [scores[0]] * 3
        assert judge.references.fits["lof"] == 1


def test_trusted_rows_are_checked_all_the_same(result):
    broken = replace(result.context, x_train=np.where(result.context.x_train > 0.9, np.nan, 0.5))
    judge = MetricsOrchestrator(metrics=["lof"])
    judge.references.trust(broken)
    for _ in range(2):
        with pytest.raises(DataError, match="x_train holds NaN"):
            judge.compute(result, broken)


def test_another_fold_has_its_own_references(result):
    one = MetricsOrchestrator(metrics=["lof"])
    one.compute(result)
    context = replace(result.context, x_train=result.context.x_train + 0.01)
    one.compute(result, context)
    assert one.references.fits["lof"] == 2
    one.references.clear()
    assert len(one.references) == 0


def test_retrained_models_are_shared(result):
    one = MetricsOrchestrator(metrics=["retraining_bootstrap"])
    one.compute(result)
    one.compute(result)
    assert one.references.fits["retrained_models"] == 1


# -- comparison -------------------------------------------------------------------------------


def test_compare_on_own_and_on_common_rows(result):
    status = result.status.copy()
    status[0], x_cfs = "not_found", result.x_cfs.copy()
    x_cfs[0] = np.nan
    other = replace(result, status=status, x_cfs=x_cfs, seconds={"fit": 0, "explain": 9.0})
    table = compare({"a": result, "b": other}, metrics=["success", "l2", "time_s", "ms_per_row"])
    assert table.loc[("a", "own"), "l2"] == pytest.approx((0.5 + 0.6 + 0) / 3)
    assert table.loc[("a", "common"), "l2"] == pytest.approx((0.6 + 0) / 2)
    assert table.loc[("b", "common"), "l2"] == table.loc[("b", "own"), "l2"]
    assert table["n"].tolist() == [3, 2, 2, 2]
    assert table.loc[("b", "common"), "ms_per_row"] == table.loc[("b", "own"), "ms_per_row"]


def test_compare_without_common_rows_is_nan(result):
    status, x_cfs = result.status.copy(), result.x_cfs.copy()
    status[result.found] = "not_found"
    x_cfs[result.found] = np.nan
    table = compare(
        {"a": result, "b": replace(result, status=status, x_cfs=x_cfs)}, metrics=["l2"]
    )
    assert math.isnan(table.loc[("a", "common"), "l2"])


def test_compare_refuses_other_rows(result):
    with pytest.raises(DataError, match="another order"):
        compare({"a": result, "b": result.select(np.arange(10)[::-1])})
    with pytest.raises(DataError, match="9 rows"):
        compare({"a": result, "b": result.select(np.arange(9))})
    with pytest.raises(DataError, match="different y_cf_targets"):
        compare({"a": result, "b": replace(result, y_cf_targets=result.y_cf_targets - 1)})
    with pytest.raises(ConfigError, match="no result"):
        compare({})


def test_pareto_front_by_hand():
    table = pd.DataFrame(
        {"success": [1.0, 0.9, 0.9, np.nan], "l2_hamming": [0.5, 0.1, 0.2, 0.05]},
        index=["a", "b", "c", "d"],
    )
    assert pareto(table).to_dict() == {"a": True, "b": True, "c": False, "d": True}
    assert pareto(table, ["success"]).to_dict() == {"a": True, "b": False, "c": False, "d": False}
    mine = pd.DataFrame({"happiness": [1, 2]})
    assert pareto(mine, {"happiness": "higher"}).tolist() == [False, True]
    with pytest.raises(ConfigError, match="no column"):
        pareto(table, ["succes"])
    with pytest.raises(ConfigError, match="say 'higher' or 'lower'"):
        pareto(mine, {"happiness": "up"})
    with pytest.raises(ConfigError, match="none of the axes"):
        pareto(mine)


# -- bad input --------------------------------------------------------------------------------


def test_rows_out_of_order_are_noticed(result):
    order = np.arange(10)
    order[[0, 6]] = 6, 0
    with pytest.raises(DataError, match="y_origs disagrees with the model in 2 of 10 rows"):
        judge("l2").compute(replace(result, x_origs=result.x_origs[order]))
    order[:] = np.arange(10)
    order[[0, 3]] = 3, 0  # a found answer and an invalid one
    with pytest.raises(DataError, match="y_cfs disagrees with the model in 2 of 7 rows"):
        judge("l2").compute(replace(result, x_cfs=result.x_cfs[order]))


def test_another_model_is_noticed(result):
    other = ExampleModel().fit(result.context.x_train, np.repeat([2, 1, 0], 4))
    with pytest.raises(DataError, match="out of order or the model is another one"):
        judge("l2").compute(result, replace(result.context, model=other))
    unchecked = MetricsOrchestrator(metrics=["validity"], check=False)
    assert unchecked.compute(result, replace(result.context, model=other))["validity"] == 0


def test_predictions_on_the_boundary_may_differ(result):
    """Rounding may put a row on the other side; that is no reason to refuse a result."""

    class Undecided(ExampleModel):
        def predict_proba(self, X):
            return np.tile([1 / 3, 1 / 3, 1 / 3 + 1e-5], (len(X), 1))

    context = replace(result.context, model=Undecided())
    assert judge("l2").compute(result, context)["l2"] > 0


def test_reference_rows_of_another_space_are_refused(result):
    context = replace(result.context, x_train=result.context.x_train[:, :3])
    with pytest.raises(DataError, match=r"x_train has shape \(12, 3\)"):
        judge("l2").compute(result, context)
    context = replace(result.context, y_train=result.context.y_train[:3])
    with pytest.raises(DataError, match="y_train has 3 rows, x_train has 12"):
        judge("l2").compute(result, context)
    hole = result.context.x_test.copy()
    hole[0, 0] = np.nan
    with pytest.raises(DataError, match="x_test holds NaN"):
        judge("l2").compute(result, replace(result.context, x_test=hole))
    with pytest.raises(DataError, match="labels has 3 rows"):
        judge("l2").compute(result, labels=[0, 1, 2])


def test_wrong_feature_space_is_refused(result):
    swapped = result.x_origs[:, [2, 3, 4, 5, 6, 0, 1]]
    broken = replace(result, x_origs=swapped, context=None)
    with pytest.raises(DataError, match="should be one-hot for feature 'job'"):
        judge("l2").compute(broken)


def test_numbers_outside_not_found_rows_must_be_finite(result):
    x_origs = result.x_origs.copy()
    x_origs[0, 0] = np.nan
    with pytest.raises(DataError, match="row 0 has status 'found' but x_origs holds NaN"):
        judge("l2").compute(replace(result, x_origs=x_origs))
    x_cfs = result.x_cfs.copy()
    x_cfs[1, 0] = np.inf
    with pytest.raises(DataError, match="row 1 has status 'found' but x_cfs holds NaN or inf"):
        judge("l2").compute(replace(result, x_cfs=x_cfs))


def test_rows_without_finite_numbers_may_have_no_answer(result):
    x_origs, status = result.x_origs.copy(), result.status.copy()
    x_origs[4], status[4] = np.nan, "error"
    scores = judge("coverage", "l2").compute(replace(result, x_origs=x_origs, status=status))
    assert scores["coverage"] == pytest.approx(7 / 9)


def test_unknown_status_and_shapes_are_refused(result):
    status = result.status.copy()
    status[4] = "lost"
    with pytest.raises(DataError, match="unknown status 'lost'"):
        judge("l2").compute(replace(result, status=status))
    with pytest.raises(DataError, match="targets"):
        judge("l2").compute(replace(result, y_origs=result.y_origs[:, None]))


def test_no_found_row_gives_reasons(result):
    lost = result.select(np.array([4, 7]))
    scores = MetricsOrchestrator("full.yaml").compute(lost)
    assert scores["coverage"] == scores["success"] == 0
    assert math.isnan(scores["l2"])
    assert scores.reasons["l2"] == "no row has a verified counterfactual"
    assert scores.reasons["validity"] == "no row has a candidate"
    done = MetricsOrchestrator("full.yaml").compute(result.select(np.array([5])))
    assert done.reasons["coverage"] == "no row needed an explanation"
    assert done.reasons["ms_per_row"] == "no row needed an explanation"


def test_one_row_and_no_rows(result):
    method = ExampleMethod(result.context.model)
    single = result.select(np.array([0]))
    scores = MetricsOrchestrator("full.yaml").compute(single, method=method)
    assert scores["l2"] == pytest.approx(0.5)
    assert MetricsOrchestrator("full.yaml").compute(result.select(np.arange(0)))


def test_duplicated_training_rows_keep_lof_sane(result):
    context = result.context
    block = np.repeat(context.x_train[:1], 500, axis=0)
    many = replace(
        context,
        x_train=np.vstack([context.x_train, block]),
        y_train=np.concatenate([context.y_train, np.zeros(500, dtype=np.int64)]),
    )
    once = judge("lof").compute(result)["lof"]
    assert judge("lof").compute(result, many)["lof"] == pytest.approx(once)
    only = replace(context, x_train=block, y_train=np.zeros(500, dtype=np.int64))
    scores = judge("lof", "isolation_forest", "mad").compute(result, only)
    assert scores.reasons["lof"] == "needs two different training rows, got 1"
    assert math.isfinite(scores["mad"])


def test_density_with_holes(result):
    class Cliff:
        def log_prob(self, x, context=None):
            return torch.where(x[:, 0] > 0.45, x[:, 0].log(), torch.tensor(-torch.inf))

    names = ["log_density", "log_density_median", "density_percentile", "prob_plausibility"]
    scores = judge(*names).compute(result, replace(result.context, density=Cliff()))
    assert scores["log_density"] == -math.inf
    assert scores.reasons["log_density"] == "1 of 3 rows are infinite"
    assert math.isfinite(scores["log_density_median"])
    assert scores.score("density_percentile").values[1] < 0.5
    assert scores.score("prob_plausibility").values[1] == 0

    class Nowhere:
        def log_prob(self, x, context=None):
            return torch.full((len(x),), torch.nan)

    scores = judge(*names).compute(result, replace(result.context, density=Nowhere()))
    assert scores.reasons["log_density"] == "3 of 3 rows have no value: the density returned NaN"
    assert all(math.isnan(v) for v in scores.values())


def test_density_that_refuses_is_a_reason(result):
    class Strict:
        def log_prob(self, x, context=None):
            raise DataError("class 2 was not seen in fit")

    scores = judge("log_density").compute(result, replace(result.context, density=Strict()))
    assert scores.reasons["log_density"].endswith("class 2 was not seen in fit")


def test_density_without_context(result):
    class Plain:
        context_kind_ = "none"

        def log_prob(self, x, context=None):
            assert context is None
            return -x[:, 0]

    scores = judge("log_density").compute(result, replace(result.context, density=Plain()))
    assert scores["log_density"] == pytest.approx(-1.4 / 3)


def test_target_class_without_reference_rows(result):
    context = result.context
    few = replace(context, x_train=context.x_train[:8], y_train=context.y_train[:8])
    names = ["prob_plausibility", "nn_distance", "connectedness", {"lof": {"among": "target"}}]
    scores = judge(*names).compute(result, few)
    assert all(math.isnan(v) for v in scores.values())
    assert scores.reasons["nn_distance"].endswith("no training row has the target outcome")


def test_absent_protected_attribute(result):
    plain = replace(result, space=result.space.with_changes(sex={"protected": False}))
    scores = judge("cost_gap", "effectiveness_gap").compute(plain)
    assert "no feature of the space has protected=True" in scores.reasons["cost_gap"]
    with pytest.raises(ConfigError, match="unknown feature 'gender'"):
        judge({"cost_gap": {"feature": "gender"}}).compute(result)


def test_models_that_cannot_be_cloned_or_opened(result):
    class Sealed:
        task = result.context.model.task

        def predict_proba(self, X):
            return result.context.model.predict_proba(X)

    context = replace(result.context, model=Sealed())
    scores = judge("validity", "retraining_seeds", "delta_validity").compute(result, context)
    assert scores["validity"] == pytest.approx(4 / 7)
    assert "Sealed cannot be cloned" in scores.reasons["retraining_seeds"]
    assert "no weights to change" in scores.reasons["delta_validity"]


@pytest.mark.parametrize("suite", packaged_suites())
def test_every_suite_runs_for_both_tasks(suite, result):
    scores = MetricsOrchestrator(suite).compute(result, method=ExampleMethod(result.context.model))
    known = {name: value for name, value in scores.items() if not math.isnan(value)}
    assert known
    if suite not in ("density.yaml", "outliers.yaml"):  # of one question each
        assert known["success"] == pytest.approx(1 / 3)
    for told in (scores, MetricsOrchestrator(suite).compute(regression_example())):
        assert all(told.reasons[n] for n, value in told.items() if math.isnan(value))


def test_a_model_without_probabilities_is_a_reason(result):
    class Curt:
        def predict(self, X):
            return result.context.model.predict(X)

    scores = judge("validity", "success").compute(result, replace(result.context, model=Curt()))
    assert scores.reasons["validity"] == "Curt has no predict_proba"
    assert scores["success"] == pytest.approx(1 / 3)


def test_without_any_context(result):
    scores = MetricsOrchestrator().compute(replace(result, context=None))
    assert scores["validity"] == pytest.approx(4 / 7)  # from the stored predictions
    assert "needs a density" in scores.reasons["log_density"]


def test_method_on_the_context_is_used(result):
    class WithMethod(EvaluationContext):
        method = ExampleMethod(result.context.model)

    fields = ("model", "density", "x_train", "y_train", "x_test", "y_test")
    context = WithMethod(**{n: getattr(result.context, n) for n in fields})
    assert judge("instability").compute(result, context)["instability"] > 0


def test_method_that_refuses_is_a_reason(result):
    class Tired:
        def explain(self, X, target=None):
            raise DataError("no more rows, please")

    scores = judge("instability").compute(result, method=Tired())
    assert "no more rows, please" in scores.reasons["instability"]


# -- details ----------------------------------------------------------------------------------


def test_units_from_the_log(result):
    for told, number in ((4, 4), (["a", "b"], 2)):
        scores = judge("n_units").compute(replace(result, logs={"units": told}))
        assert scores["n_units"] == number
    empty = replace(result, logs={"rule_length": []})
    assert judge("rule_length").compute(empty).reasons["rule_length"] == "the method has no rules"


def test_gaps_of_joint_and_numeric_groups(result):
    both = replace(
        result, space=result.space.with_changes(age={"protected": True}, job={"protected": True})
    )
    each = judge({"cost_gap": {"min_rows": 1}}).compute(both)
    assert each["cost_gap"] == pytest.approx(0.1875)
    assert "age: " in each.reasons["cost_gap"]
    joint = judge({"cost_gap": {"min_rows": 1, "by": "joint"}}).compute(both)
    assert joint["cost_gap"] == pytest.approx(0.4 - 0.175)
    age = judge({"effectiveness_gap": {"min_rows": 1, "feature": "age"}}).compute(both)
    assert age["effectiveness_gap"] == pytest.approx(1 - 2 / 8)  # split at the median 0.4


def test_gap_needs_two_groups_of_enough_rows(result):
    scores = judge("cost_gap").compute(result)
    assert scores.reasons["cost_gap"] == "sex: needs two groups of 10 rows, got F: 2, M: 1"


def test_regression_validity_uses_the_tolerance():
    result = regression_example()
    assert judge("validity").compute(result)["validity"] == 0.5
    wide = replace(result, params={"tolerance": 0.2})
    assert judge("validity").compute(wide)["validity"] == 1


def test_cell_value_keeps_its_note(result):
    noted = replace(METRICS.get("time_s"), function=lambda ev: Cell(1.0, "by sundial"))
    score = noted.score(Evaluation(result=result))
    assert (score.value, score.reason) == (1.0, "by sundial")


def test_the_page_of_metrics_is_up_to_date():
    page = REPOSITORY / "docs" / "metrics.md"
    assert page.read_text(encoding="utf-8") == render(), (
        "docs/metrics.md is out of date; write cel.metrics.docs.render() to it"
    )
