"""Linear models with several classes: the nearest point of all half-spaces and the box at once."""

import cvxpy
import numpy as np
import pytest
from scipy.optimize import linprog

from cel.cf_methods.local_methods.cegp import CEGP
from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.local_methods.wachter import Wachter
from cel.protocols import Status, Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import ToyModel

MARGIN = 1e-4  # what methods ask for
QUADRATIC = {"oracle": "quadratic program (Clarabel)", "limit": 5e-4}


class SoftmaxCase:
    """Rows of other classes that want class 0 of K.

    With `bend` a score z becomes `z + bend sin(3 z)`: not linear, but it rises with z, so classes
    and optima stay as they are.
    """

    def __init__(self, classes, d, *, seed, bend=0.0, stuck=0, n=20):
        rng = np.random.default_rng(seed)
        w = rng.normal(size=(classes, d)).astype(np.float32) * 3
        b = (-w.mean(1) / 2).astype(np.float32)
        self.model = ToyModel(w, b, Task.CLASSIFICATION, bend=bend)
        self.normals = (w[:1] - w)[1:].astype(np.float64)
        self.offsets = (b[0] - b)[1:].astype(np.float64)
        self.train = (rng.random((300, d)) ** rng.uniform(0.5, 4, d)).astype(np.float32)
        features = [Feature(name=f"x{k}", columns=(k,), mutable=k >= stuck) for k in range(d)]
        self.space, self.moves = FeatureSpace(tuple(features)), np.arange(d) >= stuck
        rows = rng.random((3000, d)).astype(np.float32)
        far = rows[(rows @ self.normals.T + self.offsets).min(1) < -0.5][: 3 * n]
        self.can = np.array([self.knapsack(row, np.ones(d)) is not None for row in far])
        self.x, self.out = far[self.can][:n], far[~self.can][:n]

    def knapsack(self, row, scale):
        """Return the least `sum |delta| / scale` of one row by a linear program."""
        row = row.astype(np.float64)
        room = np.concatenate([(1 - row) * self.moves, row * self.moves])
        program = linprog(
            np.concatenate([1 / scale, 1 / scale]),
            A_ub=-np.hstack([self.normals, -self.normals]),
            b_ub=self.normals @ row + self.offsets - MARGIN,
            bounds=[(0, v) for v in room],
        )
        return program.fun if program.status == 0 else None

    def optimum(self, beta, theta=0.0, pull=0.0):
        """Return (n, d) the minima of `beta |delta|_1 + |delta|_2^2 + theta |x' - pull|^2`."""
        z = cvxpy.Variable(self.x.shape)
        margins = z @ self.normals.T + self.offsets[None]
        cost = beta * cvxpy.sum(cvxpy.abs(z - self.x)) + cvxpy.sum_squares(z - self.x)
        cost += theta * cvxpy.sum_squares(z - pull)
        low, high = (np.where(self.moves, v, self.x) for v in (0.0, 1.0))
        rules = [z >= low, z <= high, margins >= MARGIN]
        cvxpy.Problem(cvxpy.Minimize(cost), rules).solve(solver=cvxpy.CLARABEL)
        assert theta or ((margins.value < 1e-3).sum(1) > 1).any()  # several bind at once
        return z.value

    def run(self, cls, x, **settings):
        method = cls(self.model, space=self.space, **settings).fit(self.train)
        return method.explain(x, target=0)

    def answers(self, cls, check, **settings):
        x = check.found(self.run(cls, self.x, **settings))
        assert (x[:, ~self.moves] == self.x[:, ~self.moves]).all()
        return x


CASES = {
    "3": {"classes": 3, "d": 4, "seed": 5},
    "5": {"classes": 5, "d": 6, "seed": 0},
    "10_in_4": {"classes": 10, "d": 4, "seed": 1},
    "10_in_12": {"classes": 10, "d": 12, "seed": 2},
    "10_immutable": {"classes": 10, "d": 12, "seed": 3, "stuck": 3},
    "5_curved": {"classes": 5, "d": 6, "seed": 0, "bend": 0.2},
    "10_curved": {"classes": 10, "d": 12, "seed": 2, "bend": 0.2},
}


@pytest.fixture(name="softmax", params=CASES)
def _softmax(request):
    return SoftmaxCase(**CASES[request.param])


@pytest.mark.parametrize("name", ["wachter", "cem"])
def test_l2_is_the_quadratic_program(name, softmax, check, deviation):
    """Wachter with L2 and CEM with beta 0 project onto all half-spaces and the box."""
    cls, settings = (Wachter, {"distance": "l2"}) if name == "wachter" else (CEM, {"beta": 0.0})
    ours, exact = softmax.answers(cls, check, **settings), softmax.optimum(0.0)
    distance, best = (np.linalg.norm(v - softmax.x, axis=1) for v in (ours, exact))
    deviation.excess(distance, best, unit="relative distance", **QUADRATIC)


def test_l1_mad_is_the_linear_program(softmax, check, deviation):
    """Wachter with the L1 distance in units of the MAD is the linear program."""
    scale = np.median(np.abs(softmax.train - np.median(softmax.train, axis=0)), axis=0)
    cost = (np.abs(softmax.answers(Wachter, check) - softmax.x) / scale).sum(1)
    best = [softmax.knapsack(row, scale) for row in softmax.x]
    deviation.excess(cost, best, oracle="linear program (HiGHS)", limit=5e-4)


@pytest.mark.parametrize("beta", [0.1, 1.0])
def test_pn_is_the_elastic_net_optimum(beta, softmax, check, deviation):
    """CEM minimises `beta |delta|_1 + |delta|_2^2` over all half-spaces and the box."""
    points = softmax.answers(CEM, check, beta=beta), softmax.optimum(beta)
    moves = (v - softmax.x for v in points)
    cost, best = (beta * np.abs(v).sum(1) + (v**2).sum(1) for v in moves)
    deviation.excess(cost, best, **QUADRATIC)


def test_prototypes_pull_to_the_optimum_of_the_objective(softmax, check, deviation):
    """CEGP with `rank="objective"` is the optimum with its prototype, near the boundary."""
    beta, theta = 0.1, 0.5
    wanted = softmax.train[softmax.model.predict(softmax.train) == 0]
    apart = ((softmax.x[:, None] - wanted[None]) ** 2).sum(-1)
    pull = wanted[apart.argmin(1)].astype(np.float64)
    ours = softmax.answers(CEGP, check, beta=beta, theta=theta, rank="objective")
    costs = []
    for x in (ours, softmax.optimum(beta, theta, pull)):
        move = x - softmax.x
        near = beta * np.abs(move).sum(1) + (move**2).sum(1)
        costs.append(near + theta * ((x - pull) ** 2).sum(1))
    deviation.excess(*costs, **QUADRATIC)


@pytest.mark.parametrize("cls", [Wachter, CEM])
def test_rows_are_proved_infeasible_if_and_only_if_the_program_is(cls, deviation):
    """Ten classes, two features: rows are infeasible if and only if the linear program is."""
    softmax = SoftmaxCase(10, 4, seed=1, stuck=2)
    assert min(len(softmax.x), len(softmax.out)) >= 10
    for rows, status in ((softmax.x, Status.FOUND), (softmax.out, Status.INFEASIBLE)):
        wrong = softmax.run(cls, rows).status != status.value
        deviation.rows(wrong, oracle="linear program (HiGHS)")
