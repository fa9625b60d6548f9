"""CEM against exact solvers: pertinent negatives, pertinent positives, reconstruction."""

import cvxpy
import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.tangent.autoencoder import LinearAutoencoder
from cel.cf_methods.tangent.nearest_point import NearestPoint

CONIC = "conic program (Clarabel)"


def elastic(delta, beta):
    return beta * np.abs(delta).sum(1) + (delta**2).sum(1)


def elastic_cone(center, beta):
    return lambda z: beta * cvxpy.sum(cvxpy.abs(z - center)) + cvxpy.sum_squares(z - center)


def same(x):
    """An autoencoder without error: its term is zero, but only FISTA can be used."""
    return x


FISTA = {"gamma": 1.0, "autoencoder": same, "lr": 0.02, "max_iter": 200, "c_steps": 11}


@pytest.mark.parametrize("beta", [0.02, 0.5])
@pytest.mark.parametrize(
    ("bend", "settings"),
    [(0.0, {}), (0.2, {}), (0.0, FISTA)],
    ids=["closed_form", "tangents", "fista"],
)
def test_pn_is_the_elastic_net_optimum(bend, settings, beta, case, deviation, monkeypatch):
    problem = case(bend)
    if settings:  # the descent alone, without the tangents that improve on it
        monkeypatch.setattr(NearestPoint, "polish", lambda self, found, steps: found)
    x = problem.answers(CEM, beta=beta, **settings)
    exact = problem.optimum(elastic_cone(problem.x, beta))
    costs = elastic(x - problem.x, beta), elastic(exact - problem.x, beta)
    if settings:
        deviation.excess(*costs, oracle=f"{CONIC}, FISTA alone", limit=5e-3)
    else:
        deviation.excess(*costs, oracle=CONIC, limit=2e-3)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_constrained_pn_moves_away_from_b_and_is_optimal(bend, case, deviation):
    problem = case(bend, box=5.0, n=20)
    b = np.median(problem.train, axis=0)
    low = np.where(problem.x > b, problem.x, problem.low)
    high = np.where(problem.x < b, problem.x, problem.high)
    can = problem.score(np.where(problem.w > 0, high, low)) > 0.1
    assert can.sum() >= 8
    problem.x, low, high = problem.x[can], low[can], high[can]
    x = problem.answers(CEM, pn_constraint=True)
    assert (np.abs(x - b) >= np.abs(problem.x - b) - 1e-6).all()
    exact = problem.optimum(elastic_cone(problem.x, 0.1), low=low, high=high)
    costs = elastic(x - problem.x, 0.1), elastic(exact - problem.x, 0.1)
    deviation.excess(*costs, oracle=CONIC, limit=2e-3)
    free = problem.optimum(elastic_cone(problem.x, 0.1))
    assert np.abs(free - exact).max() > 0.01  # the constraint matters


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_pp_keeps_the_class_between_b_and_the_row_and_is_optimal(bend, case, check, deviation):
    problem = case(bend)
    problem.b -= np.float32(0.5)
    problem.model = check.two_classes(problem.w, problem.b, bend)
    rows = np.random.default_rng(8).random((200, 6)).astype(np.float32)
    problem.x = rows[problem.score(rows) > 0.3][:12]  # of class 1; the median is of class 0
    b = np.median(problem.train, axis=0)
    assert problem.score(b) < 0
    method = CEM(problem.model, space=problem.space, mode="PP", no_info=b)
    x = check.found(method.explain(problem.x))
    assert (np.abs(x - b) <= np.abs(problem.x - b) + 1e-6).all()
    assert ((x - b) * (problem.x - b) >= -1e-6).all()
    assert (problem.model.predict(x.astype(np.float32)) == 1).all()
    low, high = np.minimum(problem.x, b), np.maximum(problem.x, b)
    exact = problem.optimum(elastic_cone(b[None], 0.1), low=low, high=high)
    deviation.excess(elastic(x - b, 0.1), elastic(exact - b, 0.1), oracle=CONIC, limit=2e-3)


def test_pp_of_a_row_whose_class_b_has_already_is_b(case, check, deviation):
    problem = case()
    b = np.median(problem.train, axis=0) - np.float32(0.05) * np.sign(problem.w)
    assert problem.score(b) < 0
    method = CEM(problem.model, space=problem.space, mode="PP", no_info=b)
    ours = check.found(method.explain(problem.x))
    deviation.absolute(ours, b[None], oracle="b itself", limit=1e-6)


def test_reconstruction_term_lowers_the_error_and_is_optimal(case, deviation):
    problem = case()
    rng = np.random.default_rng(9)
    mixing = rng.normal(size=(2, 6)) * 0.15  # training rows close to a plane
    noise = 0.01 * rng.normal(size=(300, 6))
    problem.train = np.float32(0.5 + rng.normal(size=(300, 2)) @ mixing + noise).clip(0, 1)
    rebuild = LinearAutoencoder(torch.as_tensor(problem.train))
    away = np.eye(6) - (rebuild.directions @ rebuild.directions.T).numpy()
    mean = rebuild.mean.numpy()

    def error(x):
        return (((x - mean) @ away) ** 2).sum(1)

    errors, gamma = [], 5.0
    settings = {"beta": 0.1, "lr": 0.02, "max_iter": 200, "c_steps": 8}
    for weight in (0.0, 1.0, gamma):
        x = problem.answers(CEM, gamma=weight, **settings)
        errors.append(error(x).mean())
    assert errors[0] > errors[1] > errors[2]
    plain = elastic_cone(problem.x, 0.1)
    exact = problem.optimum(
        lambda z: plain(z) + gamma * cvxpy.sum_squares((z - mean[None]) @ away)
    )
    ours = elastic(x - problem.x, 0.1) + gamma * error(x)
    best = elastic(exact - problem.x, 0.1) + gamma * error(exact)
    deviation.excess(ours, best, oracle=CONIC, limit=5e-3)
