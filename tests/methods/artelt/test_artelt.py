"""Artelt: projections, proofs, whole numbers, categories, relations and the extension."""

import cvxpy as cp
import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.artelt import Artelt
from cel.errors import ConfigError, UnsupportedError
from cel.models.relu_view import ReluView
from cel.protocols import Status, Task
from cel.solvers.admm import INFEASIBLE, Programs, solve_programs
from cel.solvers.ellipsoid import Ellipsoids
from cel.space import Feature, FeatureSpace, LinearRelation
from cel.testing.problems import PROBLEMS, ToyModel


def ellipsoids(m, d, seed=0, squeeze=1e-3):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, d, d)) / d
    covariance = root @ root.transpose(0, 2, 1) + squeeze * np.eye(d)
    mean, radius = rng.random((m, d)), rng.uniform(0.5, 3, m)
    ball = Ellipsoids.of(*(torch.as_tensor(v) for v in (mean, covariance, radius)))
    return ball, mean, covariance, radius


@pytest.mark.parametrize("squeeze", [1e-1, 1e-6])
def test_projections_onto_ellipsoids_equal_clarabel(squeeze, deviation):
    ball, mean, covariance, radius = ellipsoids(3, 5, squeeze=squeeze)
    points = np.random.default_rng(1).normal(size=(12, 5)) * 2
    which = torch.arange(12) % 3  # not sorted
    ours, _ = ball.project(torch.as_tensor(points), which)
    for point, j, found in zip(points, which.tolist(), ours.numpy(), strict=True):
        x = cp.Variable(5)
        root = np.linalg.cholesky(np.linalg.inv(covariance[j])).T
        inside = cp.norm(root @ (x - mean[j])) <= np.sqrt(radius[j])
        cp.Problem(cp.Minimize(cp.sum_squares(x - point)), [inside]).solve(solver=cp.CLARABEL)
        deviation.absolute(found, x.value, oracle="cone program (Clarabel)", limit=2e-4)
        assert np.linalg.norm(found - point) <= np.linalg.norm(x.value - point) + 1e-5
    assert (ball.own_mahalanobis(ours, which) <= torch.as_tensor(radius)[which] + 1e-9).all()


def test_a_warm_start_does_not_change_the_projection(deviation):
    ball, *_ = ellipsoids(2, 4)
    points, which = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(8)
    points, which = points.double() * 3, which.long()
    cold, t = ball.project(points, which)
    for start in (t * 0.5, t * 2, t + 10):
        warm, _ = ball.project(points, which, start)
        deviation.absolute(warm, cold, oracle="cold start", limit=1e-9)


def test_nothing_is_proved_about_programs_that_have_a_point(deviation):
    """No program that holds the centre of its ellipsoid is proved to be infeasible."""
    ball, mean, *_ = ellipsoids(4, 3, seed=2)
    rng = np.random.default_rng(3)
    which = torch.arange(80) % 4
    normals = torch.as_tensor(rng.normal(size=(80, 2, 3)))
    inside = torch.as_tensor(mean)[which]
    offsets = torch.einsum("phd,pd->ph", normals, inside)
    offsets = offsets + torch.as_tensor(rng.exponential(0.01, (80, 2)))
    programs = Programs(
        origin=torch.as_tensor(rng.random((80, 3))),
        weight=torch.ones(3).double(),
        normals=normals,
        offsets=offsets,
        lower=torch.zeros(80, 3).double(),
        upper=torch.ones(80, 3).double(),
        which=which,
        ellipsoids=ball,
    )
    wrong = solve_programs(programs, max_iter=500).status == INFEASIBLE
    deviation.rows(wrong, oracle="a point inside", unit="wrong programs")
    push, pull = torch.rand(80, 2).double(), torch.randn(80, 3).double()
    assert not programs.proved_empty(push, pull).any()


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_the_extension_finds_the_convex_optimum_when_the_model_is_linear_after_all(
    norm, deviation
):
    problem = PROBLEMS["binary_numeric"]()
    hidden = ToyModel(
        problem.model.weights.numpy(), problem.model.bias.numpy(), Task.CLASSIFICATION
    )
    del hidden.linear_
    settings = {"space": problem.space, "n_components": 2, "norm": norm}
    exact = Artelt(problem.model, **settings).fit(problem.x_train).explain(problem.x, target=1)
    method = Artelt(hidden, extension="scp", **settings).fit(problem.x_train)
    ours = method.explain(problem.x, target=1)
    assert exact.found.all()
    assert ours.found.all()
    assert ours.logs["extension"] == "scp"
    assert "extension" not in exact.logs
    delta = [r.x_cfs.astype(float) - r.x_origs for r in (ours, exact)]
    cost = [np.abs(v).sum(1) if norm == "l1" else (v**2).sum(1) for v in delta]
    excess = cost[0] / cost[1] - 1
    assert excess.min() > -1e-3
    oracle = "the convex program"
    deviation(np.median(excess), oracle=oracle, limit=0.02, unit="median relative cost")


