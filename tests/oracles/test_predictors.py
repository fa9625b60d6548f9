"""Predictors against closed forms, scikit-learn and the entmax package."""

from __future__ import annotations

import entmax
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LinearRegression as SklearnLinear
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.preprocessing import minmax_scale

from cel.models.classifiers import NODE, LogisticRegression, MLPClassifier, _newton
from cel.models.classifiers.entmax import entmax15, entmoid15
from cel.models.classifiers.node import DenseTrees, ObliviousTrees
from cel.models.regressors import LinearRegression, MLPRegressor
from cel.models.training.loop import seeded


def two_classes(n=400, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d)).astype(np.float32)
    p = 1 / (1 + np.exp(-(X @ rng.normal(size=d) * 4 - 1)))
    return X, (rng.random(n) < p).astype(int)


def reference(X, y, l2):
    C = 1 / (l2 * len(X))
    model = SklearnLogistic(C=C, tol=1e-8, max_iter=1000, solver="newton-cholesky")
    return model.fit(X.astype(np.float64), y)


@pytest.mark.parametrize("l2", [1e-2, 1e-4, 1e-6])
def test_two_classes_equal_scikit_learn(l2, deviation):
    X, y = two_classes()
    ours, theirs = LogisticRegression(l2=l2).fit(X, y), reference(X, y, l2)
    W, b = ours.linear_()
    assert np.allclose((W[1] - W[0]).numpy(), theirs.coef_[0], atol=1e-4)
    told = {"oracle": "LogisticRegression (scikit-learn)", "unit": "probability"}
    deviation.absolute(ours.predict_proba(X), theirs.predict_proba(X), limit=2e-6, **told)
    assert float(b[1] - b[0]) == pytest.approx(theirs.intercept_[0], abs=1e-4)


@pytest.mark.parametrize("load", [load_wine, load_digits])
def test_many_classes_equal_scikit_learn(load, deviation):
    X, y = load(return_X_y=True)
    X = minmax_scale(X).astype(np.float32)
    ours, theirs = LogisticRegression(l2=1e-3).fit(X, y), reference(X, y, 1e-3)
    W, b = ours.linear_()
    told = {"oracle": "LogisticRegression (scikit-learn)", "unit": "coefficients"}
    deviation.absolute(W.numpy(), theirs.coef_, limit=2e-6, **told)
    assert np.allclose(
        (b - b.mean()).numpy(), theirs.intercept_ - theirs.intercept_.mean(), atol=1e-4
    )


def test_separable_classes_stay_finite(deviation):
    X = np.array([[0.0], [0.1], [0.9], [1.0]])
    model = LogisticRegression().fit(X, [0, 0, 1, 1])
    assert model.predict(X).tolist() == [0, 0, 1, 1]
    assert np.isfinite(model.linear_()[0].numpy()).all()
    W, b = (t.double() for t in model.linear_())
    w, c = W[1] - W[0], b[1] - b[0]
    p = torch.sigmoid(torch.as_tensor(X) @ w + c)
    slope = ((p - torch.tensor([0, 0, 1, 1])) @ torch.as_tensor(X)) / 4 + 1e-6 * w
    deviation.absolute(slope, 0, oracle="gradient of the penalised loss", limit=1e-9)


def test_wide_problems_reach_the_same_optimum_without_a_hessian(monkeypatch, deviation):
    X, y = two_classes(seed=1)
    want = LogisticRegression(l2=1e-3).fit(X, y).predict_proba(X)
    monkeypatch.setattr(_newton, "LARGEST_HESSIAN", 1)
    ours = LogisticRegression(l2=1e-3).fit(X, y).predict_proba(X)
    deviation.absolute(ours, want, oracle="Newton", limit=1e-5, unit="probability")


def test_linear_regression_is_least_squares(deviation):
    rng = np.random.default_rng(0)
    X = rng.random((50, 4))
    Y = X @ rng.normal(size=(4, 3)) + 1 + 0.1 * rng.normal(size=(50, 3))
    W, b = LinearRegression().fit(X, Y).linear_()
    theirs = SklearnLinear().fit(X, Y)
    told = {"oracle": "LinearRegression (scikit-learn)", "unit": "coefficients"}
    deviation.absolute(W.numpy(), theirs.coef_, limit=2e-6, **told)
    assert np.allclose(b.numpy(), theirs.intercept_, atol=1e-5)


