"""Artelt and Hammer: the convex programs against Clarabel, their limits against closed forms."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from cel.cf_methods.local_methods.artelt import Artelt
from cel.cf_methods.local_methods.artelt.cone_programs import solve_exactly
from cel.cf_methods.local_methods.artelt.dense_components import fit_density
from cel.errors import UnsupportedError
from cel.protocols import Status, Task
from cel.solvers.admm import INFEASIBLE, SOLVED, Programs, solve_programs
from cel.solvers.ellipsoid import Ellipsoids
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

MARGIN, REGULARISATION = 1e-3, 1e-4
CLARABEL = "cone program (Clarabel)"


def classes(*, gap, d=4, n=80, seed=0):
    """Return a linear model and rows of two clouds, two blobs in each."""
    rng = np.random.default_rng(seed)
    blob = rng.integers(0, 4, 2 * n)
    centre = 0.5 + np.where(blob < 2, -gap, gap)[:, None] * np.ones(d) / 2
    centre[:, 0] += np.where(blob % 2, 0.12, -0.12)
    rows = np.clip(centre + 0.06 * rng.normal(size=(2 * n, d)), 0, 1).astype(np.float32)
    w = np.stack([np.zeros(d), np.linspace(3, 6, d)]).astype(np.float32)
    b = np.array([0, -0.5 * w[1].sum()], dtype=np.float32)
    model = ToyModel(w, b, Task.CLASSIFICATION)
    x = rows[model.predict(rows) == 0][:6]
    return model, rows, x


def mixture(rows, size):
    """Fit the mixture with scikit-learn alone."""
    model = GaussianMixture(size, reg_covar=REGULARISATION, random_state=0, max_iter=100)
    return model.fit(rows.astype(np.float64))


def largest_component(gmm, x):
    """Return max_j log pi_j N(x | mu_j, Sigma_j) by scipy."""
    parts = zip(gmm.weights_, gmm.means_, gmm.covariances_, strict=True)
    logs = [np.log(p) + multivariate_normal(m, s).logpdf(x) for p, m, s in parts]
    return np.max(logs, axis=0)


def squared_radii(gmm, log_delta):
    d = gmm.means_.shape[1]
    log_det = np.linalg.slogdet(gmm.covariances_)[1]
    return -2 * log_delta + 2 * np.log(gmm.weights_) - d * np.log(2 * np.pi) - log_det


def clarabel(x0, planes, offsets, mean, covariance, radius, *, norm="l1"):
    """Return the optimum of one program (infinite if infeasible)."""
    x = cp.Variable(len(x0))
    root = np.linalg.cholesky(np.linalg.inv(covariance)).T
    rules = [x >= 0, x <= 1, cp.norm(root @ (x - mean)) <= np.sqrt(radius)]
    if len(planes):
        rules.append(planes @ x <= offsets)
    cost = cp.norm1(x - x0) if norm == "l1" else cp.sum_squares(x - x0) / 2
    problem = cp.Problem(cp.Minimize(cost), rules)
    problem.solve(solver=cp.CLARABEL)
    return problem.value if problem.status == "optimal" else np.inf


def exact(model, rows, x, *, size=2, norm="l1", quantile=0.5, planes=True):
    """Return the optimal cost of each row: every component by Clarabel, the cheapest wins."""
    gmm = mixture(rows[model.predict(rows) == 1], size)
    own = largest_component(gmm, rows[model.predict(rows) == 1].astype(np.float64))
    radii = squared_radii(gmm, np.quantile(own, quantile))
    w, b = (t.numpy().astype(np.float64) for t in model.linear_())
    normal = (w[:1] - w[1:]) if planes else np.zeros((0, x.shape[1]))
    offset = (b[1:] - b[:1] - MARGIN) if planes else np.zeros(0)
    return np.array(
        [
            min(
                clarabel(row.astype(np.float64), normal, offset, m, s, r, norm=norm)
                for m, s, r in zip(gmm.means_, gmm.covariances_, radii, strict=True)
                if r > 0
            )
            for row in x
        ]
    )


def answered(model, rows, x, **changes):
    settings = {"n_components": 2, "regularisation": REGULARISATION} | changes
    method = Artelt(model, space=FeatureSpace.continuous(x.shape[1]), **settings)
    return method.fit(rows).explain(x, target=1)


def cost_of(result, norm="l1"):
    delta = result.x_cfs.astype(np.float64) - result.x_origs
    return np.abs(delta).sum(1) if norm == "l1" else (delta**2).sum(1) / 2


def random_programs(*, norm, p=8, d=5, h=2, seed=1):
    """Return p programs of which each has an ellipsoid and h half-spaces through its inside."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(p, d, d)) / d
    covariance = root @ root.transpose(0, 2, 1) + 0.01 * np.eye(d)
    mean = rng.uniform(0.3, 0.7, (p, d))
    normals = rng.normal(size=(p, h, d))
    offsets = np.einsum("phd,pd->ph", normals, mean) + rng.uniform(-0.1, 0.1, (p, h))
    origin, radius = rng.random((p, d)), rng.uniform(0.5, 2, p)
    ball = Ellipsoids.of(*(torch.as_tensor(v) for v in (mean, covariance, radius)))
    programs = Programs(
        origin=torch.as_tensor(origin),
        weight=torch.ones(d, dtype=torch.float64),
        normals=torch.as_tensor(normals),
        offsets=torch.as_tensor(offsets),
        lower=torch.zeros(p, d, dtype=torch.float64),
        upper=torch.ones(p, d, dtype=torch.float64),
        which=torch.arange(p),
        ellipsoids=ball,
        norm=norm,
    )
    return programs, (origin, normals, offsets, mean, covariance, radius)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_every_component_program_equals_clarabel(norm, deviation):
    programs, parts = random_programs(norm=norm)
    solution = solve_programs(programs)
    optimum = np.array([clarabel(*row, norm=norm) for row in zip(*parts, strict=True)])
    assert (np.isfinite(optimum) & (optimum > 1e-3)).sum() >= 6
    solved = solution.status.numpy() == SOLVED
    np.testing.assert_array_equal(solved, np.isfinite(optimum))
    value = programs.value(solution.x).numpy()
    np.testing.assert_allclose(value[solved], optimum[solved], rtol=1e-4, atol=1e-7)
    far = solved & (optimum > 1e-3)
    deviation.relative(value[far], optimum[far], oracle=CLARABEL, limit=2e-5, unit="relative cost")
    assert programs.violation(solution.x)[solved].max() < 1e-4


