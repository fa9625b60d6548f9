"""A two-class problem whose optimum is known, for methods that follow gradients.

Deviations from the optimum are logged: `pytest --log-cli-level=INFO` shows them.
"""

import logging

import cvxpy
import numpy as np
import pytest

from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

LOG = logging.getLogger("fidelity")


class LinearCase:
    """Rows of class 0 that can reach class 1 (score `w.x + b > 0`), and training rows.

    With `bend` the score becomes `z + bend sin(3 z)`: not linear, so closed forms do not apply,
    but it has the same sign, hence the same boundary and the same optimum.
    """

    margin = 1e-4  # what methods ask for

    def __init__(self, bend=0.0, n=12, seed=0, box=1.0, d=6):
        rng = np.random.default_rng(seed)
        self.w = (rng.normal(size=d) * 3).astype(np.float32)
        self.b = np.float32(-0.6 * self.w.clip(min=0).sum() - 0.4 * self.w.clip(max=0).sum())
        self.train = (rng.random((300, d)) ** rng.uniform(0.5, 4, d)).astype(np.float32)
        self.model = two_classes(self.w, self.b, bend)
        rows = rng.random((400, d)).astype(np.float32)
        self.x = rows[self.score(rows) < -0.5][:n]
        self.low, self.high = 0.5 - box / 2, 0.5 + box / 2
        self.space = FeatureSpace.continuous(d, self.low, self.high)

    def score(self, x):
        return np.asarray(x, dtype=np.float64) @ self.w.astype(np.float64) + float(self.b)

    def run(self, cls, **settings):
        method = cls(self.model, space=self.space, **settings)
        return method.fit(self.train).explain(self.x, target=1)

    def answers(self, cls, **settings):
        return all_found(self.run(cls, **settings))

    def optimum(self, objective, margin=margin, low=None, high=None, rules=lambda z: []):
        """Minimise a sum over rows of a convex function of x', in the box, past the boundary."""
        z = cvxpy.Variable(self.x.shape)
        low, high = self.low if low is None else low, self.high if high is None else high
        side = z @ self.w.astype(np.float64) + float(self.b) >= margin
        program = cvxpy.Problem(
            cvxpy.Minimize(objective(z)), [z >= low, z <= high, side, *rules(z)]
        )
        program.solve(solver=cvxpy.CLARABEL)
        assert program.status == "optimal"
        return np.asarray(z.value)


def two_classes(w, b, bend=0.0):
    weights = np.stack([np.zeros_like(w), w])
    return ToyModel(weights, np.array([0, b], dtype=np.float32), Task.CLASSIFICATION, bend=bend)


def all_found(result):
    assert set(result.status) == {Status.FOUND.value}
    return result.x_cfs.astype(np.float64)


def optimal(cost, best, within):
    """Demand costs (n,) within a share of the optimum, and none below it."""
    ratio = np.asarray(cost) / np.asarray(best) - 1
    LOG.info("relative excess %.1e .. %.1e", ratio.min(), ratio.max())
    assert ratio.min() > -1e-4
    assert ratio.max() < within


def equal(ours, exact, atol):
    LOG.info("largest difference %.1e", np.abs(np.asarray(ours) - np.asarray(exact)).max())
    np.testing.assert_allclose(ours, exact, rtol=0, atol=atol)


@pytest.fixture(name="case")
def _case():
    """The class itself: tests call it with their own settings."""
    return LinearCase


@pytest.fixture(name="check")
def _check():
    """Comparisons that log what they measure."""

    class Check:
        pass

    Check.optimal, Check.equal = staticmethod(optimal), staticmethod(equal)
    Check.found, Check.two_classes = staticmethod(all_found), staticmethod(two_classes)
    return Check
