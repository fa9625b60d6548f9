"""CEGP against closed forms, brute force neighbours and hand-made category distances."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch
from sklearn.neighbors import KDTree

from cel.cf_methods.local_methods.cegp import CEGP
from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.tangent.category_distances import abdm, category_distances, mvdm
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.prototypes import nearest_rows
from cel.protocols import Task
from cel.search import Fista, gradient_search
from cel.space import Feature, FeatureSpace
from cel.testing.problems import ToyModel

D = 5
SPACE = FeatureSpace.continuous(D)


def linear(seed=0, bend=0.0):
    rng = np.random.default_rng(seed)
    w = np.stack([np.zeros(D), rng.normal(size=D) * 2.5]).astype(np.float32)
    bias = np.array([0.0, -w[1].sum() / 2 - 0.6], dtype=np.float32)
    return ToyModel(w, bias, Task.CLASSIFICATION, bend=bend)


def rows(model, n=40, seed=1):
    x = np.random.default_rng(seed).random((n * 10, D)).astype(np.float32)
    return x[n * 5 :], x[: n * 5][model.predict(x[: n * 5]) == 0][:n]


def _pulled(x, proto, theta, beta):
    region = SPACE.region(x)
    cost = SeparableCost.around(region, l1=beta, l2=True, change=1.0, center=x)
    return replace(cost, pull=proto, theta=theta)


@pytest.mark.parametrize("theta", [0.5, 10.0, 1e4])
def test_without_prediction_term_the_prototype_wins(theta, deviation):
    """c = 0: x' = x + soft(2 theta (p - x), beta) / (2 (1 + theta)), by both solvers."""
    rng = torch.Generator().manual_seed(0)
    x, proto = torch.rand(20, D, generator=rng), torch.rand(20, D, generator=rng)
    beta, rows_ = 0.1, torch.arange(20)
    cost = _pulled(x, proto, theta, beta)
    t = 2 * theta * (proto - x)
    exact = x + t.sign() * (t.abs() - beta).clamp(min=0) / (2 * (1 + theta))
    low, high = -x, 1 - x
    none = torch.full((20,), -1e9)
    closed = x + cost.nearest(torch.zeros_like(x)[:, None], none[:, None], low, high, rows_).delta
    torch.testing.assert_close(closed, exact, atol=1e-5, rtol=1e-4)
    deviation.absolute(closed, exact, oracle="closed form", limit=1e-6)
    found = gradient_search(
        cost.smooth, x, stepper=Fista(0.4 / (1 + theta), 400, prox=cost.prox),
        project=lambda p, _: p, accept=lambda p, _: (p, p[:, 0] == p[:, 0]),
        cost=cost.value, steps=400,
    )  # fmt: skip
    torch.testing.assert_close(found.x, exact, atol=2e-3, rtol=1e-2)
    deviation.absolute(found.x, exact, oracle="closed form (FISTA)", limit=1e-3)
    if theta > 1e3:
        assert float((exact - proto).abs().max()) < 1e-3


def test_linear_model_with_prototype_equals_quadratic_program(deviation):
    model = linear(2)
    train, x = rows(model, n=15)
    method = CEGP(model, theta=2.0, beta=0.2, rank="objective", space=SPACE).fit(train)
    result = method.explain(x, 1)
    w = model.weights[1].numpy().astype(float)
    peers = train[model.predict(train) == 1]
    for i in np.flatnonzero(result.found):
        proto = peers[((peers - x[i]) ** 2).sum(1).argmin()]
        y = cp.Variable(D)
        cost = 0.2 * cp.norm1(y - x[i]) + cp.sum_squares(y - x[i])
        cost += 2.0 * cp.sum_squares(y - proto)
        limits = [w @ y + float(model.bias[1]) >= 1.5e-4, y >= 0, y <= 1]
        cp.Problem(cp.Minimize(cost), limits).solve(solver=cp.CLARABEL)
        oracle = "conic program (Clarabel)"
        deviation.absolute(result.x_cfs[i], y.value, oracle=oracle, limit=1e-5)