@pytest.mark.parametrize(("norm", "size"), [("l1", 2), ("l1", 3), ("l2", 2)])
def test_the_cheapest_component_equals_clarabel(norm, size, deviation):
    model, rows, x = classes(gap=0.3)
    result = answered(model, rows, x, norm=norm, n_components=size)
    assert result.found.all()
    best = exact(model, rows, x, size=size, norm=norm)
    cost = cost_of(result, norm)
    deviation.relative(cost, best, oracle=CLARABEL, limit=3e-5, unit="relative cost")


def test_rows_on_the_class_boundary_equal_clarabel(deviation):
    """Costs are optimal where the half-space and not the ellipsoid decides for some rows.

    Programs keep 1e-5 clear of the half-space, which shows in short ways: hence `atol`.
    """
    model, rows, x = classes(gap=0.1)
    result = answered(model, rows, x, quantile=0.05)
    best = exact(model, rows, x, quantile=0.05)
    free = exact(model, rows, x, quantile=0.05, planes=False)
    assert (best > free * 1.01).any()
    np.testing.assert_allclose(cost_of(result), best, rtol=1e-4, atol=2e-5)
    deviation.absolute(cost_of(result), best, oracle=CLARABEL, limit=1e-4, unit="absolute cost")


def test_answers_are_dense_and_clear_of_the_boundary(deviation):
    model, rows, x = classes(gap=0.1)
    own = rows[model.predict(rows) == 1]
    gmm = mixture(own, 2)
    log_delta = np.median(largest_component(gmm, own.astype(np.float64)))
    result = answered(model, rows, x)
    assert result.found.all()
    cf = result.x_cfs.astype(np.float64)
    short = log_delta - largest_component(gmm, cf)
    oracle = "mixture (scikit-learn, scipy)"
    deviation(short, oracle=oracle, limit=1e-4, unit="missing log-density")
    w, b = (t.numpy().astype(np.float64) for t in model.linear_())
    short = MARGIN - (cf @ w.T + b) @ [-1, 1]
    deviation(short, oracle="margin", limit=1e-6, unit="missing margin")


