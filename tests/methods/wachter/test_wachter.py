"""Wachter against closed forms, exhaustive search and its own descent."""

import itertools

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.wachter import Wachter
from cel.protocols import Task
from cel.solvers import nearest_l1, nearest_l2
from cel.space import Feature, FeatureSpace
from cel.testing.problems import ToyModel

D = 6


def linear(seed=0, bend=0.0, d=D):
    rng = np.random.default_rng(seed)
    w = np.stack([np.zeros(d), rng.normal(size=d) * 3]).astype(np.float32)
    bias = np.array([0.0, -w[1].sum() / 2 - 1.0], dtype=np.float32)
    return ToyModel(w, bias, Task.CLASSIFICATION, bend=bend)


def rows(model, n=60, seed=1, d=D, spread=None):
    rng = np.random.default_rng(seed)
    x = rng.random((n * 6, d)) * (1 if spread is None else spread)
    x = x.astype(np.float32)
    return x, x[model.predict(x) == 0][:n]


def optimum(model, x, scale=None, low=0.0, high=1.0):
    """The exact answer for margin 1.5e-4, the margin that searches aim for."""
    w = (model.weights[1] - model.weights[0]).double().expand(len(x), -1)
    z = model.logits(torch.as_tensor(x)).double()
    gap = 1.5e-4 - (z[:, 1] - z[:, 0])
    start = torch.as_tensor(x).double()
    box = low - start, high - start
    if scale is None:
        return nearest_l2(w, gap, *box)
    return nearest_l1(w, gap, *box, scale.double())


@pytest.mark.parametrize("solver", ["auto", "gradient"])
def test_l1_mad_equals_knapsack(solver, deviation):
    model = linear()
    train, x = rows(model)
    method = Wachter(
        model, solver=solver, space=FeatureSpace.continuous(D), rounds=10, steps=200
    ).fit(train)
    result = method.explain(x, 1)
    best = optimum(model, x, method.scale_)
    assert np.array_equal(result.found, best.feasible.numpy())
    cost = (np.abs(result.x_cfs - x) / method.scale_.numpy()).sum(1)[result.found]
    exact = (best.delta.abs() / method.scale_).sum(1).numpy()[result.found]
    limit = 1e-5 if solver == "auto" else 1e-2
    oracle = f"continuous knapsack (solver {solver})"
    deviation.excess(cost, exact, oracle=oracle, limit=limit, below=1e-2)


def test_unbounded_l1_changes_the_one_most_efficient_feature(deviation):
    model = linear(3)
    train, x = rows(model)
    method = Wachter(model, space=FeatureSpace.continuous(D, -1e4, 1e4)).fit(train)
    result = method.explain(x, 1)
    moved = np.abs(result.x_cfs - x) > 1e-6
    efficient = int((model.weights[1].abs() * method.scale_).argmax())
    wrong = (moved.sum(1) != 1) | ~moved[:, efficient]
    deviation.rows(wrong, oracle="argmax of |w| MAD")


@pytest.mark.parametrize("solver", ["auto", "gradient"])
def test_l2_equals_projection(solver, deviation):
    model = linear(1)
    _, x = rows(model, n=30)
    method = Wachter(
        model, distance="l2", solver=solver, space=FeatureSpace.continuous(D),
        rounds=14, steps=300, lr=0.01,
    )  # fmt: skip
    result = method.explain(x, 1)
    best = optimum(model, x)
    assert np.array_equal(result.found, best.feasible.numpy())
    found = result.found
    told = {"oracle": f"projection by bisection (solver {solver})"}
    if solver == "auto":
        deviation.absolute((result.x_cfs - x)[found], best.delta[found], limit=1e-6, **told)
    distance, nearest = np.linalg.norm(result.x_cfs - x, axis=1), best.delta.norm(dim=1).numpy()
    assert np.median(distance[found] / nearest[found]) < 1.01
    limit = 1e-5 if solver == "auto" else 0.05
    deviation.excess(distance[found], nearest[found], limit=limit, below=1e-2, **told)


def test_tangents_equal_the_closed_form(deviation):
    """The fast path and the iterative one give the same answers on a linear model."""
    model = linear(2)
    train, x = rows(model)
    for distance in ("l1_mad", "l2"):
        kwargs = {"distance": distance, "space": FeatureSpace.continuous(D)}
        exact = Wachter(model, **kwargs).fit(train).explain(x, 1)
        hidden = ToyModel(model.weights.numpy(), model.bias.numpy(), Task.CLASSIFICATION)
        del hidden.linear_
        iterative = Wachter(hidden, **kwargs).fit(train).explain(x, 1)
        assert np.array_equal(exact.found, iterative.found)
        found = exact.found
        ours, closed = iterative.x_cfs[found], exact.x_cfs[found]
        deviation.absolute(ours, closed, oracle="closed form", limit=1e-4)


