"""PPCEF against cone programs on Gaussian densities, and its promises on every found row."""

import math

import cvxpy as cp
import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.ppcef import PPCEF, descent
from cel.errors import MissingInputError
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.testing import Counting
from cel.testing.problems import GaussianDensity, ToyModel

D = 4
SPACE = FeatureSpace.continuous(D, -3.0, 3.0)
SCALE = 0.4


def model_and_rows(seed=0, n=400):
    rng = np.random.default_rng(seed)
    w = np.stack([np.zeros(D), rng.normal(size=D)]).astype(np.float32)
    model = ToyModel(w, np.zeros(2, dtype=np.float32), Task.CLASSIFICATION)
    centre = 0.8 * w[1] / np.linalg.norm(w[1])
    y = rng.integers(0, 2, n)
    x = (SCALE * rng.normal(size=(n, D)) + np.where(y[:, None] == 1, centre, -centre)).astype("f4")
    density = GaussianDensity(torch.as_tensor(np.stack([-centre, centre])), SCALE)
    return model, density, x


def explain(model, density, train, x, **settings):
    method = PPCEF(model, gen_model=density, space=SPACE, **settings).fit(train)
    return method, method.explain(x, 1)


def cone_program(model, density, level, x):
    """The nearest point of the half-space and of the ball where the density is high enough."""
    constant = -D * math.log(SCALE * math.sqrt(2 * math.pi))
    radius = SCALE * math.sqrt(2 * (constant - level))
    y = cp.Variable(D)
    limits = [
        model.weights[1].numpy() @ y >= 1e-4,
        cp.norm2(y - density.centres[1].numpy()) <= radius,
        y >= -3,
        y <= 3,
    ]
    problem = cp.Problem(cp.Minimize(cp.norm2(y - x)), limits)
    problem.solve(solver=cp.CLARABEL)
    return y.value


@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.8])
def test_gaussian_density_and_linear_model_equal_the_cone_program(quantile, deviation):
    model, density, train = model_and_rows()
    x = train[model.predict(train) == 0][:20]
    method, result = explain(model, density, train, x, quantile=quantile)
    assert result.found.all()
    exact = [cone_program(model, density, float(method.threshold_[1]), r) for r in x]
    ours, best = (np.linalg.norm(v - x, axis=1) for v in (result.x_cfs, np.array(exact)))
    told = {"oracle": "cone program (Clarabel)", "unit": "relative distance"}
    deviation.excess(ours, best, limit=0.01, below=1e-3, **told)


def test_descent_alone_comes_close_to_the_cone_program(deviation):
    model, density, train = model_and_rows(1)
    x = train[model.predict(train) == 0][:15]
    method, result = explain(
        model, density, train, x, solver="gradient", steps=400, lr=0.005, rounds=1
    )
    assert result.found.all()
    exact = [cone_program(model, density, float(method.threshold_[1]), r) for r in x]
    ratio = np.linalg.norm(result.x_cfs - x, axis=1) / np.linalg.norm(np.array(exact) - x, axis=1)
    assert np.median(ratio) < 1.02
    told = {"oracle": "cone program (Clarabel)", "unit": "relative distance"}
    deviation(ratio - 1, limit=0.1, **told)


@pytest.mark.parametrize("settings", [{}, {"solver": "gradient"}, {"init": "nearest_plausible"}])
def test_every_found_row_is_valid_and_plausible(settings, deviation):
    model, density, train = model_and_rows(2)
    x = train[model.predict(train) == 0][:40]
    method, result = explain(model, density, train, x, **settings)
    cfs = torch.as_tensor(result.x_cfs[result.found])
    logp = density.log_prob(cfs, torch.ones(len(cfs), dtype=torch.long))
    assert result.found.mean() > 0.9
    short = method.threshold_[1] - logp
    deviation(short, oracle="threshold", limit=0, unit="missing log-density")
    assert (model.predict(cfs.numpy()) == 1).all()


def test_threshold_is_the_quantile_over_rows_of_the_target_class(deviation):
    model, density, train = model_and_rows(3)
    method = PPCEF(model, gen_model=density, space=SPACE, quantile=0.3).fit(train)
    y = model.predict(train)
    for k in (0, 1):
        rows = torch.as_tensor(train[y == k])
        logp = density.log_prob(rows, torch.full((len(rows),), k))
        exact = np.quantile(logp, 0.3, method="inverted_cdf")
        deviation.absolute(float(method.threshold_[k]), exact, oracle="numpy.quantile", limit=1e-6)


def test_without_demands_nothing_is_found():
    """With alpha = 0 nothing is asked for and nothing is found."""
    model, density, train = model_and_rows(4)
    x = train[model.predict(train) == 0][:5]
    _, result = explain(model, density, train, x, alpha=0.0)
    assert set(result.status) == {"not_found"}


def test_higher_quantiles_are_farther_and_denser():
    model, density, train = model_and_rows(5)
    x = train[model.predict(train) == 0][:30]
    distance, logp = [], []
    for quantile in (0.1, 0.5, 0.9):
        _, result = explain(model, density, train, x, quantile=quantile)
        assert result.found.all()
        distance.append(np.linalg.norm(result.x_cfs - x, axis=1).mean())
        cfs = torch.as_tensor(result.x_cfs)
        logp.append(float(density.log_prob(cfs, torch.ones(len(x), dtype=torch.long)).mean()))
    assert distance[0] < distance[1] < distance[2]
    assert logp[0] < logp[1] < logp[2]


