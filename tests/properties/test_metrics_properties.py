"""What must hold for every result: order, identity, scale, bounds, sharing and chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cel.metrics import METRICS, Evaluation, MetricsOrchestrator, References
from cel.metrics import evaluation as evaluation_module
from cel.metrics.docs import SETTINGS
from cel.metrics.example import ExampleMethod, example, example_context, example_space
from cel.result import EvaluationContext, ExplanationResult
from cel.space import FeatureSpace

CONTEXT, SPACE, SHARED = example_context(), example_space(), References()
METHOD = ExampleMethod(CONTEXT.model)
FULL = [{m.name: SETTINGS.get(m.name, {})} for n, m in METRICS.items() if n == m.name]
DISTANCES = ["sparsity", "sparsity_encoded", "l1", "l2", "mad", "hamming", "jaccard", "gower",
             "l2_hamming", "l1_hamming", "mad_hamming", "l2_jaccard", "l1_jaccard",
             "mad_jaccard", "l2_hamming_encoded"]  # fmt: skip
SHARES = [m.name for _, m in METRICS.items() if m.unit in ("share", "probability")]


def rows(random: np.random.Generator, n: int) -> np.ndarray:
    jobs = np.eye(3)[random.integers(3, size=n)]
    sexes = np.eye(2)[random.integers(2, size=n)]
    numbers = np.stack([random.random(n), random.integers(0, 11, n) / 10], 1)
    return np.hstack([numbers, jobs, sexes])


def random_result(seed: int, n: int) -> ExplanationResult:
    """Rows, answers, sets and groups without any order in them."""
    random = np.random.default_rng(seed)
    x, cf, model = rows(random, n), rows(random, n), CONTEXT.model
    target, y_cfs = random.integers(3, size=n), model.predict(cf)
    status = np.where(y_cfs == target, "found", "invalid").astype(object)
    none = random.random(n) < 0.2
    status[none] = random.choice(["not_found", "not_applicable", "timeout"], none.sum())
    cf[none], y_cfs[none] = np.nan, -1
    sets = np.stack([cf, rows(random, n), rows(random, n)], 1)
    sets[random.random((n, 3)) < 0.3] = np.nan
    return ExplanationResult(
        x_origs=x, x_cfs=cf, y_origs=model.predict(x), y_cf_targets=target, y_cfs=y_cfs,
        status=status, source_ids=np.arange(n), space=SPACE, x_sets=sets,
        cf_group_ids=random.integers(-1, 3, n), seconds={"fit": 1.0, "explain": 2.0},
        logs={"rule_length": [1.0], "conflict_rate": 0.0}, context=CONTEXT,
    )  # fmt: skip


def score(result: ExplanationResult, metrics=FULL, context=None):
    judge = MetricsOrchestrator(metrics=metrics, references=SHARED)
    return judge.compute(result, context, method=METHOD)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12))
def test_order_of_rows_changes_nothing(seed, n):
    result = random_result(seed, n)
    order = np.random.default_rng(seed).permutation(n)
    first, second = score(result), score(result.select(order))
    for name in first:
        assert second[name] == pytest.approx(first[name], abs=1e-6, nan_ok=True), name
        assert first.reasons.get(name) == second.reasons.get(name)
    mine, theirs = first.per_row(), second.per_row().loc[first.source_ids]
    np.testing.assert_allclose(
        mine.drop(columns="status").astype(float),
        theirs.drop(columns="status").astype(float),
        atol=1e-6,
    )


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12))
def test_rows_do_not_depend_on_each_other(seed, n):
    result = random_result(seed, n)
    whole = score(result).per_row().drop(columns="status").astype(float)
    kept = np.arange(0, n, 2)
    part = score(result.select(kept)).per_row().drop(columns="status").astype(float)
    for name in part:
        np.testing.assert_allclose(part[name], whole[name].iloc[kept], atol=1e-6, err_msg=name)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12))
def test_no_change_means_no_distance(seed, n):
    result = random_result(seed, n)
    cf = np.where(np.isnan(result.x_cfs), np.nan, result.x_origs)
    y = np.where(result.has_candidate, result.y_origs, -1)
    status = result.status.copy()
    status[result.has_candidate] = "found"
    same = replace(result, x_cfs=cf, y_cfs=y, status=status, y_cf_targets=result.y_origs)
    scores = score(same, [*DISTANCES, "unchanged", "redundancy", "violations"])
    for name in scores:
        expected = 1.0 if name == "unchanged" else 0.0
        if same.found.any():
            assert scores[name] == expected, name


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), factor=st.floats(0.01, 0.5))
def test_distances_scale_with_the_changes_of_numbers(seed, factor):
    result = random_result(seed, 12)
    cf = result.x_cfs.copy()
    numeric = SPACE.numeric_columns
    cf[:, numeric] = result.x_origs[:, numeric] + factor * (cf - result.x_origs)[:, numeric]
    judge = MetricsOrchestrator(metrics=DISTANCES, references=SHARED, check=False)
    before, after = judge.compute(result), judge.compute(replace(result, x_cfs=cf))
    for name in ("l1", "l2", "mad"):
        np.testing.assert_allclose(
            after.per_row()[name], factor * before.per_row()[name], rtol=1e-4, atol=1e-6
        )
    for name in ("hamming", "jaccard", "sparsity"):
        np.testing.assert_array_equal(after.per_row()[name], before.per_row()[name])


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_bounds_and_order_between_metrics(seed):
    result = random_result(seed, 12)
    assume(result.has_candidate.any())  # without answers there are no distances
    values = score(result).per_row()
    for name in values.columns.intersection(SHARES):
        known = values[name].dropna()
        assert known.between(-1e-6 if name != "stability" else -1, 1 + 1e-6).all(), name
    assert (values["l2"].dropna() <= values["l1"].dropna() + 1e-6).all()
    assert (values["hamming"].dropna() <= values["jaccard"].dropna() + 1e-6).all()
    low = np.fmin(values["l2"], values["hamming"])
    high = np.fmax(values["l2"], values["hamming"])
    assert ((values["l2_hamming"] >= low - 1e-6) | low.isna()).all()
    assert ((values["l2_hamming"] <= high + 1e-6) | high.isna()).all()
    assert (values["lof"].dropna() > 0).all()


def test_success_is_coverage_times_share_found():
    for seed in range(10):
        result = random_result(seed, 12)
        scores = score(result, ["coverage", "validity", "success"])
        if result.has_candidate.any():  # these answers are invalid by their prediction only
            assert scores["success"] == pytest.approx(scores["coverage"] * scores["validity"])


@settings(max_examples=10, deadline=None)
@given(shift=st.floats(-5, 5), seed=st.integers(0, 10**6))
def test_density_metrics_under_a_shift_of_the_log_density(shift, seed):
    class Shifted:
        def log_prob(self, x, context=None):
            return CONTEXT.density.log_prob(x, context).double() + shift

    class Double:
        def log_prob(self, x, context=None):
            return CONTEXT.density.log_prob(x, context).double()

    names = ["log_density", "log_density_median", "density_percentile", "prob_plausibility"]
    result = random_result(seed, 12)
    if not result.found.any():
        return
    first = MetricsOrchestrator(metrics=names).compute(result, replace(CONTEXT, density=Double()))
    second = MetricsOrchestrator(metrics=names).compute(
        result, replace(CONTEXT, density=Shifted())
    )
    assert second["log_density"] == pytest.approx(first["log_density"] + shift)
    assert second["log_density_median"] == pytest.approx(first["log_density_median"] + shift)
    assert second["density_percentile"] == pytest.approx(first["density_percentile"], nan_ok=True)
    assert second["prob_plausibility"] == pytest.approx(first["prob_plausibility"], nan_ok=True)


@settings(max_examples=10, deadline=None)
@given(scale=st.floats(0.1, 10), shift=st.floats(-3, 3))
def test_lof_is_free_of_units(scale, shift):
    random = np.random.default_rng(0)
    train, answers = random.normal(size=(60, 3)), random.normal(size=(9, 3))

    def lof(a, b):
        space = FeatureSpace.continuous(3, lower=-99, upper=99)
        zeros = np.zeros(len(a), dtype=np.int64)
        result = ExplanationResult(
            x_origs=a + 1, x_cfs=a, y_origs=zeros, y_cf_targets=zeros, y_cfs=zeros,
            status=np.full(len(a), "found", dtype=object), source_ids=zeros, space=space,
            context=EvaluationContext(x_train=b, y_train=np.zeros(len(b), dtype=np.int64)),
        )  # fmt: skip
        return MetricsOrchestrator(metrics=["lof"]).compute(result).per_row()["lof"]

    moved = lof(answers * scale + shift, train * scale + shift)
    np.testing.assert_allclose(moved, lof(answers, train), rtol=1e-5)


def test_chunks_change_nothing(monkeypatch):
    result = random_result(3, 12)
    whole = score(result)
    monkeypatch.setattr(evaluation_module, "CHUNK_VALUES", 20)
    pieces = MetricsOrchestrator(metrics=FULL).compute(result, method=METHOD)
    for name in whole:
        assert pieces[name] == pytest.approx(whole[name], abs=1e-6, nan_ok=True), name


def test_results_and_contexts_are_never_changed():
    result = example()
    arrays = ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs", "x_sets", "cf_group_ids")
    before = {n: getattr(result, n).copy() for n in arrays}
    train = result.context.x_train.copy()
    score(result, FULL, result.context)
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(result, name), value)
    np.testing.assert_array_equal(result.context.x_train, train)


def test_no_global_random_state_is_touched():
    np.random.seed(7)
    torch.manual_seed(7)
    expected = np.random.random(), torch.rand(1)
    np.random.seed(7)
    torch.manual_seed(7)
    score(example())
    assert (np.random.random(), torch.rand(1)) == expected


def test_dtype_of_the_rows_does_not_matter():
    result = example()
    small = replace(
        result, x_origs=result.x_origs.astype(np.float32), x_cfs=result.x_cfs.astype(np.float32)
    )
    first, second = score(result), score(small)
    for name in first:
        assert second[name] == pytest.approx(first[name], abs=1e-5, nan_ok=True), name


def test_more_rows_of_the_same_kind_change_nothing():
    """Every mean and median is that of the rows, so that doubling the rows keeps it."""
    result = example()
    double = result.select(np.tile(np.arange(len(result)), 2))
    first, second = score(result), score(double)
    for name in first:
        if name not in ("ms_per_row", "cpu_ms_per_row"):
            assert second[name] == pytest.approx(first[name], abs=1e-6, nan_ok=True), name


def test_evaluation_is_a_view():
    ev = Evaluation(result=example(), context=CONTEXT)
    assert len(ev.of("found")) == 3
    assert len(ev.of("candidates")) == 7
    assert ev.of("found")._memo is ev.of("candidates")._memo