def test_tangents_are_no_worse_than_a_long_descent_on_a_curved_model(deviation):
    model = linear(4, bend=0.25)
    train, x = rows(model, n=30)
    costs = {}
    for solver in ("auto", "gradient"):
        method = Wachter(
            model, solver=solver, space=FeatureSpace.continuous(D), rounds=10, steps=200
        ).fit(train)
        result = method.explain(x, 1)
        assert result.found.all()
        costs[solver] = (np.abs(result.x_cfs - x) / method.scale_.numpy()).sum(1)
    worse = (costs["auto"] / costs["gradient"]).mean() - 1
    oracle = "descent, 10 x 200 steps"
    deviation(worse, oracle=oracle, limit=0.01, unit="mean relative cost")


def test_l1_mad_does_not_depend_on_units(deviation):
    model = linear(5)
    train, x = rows(model)
    scales = np.ones(D, dtype=np.float32)
    most = int(model.weights[1].abs().argmax())
    scales[most] = 10.0
    other = ToyModel(model.weights.numpy() / scales, model.bias.numpy(), Task.CLASSIFICATION)
    space = FeatureSpace.continuous(D)
    wide = space.with_changes(**{f"x{most}": {"upper": 10.0}})
    a = Wachter(model, space=space).fit(train).explain(x, 1)
    b = Wachter(other, space=wide).fit(train * scales).explain(x * scales, 1)
    assert np.array_equal(a.found, b.found)
    ours, exact = b.x_cfs[b.found] / scales, a.x_cfs[a.found]
    deviation.absolute(ours, exact, oracle="rows in other units", limit=1e-5)
    c = Wachter(model, space=space, distance="l2").explain(x, 1)
    d = Wachter(other, space=wide, distance="l2").explain(x * scales, 1)
    assert np.abs(c.x_cfs - d.x_cfs / scales)[c.found & d.found].max() > 0.05
    plain = [Wachter(m, space=s).fit(train) for m, s in ((model, space), (other, wide))]
    for method in plain:  # L1 without MAD
        method.scale_ = torch.ones(D)
    e, f = plain[0].explain(x, 1), plain[1].explain(x * scales, 1)
    assert np.abs(e.x_cfs - f.x_cfs / scales)[e.found & f.found].max() > 0.05


def regressor(m, seed=0, d=D):
    rng = np.random.default_rng(seed)
    w = (rng.random((m, d)) * 0.5 / d).astype(np.float32)
    return ToyModel(w, np.full(m, 0.2, dtype=np.float32), Task.REGRESSION)


def test_linear_regression_reaches_the_value(deviation):
    model = regressor(1)
    train = np.random.default_rng(0).random((100, D)).astype(np.float32)
    x = train[:30]
    target = model.predict(x) + 0.1
    result = Wachter(model, space=FeatureSpace.continuous(D)).fit(train).explain(x, target)
    reachable = model.weights.sum().item() + 0.2 >= target[:, 0] - 0.05
    assert np.array_equal(result.found[reachable], np.ones(reachable.sum(), dtype=bool))
    near = model.weights.sum().item() + 0.2 >= target[:, 0]
    error = np.abs(result.y_cfs - target)[near]
    deviation(error, oracle="value asked for (eps 0.01)", limit=0.01 + 1e-5, unit="absolute")


def test_several_outputs_equal_the_pseudo_inverse(deviation):
    model = regressor(3, seed=2)
    space = FeatureSpace.continuous(D, -50.0, 50.0)
    x = np.random.default_rng(0).random((20, D)).astype(np.float32)
    target = model.predict(x) + np.array([0.02, 0.05, -0.03])
    method = Wachter(model, distance="l2", eps=1e-4, tolerance=1e-3, space=space)
    result = method.explain(x, target)
    assert result.found.all()
    exact = (target - model.predict(x)) @ np.linalg.pinv(model.weights.numpy()).T
    np.testing.assert_allclose(result.x_cfs - x, exact, rtol=0.02, atol=2e-3)
    gap = np.linalg.norm(result.x_cfs - x - exact, axis=1) / np.linalg.norm(exact, axis=1)
    deviation(gap, oracle="pseudo-inverse (numpy)", limit=0.02, unit="relative")


def test_several_outputs_l1_is_sparse_and_no_dearer(deviation):
    """For two outputs the L1 cost is that of the best two features."""
    model = regressor(2, seed=3)
    space = FeatureSpace.continuous(D, -50.0, 50.0)
    train = np.random.default_rng(0).random((100, D)).astype(np.float32)
    x, step = train[:20], np.array([0.03, 0.05])
    target = model.predict(x) + step
    l1 = Wachter(model, space=space, eps=1e-4, tolerance=1e-3).fit(train)
    result = l1.explain(x, target)
    cost = (np.abs(result.x_cfs - x) / l1.scale_.numpy()).sum(1)
    # The optimum of a linear program with two equations has two basic variables.
    w, scale = model.weights.numpy(), l1.scale_.numpy()
    pairs = [list(p) for p in itertools.combinations(range(D), 2)]
    costs = [(np.abs(np.linalg.solve(w[:, p], step)) / scale[p]).sum() for p in pairs]
    assert result.found.all()
    oracle = "all bases of the linear program"
    deviation.excess(cost, min(costs), oracle=oracle, limit=0.01, below=0.01)


