"""CADEX against Adam's path."""

import cvxpy
import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cadex import CADEX
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel


def sign_path(problem, mask):
    """Return where `clip(x + t sign(w) mask)` meets the boundary, and t, by bisection."""
    x, way = problem.x.astype(np.float64), np.sign(problem.w) * mask

    def at(t):
        return np.clip(x + t[:, None] * way, problem.low, problem.high)

    near, far = np.zeros(len(x)), np.full(len(x), 10.0)
    for _ in range(60):
        middle = (near + far) / 2
        past = problem.score(at(middle)) >= problem.margin
        near, far = np.where(past, near, middle), np.where(past, middle, far)
    return at(far), far


@pytest.mark.parametrize("bend", [0.0, pytest.param(0.2)])
@pytest.mark.parametrize(
    ("n_changed", "n_skip"), [(None, 0), (None, 1), (2, 0), (2, 1)]
)  # fmt: skip
def test_cadex_follows_the_signs_of_chosen_features(n_changed, n_skip, bend, case, deviation):
    """Answers lie where the path of signs of the chosen features crosses the boundary."""
    problem = case(bend, box=1.0 if n_changed is None else 3.0, n=25)
    rank = np.argsort(np.argsort(-np.abs(problem.w)))
    last = len(rank) if n_changed is None else n_skip + n_changed
    mask = (rank >= n_skip) & (rank < last)
    exact, t = sign_path(problem, mask)
    near = t < 0.8
    problem.x, exact = problem.x[near], exact[near]
    assert len(exact) >= 5
    ours = problem.answers(CADEX, n_changed=n_changed, n_skip=n_skip)
    deviation.absolute(ours, exact, oracle="path of signs, by bisection", limit=3e-4)
    assert (ours[:, ~mask] == problem.x[:, ~mask]).all()
    if n_changed is None and not n_skip:
        at_bound = (exact == problem.low) | (exact == problem.high)
        assert at_bound.any()  # the box takes part
        straight = problem.optimum(lambda z: cvxpy.sum_squares(z - problem.x))
        assert np.abs(ours - straight).max() > 0.05  # not the Euclidean projection


def test_cadex_stops_where_torch_adam_first_crosses(check, deviation):
    """On a curved model with three classes answers lie in the step in which Adam crosses."""
    rng = np.random.default_rng(2)
    w = rng.normal(size=(3, 5)).astype(np.float32) * 2
    model = ToyModel(w, -w.mean(1), Task.CLASSIFICATION, bend=0.2)
    x = rng.random((200, 5)).astype(np.float32)
    x, lr = x[model.predict(x) != 1][:10], 0.01
    space = FeatureSpace.continuous(5, -9.0, 9.0)
    ours = check.found(CADEX(model, space=space, lr=lr, max_iter=300).explain(x, target=1))
    for row, answer in zip(x, ours, strict=True):
        before, after = first_crossing(model, row, 1, lr)
        low, high = np.minimum(before, after), np.maximum(before, after)
        beyond = np.maximum(low - answer, answer - high)
        deviation(beyond, oracle="torch.optim.Adam, row by row", limit=1e-5, unit="absolute")
        assert np.abs(after - before).max() <= 1.01 * lr  # one step


def first_crossing(model, row, target, lr):
    point = torch.tensor(row[None], requires_grad=True)
    adam, wanted = torch.optim.Adam([point], lr=lr), torch.tensor([target])
    for _ in range(300):
        before = point.detach().numpy()[0].copy()
        adam.zero_grad()
        torch.nn.functional.cross_entropy(model.logits(point), wanted).backward()
        adam.step()
        z = model.logits(point.detach())[0]
        if z[target] - torch.cat([z[:target], z[target + 1 :]]).max() >= 1e-4:
            return before, point.detach().numpy()[0].copy()
    raise AssertionError("the reference never crosses")
