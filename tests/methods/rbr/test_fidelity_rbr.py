"""RBR: kernels against scikit-learn and SLSQP, and what the descent promises."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KernelDensity

from cel.cf_methods.local_methods import RBR
from cel.cf_methods.local_methods.rbr.worst_kernels import kernel_table, worst_value
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.protocols import Task
from cel.search import Budget, RowStreams
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel

FEW = {"steps": 100, "samples": 80, "donors": 10}


def query_of(p, x=None):
    rows = torch.as_tensor(p.x if x is None else x)
    return Query(
        x=rows, target=torch.full((len(rows),), p.target), region=p.space.region(rows),
        model=ModelView(p.model), rng=RowStreams.of(rows, 0), budget=Budget(),
    )  # fmt: skip


def test_without_an_adversary_it_is_the_log_odds_of_two_densities(deviation):
    p = PROBLEMS["binary_numeric"]()
    method = p.fitted(RBR, eps_op=0.0, eps_pe=0.0, sigma=0.7, **FEW)
    query = query_of(p)
    start, ok = method._boundary(query)
    assert ok.all()
    around, wanted = method._labelled(query, start)
    ours = method._odds(query, around, wanted)(query.x, query.rows())
    exact = []
    for row, points, good in zip(p.x, around.numpy(), wanted.numpy(), strict=True):
        parts = [KernelDensity(bandwidth=0.7).fit(points[m]) for m in (~good, good)]
        odds = [k.score_samples(row[None])[0] for k in parts]
        counts = np.log((~good).sum()) - np.log(good.sum())
        exact.append(odds[0] - odds[1] + counts)
    deviation.absolute(ours, exact, oracle="scikit-learn's KernelDensity", limit=2e-5)


@pytest.mark.parametrize("side", ["op", "pe"])
def test_worst_kernels_equal_a_solver(side, deviation):
    """60 random distances, adversaries and bandwidths against SLSQP from 6 starts."""
    rng = np.random.default_rng(0)
    ours, exact = [], []
    for _ in range(60):
        c, eps, s = rng.uniform(0, 2), rng.uniform(0.05, 1), rng.uniform(0.3, 1.5)
        q = int(rng.integers(2, 10))
        sign, unit = (-1.0, 1.0) if side == "op" else (1.0, q)

        def value(v, c=c, eps=eps, s=s, q=q, sign=sign):
            a, b = v
            wide = b + s
            if side == "op":
                return sign * (-np.log(wide) - (c - a) ** 2 / 2 / wide**2 - (q - 1) * np.log(s))
            rest = max(eps**2 - q * a**2 - b**2, 0.0) / (q - 1)
            tail = (q - 1) * np.log(s + np.sqrt(rest))
            return sign * (-np.log(wide) - (c + np.sqrt(q) * a) ** 2 / 2 / wide**2 - tail)

        ball = {"type": "ineq", "fun": lambda v, e=eps, u=unit: e**2 - u * v[0] ** 2 - v[1] ** 2}
        best = np.inf
        for share in starts():
            start = np.array([share[0] / np.sqrt(unit), share[1]]) * eps
            found = minimize(
                value, start, bounds=[(0, None)] * 2, constraints=[ball], method="SLSQP"
            )
            inside = ball["fun"](found.x) > -1e-7 and (found.x >= -1e-9).all()
            best = min(best, value(start), found.fun if inside else np.inf)
        ours.append(float(worst_value(side, torch.tensor([c]).double(), s=s, q=q, eps=eps)))
        exact.append(sign * best)
    deviation.absolute(ours, exact, oracle="SLSQP", limit=1e-4)


@pytest.mark.parametrize("side", ["op", "pe"])
def test_tables_hold_the_worst_kernels(side, deviation):
    table = kernel_table(side, 0.8, 5, 0.6, 4.0)
    c = torch.as_tensor(np.random.default_rng(1).uniform(0, 4, 300))
    exact = worst_value(side, c, s=0.8, q=5, eps=0.6)
    deviation.absolute(table(c), exact, oracle="the problem itself", limit=1e-4)


def test_tables_are_computed_as_far_as_somebody_asks():
    table, c = kernel_table("op", 0.7, 3, 0.5, 6.0), torch.linspace(0, 9, 500)
    near = table(c[:60])
    assert len(table.values) < 1024
    whole = table(c)
    assert len(table.values) == 4096
    assert torch.equal(near, whole[:60])
    assert table(c.double()).dtype == torch.float64
    assert table(c[:0]).shape == (0,)


def starts():
    return [(0.0, 0.0), (0.99, 0.0), (0.0, 0.99), (0.6, 0.6), (0.3, 0.1), (0.1, 0.3)]


def test_adversaries_only_make_things_worse():
    c = torch.linspace(0, 3, 50).double()
    for side, sign in (("op", 1), ("pe", -1)):
        plain = worst_value(side, c, s=1.0, q=4, eps=0.0)
        some = worst_value(side, c, s=1.0, q=4, eps=0.3)
        more = worst_value(side, c, s=1.0, q=4, eps=0.9)
        assert (sign * (some - plain) >= -1e-9).all()
        assert (sign * (more - some) >= -1e-6).all()


@pytest.mark.parametrize("name", ["binary_numeric", "binary_curved", "mixed"])
def test_answers_stay_in_their_ball_and_improve_the_odds(name):
    p = PROBLEMS[name]()
    method = p.fitted(RBR, **FEW)
    query = query_of(p)
    start, ok = method._boundary(query)
    around, wanted = method._labelled(query, start)
    odds = method._odds(query, around, wanted)
    answer = method.answer(query).x
    assert ok.any()
    numbers = list(p.space.numeric_columns)
    room = (start - query.x).abs()[:, numbers].sum(1) + method.delta_plus
    far = (answer - query.x).abs()[:, numbers].sum(1)
    assert (far[ok] <= room[ok] * (1 + 1e-4) + 1e-4).all()
    rows = query.rows()[ok]
    with torch.no_grad():
        before, after = odds(start[ok], rows), odds(answer[ok], rows)
    assert (after <= before + 1e-6).all()
    assert (after < before - 1e-3).any()


@pytest.mark.slow
def test_more_room_makes_answers_survive_more_models():
    """Share of 30 logistic models of resampled rows that keep the answers, mean of 3 seeds."""
    kept = {0.0: [], 0.2: [], 0.6: []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.random((200, 4)).astype(np.float32)
        y = (x @ [2, 1, -1, 0.5] + 0.4 * rng.normal(size=200) > 1.2).astype(int)

        def fitted(rows, x=x, y=y):
            f = LogisticRegression(C=100).fit(x[rows], y[rows])
            w = np.concatenate([0 * f.coef_, f.coef_]).astype(np.float32)
            b = np.array([0, f.intercept_[0]], dtype=np.float32)
            return ToyModel(w, b, Task.CLASSIFICATION)

        model = fitted(np.arange(200))
        others = [fitted(rng.integers(0, 200, 200)) for _ in range(30)]
        rows = x[model.predict(x) == 0][:25]
        for room, shares in kept.items():
            method = RBR(model, space=FeatureSpace.continuous(4), delta_plus=room, **FEW)
            result = method.fit(x).explain(rows, 1)
            answers = result.x_cfs[result.found]
            shares.append(np.mean([(m.predict(answers) == 1).mean() for m in others]))
    means = [np.mean(v) for v in kept.values()]
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.1


def test_samples_of_one_class_leave_the_start():
    """A model that says yes almost everywhere: nothing to weigh, the boundary point stays."""
    p = PROBLEMS["binary_numeric"]()
    method = p.fitted(RBR, radius=1e-7, **FEW)
    result = p.explain(method)
    assert result.found.any()
    query = query_of(p)
    start, ok = method._boundary(query)
    _around, wanted = method._labelled(query, start)
    one = ~(wanted.any(1) & ~wanted.all(1)) & ok
    assert one.any()
    np.testing.assert_allclose(method.answer(query).x[one], start[one], atol=1e-6)
    assert result.logs["one_class_around"] >= int(one.sum())