def test_without_a_density_constraint_it_is_the_l1_knapsack(deviation):
    model, rows, x = classes(gap=0.3)
    result = answered(model, rows, x, threshold=-1e5)
    w, b = (t.numpy().astype(np.float64) for t in model.linear_())
    for row, cost in zip(x.astype(np.float64), cost_of(result), strict=True):
        gap = MARGIN - ((w @ row + b) @ [-1, 1])
        bounds = [(0, 1 - v) for v in row] + [(0, v) for v in row]
        line = np.concatenate([w[1], -w[1]])
        optimum = linprog(np.ones(2 * len(row)), A_ub=-line[None], b_ub=[-gap], bounds=bounds)
        told = {"oracle": "linear program (HiGHS)", "unit": "relative cost"}
        deviation.relative(cost, optimum.fun, limit=1e-4, **told)


def test_the_cost_never_falls_as_the_density_rises(deviation):
    model, rows, x = classes(gap=0.1)
    quantiles = (0.02, 0.25, 0.5, 0.75, 0.95)
    costs = np.stack([cost_of(answered(model, rows, x, quantile=q)) for q in quantiles])
    fall = -np.diff(costs, axis=0) / costs[:-1]
    deviation(fall, oracle="monotone in the density", limit=1e-4, unit="relative fall")
    assert (costs[-1] > costs[0] * 1.05).all()


def test_the_classifier_does_not_matter_for_separate_classes(deviation):
    """Without the classifier the optimum is the same when the classes lie apart (theorem 2)."""
    model, rows, x = classes(gap=0.5)
    result = answered(model, rows, x)
    without = exact(model, rows, x, planes=False)
    cost = cost_of(result)
    deviation.relative(cost, without, oracle=CLARABEL, limit=1e-5, unit="relative cost")


def test_a_model_that_is_not_linear_is_refused():
    model, rows, _ = classes(gap=0.3)
    bent = ToyModel(model.weights.numpy(), model.bias.numpy(), Task.CLASSIFICATION, bend=0.2)
    with pytest.raises(UnsupportedError, match="linear"):
        Artelt(bent, space=FeatureSpace.continuous(4)).fit(rows)


