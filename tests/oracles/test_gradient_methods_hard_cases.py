"""Hard cases for the methods that descend: a status for exactly the rows concerned, no hang."""

import time

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods import CADEX, CEGP, CEM, PPCEF, Wachter
from cel.protocols import Task
from cel.space import FeatureSpace, LinearRelation
from cel.testing.problems import GaussianDensity, ToyModel

D = 4
SPACE = FeatureSpace.continuous(D)
FAST = {
    Wachter: {"rounds": 2, "steps": 20},
    CEM: {"c_steps": 2, "max_iter": 20},
    CEGP: {"c_steps": 2, "max_iter": 20},
    CADEX: {"lr": 0.02, "max_iter": 60},
    PPCEF: {"rounds": 1, "steps": 20, "quantile": 0.2},
}
METHODS = list(FAST)


class Bent(ToyModel):
    """Any function of a linear score as the margin of class 1."""

    def __init__(self, margin):
        w = np.array([[0] * D, [3, 2, -2, 1]], dtype=np.float32)
        super().__init__(w, np.array([0, -2.5], dtype=np.float32), Task.CLASSIFICATION, bend=1e-9)
        self.shape = margin

    def logits(self, x):
        z = x @ self.weights[1].to(x) + self.bias[1].to(x)
        m = self.shape(z)
        return torch.stack([torch.zeros_like(m), m], 1)


def build(cls, model, train, space=SPACE, **changes):
    settings = dict(FAST[cls]) | {"space": space} | changes
    if cls is PPCEF:
        y = torch.as_tensor(model.predict(train))
        centres = [
            torch.as_tensor(train[y == k]).mean(0) if (y == k).any() else torch.zeros(D)
            for k in (0, 1)
        ]
        settings["gen_model"] = GaussianDensity(torch.stack(centres), 0.5)
    return cls(model, **settings).fit(train)


def data(model, n=200):
    x = np.random.default_rng(0).random((n, D)).astype(np.float32)
    return x, x[model.predict(x) == 0][:10]


@pytest.mark.parametrize("cls", METHODS)
def test_unreachable_target(cls):
    """A class that no point has is not found."""
    model = Bent(lambda z: -1 - torch.sigmoid(z))
    train, x = data(model)
    result = build(cls, model, train).explain(x, 1)
    assert set(result.status) == {"not_found"}
    assert np.isnan(result.x_cfs).all()


@pytest.mark.parametrize("cls", METHODS)
def test_flat_model(cls):
    """Where gradients are zero everywhere, methods with other starting points find most rows."""
    model = Bent(lambda z: torch.where(z > 0, 5.0, -5.0) + 0 * z)
    train, x = data(model)
    result = build(cls, model, train).explain(x, 1)
    assert set(result.status) <= {"found", "not_found"}
    if cls is not CADEX:
        assert result.found.mean() > 0.8


@pytest.mark.parametrize("cls", METHODS)
def test_model_that_cuts_the_graph(cls):
    """A model without a gradient ends in found or not found, not in an error."""
    model = Bent(lambda z: (z > 0).float() * 2 - 1)
    train, x = data(model)
    result = build(cls, model, train).explain(x[:3], 1)
    assert set(result.status) <= {"found", "not_found"}


@pytest.mark.parametrize("cls", METHODS)
def test_saturated_probabilities(cls):
    """Over 80 % of rows are found where probabilities are saturated."""
    model = Bent(lambda z: 200 * z)
    train, x = data(model)
    assert build(cls, model, train).explain(x, 1).found.mean() > 0.8


@pytest.mark.parametrize("cls", METHODS)
def test_constant_features_do_no_harm(cls):
    """Over 80 % of rows are found with a constant feature."""
    model = Bent(lambda z: z)
    train, x = data(model)
    train[:, 3], x[:, 3] = 0.25, 0.25
    x = x[model.predict(x) == 0]
    result = build(cls, model, train).explain(x, 1)
    assert result.found.mean() > 0.8


@pytest.mark.parametrize("cls", METHODS)
def test_one_row_of_the_target_class(cls):
    """One training row of the class suffices, but for the density threshold of PPCEF."""
    model = Bent(lambda z: z)
    train, x = data(model)
    train = np.concatenate(
        [train[model.predict(train) == 0], train[model.predict(train) == 1][:1]]
    )
    result = build(cls, model, train).explain(x, 1)
    assert set(result.status) <= {"found", "not_found"}
    if cls is not PPCEF:  # the one row sets the threshold, so that nothing else is as plausible
        assert result.found.mean() > 0.8


@pytest.mark.parametrize("cls", METHODS)
def test_no_row_of_the_target_class(cls):
    """Without a training row of the class rows end in found or not found."""
    model = Bent(lambda z: z)
    train, x = data(model)
    result = build(cls, model, train[model.predict(train) == 0]).explain(x, 1)
    assert set(result.status) <= {"found", "not_found"}


@pytest.mark.parametrize("cls", METHODS)
def test_one_row_and_none(cls):
    """One row is answered, and no rows give an empty result."""
    model = Bent(lambda z: z)
    train, x = data(model)
    method = build(cls, model, train)
    assert method.explain(x[:1], 1).found.all()
    assert len(method.explain(x[:0], 1)) == 0


@pytest.mark.parametrize("cls", METHODS)
def test_relations_between_features_hold(cls, deviation):
    model = Bent(lambda z: z)
    train, x = data(model)
    x = x[x[:, 0] <= x[:, 1]]
    relation = LinearRelation.of({"x0": 1, "x1": -1}, 0.0)
    space = FeatureSpace(SPACE.features, (relation,))
    result = build(cls, model, train, space=space).explain(x, 1)
    assert result.found.mean() > 0.5
    cfs = result.x_cfs[result.found]
    broken = cfs[:, 0] - cfs[:, 1]
    deviation(broken, oracle="relation x0 <= x1", limit=1e-5, unit="absolute")


@pytest.mark.parametrize("cls", METHODS)
def test_time_limits_are_obeyed(cls):
    class Slow(Bent):
        def logits(self, x):
            time.sleep(0.01)
            return super().logits(x)

    model = Slow(lambda z: -1 - torch.sigmoid(z))
    train, x = data(model)
    method = build(cls, model, train, time_limit=0.3)
    method.set_params(
        **{
            Wachter: {"rounds": 50, "steps": 1000},
            CEM: {"c_steps": 50, "max_iter": 1000},
            CEGP: {"c_steps": 50, "max_iter": 1000},
            CADEX: {"max_iter": 10000, "lr": 1e-5},
            PPCEF: {"rounds": 9, "steps": 1000},
        }[cls]
    )
    started = time.perf_counter()
    result = method.explain(x, 1)
    assert time.perf_counter() - started < 3.0
    assert set(result.status) == {"timeout"}
