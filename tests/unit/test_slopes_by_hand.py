"""Descents without autograd: losses, layers, costs and simplices by hand, and the plain way."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.score_slopes import ClosedSlope, ScoreLayers
from cel.cf_methods.view import ModelView
from cel.models.classifiers import LogisticRegression, MLPClassifier
from cel.objectives import (
    hinge,
    margin_hinge,
    probability_gap,
    probability_hinge,
    probability_margin,
    squared_error,
    squared_probability_gap,
    value_gap,
)
from cel.search import Budget, Found, row_gradient
from cel.search.gradient import SnapTest
from cel.space import Feature, FeatureSpace
from cel.space.projection import Projection

WORDS = ("a", "b", "c", "d", "e")
SPACE = FeatureSpace(
    (
        Feature(name="n", columns=(0,)),
        Feature(
            name="job", kind="categorical", columns=(1, 2, 3, 4, 5), categories=WORDS,
            allowed=("a", "c", "e"),
        ),
        Feature(name="up", columns=(6,), direction="up"),
        Feature(name="own", kind="categorical", columns=(7, 8), categories=("x", "y")),
        Feature(name="home", kind="categorical", columns=(9, 10, 11), categories=WORDS[:3],
                mutable=False),
    )
)  # fmt: skip


def _margin(scores, target):
    wanted = scores.gather(1, target[:, None])[:, 0]
    return wanted - scores.scatter(1, target[:, None], -torch.inf).amax(1)


LOSSES = {
    "margin": (margin_hinge(0.7), lambda s, t: hinge(_margin(s, t), 0.7)),
    "square": (margin_hinge(0.7, 2), lambda s, t: hinge(_margin(s, t), 0.7, power=2)),
    "chance": (probability_hinge(0.2), lambda s, t: hinge(probability_margin(s, t), 0.2)),
    "gap": (probability_gap, squared_probability_gap),
}


@pytest.mark.parametrize("outputs", [2, 4])
@pytest.mark.parametrize("name", LOSSES)
def test_slopes_of_class_losses_are_those_of_autograd(name, outputs):
    ours, plain = LOSSES[name]
    scores = torch.randn(200, outputs, generator=torch.Generator().manual_seed(1))
    target = torch.arange(200) % outputs
    value, slope = ours(scores, target)
    want, grad = row_gradient(lambda s, rows: plain(s, target[rows]), scores, torch.arange(200))
    torch.testing.assert_close(value, want)
    torch.testing.assert_close(slope, grad)
    assert 5 < int((value == 0).sum()) < 180 or name == "gap"


def test_slopes_of_values_are_those_of_autograd():
    values, target = torch.randn(2, 50, 3, generator=torch.Generator().manual_seed(2)).unbind(0)
    got = value_gap(values, target)
    want = row_gradient(lambda v, rows: squared_error(v, target[rows]), values, torch.arange(50))
    for ours, plain in zip(got, want, strict=True):
        torch.testing.assert_close(ours, plain)


def _rows(n, seed=0):
    """Rows (n, 12) of `SPACE`."""
    rng = np.random.default_rng(seed)
    a, b, c = (np.eye(k)[rng.integers(k, size=n)] for k in (5, 2, 3))
    x = np.concatenate([rng.random((n, 1)), a, rng.random((n, 1)), b, c], 1)
    return torch.as_tensor(x, dtype=torch.float32)


@pytest.mark.parametrize("size", [1e-3, 0.3, 20.0])
@pytest.mark.parametrize("one_way", [False, True])
def test_projections_of_many_steps_are_those_of_the_region(size, one_way):
    x = _rows(300)
    region = SPACE.region(x)
    fixed = torch.zeros(len(x), 5, dtype=torch.bool)
    fixed[:50, 1] = True  # a block that only other rows may change
    away = size * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    for where in (region, region.freeze(fixed)):
        point = where.project(x + (-away.abs() if one_way else away))
        again = where.project(point + 0.01 * away)
        ours = Projection(where)
        ahead = again + 0.9 * (again - point)
        for at in (x + (-away.abs() if one_way else away), ahead, again):
            torch.testing.assert_close(
                ours(at), where.project(at), atol=3e-6 * max(1, size), rtol=0
            )
        assert torch.equal(ours(again)[again == 0], again[again == 0])


def test_narrow_and_wide_blocks_are_projected_apart_to_the_byte():
    """Blocks of 3, 20 and 16 categories together, and each in a space of its own."""
    sizes, features, start = (3, 20, 16), [], 0
    for i, size in enumerate(sizes):
        columns = tuple(range(start, start + size))
        words = tuple(map(str, range(size)))
        features.append(
            Feature(name=f"f{i}", kind="categorical", columns=columns, categories=words)
        )
        start += size
    rng = np.random.default_rng(0)
    parts = [np.eye(k, dtype=np.float32)[rng.integers(k, size=60)] for k in sizes]
    x = torch.as_tensor(np.concatenate(parts, 1))
    away = x + 0.2 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    together = FeatureSpace(tuple(features)).region(x).project(away)
    assert len(FeatureSpace(tuple(features)).region(x).layout.by_width) == 2
    for f in features:
        columns = list(f.columns)
        alone = FeatureSpace((replace(f, columns=tuple(range(len(columns)))),))
        assert torch.equal(
            together[:, columns], alone.region(x[:, columns]).project(away[:, columns])
        )
    assert together.sum(1).allclose(torch.full((60,), 3.0))


def test_largest_categories_are_the_chosen_ones_to_the_byte():
    x = _rows(400, seed=1)
    region = SPACE.region(x)
    away = torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    fast = region._largest(x + away)
    assert fast is not None
    assert torch.equal(fast, region._chosen(x + away))
    assert not torch.equal(fast[:, 1:6], x[:, 1:6])


def test_ties_and_unknown_categories_are_left_to_the_careful_way():
    x = _rows(4)
    tied = x.clone()
    tied[0, 7:9] = 0.5
    assert SPACE.region(x)._largest(tied) is None
    assert torch.equal(SPACE.region(x).snap(tied), x)  # the present category wins
    x[1, 1:6] = 0.0
    assert SPACE.region(x)._largest(x) is None


@pytest.mark.parametrize("kind", [LogisticRegression, MLPClassifier])
@pytest.mark.parametrize("square", [False, True])
def test_a_step_by_hand_is_a_step_by_autograd(kind, square):
    x = _rows(200, seed=2)
    y = (x[:, 0] + x[:, 2] - 0.5 * x[:, 6] > 0.5).long().numpy()
    options = {"hidden": (16, 8), "epochs": 5} if kind is MLPClassifier else {}
    model = ModelView(kind(**options).fit(x.numpy(), y), budget=Budget())
    pull = _rows(200, seed=5) if square else None
    cost = SeparableCost.around(
        SPACE.region(x), l1=0.1, l2=square, change=0.7, center=x
    )  # fmt: skip
    cost = cost if pull is None else SeparableCost(**{**vars(cost), "pull": pull, "theta": 3.0})
    target, weights = torch.arange(200) // 2 % 2, torch.linspace(0.1, 10, 200)
    rows = torch.arange(0, 200, 2)
    points = x[rows] + 0.1 * torch.randn(100, 12, generator=torch.Generator().manual_seed(4))
    layers = ScoreLayers.of(model, x)
    assert layers is not None
    closed = ClosedSlope(model, layers, probability_hinge(0.01), target, cost, weights)

    def plain(at, r):
        short = hinge(probability_margin(model.logits(at), target[r]), 0.01)
        return weights[r] * short + cost.smooth(at, r)

    before = model.budget.queries
    value, grad = closed(points, rows)
    assert model.budget.queries == before + 100
    want, slope = row_gradient(plain, points, rows)
    torch.testing.assert_close(value, want, atol=2e-5, rtol=2e-5)
    torch.testing.assert_close(grad, slope, atol=2e-5, rtol=2e-4)
    settled = closed.loss(layers.forward(points)[0], target[rows])[0] == 0
    assert 0 < int(settled.sum()) < 100  # rows without a push do not go back through the layers


def test_points_that_are_too_dear_are_not_judged():
    found, seen = Found.nothing(torch.zeros(3, 1)), []

    def judge(x, rows):
        seen.append(rows.tolist())
        return x[:, 0] > 0

    test, rows = SnapTest(lambda x, rows: x.round(), judge), torch.arange(3)
    found.offer(torch.tensor([[2.2], [3.0], [-1.0]]), rows, test, lambda x, r: x[:, 0].abs())
    assert found.cost.tolist() == [2.0, 3.0, torch.inf]
    better = found.offer(torch.tensor([[4.0], [1.0], [5.0]]), rows, test, lambda x, r: x[:, 0])
    assert better.tolist() == [False, True, True]
    assert found.x[:, 0].tolist() == [2.0, 1.0, 5.0]
    assert seen == [[0, 1, 2], [1, 2]]
