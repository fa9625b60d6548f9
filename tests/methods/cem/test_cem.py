"""CEM against the elastic net of a linear model, and the rules of its move sets."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cem import CEM
from cel.errors import NotFittedError
from cel.protocols import Task
from cel.solvers import nearest_elastic
from cel.space import Feature, FeatureSpace
from cel.testing.problems import ToyModel

D = 8
SPACE = FeatureSpace.continuous(D)


def linear(seed=0, bend=0.0, hide=False):
    rng = np.random.default_rng(seed)
    w = np.stack([np.zeros(D), rng.normal(size=D) * 2]).astype(np.float32)
    bias = np.array([0.0, -w[1].sum() / 2 - 0.7], dtype=np.float32)
    model = ToyModel(w, bias, Task.CLASSIFICATION, bend=bend)
    if hide and not bend:
        del model.linear_
    return model


def rows(model, n=40, seed=1):
    x = np.random.default_rng(seed).random((n * 8, D)).astype(np.float32)
    return x, x[model.predict(x) == 0][:n]


def objective(a, b, beta=0.1):
    return beta * np.abs(a - b).sum(1) + ((a - b) ** 2).sum(1)


def optimum(model, x, beta=0.1, aim=1.5e-4):
    start = torch.as_tensor(x).double()
    z = model.logits(torch.as_tensor(x)).double()
    w = model.weights[1].double().expand(len(x), -1)
    return nearest_elastic(w, aim - z[:, 1] + z[:, 0], -start, 1 - start, l1=beta)


@pytest.mark.parametrize("hide", [False, True])
def test_linear_model_equals_the_elastic_net(hide, deviation):
    model = linear(hide=hide)
    _, x = rows(model)
    result = CEM(model, space=SPACE).explain(x, 1)
    best = optimum(model, x)
    assert np.array_equal(result.found, best.feasible.numpy())
    exact = objective(x + best.delta.numpy(), x)
    over = (objective(result.x_cfs, x) / exact)[result.found] - 1
    deviation(over, oracle="elastic net by bisection", limit=2e-5, unit="relative cost")


class Descent(CEM):
    """CEM by FISTA and the search for c alone."""

    name = ""

    def _search(self, problem):
        return self._descend(problem)


def test_fista_with_the_proximal_threshold_equals_the_elastic_net(deviation):
    model = linear(hide=True)
    _, x = rows(model, n=20)
    result = Descent(model, space=SPACE, c_steps=9, max_iter=500).explain(x, 1)
    exact = objective(x + optimum(model, x).delta.numpy(), x)
    ratio = objective(result.x_cfs, x) / exact
    assert result.found.all()
    assert np.median(ratio) < 1.01
    deviation(ratio - 1, oracle="elastic net by bisection", limit=0.01, unit="relative cost")


def test_the_papers_threshold_misses_the_minimum():
    """Shrinking by beta instead of lr * beta costs over 2 % more than the optimum on average."""
    model = linear(1)
    _, x = rows(model, n=20)
    settings = {"space": SPACE, "threshold": "paper", "c_steps": 9, "max_iter": 300}
    result = CEM(model, **settings).explain(x, 1)
    exact = objective(x + optimum(model, x).delta.numpy(), x)
    ratio = (objective(result.x_cfs, x) / exact)[result.found]
    assert result.found.any()
    assert ratio.mean() > 1.02


def test_saturated_models_stand_still_under_the_papers_threshold():
    model = linear(2)
    flat = ToyModel(model.weights.numpy() * 1e-3, model.bias.numpy() * 1e-3, Task.CLASSIFICATION)
    _, x = rows(flat, n=10)
    settings = {"space": SPACE, "c_steps": 3, "max_iter": 60}
    assert not CEM(flat, threshold="paper", **settings).explain(x, 1).found.any()
    assert CEM(flat, **settings).explain(x, 1).found.all()


def test_tangents_are_no_worse_than_fista_on_a_curved_model(deviation):
    model = linear(3, bend=0.2)
    _, x = rows(model, n=20)
    fast = CEM(model, space=SPACE).explain(x, 1)
    slow = Descent(model, space=SPACE, c_steps=8, max_iter=400).explain(x, 1)
    assert fast.found.all()
    both = fast.found & slow.found
    ratio = objective(fast.x_cfs, x)[both] / objective(slow.x_cfs, x)[both]
    oracle = "FISTA, 8 x 400 steps"
    deviation(ratio.mean() - 1, oracle=oracle, limit=0.01, unit="mean relative cost")


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_negatives_move_away_from_no_information(bend, deviation):
    model = linear(4, bend=bend)
    train, x = rows(model)
    method = CEM(model, space=SPACE, pn_constraint=True).fit(train)
    result = method.explain(x, 1)
    b, found = method.no_info_.numpy(), result.found
    assert found.any()
    before, after = np.abs(x - b)[found], np.abs(result.x_cfs - b)[found]
    moved = np.abs(result.x_cfs - x)[found] > 1e-6
    back = (before - after)[moved]
    deviation(back, oracle="distance of the row to b", limit=1e-6, unit="absolute")
    assert (
        objective(result.x_cfs, x)[found].mean()
        >= objective(CEM(model, space=SPACE).explain(x, 1).x_cfs, x)[found].mean() - 1e-6
    )


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_positives_lie_between_no_information_and_the_row(bend, deviation):
    model = linear(5, bend=bend)
    train, x = rows(model)
    method = CEM(model, mode="PP", space=SPACE).fit(train)
    result = method.explain(x)
    b, found = method.no_info_.numpy(), result.found
    assert found.mean() > 0.9
    pp = result.x_cfs[found]
    low, high = np.minimum(x[found], b), np.maximum(x[found], b)
    beyond = np.maximum(low - pp, pp - high)
    deviation(beyond, oracle="box between b and the row", limit=1e-6, unit="absolute")
    assert (np.abs(pp - b) <= np.abs(x[found] - b) + 1e-6).all()
    assert np.array_equal(model.predict(pp), model.predict(x[found]))


def test_positives_of_a_linear_model_equal_the_elastic_net(deviation):
    model = linear(6)
    train, x = rows(model, n=20)
    method = CEM(model, mode="PP", space=SPACE).fit(train)
    result = method.explain(x)
    b = method.no_info_.double().expand(len(x), -1)
    start = torch.as_tensor(x).double()
    low, high = torch.minimum(start, b) - b, torch.maximum(start, b) - b
    w = -model.weights[1].double().expand(len(x), -1)
    z = model.logits(b.float()).double()
    best = nearest_elastic(w, 1.5e-4 + z[:, 1] - z[:, 0], low, high, l1=0.1)
    exact = objective(b.numpy() + best.delta.numpy(), b.numpy())
    ours = objective(result.x_cfs, b.numpy())
    assert (ours <= exact * 1.001 + 1e-5)[result.found].all()
    over = ((ours - exact) / np.maximum(exact, 0.01))[result.found]
    oracle = "elastic net by bisection"
    deviation(over, oracle=oracle, limit=2e-3, unit="relative cost")


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_margin_grows_with_kappa(bend, deviation):
    model = linear(7, bend=bend)
    _, x = rows(model)
    margins = []
    for kappa in (0.0, 0.3, 0.6):
        result = CEM(model, kappa=kappa, space=SPACE).explain(x, 1)
        z = model.logits(torch.as_tensor(result.x_cfs[result.found])).numpy()
        margins.append((z[:, 1] - z[:, 0]).min())
        short = kappa - margins[-1]
        deviation(short, oracle="margin kappa", limit=0, unit="missing margin")
    assert margins[0] < margins[1] < margins[2]


def test_reconstruction_term_lowers_the_error():
    model = linear(8)
    rng = np.random.default_rng(0)
    basis = rng.normal(size=(3, D))
    train = (0.5 + 0.1 * rng.normal(size=(300, 3)) @ basis).clip(0, 1).astype(np.float32)
    x = train[model.predict(train) == 0][:20]
    errors = []
    for gamma in (0.0, 5.0):
        method = CEM(model, gamma=gamma, space=SPACE, c_steps=5, max_iter=200).fit(train)
        result = method.explain(x, 1)
        auto = CEM(model, gamma=1.0, space=SPACE).fit(train).autoencoder_
        cfs = torch.as_tensor(result.x_cfs[result.found])
        errors.append(float((cfs - auto(cfs)).square().sum(1).mean()))
        assert result.found.mean() > 0.8
    assert errors[1] < 0.7 * errors[0]


def test_unreachable_class_is_not_found():
    class Never(ToyModel):
        def logits(self, x):
            z = super().logits(x)
            return torch.stack([z[:, 0], -1 - torch.sigmoid(z[:, 1])], 1)

    base = linear(9)
    model = Never(base.weights.numpy(), base.bias.numpy(), Task.CLASSIFICATION, bend=1e-9)
    x = np.random.default_rng(0).random((6, D)).astype(np.float32)
    result = CEM(model, space=SPACE, c_steps=2, max_iter=30).explain(x, 1)
    assert set(result.status) == {"not_found"}
    assert np.isnan(result.x_cfs).all()


def test_categories_without_information_may_be_left_only_from_the_mode():
    """Under the PN rule a category may be left only if it is the mode."""
    space = FeatureSpace(
        (
            Feature(name="a", columns=(0,)),
            Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w")),
        )
    )
    w = np.array([[0, 0, 0, 0], [1, -1, 1, 2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -0.8], dtype=np.float32), Task.CLASSIFICATION)
    rng = np.random.default_rng(0)
    train = np.column_stack([rng.random(90), np.eye(3)[[0] * 60 + [1] * 20 + [2] * 10]])
    train = train.astype(np.float32)
    x = np.array([[0.2, 1, 0, 0], [-0.5, 0, 1, 0]], dtype=np.float32)
    space = space.with_changes(a={"lower": -1.0})
    result = CEM(model, pn_constraint=True, space=space).fit(train).explain(x, 1)
    assert result.found[0]
    assert result.x_cfs[0, 1] == 0.0
    assert not result.found[1]  # may only fall, and its category is not the mode


def test_modes_that_need_training_rows_say_so():
    model = linear()
    x = np.zeros((1, D), dtype=np.float32)
    for settings in ({"mode": "PP"}, {"pn_constraint": True}, {"gamma": 1.0}):
        with pytest.raises(NotFittedError, match="training rows"):
            CEM(model, space=SPACE, **settings).explain(x, 1)
