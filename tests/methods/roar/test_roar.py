"""ROAR: the worst shift in closed form, exact for linear models."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.cf_methods.local_methods import ROAR, Wachter
from cel.cf_methods.tangent.robust import shifted_margins
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel

D = 5


def linear(seed):
    rng = np.random.default_rng(seed)
    w = rng.normal(0, 3, D).astype(np.float32)
    x = rng.random((60, D)).astype(np.float32)
    b = np.float32(-np.quantile(x @ w, 0.7))
    model = ToyModel(np.stack([0 * w, w]), np.array([0, b], np.float32), Task.CLASSIFICATION)
    space = FeatureSpace.continuous(D).with_changes(
        **{f"x{j}": {"lower": 0.0, "upper": 1.0} for j in range(D)}
    )
    return model, space, x, w.astype(float), float(b)


@pytest.mark.parametrize("seed", range(4))
def test_linear_models_are_solved_as_by_a_linear_program(seed, deviation):
    """Answers cost what HiGHS needs for the shifted half-space; infeasible rows have none."""
    model, space, x, w, b = linear(seed)
    delta = 0.3
    result = ROAR(model, space=space, delta=delta).fit(x).explain(x[model.predict(x) == 0], 1)
    costs, best = [], []
    for origin, answer, status in zip(result.x_origs, result.x_cfs, result.status, strict=True):
        origin = origin.astype(float)
        # x' = origin + p - n; (w - delta).x' >= delta - b + aim
        slope = w - delta
        program = linprog(
            np.ones(2 * D),
            A_ub=[-np.concatenate([slope, -slope])],
            b_ub=[slope @ origin + b - delta - 1.5e-4],
            bounds=[*((0, 1 - v) for v in origin), *((0, v) for v in origin)],
        )
        assert (status == "infeasible") == (program.status == 2), program.message
        if status == "found":
            costs.append(np.abs(answer - origin).sum())
            best.append(program.fun)
    assert len(costs) > 5
    deviation(
        np.abs(np.array(costs) - best), oracle="linear program (HiGHS)", limit=1e-5, unit="cost"
    )


@pytest.mark.parametrize("name", ["binary_numeric", "three_classes", "mixed", "binary_curved"])
def test_without_a_shift_it_is_wachters_problem(name, deviation):
    """delta = 0 has the cost of the nearest point by the same distance."""
    problem = PROBLEMS[name]()
    ours = problem.fitted(ROAR, delta=0.0, distance="l1_mad", steps=50)
    theirs = problem.fitted(Wachter, steps=100)
    a, b = (m.explain(problem.x, problem.target) for m in (ours, theirs))
    both = a.found & b.found
    assert both.sum() == b.found.sum() > 0
    scale = ours.scale_.numpy()
    numeric = problem.space.numeric_columns

    def cost(r):
        moved = np.abs(r.x_cfs - r.x_origs)[both]
        other = np.delete(moved, numeric, axis=1).sum(1) / 2
        return (moved[:, numeric] / scale[numeric]).sum(1) + other

    excess = np.maximum(cost(a) - cost(b), 0) / np.maximum(cost(b), 1e-6)
    deviation(excess.mean(), oracle="Wachter", limit=1e-3, unit="mean excess of cost")


@pytest.mark.parametrize("ball", ["linf", "l2"])
def test_no_shift_breaks_a_found_row_and_the_worst_one_nearly_does(ball):
    model, space, x, w, b = linear(7)
    delta = 0.2
    result = ROAR(model, space=space, delta=delta, ball=ball).fit(x).explain(x, 1)
    y = result.x_cfs[result.found].astype(float)
    assert len(y) > 10
    rng = np.random.default_rng(0)
    for _ in range(500):
        e = rng.choice([-1.0, 1.0], D + 1) if ball == "linf" else rng.normal(size=D + 1)
        e = delta * (e if ball == "linf" else e / np.linalg.norm(e))
        assert (y @ (w + e[:D]) + b + e[D] > -1e-6).all()
    z = np.hstack([y, np.ones((len(y), 1))])
    size = np.abs(z).sum(1) if ball == "linf" else np.linalg.norm(z, axis=1)
    worst = y @ w + b - delta * size
    assert (worst >= 0).all()
    told = np.array(result.logs["robust_margin"], dtype=float)
    np.testing.assert_allclose(told[result.found], worst, atol=1e-5)
    assert np.isnan(told[~result.found]).all()
    assert np.median(worst) < 1e-3, "answers go no farther than the worst shift asks for"


def test_more_shift_costs_more():
    model, space, x, _, _ = linear(3)
    rows = x[model.predict(x) == 0]
    costs = []
    for delta in (0.0, 0.1, 0.2, 0.4):
        r = ROAR(model, space=space, delta=delta).fit(x).explain(rows, 1)
        costs.append(np.where(r.found, np.abs(r.x_cfs - r.x_origs).sum(1), np.inf))
    assert all((b >= a - 1e-5).all() for a, b in itertools.pairwise(costs))
    assert (costs[-1] > costs[0]).mean() > 0.9


def test_a_shift_beyond_all_weights_is_infeasible():
    model, space, x, w, _ = linear(3)
    rows = x[model.predict(x) == 0]
    result = ROAR(model, space=space, delta=float(np.abs(w).sum())).fit(x).explain(rows, 1)
    assert set(result.status) == {"infeasible"}


def test_several_classes_shift_both_weight_vectors():
    problem = PROBLEMS["three_classes"]()
    method = problem.fitted(ROAR, delta=0.05)
    result = method.explain(problem.x, problem.target)
    y = torch.as_tensor(result.x_cfs[result.found])
    logits = problem.model.logits(y)
    wanted = torch.as_tensor(result.y_cf_targets[result.found])
    others = logits.scatter(1, wanted[:, None], -torch.inf).amax(1)
    margin = logits.gather(1, wanted[:, None])[:, 0] - others
    assert len(y)
    assert (margin >= 2 * 0.05 * (y.abs().sum(1) + 1) - 1e-5).all()
    assert shifted_margins.__doc__


def test_descent_against_the_adversary_is_never_cheaper(deviation):
    """The published loop, for five weights of the distance: its robust points cost no less."""
    model, space, x, w, b = linear(11)
    delta, rows = 0.2, x[model.predict(x) == 0][:20]
    result = ROAR(model, space=space, delta=delta).fit(x).explain(rows, 1)
    slope, origin = torch.as_tensor(w), torch.as_tensor(rows).double()
    best = np.full(len(rows), np.inf)
    for lam in (0.01, 0.03, 0.1, 0.3, 1.0):
        point = origin.clone().requires_grad_(True)
        adam = torch.optim.Adam([point], lr=0.02)
        for _ in range(400):
            score = point @ slope + b - delta * (point.abs().sum(1) + 1)
            far = (point - origin).abs().sum(1)
            adam.zero_grad()
            (torch.nn.functional.softplus(-score) + lam * far).sum().backward()
            adam.step()
            with torch.no_grad():
                point.clamp_(0, 1)
                score = point @ slope + b - delta * (point.abs().sum(1) + 1)
                far = (point - origin).abs().sum(1)
                best = np.minimum(best, torch.where(score >= 0, far, torch.inf).numpy())
    both = result.found & np.isfinite(best)
    assert both.sum() > 10
    assert not (np.isfinite(best) & (result.status == "infeasible")).any()
    ours = np.abs(result.x_cfs - rows).sum(1)[both]
    deviation(
        np.maximum(ours - best[both], 0), oracle="descent against the adversary", limit=5e-4,
        unit="cost above",
    )  # fmt: skip
