"""CEARM: potential and expected improvement against integrals, the search on linear models."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from cel.cf_methods.local_methods.cearm import CEARM
from cel.cf_methods.local_methods.cearm.gaussian_process import NOISE, Process
from cel.cf_methods.local_methods.cearm.goal import expected_gain, potential
from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel

PEAK = 1 / math.e
CHEAP = {"candidates": 48, "ascent": 8, "neighbours": 32, "fit_rows": 40}


def linear_problem(d=4, n=60, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.random((n, d)).astype(np.float32)
    w = rng.uniform(-1, 1, (1, d)).astype(np.float32)
    w /= np.abs(w).sum()
    model = ToyModel(w, np.array([0.5], dtype=np.float32), Task.REGRESSION)
    return model, rows[10:], rows[:10]


def searched(model, rows, x, target=None, **changes):
    space = FeatureSpace.continuous(x.shape[1])
    method = CEARM(model, space=space, **(CHEAP | changes)).fit(rows)
    return method, method.explain(x, target=target)


def exact_gain(mean, sd, level):
    """Return E max(psi(Z) - level, 0) for Z ~ N(mean, sd^2) by adaptive quadrature."""

    def gain(z):
        psi = z * z * math.exp(-z * z) if z > 0 else 1e-3 * z
        return max(psi - level, 0.0) * norm.pdf(z, mean, sd)

    edges = np.unique(np.clip([mean - 9 * sd, 0.0, 0.5, 1.0, 1.5, mean + 9 * sd], -9, 12))
    edges = edges[(edges >= mean - 9 * sd) & (edges <= mean + 9 * sd)]
    return sum(quad(gain, a, b, limit=200)[0] for a, b in pairwise(edges))


def test_the_potential_peaks_where_the_target_is(deviation):
    z = torch.linspace(-1, 4, 5001, dtype=torch.float64)
    value = potential(z)
    assert float(z[value.argmax()]) == pytest.approx(1.0, abs=1e-3)
    deviation.relative(float(value.max()), PEAK, oracle="1 / e", limit=1e-9)
    one = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    assert float(torch.autograd.grad(potential(one), one)[0]) == pytest.approx(0, abs=1e-12)
    inside = z >= 0
    closed = z**2 * torch.exp(-(z**2))
    deviation.absolute(value[inside], closed[inside], oracle="z^2 exp(-z^2)", limit=1e-12)
    assert (value[1:] > value[:-1])[z[1:] <= 1].all()  # a slope everywhere on the way up


@pytest.mark.parametrize("mean", [-0.5, 0.2, 0.6, 1.0, 1.5, 2.5])
@pytest.mark.parametrize("sd", [0.05, 0.3, 0.8])
def test_expected_improvement_equals_the_integral_and_monte_carlo(mean, sd, deviation):
    """Expected improvement equals the integral and Monte Carlo, also just below the peak."""
    draws = torch.as_tensor(mean + sd * np.random.default_rng(0).normal(size=200_000))
    for level in (0.0, 0.1, 0.3, 0.36):
        args = (torch.tensor(v, dtype=torch.float64) for v in (mean, sd, level))
        value = float(expected_gain(*args))
        exact = exact_gain(mean, sd, level)
        assert value == pytest.approx(exact, rel=0.01, abs=1e-7)
        if exact > 1e-5:
            deviation.relative(value, exact, oracle="adaptive quadrature (scipy)", limit=1e-3)
        gain = (potential(draws) - level).clamp(min=0)
        noise = 4 * float(gain.std()) / len(draws) ** 0.5
        assert value == pytest.approx(float(gain.mean()), rel=0.01, abs=noise + 1e-7)


def test_the_posterior_equals_that_of_scikit_learn(deviation):
    """Mean and deviation of the exact Gaussian process, conditioned on all data."""
    rng = np.random.default_rng(1)
    x, y = rng.random((25, 3)), rng.normal(size=(25, 1))
    length, variance = np.array([0.4, 0.9, 1.7]), 1.3
    process = Process(
        x=torch.as_tensor(x), y=torch.as_tensor(y), length=torch.as_tensor(length),
        variance=variance, centre=torch.tensor([0.7]).double(), scale=torch.tensor([2.0]).double(),
    )  # fmt: skip
    points = rng.random((2, 6, 3))
    near = process.near(torch.as_tensor(points[:, 0]), 25)
    mean, sd = process.condition(near)(torch.as_tensor(points))
    kernel = ConstantKernel(variance) * Matern(length_scale=length, nu=2.5)
    oracle = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(x, (y - 0.7) / 2)
    m, s = oracle.predict(points.reshape(-1, 3), return_std=True)
    told = {"oracle": "GaussianProcessRegressor (scikit-learn)", "limit": 1e-7}
    deviation.absolute(mean.numpy().ravel(), 0.7 + 2 * m.ravel(), **told)
    deviation.absolute(sd.numpy().ravel(), 2 * s, **told)


def test_linear_models_are_answered_to_a_hundredth_within_twenty_rounds(deviation):
    model, rows, x = linear_problem()
    now = model.predict(x)
    wanted = np.where(now > 0.5, now - 0.2, now + 0.2)
    _, result = searched(model, rows, x, target=wanted)
    assert result.found.all()
    told = {"oracle": "value asked for (eps 0.01)", "limit": 0.01 + 1e-6}
    deviation.absolute(model.predict(result.x_cfs), wanted, **told)
    assert 0 < result.logs["rounds"] <= 20


def test_answers_are_not_much_farther_than_the_projection(deviation):
    """The median answer is at most 30 % farther than the nearest point with |f - y*| <= eps."""
    model, rows, x = linear_problem()
    x = 0.3 + 0.4 * x  # away from the box, so that the closed form needs no clamp
    target = model.predict(x) + 0.1
    _, result = searched(model, rows, x, target=target)
    distance = np.linalg.norm(result.x_cfs - x, axis=1)
    nearest = (0.1 - 0.01) / np.linalg.norm(model.weights.numpy())
    assert (distance >= nearest - 1e-4).all()
    over = np.median(distance) / nearest - 1
    deviation(over, oracle="projection", limit=0.3, unit="median relative distance")


def test_two_outputs_reach_both_targets(deviation):
    problem = PROBLEMS["multi_output"]()
    method = problem.fitted(CEARM, rounds=20)
    target = problem.model.predict(problem.x[:6]) + np.float32([0.05, 0.1])
    result = method.explain(problem.x[:6], target=target)
    assert result.found.mean() >= 5 / 6
    error = np.abs(problem.model.predict(result.x_cfs[result.found]) - target[result.found])
    deviation(error, oracle="values asked for", limit=method.tolerance, unit="absolute")


def test_what_was_learned_saves_rounds_the_second_time():
    model, rows, x = linear_problem(seed=3)
    method, first = searched(model, rows, x, memory=True, rho=0.0, patience=1)
    known = len(method.process_.x)
    second = method.explain(x)
    assert first.found.all()
    assert second.found.all()
    assert second.logs["rounds"] < first.logs["rounds"]
    asked, again = known - len(rows), len(method.process_.x) - known
    assert again < asked


def mean_distance(rho):
    model, rows, x = linear_problem(seed=6)
    _, result = searched(model, rows, x, rho=rho)
    assert result.found.all()
    return np.linalg.norm(result.x_cfs - x, axis=1).mean()


def test_more_weight_on_distance_brings_answers_nearer(deviation):
    """Mean distance falls by a fifth with weight 0.1, and does not rise with weight 2.

    Once there is an answer all weights but zero ask for the nearest, hence the slack.
    """
    without, some, much = (mean_distance(rho) for rho in (0.0, 0.1, 2.0))
    assert some < 0.8 * without
    rise = much / some - 1
    deviation(rise, oracle="monotone in the weight", limit=0.05, unit="relative rise")


def test_a_constant_model_has_no_answers():
    """Rows of a constant model are not found."""
    model = ToyModel(np.zeros((1, 3), dtype=np.float32), np.float32([0.3]), Task.REGRESSION)
    rows = np.random.default_rng(5).random((40, 3)).astype(np.float32)
    _, result = searched(model, rows, rows[:5], target=0.6, rounds=4)
    assert (result.status == Status.NOT_FOUND.value).all()
    assert np.isnan(result.x_cfs).all()