def test_the_extension_stays_dense_and_valid_on_a_curved_model(deviation):
    problem = PROBLEMS["binary_curved"]()
    method = problem.fitted(Artelt)
    result = method.explain(problem.x, target=1)
    assert result.found.all()
    density = method.densities_[1]
    log_density = density.log_density(torch.as_tensor(result.x_cfs).double())
    short = density.threshold - log_density
    deviation(short, oracle="threshold", limit=1e-4, unit="missing log-density")


def test_categories_are_kept_or_searched():
    problem = PROBLEMS["mixed"]()
    frozen = {"income": {"mutable": False}, "months": {"mutable": False}}
    settings = {"extension": None, "space": problem.space.with_changes(**frozen)}
    fixed = problem.fitted(Artelt, categories="fixed", **settings)
    searched = problem.fitted(Artelt, **settings)
    a, b = (m.explain(problem.x, target=1) for m in (fixed, searched))
    blocks = list(problem.space["job"].columns)
    np.testing.assert_array_equal(a.x_cfs[a.found][:, blocks], problem.x[a.found][:, blocks])
    assert b.found.sum() > a.found.sum()
    np.testing.assert_array_equal(a.x_cfs[a.found], b.x_cfs[a.found])
    assert Status.INFEASIBLE.value not in b.status  # not all categories were tried


def test_whole_numbers_and_relations_are_kept(deviation):
    features = (
        Feature(name="a", kind="integer", columns=(0,), step=0.125),
        Feature(name="b", kind="integer", columns=(1,), step=0.125),
        Feature(name="c", columns=(2,)),
    )
    rule = LinearRelation.of({"a": 1, "b": -1}, 0.0)
    space = FeatureSpace(features, (rule,))
    rng = np.random.default_rng(4)
    rows = np.column_stack(
        [rng.integers(0, 9, (300, 2)).cumsum(1).clip(max=8) / 8, rng.random(300)]
    )
    rows = rows.astype(np.float32)
    w = np.array([[0, 0, 0], [4, 1, 3]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -4.5], dtype=np.float32), Task.CLASSIFICATION)
    x = rows[model.predict(rows) == 0][:20]
    result = Artelt(model, space=space, n_components=2).fit(rows).explain(x, target=1)
    cf = result.x_cfs[result.found]
    assert result.found.sum() >= 15
    deviation.absolute(cf[:, :2] * 8, np.round(cf[:, :2] * 8), oracle="whole numbers", limit=1e-5)
    broken = cf[:, 0] - cf[:, 1]
    deviation(broken, oracle="relation a <= b", limit=1e-6, unit="absolute")


def test_wrong_settings_are_named():
    problem = PROBLEMS["binary_numeric"]()
    with pytest.raises(ConfigError, match="norm='l3'"):
        problem.fitted(Artelt, norm="l3")
    only_labels = FeatureSpace(
        (Feature(name="a", kind="categorical", columns=(0, 1), categories=("x", "y")),)
    )
    w = np.array([[0, 0], [1, -1]], dtype=np.float32)
    model = ToyModel(w, np.zeros(2, dtype=np.float32), Task.CLASSIFICATION)
    with pytest.raises(UnsupportedError, match="numeric"):
        Artelt(model, space=only_labels).fit(np.eye(2, dtype=np.float32))


def test_the_first_layer_is_taken_for_the_classes():
    """Class 1 is unit 1, which wins where x_0 >= 0.7; nobody asks the model."""
    problem = PROBLEMS["binary_curved"]()
    with pytest.raises(UnsupportedError, match=r"first_layer.*reads ReLU networks"):
        problem.fitted(Artelt, extension="first_layer")
    weight = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [-5.0, 0.0, 0.0]]).double()
    layer = weight, torch.tensor([0.7, 0.0, 0.0]).double()
    rest = torch.ones(2, 3).double(), torch.zeros(2).double()
    problem.model.relu_ = lambda: ReluView((layer, rest))
    method = problem.fitted(Artelt, extension="first_layer", quantile=0.0, n_components=1)
    result = problem.explain(method)
    assert result.logs["extension"] == "first_layer"
    below = problem.x[:, 0] < 0.7
    assert below.sum() >= 10
    assert np.allclose(result.x_cfs[below, 0], 0.701, atol=1e-4), "just beyond, with the margin"
    assert (result.status[~below] == Status.NOT_FOUND).all(), "the layer asks nothing of them"
    assert {Status.INVALID} < set(result.status), "what the layer allows need not be valid"
    beaten = weight + torch.tensor([[9.0], [0.0], [0.0]]).double()  # unit 0 wins everywhere
    problem.model.relu_ = lambda: ReluView(((beaten, layer[1] + 1), rest))
    none = problem.explain(problem.fitted(Artelt, extension="first_layer", quantile=0.0))
    assert np.isnan(none.x_cfs).all()
