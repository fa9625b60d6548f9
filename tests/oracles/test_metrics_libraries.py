"""Metrics against scikit-learn, scipy, exhaustive enumeration and plain loops."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.spatial import distance
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import KNeighborsClassifier, LocalOutlierFactor
from torch import nn

from cel.metrics import Evaluation, MetricsOrchestrator
from cel.metrics._gower import gower_matrix
from cel.metrics.example import ExampleModel, example_context, example_space
from cel.metrics.weight_changes import linear_layers, worst_margin
from cel.protocols import Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space import FeatureSpace
from cel.space.distances import gower

SPACE = example_space()
LOF = "LocalOutlierFactor (scikit-learn)"


def rows(n: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    jobs = np.eye(3)[random.integers(3, size=n)]
    sexes = np.eye(2)[random.integers(2, size=n)]
    return np.hstack([random.random((n, 2)), jobs, sexes]).astype(np.float32)


def make(x, cf, context, space=SPACE, target=None, **more) -> ExplanationResult:
    model = context.model
    y = np.zeros(len(x), dtype=np.int64) if model is None else model.predict(x)
    y_cf = np.zeros(len(x), dtype=np.int64) if model is None else model.predict(cf)
    target = y_cf if target is None else target
    return ExplanationResult(
        x_origs=x, x_cfs=cf, y_origs=y, y_cf_targets=target, y_cfs=y_cf,
        status=np.where(y_cf == target, "found", "invalid").astype(object),
        source_ids=np.arange(len(x)), space=space, context=context, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result() -> ExplanationResult:
    """Sixty rows, three classes, three hundred training rows."""
    model, train = example_context().model, rows(300, 0)
    context = EvaluationContext(
        model=model, x_train=train, y_train=model.predict(train), x_test=rows(80, 1),
    )  # fmt: skip
    return make(rows(60, 2), rows(60, 3), context)


def values(result, name, context=None, **settings):
    judge = MetricsOrchestrator(metrics=[{name: settings}])
    score = judge.compute(result, context).score(name)
    assert score.values is not None, score.reason
    return score.values


# -- outliers ----------------------------------------------------------------------------------


def test_lof_equals_scikit_learn(result, deviation):
    train = result.context.x_train
    theirs = LocalOutlierFactor(20, novelty=True).fit(np.unique(train, axis=0))
    expected = -theirs.score_samples(result.x_cfs)
    deviation.relative(values(result, "lof"), expected, oracle=LOF, limit=1e-9)


def test_lof_among_rows_of_the_target_class(result, deviation):
    """LOF among rows of the target class equals scikit-learn on these rows."""
    train, y = result.context.x_train, result.context.y_train
    got = values(result, "lof", among="target")
    for k in range(3):
        mine = result.y_cf_targets == k
        theirs = LocalOutlierFactor(20, novelty=True).fit(np.unique(train[y == k], axis=0))
        expected = -theirs.score_samples(result.x_cfs[mine])
        deviation.relative(got[mine], expected, oracle=LOF, limit=1e-9)


def test_isolation_forest_equals_scikit_learn(result, deviation):
    train = np.vstack([result.context.x_train, result.context.x_train[:50]])
    context = replace(result.context, x_train=train, y_train=None)
    for deduplicate, fitted_on in ((False, train), (True, np.unique(train, axis=0))):
        theirs = IsolationForest(n_estimators=100, random_state=42).fit(fitted_on)
        got = values(result, "isolation_forest", context, deduplicate=deduplicate)
        expected = theirs.decision_function(result.x_cfs)
        oracle = "IsolationForest (scikit-learn)"
        deviation.relative(got, expected, oracle=oracle, limit=1e-9)
        assert got.tobytes() == expected.tobytes()


# -- distances ---------------------------------------------------------------------------------


def test_distances_equal_scipy(result, deviation):
    numeric, hot = SPACE.numeric_columns, slice(2, 7)
    pairs = list(zip(result.x_origs.astype(float), result.x_cfs.astype(float), strict=True))
    labels = [[(row[2:5].argmax(), row[5:7].argmax()) for row in pair] for pair in pairs]
    expected = {
        "l1": [distance.cityblock(a[numeric], b[numeric]) for a, b in pairs],
        "l2": [distance.euclidean(a[numeric], b[numeric]) for a, b in pairs],
        "hamming": [distance.hamming(a, b) for a, b in labels],
        "jaccard": [distance.jaccard(a[hot] > 0.5, b[hot] > 0.5) for a, b in pairs],
        "sparsity_encoded": [distance.hamming(a, b) for a, b in pairs],
    }
    for name, wanted in expected.items():
        deviation.absolute(values(result, name), wanted, oracle="scipy", limit=1e-6)


def test_mad_equals_scipy(result, deviation):
    scale = stats.median_abs_deviation(result.context.x_train[:, :2].astype(float))
    expected = (np.abs(result.x_cfs - result.x_origs)[:, :2] / scale).sum(1)
    oracle = "median_abs_deviation (scipy)"
    deviation.relative(values(result, "mad"), expected, oracle=oracle, limit=2e-6)


def test_gower_by_loops(result, deviation):
    """Gower distances equal plain loops."""
    expected = []
    for a, b in zip(result.x_origs, result.x_cfs, strict=True):
        parts = [abs(float(a[0] - b[0])), abs(float(a[1] - b[1]))]
        parts += [float(a[2:5].argmax() != b[2:5].argmax())]
        parts += [float(a[5:7].argmax() != b[5:7].argmax())]
        expected.append(sum(parts) / 4)
    deviation.absolute(values(result, "gower"), expected, oracle="plain loops", limit=1e-6)


def test_gower_matrix_agrees_with_pairs(deviation):
    a, b = rows(7, 0).astype(float), rows(5, 1).astype(float)
    matrix = gower_matrix(a, b, SPACE)
    for i, j in itertools.product(range(7), range(5)):
        pair = gower(a[[i]], b[[j]], SPACE)[0]
        deviation.absolute(matrix[i, j], pair, oracle="pair by pair", limit=1e-10)
    numbers = FeatureSpace.continuous(2)
    assert gower_matrix(a[:, :2], b[:, :2], numbers).shape == (7, 5)


# -- neighbours --------------------------------------------------------------------------------


def test_ynn_equals_scikit_learn(result, deviation):
    theirs = KNeighborsClassifier(5).fit(result.context.x_train, result.context.y_train)
    share = theirs.predict_proba(result.x_cfs)[np.arange(60), result.y_cf_targets]
    oracle = "KNeighborsClassifier (scikit-learn)"
    deviation.absolute(values(result, "ynn"), share, oracle=oracle, limit=1e-10)


def test_nearest_row_of_the_target_class_by_loops(result, deviation):
    """Distances to the nearest row of the target class equal plain loops."""
    train, y = result.context.x_train, result.context.y_train
    expected = [
        min(gower(c[None], z[None], SPACE)[0] for z in train[y == t])
        for c, t in zip(result.x_cfs[:10], result.y_cf_targets[:10], strict=True)
    ]
    got = values(result, "nn_distance")[:10]
    deviation.absolute(got, expected, oracle="plain loops", limit=1e-8)


def test_connectedness_is_membership_in_a_dbscan_cluster(result, deviation):
    train, y = result.context.x_train.astype(float), result.context.y_train
    got = values(result, "connectedness", k=4, quantile=0.8)
    for i in range(60):
        members = train[y == result.y_cf_targets[i]]
        apart = np.sort(distance.cdist(members, members), axis=1)[:, 4]
        eps = np.quantile(apart, 0.8)
        fitted = DBSCAN(eps=eps, min_samples=5).fit(members)  # scikit-learn counts the row itself
        core = members[fitted.core_sample_indices_]
        expected = distance.cdist(result.x_cfs[[i]], core).min() <= eps
        deviation.rows(got[i] != expected, oracle="DBSCAN (scikit-learn)")


def test_discriminative_power_by_one_nearest_neighbour(result, deviation):
    """Discriminative power equals the hits of a 1-nearest-neighbour classifier."""
    train, y = result.context.x_train.astype(float), result.context.y_train
    got = values(result, "discriminative_power", k=8)
    for i in range(0, 60, 4):
        x, cf = result.x_origs[i].astype(float), result.x_cfs[i].astype(float)
        judge = KNeighborsClassifier(1).fit([x, cf], [0, 1])
        hits = []
        for label, truth in ((result.y_origs[i], 0), (result.y_cf_targets[i], 1)):
            members = train[y == label]
            near = members[np.linalg.norm(members - x, axis=1).argsort(kind="stable")[:8]]
            hits += (judge.predict(near) == truth).tolist()
        oracle = "KNeighborsClassifier (scikit-learn)"
        deviation.absolute(got[i], np.mean(hits), oracle=oracle, limit=1e-10)


# -- sets and minimality -----------------------------------------------------------------------


def test_diversity_by_loops(result, deviation):
    """Both diversities equal plain loops and determinants."""
    random = np.random.default_rng(0)
    sets = np.stack([result.x_cfs, rows(60, 5), rows(60, 6), rows(60, 7)], 1)
    sets[random.random((60, 4)) < 0.3] = np.nan
    several = replace(result, x_sets=sets)
    pairwise, dpp = values(several, "diversity_pairwise"), values(several, "diversity_dpp")
    for i in range(60):
        members = sets[i][~np.isnan(sets[i]).any(1)].astype(float)
        if len(members) < 2:
            assert pairwise[i] == dpp[i] == 0
            continue
        apart = gower_matrix(members, members, SPACE)
        mean = apart[np.triu_indices(len(members), 1)].mean()
        deviation.absolute(pairwise[i], mean, oracle="plain loops", limit=1e-7)
        deviation.absolute(
            dpp[i], np.linalg.det(1 / (1 + apart)), oracle="determinant (numpy)", limit=1e-6
        )


def test_redundancy_by_loops(result, deviation):
    """Redundancy equals plain loops over changed features."""
    got, model = values(result, "redundancy"), result.context.model
    for i in range(60):
        x, cf = result.x_origs[i], result.x_cfs[i]
        changed = [f for f in SPACE if not np.array_equal(x[list(f.columns)], cf[list(f.columns)])]
        spare = 0
        for f in changed:
            trial = cf.copy()
            trial[list(f.columns)] = x[list(f.columns)]
            spare += int(model.predict(trial[None])[0] == result.y_cf_targets[i])
        expected = spare / max(len(changed), 1)
        deviation.absolute(got[i], expected, oracle="plain loops", limit=1e-10)


def test_effectiveness_auc_is_the_area_under_the_curve(result, deviation):
    lost = replace(result, status=np.where(np.arange(60) % 3 == 0, "invalid", result.status))
    costs = np.where(lost.found, gower(lost.x_origs, lost.x_cfs, SPACE), np.inf)
    budget = np.linspace(0, 0.5, 20_001)
    curve = (costs[None] <= budget[:, None]).mean(1)
    area = np.trapezoid(curve, budget) / 0.5
    got = values(lost, "effectiveness_auc", budget=0.5).mean()
    deviation.absolute(got, area, oracle="trapezoids (numpy)", limit=3e-5)


# -- weights -----------------------------------------------------------------------------------


def test_worst_margin_of_a_linear_model_by_all_corners(deviation):
    """The worst margin of a linear model is the least over all corners of its weights."""
    random = np.random.default_rng(0)
    weight, bias = torch.tensor(random.normal(size=(2, 2))), torch.tensor(random.normal(size=2))
    x, delta = torch.tensor(random.normal(size=(5, 2))), 0.3
    target = torch.tensor([0, 1, 1, 0, 1])
    got = worst_margin([(weight, bias)], x, target, delta)
    corners = itertools.product((-delta, delta), repeat=6)
    margins = []
    for c in corners:
        c = torch.tensor(c, dtype=torch.float64)
        moved = x @ (weight + c[:4].reshape(2, 2)).T + bias + c[4:]
        rows_ = torch.arange(5)
        margins.append(moved[rows_, target] - moved[rows_, 1 - target])
    exact = torch.stack(margins).amin(0)
    deviation.absolute(got, exact, oracle="all 64 corners", limit=1e-12)


class Net:
    """A two-layer network with the attributes of a torch model."""

    task = Task.CLASSIFICATION

    def __init__(self, seed: int, middle: nn.Module | None = None) -> None:
        torch.manual_seed(seed)
        self.module_ = nn.Sequential(
            nn.Linear(7, 8), middle or nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
        ).eval()

    def logits(self, x):
        return self.module_(x)

    def predict_proba(self, X):
        with torch.no_grad():
            return self.logits(torch.as_tensor(np.asarray(X))).softmax(-1).numpy()

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def test_bounds_of_a_network_hold_for_random_weights(deviation):
    model, x = Net(0), torch.as_tensor(rows(40, 0)).double()
    target = model.logits(x.float()).argmax(1)
    layers = linear_layers(model, x)
    centre = worst_margin(layers, x, target, 0.0)
    logits = model.logits(x.float()).double().detach()
    others = logits.scatter(1, target[:, None], -torch.inf).amax(1)
    torch.testing.assert_close(
        centre, logits.gather(1, target[:, None])[:, 0] - others, atol=1e-5, rtol=1e-4
    )
    bound = worst_margin(layers, x, target, 0.05)
    generator = torch.Generator().manual_seed(0)
    worst = torch.full((40,), torch.inf, dtype=torch.float64)
    for _ in range(100):
        hidden = x
        for i, (w, b) in enumerate(layers):
            signs = [torch.randint(0, 2, s.shape, generator=generator) * 2 - 1 for s in (w, b)]
            hidden = hidden @ (w + 0.05 * signs[0]).T + b + 0.05 * signs[1]
            hidden = hidden.relu() if i == 0 else hidden
        mine = hidden.gather(1, target[:, None])[:, 0]
        worst = torch.minimum(worst, mine - hidden.scatter(1, target[:, None], -torch.inf).amax(1))
    above = bound - worst
    deviation(above, oracle="100 random weights", limit=1e-9, unit="margin above")
    assert (bound < centre).all()


def test_delta_validity_falls_with_delta_and_names_foreign_layers(result):
    model = Net(0)
    context = replace(result.context, model=model, y_train=None)
    mine = make(result.x_origs, result.x_cfs, context)
    shares = [values(mine, "delta_validity", delta=d).mean() for d in (0.0, 0.01, 0.05, 1.0)]
    assert shares[0] == 1
    assert shares[-1] == 0
    assert shares == sorted(shares, reverse=True)
    curved = replace(context, model=Net(0, nn.Tanh()))
    scores = MetricsOrchestrator(metrics=["delta_validity"], check=False).compute(mine, curved)
    assert "Tanh layer" in scores.reasons["delta_validity"]


def test_a_network_that_is_no_chain_is_recognised(result):
    class Skip(Net):
        def logits(self, x):
            return self.module_(x) + x[:, :3]

    context = replace(result.context, model=Skip(0), y_train=None)
    mine = make(result.x_origs, result.x_cfs, context)
    scores = MetricsOrchestrator(metrics=["delta_validity"]).compute(mine)
    assert scores.reasons["delta_validity"] == "Skip is not a plain chain of its layers"


def test_delta_validity_of_the_models_of_cel():
    """Delta validity of our models is 1 at delta 0 and 0 at a huge one."""
    from cel.models.classifiers import LogisticRegression, MLPClassifier

    x = rows(200, 0)
    y = (x[:, 0] + x[:, 1] > 1).astype(np.int64)
    for model in (LogisticRegression(), MLPClassifier(hidden=(16,), epochs=20, lr=0.01)):
        model.fit(x, y)
        context = EvaluationContext(model=model, x_train=x)
        mine = make(rows(30, 1), rows(30, 2), context)
        assert values(mine, "delta_validity", delta=0.0).mean() == 1
        assert values(mine, "delta_validity", delta=1e6).mean() == 0


# -- retraining --------------------------------------------------------------------------------


class Shaky(ExampleModel):
    """A model whose training depends on its seed."""

    def fit(self, X, y):
        super().fit(X, y)
        self.centres_ = self.centres_ + np.random.default_rng(self.random_state).normal(
            0, 0.1, len(self.centres_)
        )
        return self


def test_retraining_by_loops(result, deviation):
    """Validity after retraining equals plain loops over the same seeds."""
    train, y = result.context.x_train, result.context.y_train
    model = Shaky(random_state=3).fit(train, y)
    context = replace(result.context, model=model, y_train=None)
    mine = make(result.x_origs, result.x_cfs, context)
    labels = np.random.default_rng(0).permutation(y)
    for mode in ("seeds", "bootstrap", "leave_out"):
        judge = MetricsOrchestrator(metrics=[{f"retraining_{mode}": {"n_models": 4}}])
        got = judge.compute(mine, labels=labels).score(f"retraining_{mode}").values
        kept = []
        for stream in np.random.SeedSequence(0).spawn(4):
            random = np.random.default_rng(stream)
            again = clone(model).set_params(random_state=int(random.integers(2**31 - 1)))
            if mode == "seeds":
                used = np.arange(300)
            elif mode == "bootstrap":
                used = random.integers(300, size=300)
            else:
                used = np.sort(random.permutation(300)[:270])
            again.fit(train[used], labels[used])
            kept.append(again.predict(mine.x_cfs) == mine.y_cf_targets)
        deviation.absolute(got, np.mean(kept, axis=0), oracle="plain loops", limit=1e-10)
        assert 0 < got.mean() < 1


def test_retraining_conditional_on_the_old_outcome(result, deviation):
    """Conditional validity after retraining equals plain counts."""
    train = result.context.x_train
    model = Shaky(random_state=3).fit(train, result.context.y_train)
    mine = make(result.x_origs, result.x_cfs, replace(result.context, model=model, y_train=None))
    from cel.metrics.retraining import retrained_models

    view = Evaluation(result=mine, context=mine.context)
    again = retrained_models(view, "seeds", 5, 0)
    same = np.array([m.predict(mine.x_origs) == mine.y_origs for m in again])
    kept = np.array([m.predict(mine.x_cfs) == mine.y_cf_targets for m in again]) & same
    number = same.sum(0)
    expected = np.where(number > 0, kept.sum(0) / np.maximum(number, 1), np.nan)
    got = values(mine, "retraining_seeds", condition=True)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    gap = np.nan_to_num(got - expected)
    deviation.absolute(gap, 0, oracle="plain loops", limit=1e-10)


def test_a_bootstrap_that_loses_a_class_keeps_positions_straight(result):
    x = np.vstack([result.context.x_train[:30], np.full((1, 7), 0.9, dtype=np.float32)])
    y = np.concatenate([np.ones(30, dtype=np.int64), [0]])
    y[:15] = 2
    model = ExampleModel().fit(x, y)
    mine = make(result.x_origs, result.x_cfs, EvaluationContext(model=model, x_train=x, y_train=y))
    got = values(mine, "retraining_bootstrap", n_models=8)
    assert np.isfinite(got).all()


def test_models_of_cel_can_be_retrained():
    """Our models keep most answers when they are trained again."""
    from cel.models.classifiers import LogisticRegression

    x = rows(120, 0)
    y = (x[:, 0] + x[:, 1] > 1).astype(np.int64)
    model = LogisticRegression().fit(x, y)
    mine = make(rows(20, 1), rows(20, 2), EvaluationContext(model=model, x_train=x, y_train=y))
    for mode in ("seeds", "bootstrap", "leave_out"):
        assert 0.5 < values(mine, f"retraining_{mode}", n_models=2).mean() <= 1


# -- densities ---------------------------------------------------------------------------------


class Bell:
    """The normal density N(class, 1) of three independent numbers."""

    def log_prob(self, x, context=None):
        centre = context.to(x.dtype)[:, None]
        return torch.distributions.Normal(centre, 1.0).log_prob(x).sum(-1)


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(2, size=n)
    return (random.normal(size=(n, 3)) + y[:, None]).astype(np.float32), y


def as_answers(x, y, context) -> ExplanationResult:
    """Real rows in the place of counterfactuals."""
    return ExplanationResult(
        x_origs=np.zeros_like(x), x_cfs=x, y_origs=1 - y, y_cf_targets=y, y_cfs=y,
        status=np.full(len(x), "found", dtype=object), source_ids=np.arange(len(x)),
        space=FeatureSpace.continuous(x.shape[1], lower=-9, upper=9), context=context,
    )  # fmt: skip


def test_real_rows_have_a_mean_density_percentile_of_one_half(deviation):
    (train, y_train), (test, y_test), (x, y) = drawn(3000, 0), drawn(3000, 1), drawn(3000, 2)
    context = EvaluationContext(
        density=Bell(), x_train=train, y_train=y_train, x_test=test, y_test=y_test
    )
    real = as_answers(x, y, context)
    scores = MetricsOrchestrator().compute(real)
    told = {"oracle": "uniform law of percentiles", "limit": 0.03}
    deviation.absolute(scores["density_percentile"], 0.5, **told)
    assert scores["prob_plausibility"] == pytest.approx(0.5, abs=0.03)
    assert scores["lof_median"] == pytest.approx(1.0, abs=0.1)
    expected = stats.norm(y[:, None], 1).logpdf(x).sum(1)
    assert scores["log_density"] == pytest.approx(expected.mean(), rel=1e-5)
    assert scores["log_density_median"] == pytest.approx(np.median(expected), rel=1e-5)


def test_percentiles_equal_scipy(deviation):
    (test, y_test), (x, y) = drawn(200, 1), drawn(30, 2)
    real = as_answers(x, y, EvaluationContext(density=Bell(), x_test=test, y_test=y_test))
    got = values(real, "density_percentile")
    known = stats.norm(y_test[:, None], 1).logpdf(test).sum(1)
    mine = stats.norm(y[:, None], 1).logpdf(x).sum(1)
    expected = [
        stats.percentileofscore(known[y_test == t], v, kind="mean") / 100
        for v, t in zip(mine, y, strict=True)
    ]
    oracle = "percentileofscore (scipy)"
    deviation.absolute(got, expected, oracle=oracle, limit=1e-9)


def test_percentiles_of_ties_are_mid_ranks(deviation):
    """Held-out rows of equal density count half."""

    class Steps:
        def log_prob(self, x, context=None):
            return x[:, 0].round()

    test = np.array([0, 1, 1, 1, 1, 3, 3, 4], dtype=np.float32)[:, None]
    x = np.array([-1, 0, 1, 2, 3, 4, 5], dtype=np.float32)[:, None]
    ones = np.ones(len(test), dtype=np.int64)
    real = as_answers(
        x, ones[: len(x)], EvaluationContext(density=Steps(), x_test=test, y_test=ones)
    )
    got = values(real, "density_percentile")
    kinds = {
        kind: [stats.percentileofscore(test[:, 0], v, kind=kind) / 100 for v in x[:, 0]]
        for kind in ("mean", "weak", "strict")
    }
    told = {"oracle": "percentileofscore (scipy)", "limit": 1e-9}
    deviation.absolute(got, kinds["mean"], **told)
    assert not np.allclose(got, kinds["weak"])
    assert not np.allclose(got, kinds["strict"])


def test_regression_densities_use_the_wanted_value_as_context(deviation):
    class Line:
        def log_prob(self, x, context=None):
            return -(x[:, 0] - context[:, 0]).square()

    class Same:
        task = Task.REGRESSION

        def predict(self, X):
            return np.asarray(X)[:, :1]

    random = np.random.default_rng(0)
    x, wanted = random.random((9, 1)), random.random((9, 1))
    context = EvaluationContext(
        model=Same(), density=Line(), x_train=random.random((50, 1)), x_test=random.random((40, 1))
    )
    cf = wanted + 0.01
    result = ExplanationResult(
        x_origs=x, x_cfs=cf, y_origs=x, y_cf_targets=wanted, y_cfs=cf,
        status=np.full(9, "found", dtype=object), source_ids=np.arange(9),
        space=FeatureSpace.continuous(1), context=context,
    )  # fmt: skip
    scores = MetricsOrchestrator().compute(result)
    deviation.relative(scores["log_density"], -1e-4, oracle="by hand", limit=2e-5)
    assert scores["density_percentile"] == 0  # real rows lie exactly on the line
    assert scores["mae"] == pytest.approx(0.01)


# -- real data ---------------------------------------------------------------------------------


def heloc():
    folders = [p for p in os.environ.get("CEL_DATA", "").split(os.pathsep) if p]
    if not any((Path(f) / "heloc").is_dir() for f in folders):
        pytest.skip("HELOC is not among the folders in CEL_DATA")
    from cel.datasets import load_dataset

    return load_dataset("heloc").split()


@pytest.mark.data
def test_real_rows_of_heloc_are_ordinary(deviation):
    """Real rows of HELOC have a median LOF near 1."""
    split = heloc()
    train, test = split.train.X, split.test.X
    zeros = np.zeros(len(test), dtype=np.int64)
    context = EvaluationContext(x_train=train)
    shifted = test.copy()
    shifted[:, 0] = np.clip(shifted[:, 0] + 0.05, 0, 1)
    for x in (test, shifted):
        result = ExplanationResult(
            x_origs=test, x_cfs=x, y_origs=zeros, y_cf_targets=zeros, y_cfs=zeros,
            status=np.full(len(x), "found", dtype=object), source_ids=zeros,
            space=split.space, context=context,
        )  # fmt: skip
        factor = values(result, "lof")
        median = np.median(factor)
        deviation.absolute(median, 1.0, oracle="an ordinary row", limit=0.15)
        assert factor.max() < 1e3


@pytest.mark.data
def test_real_rows_of_heloc_have_a_mean_density_percentile_of_one_half(deviation):
    split = heloc()
    half = len(split.test.X) // 2
    order = np.random.default_rng(0).permutation(len(split.test.X))  # the file has an order
    held_out, labels = split.test.X[order], split.test.y[order]

    class Diagonal:
        def __init__(self, x, y):
            self.mean = torch.tensor(np.stack([x[y == k].mean(0) for k in (0, 1)]))
            self.std = torch.tensor(np.stack([x[y == k].std(0) + 0.05 for k in (0, 1)]))

        def log_prob(self, x, context=None):
            normal = torch.distributions.Normal(self.mean[context], self.std[context])
            return normal.log_prob(x).sum(-1)

    context = EvaluationContext(
        density=Diagonal(split.train.X, split.train.y),
        x_train=split.train.X,
        y_train=split.train.y,
        x_test=held_out[:half],
        y_test=labels[:half],
    )
    x, y = held_out[half:], labels[half:]
    result = replace(as_answers(x, y, context), space=split.space)
    scores = MetricsOrchestrator(metrics=["density_percentile"]).compute(result)
    told = {"oracle": "uniform law of percentiles", "limit": 0.03}
    deviation.absolute(scores["density_percentile"], 0.5, **told)