@pytest.mark.parametrize("bend", [0.0, 0.2])
def test_theta_zero_is_cem_without_its_move_set(bend, deviation):
    model = linear(3, bend=bend)
    train, x = rows(model)
    a = CEGP(model, theta=0.0, beta=0.1, space=SPACE).fit(train).explain(x, 1)
    b = CEM(model, beta=0.1, space=SPACE).explain(x, 1)
    assert np.array_equal(a.found, b.found)
    cost = [0.1 * np.abs(r.x_cfs - x).sum(1) + ((r.x_cfs - x) ** 2).sum(1) for r in (a, b)]
    found = a.found
    deviation.relative(
        cost[0][found], cost[1][found], oracle="CEM", limit=1e-5, unit="relative cost"
    )


@pytest.mark.parametrize("k", [1, 3])
def test_prototypes_equal_a_kd_tree(k, deviation):
    rng = np.random.default_rng(0)
    pool, x = rng.random((300, D)).astype(np.float32), rng.random((40, D)).astype(np.float32)
    labels, target = rng.integers(0, 3, 300), rng.integers(0, 3, 40)
    found = nearest_rows(
        *map(torch.as_tensor, (x, target, pool, labels)),
        torch.ones(D, dtype=torch.bool), torch.zeros(D, D), k,
    )  # fmt: skip
    for i in range(40):
        peers = pool[labels == target[i]]
        _, index = KDTree(peers).query(x[i : i + 1], k=k)
        oracle = "k-d tree (scikit-learn)"
        deviation.absolute(found[i, k - 1], peers[index[0, k - 1]], oracle=oracle, limit=0)


def test_a_class_without_rows_has_no_prototype():
    x = torch.rand(2, D)
    found = nearest_rows(
        x, torch.tensor([0, 1]), torch.rand(5, D), torch.zeros(5, dtype=torch.long),
        torch.ones(D, dtype=torch.bool), torch.zeros(D, D),
    )  # fmt: skip
    assert found[1].isnan().all()
    assert not found[0].isnan().any()


@pytest.mark.parametrize("prototypes", ["kdtree", "encoder"])
def test_theta_draws_answers_to_rows_of_the_class(prototypes):
    """Answers come nearer to training rows of the class as theta grows from 0 to 100."""
    rng = np.random.default_rng(0)
    model = linear(4, bend=0.2)
    train = rng.random((400, D)).astype(np.float32)
    peers = train[model.predict(train) == 1]
    centre = peers[:1]
    train = np.concatenate(
        [train[model.predict(train) == 0], centre + 0.02 * rng.normal(size=(60, D))]
    )
    train = train.clip(0, 1).astype(np.float32)
    x = train[model.predict(train) == 0][:40]
    distance = []
    for theta in (0.0, 1.0, 10.0, 100.0):
        method = CEGP(model, theta=theta, prototypes=prototypes, space=SPACE).fit(train)
        result = method.explain(x, 1)
        assert result.found.all()
        distance.append(np.linalg.norm(result.x_cfs - centre, axis=1).mean())
    assert distance[0] > distance[1] > distance[2] > distance[3] - 1e-3


MIXED = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w")),
    )
)


def test_mvdm_by_hand(deviation):
    """MVDM distances of three categories equal those worked out by hand."""
    codes, y = [0, 0, 0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 0, 1, 1, 1]
    x = torch.as_tensor(np.column_stack([np.zeros(8), np.eye(3)[codes]]), dtype=torch.float32)
    (distance,) = mvdm(x, torch.tensor(y), MIXED)
    # P(1 | u, v, w) = 1/4, 1/2, 1
    expected = 2 * torch.tensor([[0, 0.25, 0.75], [0.25, 0, 0.5], [0.75, 0.5, 0]])
    deviation.absolute(distance, expected, oracle="by hand", limit=1e-6)


def test_mvdm_knows_categories_without_rows():
    """A category without rows has the largest MVDM distance from the others."""
    x = torch.tensor([[0.0, 1, 0, 0], [0.0, 0, 1, 0]])
    (distance,) = mvdm(x, torch.tensor([0, 1]), MIXED)
    assert distance[0, 2] == 2.0
    assert distance[2, 2] == 0.0