def test_unreachable_value_is_not_found():
    """A value outside the range over the box is infeasible or not found."""
    model = regressor(1)
    train = np.random.default_rng(0).random((50, D)).astype(np.float32)
    result = Wachter(model, space=FeatureSpace.continuous(D)).fit(train).explain(train[:5], 9.0)
    assert set(result.status) == {"infeasible"}
    bent = ToyModel(model.weights.numpy(), model.bias.numpy(), Task.REGRESSION, bend=0.1)
    result = Wachter(bent, space=FeatureSpace.continuous(D), rounds=2, steps=20)
    assert set(result.fit(train).explain(train[:5], 9.0).status) == {"not_found"}


def test_squared_probability_is_the_same_problem(deviation):
    """The paper's loss on probabilities leads to the same costs as the hinge."""
    steep = linear(6)
    model = ToyModel(steep.weights.numpy() / 4, steep.bias.numpy() / 4, Task.CLASSIFICATION)
    train, x = rows(model, n=15)
    space = FeatureSpace.continuous(D)
    settings = {"solver": "gradient", "rounds": 10, "steps": 200, "space": space}
    hinge = Wachter(model, **settings).fit(train)
    paper = Wachter(model, loss="squared_prob", **settings).fit(train)
    cost = [
        (np.abs(m.explain(x, 1).x_cfs - x) / hinge.scale_.numpy()).sum(1) for m in (hinge, paper)
    ]
    worse = np.nanmax(cost[1] / cost[0]) - 1
    deviation(worse, oracle="descent on the hinge", limit=0.05, unit="relative cost")


def test_fixed_lambda_trades_distance_for_loss():
    """A fixed small lambda leaves rows unfound that a large one finds."""
    model = linear(7)
    _, x = rows(model, n=20)
    space = FeatureSpace.continuous(D)
    near, far = (
        Wachter(
            model, distance="l2", lambda_mode="fixed", lam=lam, space=space, steps=400, lr=0.01
        ).explain(x, 1)
        for lam in (1e-4, 100.0)
    )
    assert near.found.mean() < far.found.mean()


def test_mixed_rows_against_all_choices_of_categories(deviation):
    """Rows with categories cost as much as the best choice among all categories."""
    features = (
        Feature(name="a", columns=(0,)),
        Feature(name="b", columns=(1,)),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(name="d", kind="categorical", columns=(5, 6), categories=("n", "y")),
    )
    space = FeatureSpace(features)
    w = np.array([[0] * 7, [2, -1.5, 0, 1.2, 0.4, 0, 0.9]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.2], dtype=np.float32), Task.CLASSIFICATION)
    rng = np.random.default_rng(0)
    n = 120
    train = np.column_stack(
        [rng.random((n, 2)), np.eye(3)[rng.integers(0, 3, n)], np.eye(2)[rng.integers(0, 2, n)]]
    ).astype(np.float32)
    x = train[model.predict(train) == 0][:40]
    method = Wachter(model, space=space).fit(train)
    result = method.explain(x, 1)
    assert result.found.all()
    cost = _mixed_cost(result.x_cfs, x, method.scale_.numpy())
    best = np.full(len(x), np.inf)
    for c, d in itertools.product(range(3), range(2)):
        fixed = x.copy()
        fixed[:, 2:5], fixed[:, 5:] = np.eye(3)[c], np.eye(2)[d]
        z = model.logits(torch.as_tensor(fixed))
        low, high = -torch.as_tensor(x), 1 - torch.as_tensor(x)
        low[:, 2:], high[:, 2:] = 0, 0
        slope = torch.as_tensor(w[1]).expand(len(x), -1)
        step = nearest_l1(slope, 1.5e-4 - (z[:, 1] - z[:, 0]), low, high, method.scale_)
        price = _mixed_cost(fixed + step.delta.numpy(), x, method.scale_.numpy())
        best = np.minimum(best, np.where(step.feasible.numpy(), price, np.inf))
    assert (cost >= best - 1e-2).all()
    worse = (cost / best).mean() - 1
    oracle = "knapsack at every choice of categories"
    deviation(worse, oracle=oracle, limit=0.03, unit="mean relative cost")


def _mixed_cost(a, b, scale):
    numbers = (np.abs(a - b) / scale)[:, :2].sum(1)
    return numbers + (np.abs(a - b)[:, 2:5].max(1) > 0.5) + (np.abs(a - b)[:, 5:].max(1) > 0.5)


def test_constant_features_stay(deviation):
    model = linear(8)
    train, x = rows(model)
    train[:, 1], x[:, 1] = 0.5, 0.5
    x = x[model.predict(x) == 0]
    result = Wachter(model, space=FeatureSpace.continuous(D)).fit(train).explain(x, 1)
    deviation.rows(result.x_cfs[result.found][:, 1] != 0.5, oracle="own value")
