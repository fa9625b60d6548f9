"""PPCEF against cone programs with full covariances."""

import itertools

import cvxpy
import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.ppcef import PPCEF
from cel.protocols import Status


class Ellipsoids:
    """One Gaussian per class with a common full covariance; `root` is that of the precision."""

    def __init__(self, centres, root):
        self.centres, self.root = torch.as_tensor(centres), torch.as_tensor(root)
        self.constant = float(torch.linalg.slogdet(self.root).logabsdet)
        self.constant -= 0.5 * self.centres.shape[1] * np.log(2 * np.pi)

    def log_prob(self, x, context=None):
        away = (x - self.centres.to(x)[context.long()]) @ self.root.to(x)
        return self.constant - 0.5 * away.square().sum(-1)

    def radius(self, level):
        return np.sqrt(2 * (self.constant - level))


def gaussian_case(case, bend, score=0.8, skew=0.4):
    """Centres lie at scores -0.8 and `score`; more `skew` makes thinner ellipsoids."""
    problem = case(bend, box=7.0, n=12)
    rng, w = np.random.default_rng(11), problem.w.astype(np.float64)
    middle = 0.5 + (-problem.score(np.full(6, 0.5))) * w / (w @ w)
    centres = middle + np.array([[-0.8], [score]]) * w / (w @ w)
    spread = (np.eye(6) + skew * rng.normal(size=(6, 6))) * 0.15  # covariance spread.T @ spread
    density = Ellipsoids(centres, np.linalg.inv(spread))
    noise = rng.normal(size=(400, 6)) @ spread
    problem.train = (centres[rng.integers(0, 2, 400)] + noise).astype(np.float32)
    return problem, density


def threshold(problem, density, quantile):
    rows = torch.as_tensor(problem.train[problem.model.predict(problem.train) == 1])
    logp = density.log_prob(rows.double(), torch.ones(len(rows)))
    return np.quantile(logp.numpy(), quantile, method="inverted_cdf")


@pytest.mark.parametrize("bend", [0.0, 0.2])
@pytest.mark.parametrize(
    ("init", "skew", "quantile"),
    [
        *itertools.product(["row"], [0.0, 0.2, 0.4], [0.2, 0.6]),
        *itertools.product(["nearest_plausible"], [0.0, 0.2], [0.2, 0.6]),
        *itertools.product(["row"], [0.6, 0.8], [0.6]),
    ],
)
def test_ppcef_is_the_projection_onto_half_space_and_ellipsoid(
    bend, init, skew, quantile, case, deviation
):
    """Answers are the nearest points of half-space and ellipsoid, thin ones as well.

    Axes of the ellipsoids are up to 1, 3, 10, 23 and 25 times as long as others.
    """
    problem, density = gaussian_case(case, bend, skew=skew)
    level = threshold(problem, density, quantile)
    ours = problem.answers(PPCEF, gen_model=density, quantile=quantile, init=init)
    centre, root = density.centres[1].numpy(), density.root.numpy()

    def ball(z):
        return [cvxpy.norm((z - centre[None]) @ root, axis=1) <= density.radius(level)]

    exact = problem.optimum(lambda z: cvxpy.sum_squares(z - problem.x), rules=ball)
    depth = np.linalg.norm((exact - centre) @ root, axis=1) / density.radius(level)
    assert (depth > 0.999).any()  # the density decides in some rows
    logp = density.log_prob(torch.as_tensor(ours.astype(np.float32)), torch.ones(len(ours)))
    assert (logp.numpy() >= level).all()
    best = np.linalg.norm(exact - problem.x, axis=1)
    distance = np.linalg.norm(ours - problem.x, axis=1)
    oracle = "cone program (Clarabel)"
    deviation.excess(distance, best, oracle=oracle, limit=0.01, unit="relative distance")


@pytest.mark.parametrize(("share", "reachable"), [(0.95, False), (1.3, True)])
@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_ppcef_finds_rows_if_and_only_if_the_ellipsoid_meets_the_class(
    share, reachable, bend, case, deviation
):
    """Rows are found if and only if the ellipsoid of the density reaches the class."""
    problem, density = gaussian_case(case, bend, score=-0.4)
    reach = np.linalg.norm(np.linalg.inv(density.root.numpy()) @ problem.w)
    level = density.constant - 0.5 * (share * 0.4 / reach) ** 2
    shift = level - threshold(problem, density, 0.5)
    result = problem.run(PPCEF, gen_model=density, quantile=0.5, threshold_shift=float(shift))
    wanted = Status.FOUND if reachable else Status.NOT_FOUND
    deviation.rows(result.status != wanted.value, oracle="support function of the ellipsoid")
