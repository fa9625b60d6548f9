"""CEGP against exact solvers; prototypes come from scikit-learn's tree."""

import cvxpy
import numpy as np
import pytest
from sklearn.neighbors import KDTree

from cel.cf_methods.local_methods.cegp import CEGP
from cel.cf_methods.local_methods.cem import CEM
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import ToyModel

BETA, CONIC = 0.1, "conic program (Clarabel)"


def prototypes(problem):
    """Return (n, d) the nearest training rows that the model puts into class 1."""
    pool = problem.train[problem.model.predict(problem.train) == 1]
    return pool[KDTree(pool).query(problem.x)[1][:, 0]].astype(np.float64)


def elastic(delta, beta=BETA):
    return beta * np.abs(delta).sum(1) + (delta**2).sum(1)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_strong_prototypes_attract_to_the_closed_form(bend, case, deviation):
    """Where it has the class already, the shrunken mean of row and prototype is the answer."""
    problem, theta = case(bend, n=20), 50.0
    p = prototypes(problem)
    push = 2 * theta * (p - problem.x)
    shrunk = np.sign(push) * np.maximum(np.abs(push) - BETA, 0) / (2 * (1 + theta))
    free = problem.x + shrunk
    inside = problem.score(free) > 1e-3
    assert inside.sum() >= 5
    x = problem.answers(CEGP, theta=theta, beta=BETA, rank="objective")
    deviation.absolute(x[inside], free[inside], oracle="closed form", limit=1e-6)
    assert np.abs(x - p).max() < 0.02  # near the prototypes
    assert np.abs(p - problem.x).max() > 0.1


@pytest.mark.parametrize("theta", [0.5, 10.0])
@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_whole_objective_is_the_conic_optimum(bend, theta, case, deviation):
    problem = case(bend)
    p = prototypes(problem)
    x = problem.answers(CEGP, theta=theta, beta=BETA, rank="objective")

    def cone(z):
        near = BETA * cvxpy.sum(cvxpy.abs(z - problem.x)) + cvxpy.sum_squares(z - problem.x)
        return near + theta * cvxpy.sum_squares(z - p)

    def cost(z):
        return elastic(z - problem.x) + theta * ((z - p) ** 2).sum(1)

    best = cost(problem.optimum(cone))
    deviation.excess(cost(x), best, oracle=CONIC, limit=1e-3)


def test_guided_answers_lie_on_the_boundary_beyond_cem(case, deviation):
    """The default stops where the way enters the class, no nearer to the row than CEM."""
    problem = case()
    x = problem.answers(CEGP, theta=10.0, beta=BETA)
    assert problem.score(x).max() < 0.05
    best = elastic(problem.answers(CEM, beta=BETA) - problem.x)
    ratio = elastic(x - problem.x) / best
    deviation(1 - ratio, oracle="CEM", limit=1e-3, unit="relative cost below")
    assert ratio.max() > 1.05  # the prototype does lead elsewhere


def test_kth_prototype_guides_the_method(case, deviation):
    problem, k = case(), 5
    pool = problem.train[problem.model.predict(problem.train) == 1]
    p = pool[KDTree(pool).query(problem.x, k)[1][:, -1]]
    x = problem.answers(CEGP, theta=1e4, beta=0.0, k=k, rank="objective")
    deviation.absolute(x, p, oracle="k-d tree (scikit-learn)", limit=1e-3)


# -- categories ------------------------------------------------------------------------------

BIAS = -2.25  # with colour r no numbers suffice
COLOUR = Feature(name="colour", kind="categorical", columns=(2, 3, 4), categories=("r", "g", "b"))
SPACE = FeatureSpace((Feature(name="a", columns=(0,)), Feature(name="b", columns=(1,)), COLOUR))


def mixed_rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    colour = rng.integers(0, 3, n)
    numbers = rng.random((n, 2)) * np.array([0.4, 0.8, 1.0])[colour][:, None]
    return np.column_stack([numbers, np.eye(3)[colour]]).astype(np.float32)


@pytest.mark.parametrize("kind", ["abdm", "mvdm", "hamming"])
def test_three_levels_stay_one_hot_and_are_chosen_as_by_exhaustion(kind, check, deviation):
    w = np.array([[0] * 5, [2.0, -1.5, 0.0, 1.2, 0.4]], dtype=np.float32)
    model = ToyModel(w, np.array([0, BIAS], dtype=np.float32), Task.CLASSIFICATION)
    train = mixed_rows()
    x = mixed_rows(60, seed=1)
    x = x[x @ w[1] + BIAS < -0.2][:20]
    method = CEGP(model, space=SPACE, theta=0.0, beta=BETA, category_distance=kind).fit(train)
    ours = check.found(method.explain(x, target=1))
    assert set(map(tuple, ours[:, 2:])) <= set(map(tuple, np.eye(3)))
    assert (ours[:, 2:].argmax(1) != x[:, 2:].argmax(1)).any()
    apart = method.distances_.numpy().astype(np.float64)[2:, 2:]
    best = np.min([_with_level(w[1], x, level, apart) for level in range(3)], axis=0)
    oracle = "conic programs for every level (Clarabel)"
    deviation.excess(_mixed_cost(ours, x, apart), best, oracle=oracle, limit=3e-3)


def _with_level(w, x, level, apart):
    z, row = cvxpy.Variable((len(x), 2)), x[:, :2]
    gain = float(w[2 + level]) + BIAS
    cone = BETA * cvxpy.sum(cvxpy.abs(z - row)) + cvxpy.sum_squares(z - row)
    rules = [z >= 0, z <= 1, z @ w[:2].astype(np.float64) + gain >= 1e-4]
    if w[:2].clip(min=0).sum() + gain < 1e-4:
        return np.full(len(x), np.inf)
    cvxpy.Problem(cvxpy.Minimize(cone), rules).solve(solver=cvxpy.CLARABEL)
    ours = np.column_stack([z.value, np.tile(np.eye(3)[level], (len(x), 1))])
    return _mixed_cost(ours, x, apart)


def _mixed_cost(z, x, apart):
    d = apart[x[:, 2:].argmax(1), z[:, 2:].argmax(1)]
    return elastic(z[:, :2] - x[:, :2]) + BETA * d + d**2