def test_linear_regression_on_dependent_columns_takes_the_shortest_solution(deviation):
    block = np.eye(3)[np.random.default_rng(0).integers(0, 3, 60)]
    y = block @ np.array([1.0, 2.0, 6.0])
    W, b = LinearRegression().fit(block, y).linear_()
    assert np.allclose((block @ W.numpy().T + b.numpy())[:, 0], y, atol=1e-5)
    deviation.absolute(float(W.sum()), 0, oracle="shortest solution", limit=2e-6)


@pytest.mark.parametrize("shape", [(7,), (5, 3), (2, 6, 4)])
@pytest.mark.parametrize("dim", [0, -1])
def test_entmax_equals_the_package(shape, dim, deviation):
    x = 3 * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(entmax15(x, dim=dim), entmax.entmax15(x, dim=dim), atol=1e-6)
    ours, theirs = entmax15(x, dim=dim), entmax.entmax15(x, dim=dim)
    deviation.absolute(ours, theirs, oracle="entmax (package)", limit=1e-10)
    assert torch.allclose(entmax15(x + 1e4, dim=dim), entmax15(x, dim=dim), atol=1e-6)


def test_entmax_rows_sum_to_one_and_are_sparse(deviation):
    x = 3 * torch.randn(20, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = entmax15(x)
    deviation.absolute(p.sum(-1), 1, oracle="sum of one", limit=1e-12)
    assert (p == 0).double().mean() > 0.5


def test_entmoid_is_two_way_entmax(deviation):
    z = torch.linspace(-4, 4, 801, dtype=torch.float64)
    pair = torch.stack([z, torch.zeros_like(z)], -1)
    theirs = entmax.entmax15(pair, dim=-1)[:, 0]
    deviation.absolute(entmoid15(z), theirs, oracle="entmax (package)", limit=1e-10)
    assert torch.allclose(entmoid15(z) + entmoid15(-z), torch.ones_like(z), atol=1e-12)


def test_gradients(deviation):
    """Gradients of entmax and entmoid are those of finite differences and the closed form."""
    rng = torch.Generator().manual_seed(2)
    x = torch.randn(4, 6, dtype=torch.float64, generator=rng, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: entmax15(t, dim=0), x)
    assert torch.autograd.gradcheck(lambda t: entmax15(t, dim=1), x)
    z = torch.tensor(
        [-3.0, -1.9, -0.5, 0.0, 0.3, 1.9, 3.0], dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(entmoid15, z)
    root = entmoid15(z).detach().sqrt(), entmoid15(-z).detach().sqrt()
    want = root[0] * root[1] / (root[0] + root[1])
    slope = torch.autograd.grad(entmoid15(z).sum(), z)[0]
    deviation.absolute(slope, want, oracle="closed form", limit=1e-12)


def test_leaf_weights_sum_to_one_and_every_test_is_alive(deviation):
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    with seeded(0):
        trees = ObliviousTrees(4, trees=6, depth=3, channels=2)
        trees.fit_to(x)
    weight = trees.leaf_weights(x)
    assert weight.shape == (6, 200, 8)
    deviation.absolute(weight.sum(-1).detach(), 1, oracle="sum of one", limit=2e-6)
    assert (weight >= 0).all()
    z = (trees.features(x) - trees.threshold) * torch.exp(-trees.log_width)
    share = entmoid15(z)
    assert ((share > 0) & (share < 1)).any(0).all()


def test_node_equals_a_sum_over_leaves(deviation):
    with seeded(1):
        net = DenseTrees(3, 2, layers=2, trees=4, depth=2)
        x = torch.rand(5, 3)
        net.fit_to(x)
    first, second = net.layers
    outputs = []
    for layer, seen in ((first, x), (second, torch.cat([x, first(x).flatten(1)], 1))):
        w = layer.leaf_weights(seen)
        outputs.append(torch.einsum("tnl,tlc->ntc", w, layer.response))
    want = torch.cat(outputs, 1)[..., :2].mean(1)
    deviation.absolute(net(x).detach(), want.detach(), oracle="sum over leaves", limit=2e-6)


def test_node_learns_xor():
    X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], dtype=np.float32)
    rows, labels = np.tile(X, (10, 1)), np.tile([0, 1, 1, 0], 10)
    model = NODE(trees=32, depth=3, lr=0.05, epochs=200, patience=200).fit(rows, labels)
    assert model.score(rows, labels) == 1.0


def test_networks_learn_curved_functions():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2)).astype(np.float32)
    inside = (X**2).sum(1) < 0.5
    assert MLPClassifier(hidden=(32, 32), lr=0.01).fit(X, inside).score(X, inside) > 0.97
    y = np.sin(3 * X[:, :1]) * X[:, 1:]
    assert MLPRegressor(hidden=(32, 32), lr=0.01).fit(X, y).score(X, y) > 0.98