@pytest.mark.parametrize("gap", [0.3, 0.02, 1e-3])
def test_infeasible_programs_are_proved_by_the_support_function(gap, deviation):
    """Programs are infeasible exactly when the half-space lies beyond mu.w + sqrt(r w'Sigma w).

    ADMM leaves slivers and gaps of a thousandth undecided, but never gets them wrong; Clarabel
    decides them.
    """
    rng = np.random.default_rng(3)
    d, p = 4, 6
    root = rng.normal(size=(p, d, d)) / d
    covariance = 0.02 * (root @ root.transpose(0, 2, 1) + 0.1 * np.eye(d))
    mean, w = rng.uniform(0.4, 0.6, (p, d)), rng.normal(size=(p, d))
    width = np.sqrt(np.einsum("pd,pde,pe->p", w, covariance, w))
    reach = (w * mean).sum(1) + width
    side = np.tile([1.0, -1.0], p // 2)  # the even ones ask for more than there is
    ball = Ellipsoids.of(torch.as_tensor(mean), torch.as_tensor(covariance), torch.ones(p))
    programs = Programs(
        origin=torch.as_tensor(rng.random((p, d))),
        weight=torch.ones(d, dtype=torch.float64),
        normals=torch.as_tensor(-w)[:, None],
        offsets=torch.as_tensor(-(reach + side * gap * np.linalg.norm(w, axis=1)))[:, None],
        lower=torch.full((p, d), -9.0, dtype=torch.float64),
        upper=torch.full((p, d), 9.0, dtype=torch.float64),
        which=torch.arange(p),
        ellipsoids=ball,
    )
    status = solve_programs(programs).status.numpy()
    assert (status[1::2] != INFEASIBLE).all()
    assert (status[::2] != SOLVED).all()
    if gap < 0.01:
        status = solve_exactly(programs).status.numpy()
    wanted = np.where(side > 0, INFEASIBLE, SOLVED)
    deviation.rows(status != wanted, oracle="support function", unit="wrong programs")


@pytest.mark.parametrize(("norm", "planes"), [("l1", 2), ("l2", 2), ("l1", 0), ("l2", 0)])
def test_programs_written_as_cones_equal_the_modelling_language(norm, planes, deviation):
    rng = np.random.default_rng(5)
    d, p = 3, 12
    root = rng.normal(size=(2, d, d)) / d
    covariance = 0.1 * (root @ root.transpose(0, 2, 1) + 0.1 * np.eye(d))
    mean, which = rng.uniform(0.3, 0.7, (2, d)), np.repeat([0, 1], p // 2)
    ball = Ellipsoids.of(torch.as_tensor(mean), torch.as_tensor(covariance), torch.ones(2))
    x0, normals = rng.random((p, d)), rng.normal(size=(p, planes, d))
    offsets = np.einsum("phd,pd->ph", normals, mean[which]) + 0.05 * rng.normal(size=(p, planes))
    programs = Programs(
        origin=torch.as_tensor(x0),
        weight=torch.ones(d, dtype=torch.float64),
        normals=torch.as_tensor(normals),
        offsets=torch.as_tensor(offsets),
        lower=torch.zeros(p, d, dtype=torch.float64),
        upper=torch.ones(p, d, dtype=torch.float64),
        which=torch.as_tensor(which),
        ellipsoids=ball,
        norm=norm,
    )
    found = solve_exactly(programs)
    cost = torch.where(found.status == SOLVED, programs.value(found.x), torch.inf).numpy()
    balls = mean[which], covariance[which], np.ones(p)
    parts = zip(x0, normals, offsets, *balls, strict=True)
    optimum = np.array([clarabel(*row, norm=norm) for row in parts])
    assert (np.isfinite(cost) == np.isfinite(optimum)).all()
    assert np.isfinite(cost).sum() > p / 2
    some = np.isfinite(cost)
    deviation(np.abs(cost - optimum)[some], oracle=CLARABEL, limit=1e-7, unit="cost")


def test_mixtures_are_fitted_for_wanted_classes_alone():
    model, rows, x = classes(gap=0.3)
    method = Artelt(model, space=FeatureSpace.continuous(x.shape[1])).fit(rows)
    assert not method.densities_
    first = method.explain(x, target=1)
    assert set(method.densities_) == {1}
    once = method.densities_[1]
    method.explain(rows[model.predict(rows) == 1][:3], target=0)
    assert set(method.densities_) == {0, 1}
    np.testing.assert_array_equal(method.explain(x, target=1).x_cfs, first.x_cfs)
    assert method.densities_[1] is once


def test_a_density_that_no_point_has_is_infeasible():
    model, rows, x = classes(gap=0.3)
    result = answered(model, rows, x, threshold=1e3)
    assert (result.status == Status.INFEASIBLE.value).all()


@pytest.mark.parametrize("rule", ["paper", "reference"])
def test_radii_follow_their_definition(rule, deviation):
    model, rows, _ = classes(gap=0.3)
    own = rows[model.predict(rows) == 1].astype(np.float64)
    density = fit_density(
        own, sizes=(2,), criterion="bic", regularisation=REGULARISATION, quantile=0.5,
        threshold=None, rule=rule, seed=0,
    )  # fmt: skip
    gmm = mixture(own, 2)
    log_delta = np.median(largest_component(gmm, own))
    expected = squared_radii(gmm, log_delta)
    if rule == "reference":
        loss, distance = [], []
        for p, m, s in zip(gmm.weights_, gmm.means_, gmm.covariances_, strict=True):
            loss.append(-np.log(p) - multivariate_normal(m, s).logpdf(own))
            distance.append(np.einsum("nd,de,ne->n", own - m, np.linalg.inv(s), own - m))
        low = np.array(loss) >= -log_delta
        assert (np.where(low, distance, -1).max(1) > 2 * expected).all()
        expected = np.where(low, distance, -1).max(1)
    radius = density.ellipsoids.radius.numpy()
    deviation.relative(radius, expected, oracle="definition, by scipy", limit=1e-10)