def test_abdm_by_hand(deviation):
    """ABDM distances equal those by hand: far for opposite quartiles, 0 for equal rows."""
    a = np.concatenate([np.linspace(0, 0.2, 40), np.linspace(0, 0.2, 40), np.linspace(0.8, 1, 40)])
    codes = [0] * 40 + [1] * 40 + [2] * 40
    x = torch.as_tensor(np.column_stack([a, np.eye(3)[codes]]), dtype=torch.float32)
    (distance,) = abdm(x, MIXED)
    torch.testing.assert_close(distance, distance.T)
    assert distance.diagonal().abs().max() == 0
    assert distance[0, 1] < 1e-6
    assert distance[0, 2] > 1
    p, q = _bins(a[:40], a), _bins(a[80:], a)
    expected = ((p - q) * (np.log(p) - np.log(q))).sum()
    deviation.relative(float(distance[0, 2]), expected, oracle="by hand", limit=1e-5)


def _bins(part, whole):
    edges = np.quantile(whole.astype(np.float32).astype(float), [0.25, 0.5, 0.75])
    place = np.searchsorted(edges, part.astype(np.float32).astype(float), side="left")
    counts = np.bincount(place, minlength=4) + 0.5
    return counts / counts.sum()


@pytest.mark.parametrize("kind", ["abdm", "mvdm", "hamming"])
def test_category_costs_are_exact_at_every_category(kind, deviation):
    """One feature with three levels: codes survive rounding, costs equal the distance matrix."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 200)
    x = np.column_stack([(rng.random(200) + codes) / 3, np.eye(3)[codes]]).astype(np.float32)
    apart = category_distances(kind, torch.as_tensor(x), torch.as_tensor(codes > 0).long(), MIXED)
    assert float(apart.max()) == pytest.approx(1.0)
    for old in range(3):
        origin = torch.tensor([[0.5, *np.eye(3, dtype=np.float32)[old]]])
        region = MIXED.region(origin)
        for new in range(3):
            point = torch.tensor([[0.5, *np.eye(3, dtype=np.float32)[new]]])
            assert torch.equal(region.snap(point), point)
            price = (origin @ apart * point).sum()
            told = {"oracle": "distance matrix", "limit": 1e-7}
            deviation.absolute(float(price), float(apart[1 + old, 1 + new]), **told)


def test_trust_asks_for_nearness_to_the_new_class(deviation):
    """With trust 2 answers are twice as near to the new class as to the old one."""
    model = linear(5)
    train, x = rows(model, n=25)
    near = CEGP(model, trust=0.0, space=SPACE).fit(train)
    strict = CEGP(model, trust=2.0, space=SPACE).fit(train).explain(x, 1)
    plain = near.explain(x, 1)
    peers = [train[model.predict(train) == k] for k in (0, 1)]
    own, new = (p[((p[None] - x[:, None]) ** 2).sum(-1).argmin(1)] for p in peers)
    ratio = np.linalg.norm(strict.x_cfs - own, axis=1) / np.linalg.norm(strict.x_cfs - new, axis=1)
    assert strict.found.any()
    short = 2.0 - ratio[strict.found]
    deviation(short, oracle="nearest rows by brute force", limit=1e-4, unit="missing ratio")
    assert plain.found.mean() >= strict.found.mean()


def test_mixed_rows_follow_cheap_categories(deviation):
    """Of two categories that both change the class the nearer one is taken."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 3, 300)
    a = np.where(codes == 2, 0.9, 0.2) + 0.05 * rng.random(300)
    train = np.column_stack([a, np.eye(3)[codes]]).astype(np.float32)
    w = np.array([[0, 0, 0, 0], [0.2, -1, 1, 1]], dtype=np.float32)
    model = ToyModel(w, np.zeros(2, dtype=np.float32), Task.CLASSIFICATION)
    x = train[codes == 0][:10]
    result = CEGP(model, theta=0.0, space=MIXED).fit(train).explain(x, 1)
    assert result.found.all()
    deviation.rows(result.x_cfs[:, 2] != 1.0, oracle="nearer of two categories")