def test_a_row_alone_equals_the_row_in_a_batch(deviation):
    model, density, train = model_and_rows(6)
    x = train[model.predict(train) == 0][:8]
    method, result = explain(model, density, train, x)
    alone = np.concatenate([method.explain(r[None], 1).x_cfs for r in x])
    deviation.absolute(result.x_cfs, alone, oracle="rows one by one", limit=1e-6)


class TwoIslands:
    """Two narrow modes of class 1; the nearer one lies on the wrong side of the boundary."""

    def __init__(self):
        self.modes = torch.tensor([[-1.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]])

    def log_prob(self, x, context=None):
        d = (x[:, None] - self.modes.to(x)).square().sum(-1)
        return torch.logsumexp(-0.5 * d / 0.05**2, 1)

    def sample(self, n, context=None):
        return self.modes[:1].expand(n, -1).clone()


def test_plausible_training_rows_guarantee_an_answer():
    """Plausible training rows of the class answer where descent ends in the wrong mode."""
    w = np.zeros((2, D), dtype=np.float32)
    w[1, 0] = 1.0
    model = ToyModel(w, np.zeros(2, dtype=np.float32), Task.CLASSIFICATION)
    rng = np.random.default_rng(0)
    train = np.zeros((60, D), dtype=np.float32)
    train[:30, 0], train[30:, 0] = -1.0, 2.0
    train += 0.05 * rng.normal(size=train.shape).astype(np.float32)
    x = train[:10] - 0.2
    _, result = explain(model, TwoIslands(), train, x)
    assert result.found.all()
    _, descent = explain(model, TwoIslands(), train, x, solver="gradient", rounds=1)
    assert not descent.found.any()


def test_unreachable_density_is_not_found():
    model, density, train = model_and_rows(7)
    narrow = FeatureSpace.continuous(D, -3.0, 3.0).with_changes(x0={"mutable": False})
    x = train[model.predict(train) == 0][:4].copy()
    x[:, 0] = 9.0 * np.sign(-density.centres[1, 0].item())
    x = x[model.predict(x) == 0]
    method = PPCEF(model, gen_model=density, space=narrow, rounds=1, steps=20).fit(train)
    assert set(method.explain(x, 1).status) <= {"not_found"}


def test_rows_far_from_any_plausible_point_are_given_up_early(monkeypatch):
    """Half of the rows cannot leave an unlikely value; the others lose no answer."""
    model, density, train = model_and_rows(8)
    space = SPACE.with_changes(x0={"mutable": False}, x1={"kind": "integer", "step": 0.05})
    rows = train[model.predict(train) == 0][:40].copy()
    far = 4 * SCALE * np.sign(float(density.centres[1, 0]))
    rows[:20, 0] = float(density.centres[1, 0]) + far
    rows = rows[model.predict(rows) == 0]
    results = []
    for hope in (descent.HOPE, (1e9, 1e9)):
        monkeypatch.setattr(descent, "HOPE", hope)
        counted = Counting(model)
        method = PPCEF(counted, gen_model=density, space=space).fit(train)
        counted.asked.clear()
        results.append((method.explain(rows, 1), counted.rows))
    (quick, asked), (patient, most) = results
    assert 5 < quick.found.sum() < len(rows) - 5
    assert np.array_equal(quick.found, patient.found)
    assert asked < 0.8 * most


def test_mixed_rows_keep_both_promises(deviation):
    """Found rows with categories are valid and plausible."""
    space = FeatureSpace(
        (
            Feature(name="a", columns=(0,), lower=-3, upper=3),
            Feature(name="b", columns=(1,), lower=-3, upper=3),
            Feature(name="c", kind="categorical", columns=(2, 3), categories=("u", "v")),
        )
    )
    w = np.array([[0, 0, 0, 0], [1, 0.5, -1, 1]], dtype=np.float32)
    model = ToyModel(w, np.zeros(2, dtype=np.float32), Task.CLASSIFICATION)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    numbers = 0.5 * rng.normal(size=(300, 2)) + np.where(y[:, None] == 1, 0.7, -0.7)
    likely = rng.random(300) < 0.85
    train = np.column_stack([numbers, np.eye(2)[np.where(likely, y, 1 - y)]]).astype(np.float32)

    class Density:
        def log_prob(self, x, context=None):
            sign = 2.0 * context.to(x.dtype) - 1
            numbers = -0.5 * (x[:, :2] - 0.7 * sign[:, None]).square().sum(1) / 0.25
            p = torch.where(
                context[:, None] == 1, torch.tensor([0.15, 0.85]), torch.tensor([0.85, 0.15])
            )
            return numbers + (x[:, 2:] * p.log()).sum(1)

    x = train[model.predict(train) == 0][:30]
    method = PPCEF(model, gen_model=Density(), space=space).fit(train)
    result = method.explain(x, 1)
    assert result.found.all()
    cfs = torch.as_tensor(result.x_cfs)
    logp = Density().log_prob(cfs, torch.ones(len(x), dtype=torch.long))
    short = method.threshold_[1] - logp
    deviation(short, oracle="threshold", limit=0, unit="missing log-density")
    assert np.isin(result.x_cfs[:, 2:], (0.0, 1.0)).all()


def test_a_density_must_be_given():
    model, _, train = model_and_rows()
    with pytest.raises(MissingInputError, match="gen_model"):
        PPCEF(model, gen_model=None, space=SPACE).fit(train)
