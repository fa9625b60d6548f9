"""PROBE: invalidation rates in closed form, by counting, and at curved boundaries."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import norm

from cel.cf_methods.local_methods import PROBE, ROAR
from cel.cf_methods.local_methods.probe import invalidation_bound
from cel.datasets import load_dataset
from cel.errors import ConfigError
from cel.models.classifiers import MLPClassifier
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel

SIGMA = 0.1


def linear(seed=0, d=4, bend=0.0):
    rng = np.random.default_rng(seed)
    w = rng.normal(0, 3, d).astype(np.float32)
    x = rng.random((80, d)).astype(np.float32)
    b = np.float32(-np.quantile(x @ w, 0.6))
    weights, bias = np.stack([0 * w, w]), np.array([0, b], np.float32)
    model = ToyModel(weights, bias, Task.CLASSIFICATION, bend=bend)
    space = FeatureSpace.continuous(d).with_changes(
        **{f"x{j}": {"lower": 0.0, "upper": 1.0} for j in range(d)}
    )
    return model, space, x, w


def rates(model, y, draws, seed=1):
    rng = np.random.default_rng(seed)
    out = []
    for row in y:
        noisy = row + SIGMA * rng.normal(size=(draws, len(row)))
        out.append((model.predict(noisy.astype(np.float32)) != 1).mean())
    return np.array(out)


@pytest.mark.parametrize("rate", [0.15, 0.25, 0.35])
def test_linear_models_have_the_rate_that_was_asked_for(rate, deviation):
    """1 - Phi(margin / (sigma |w|)) is the rate: not above it, and no farther than needed."""
    model, space, x, w = linear()
    result = PROBE(model, space=space, rate=rate, draws=4000).fit(x).explain(x, 1)
    y = torch.as_tensor(result.x_cfs[result.found])
    assert len(y) > 10
    logits = model.logits(y)
    margin = (logits[:, 1] - logits[:, 0]).numpy()
    exact = norm.sf(margin / (SIGMA * np.linalg.norm(w)))
    assert (exact <= rate + 0.005).all()
    told = np.array(result.logs["invalidation_rate"], dtype=float)[result.found]
    assert (told >= exact - 0.03).all()
    assert (told <= rate + 0.005).all()
    counted = rates(model, y.numpy(), 4000)
    spread = np.sqrt(exact * (1 - exact) / 4000)
    assert (np.abs(counted - exact) < 4 * spread).all()
    deviation(rate - np.median(exact), oracle="normal law", limit=0.06, unit="rate, median")


def test_at_one_half_it_is_the_nearest_point(deviation):
    """Noise is as often good as bad at the boundary of a linear model."""
    model, space, x, _ = linear(3)
    a = PROBE(model, space=space, rate=0.5, eps=0.05).fit(x).explain(x, 1)
    b = ROAR(model, space=space, delta=0.0).fit(x).explain(x, 1)
    both = a.found & b.found
    assert both.sum() == b.found.sum() > 10
    cost = [np.abs(r.x_cfs - r.x_origs)[both].sum(1) for r in (a, b)]
    deviation(cost[0] - cost[1], oracle="nearest point (knapsack)", limit=5e-3, unit="cost")


def test_smaller_rates_cost_more():
    model, space, x, _ = linear(5)
    costs = []
    for rate in (0.45, 0.3, 0.15):
        r = PROBE(model, space=space, rate=rate).fit(x).explain(x[model.predict(x) == 0], 1)
        costs.append(np.where(r.found, np.abs(r.x_cfs - r.x_origs).sum(1), np.inf))
    assert all((b >= a - 1e-4).all() for a, b in itertools.pairwise(costs))
    assert (costs[-1] > costs[0] + 1e-3).mean() > 0.9


def test_counting_catches_what_the_slope_misses():
    """At a curved boundary the first-order rate is biased; found rows keep the true one."""
    problem = PROBLEMS["binary_curved"]()
    method = problem.fitted(PROBE, rate=0.2, draws=4000)
    result = method.explain(problem.x, problem.target)
    y = result.x_cfs[result.found]
    assert len(y) > 3
    assert (rates(problem.model, y, 20_000) <= 0.2 + 0.005 + 0.01).all()


def test_bounds_are_upper_ends_of_intervals():
    lost = torch.tensor([0.0, 35.0, 100.0])
    bound = invalidation_bound(lost, 100)
    assert (bound >= lost / 100).all()
    assert bound[1].item() == pytest.approx(0.4323, abs=2e-3)
    rng = np.random.default_rng(0)
    counts = torch.as_tensor(rng.binomial(200, 0.3, 4000)).float()
    assert 0.93 < (invalidation_bound(counts, 200) >= 0.3).float().mean() < 0.97


def test_rates_above_one_half_are_refused():
    model, space, x, _ = linear()
    with pytest.raises(ConfigError, match="rate must lie"):
        PROBE(model, space=space, rate=0.6).fit(x)


def test_linear_answers_are_those_of_a_shifted_half_space(deviation):
    """Asked for once, the rate is a margin sigma |w| z; the cost is that of a linear program."""
    model, space, x, w = linear(9)
    rate = 0.25
    b = float(model.logits(torch.zeros(1, len(w)))[0, 1])
    result = PROBE(model, space=space, rate=rate, eps=0.1).fit(x).explain(x, 1)
    aim = SIGMA * np.linalg.norm(w) * norm.isf(rate) + 1.5e-4
    costs, best = [], []
    for origin, answer in zip(result.x_origs, result.x_cfs, strict=True):
        if np.isnan(answer).any():
            continue
        w64, start = w.astype(float), origin.astype(float)
        program = linprog(
            np.ones(2 * len(w)), A_ub=[-np.concatenate([w64, -w64])], b_ub=[w64 @ start + b - aim],
            bounds=[*((0, 1 - v) for v in start), *((0, v) for v in start)],
        )  # fmt: skip
        costs.append(np.abs(answer - start).sum())
        best.append(program.fun)
    assert len(costs) > 10
    deviation(np.abs(np.array(costs) - best), oracle="linear program (HiGHS)", limit=1e-5,
              unit="cost")  # fmt: skip


def test_noise_into_any_other_class_counts(deviation):
    """Three classes: draws of either other class are losses, and found rows keep the rate."""
    problem = PROBLEMS["three_classes"]()
    rate, eps = 0.3, 0.005
    method = problem.fitted(PROBE, rate=rate, eps=eps, draws=2000)
    result = method.explain(problem.x, problem.target)
    y, wanted = result.x_cfs[result.found], result.y_cf_targets[result.found]
    assert len(y) >= 3
    rng = np.random.default_rng(4)
    lost = []
    for row, target in zip(y, wanted, strict=True):
        noisy = (row + SIGMA * rng.normal(size=(20000, len(row)))).astype(np.float32)
        scores = problem.model.logits(torch.as_tensor(noisy)).numpy()
        lost.append((scores.argmax(1) != target).mean())
    above = np.maximum(np.array(lost) - rate - eps, 0)
    deviation(above, oracle="20,000 draws", limit=4 * np.sqrt(0.3 * 0.7 / 2000), unit="rate above")


def test_rows_whose_slope_promises_too_much_are_searched_anew():
    """Two moons of wavy boundary: almost all rows find a place that noise does not leave."""
    split = load_dataset("moons").split()
    model = MLPClassifier(hidden=(32, 32), lr=0.01).fit(split.loader("train"))
    rows = split.test.X[model.predict_proba(split.test.X).argmax(1) == 0][:30]
    result = PROBE(model, rate=0.1, draws=1000).fit(split).explain(rows, split.target.classes[1])
    assert result.found.mean() >= 0.9
