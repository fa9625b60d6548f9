"""RNCE and T-Rex: certificates against closed forms, corners and samples of weights."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from cel.cf_methods.local_methods import NearestInstance, RobustNearest
from cel.cf_methods.local_methods.robust_nearest.certificates import (
    certified_delta,
    weight_margin,
)
from cel.cf_methods.local_methods.robust_nearest.noisy_shares import stability
from cel.cf_methods.query import Query
from cel.cf_methods.tangent.robust import shifted_margins
from cel.cf_methods.view import ModelView
from cel.models import wrap
from cel.search import Budget, RowStreams
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS


def module_of(widths, seed=0):
    rng = torch.Generator().manual_seed(seed)
    parts = []
    for a, b in itertools.pairwise(widths):
        layer = nn.Linear(a, b)
        with torch.no_grad():
            layer.weight.copy_(2 * torch.randn(b, a, generator=rng) / a**0.5)
            layer.bias.copy_(-0.5 * layer.weight.sum(1) * (a == widths[0]))
        parts += [layer, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def query_of(model, space, x, target):
    rows = torch.as_tensor(x)
    return Query(
        x=rows, target=torch.full((len(x),), target), region=space.region(rows),
        model=ModelView(model), rng=RowStreams.of(rows, 0), budget=Budget(),
    )  # fmt: skip


def network_case(widths=(4, 8, 2), seed=0, n=20):
    module, space = module_of(widths, seed), FeatureSpace.continuous(widths[0])
    model = wrap(module, space=space, task="classification", classes=[0, 1])
    train = np.random.default_rng(seed).random((400, widths[0])).astype(np.float32)
    target = int(np.bincount(model.predict(train).astype(int), minlength=2).argmin())
    x = train[model.predict(train) != target][:n]
    return module, model, space, train, x, target


def test_linear_margins_are_those_of_roar(deviation):
    """Both classes have weights of their own, so delta counts twice in ROAR's closed form."""
    p = PROBLEMS["binary_numeric"]()
    query = query_of(p.model, p.space, p.x_train[:50], 1)
    view, rows = query.model.relu(), query.rows()
    for delta in (0.0, 0.01, 0.3):
        ours = weight_margin(query, view, delta)(query.x, rows)
        closed = shifted_margins(query, 2 * delta, "linf")(query.x, rows).amin(1)
        deviation.absolute(ours, closed, oracle="ROAR's closed form", limit=5e-6)


@pytest.mark.parametrize("widths", [(4, 8, 2), (4, 8, 6, 2)])
def test_found_rows_survive_sampled_weights(widths, deviation):
    """1,000 networks at corners of the weight intervals: every answer keeps its class."""
    module, model, _, train, x, target = network_case(widths, 1)
    delta = 0.02
    result = RobustNearest(model, delta=delta).fit(train).explain(x, target)
    assert result.found.sum() >= 5
    answers = torch.as_tensor(result.x_cfs[result.found])
    rng = torch.Generator().manual_seed(0)
    lost = 0
    kept = [p.detach().clone() for p in module.parameters()]
    with torch.no_grad():
        for _ in range(1000):
            for own, p in zip(kept, module.parameters(), strict=True):
                p.copy_(own + delta * torch.randn(p.shape, generator=rng).sign())
            out = module(answers)
            lost += int((out[:, target] <= out[:, 1 - target]).sum())
    deviation.rows(lost, oracle="1,000 shifted networks")


def test_one_hidden_layer_is_certified_to_the_last_bit(deviation):
    """At the certified delta the worst corner of the weights has a margin of zero."""
    module, model, space, train, *_ = network_case((1, 2, 2), 3)
    target = int(model.predict(train)[0])
    rows = train[model.predict(train) == target][:6]
    query = query_of(model, space, rows, target)
    delta = certified_delta(query, query.model.relu(), query.x, most=4.0)
    shapes = [p.detach().double() for p in module.parameters()]
    flat = torch.cat([p.reshape(-1) for p in shapes])
    least = torch.full((len(rows),), torch.inf).double()
    for signs in itertools.product([-1.0, 1.0], repeat=len(flat)):
        moved = flat + delta.double()[:, None] * torch.tensor(signs).double()
        parts = torch.split(moved, [s.numel() for s in shapes], 1)
        a, b, c, d = (m.reshape(-1, *s.shape) for m, s in zip(parts, shapes, strict=True))
        h = ((a @ query.x.double()[..., None])[..., 0] + b).relu()
        out = (c @ h[..., None])[..., 0] + d
        least = torch.minimum(least, out[:, target] - out[:, 1 - target])
    deviation(least.abs().numpy(), oracle="all corner weights", limit=1e-4, unit="margin")


def test_without_a_shift_it_is_the_nearest_instance():
    _, model, _space, train, x, target = network_case()
    ours = RobustNearest(model, delta=0.0, optimal=False).fit(train).explain(x, target)
    plain = NearestInstance(model, distance="l1_mad").fit(train).explain(x, target)
    np.testing.assert_array_equal(ours.x_cfs, plain.x_cfs)


def test_answers_are_certified_and_no_farther_than_the_row_itself():
    _, model, _space, train, x, target = network_case()
    method = RobustNearest(model, delta=0.02).fit(train)
    moved = method.explain(x, target)
    row = RobustNearest(model, delta=0.02, optimal=False).fit(train).explain(x, target)
    assert moved.found.any()
    assert (moved.found == row.found).all()
    told = np.array([v if v is not None else np.nan for v in moved.logs["certified_delta"]])
    assert (told[moved.found] >= 0.02 - 1e-5).all()
    far = [np.abs(r.x_cfs - x)[r.found].sum(1) for r in (moved, row)]
    assert (far[0] <= far[1] + 1e-6).all()
    assert far[0].sum() < 0.9 * far[1].sum()


def test_a_larger_delta_costs_more_and_may_leave_nothing():
    _, model, _, train, x, target = network_case()
    costs, found = [], []
    for delta in (0.0, 0.02, 0.05, 5.0):
        r = RobustNearest(model, delta=delta, optimal=False).fit(train).explain(x, target)
        costs.append(np.where(r.found, np.abs(r.x_cfs - x).sum(1), np.inf))
        found.append(r.found.sum())
    assert found[0] == len(x)
    assert found[-1] == 0
    assert found == sorted(found, reverse=True)
    assert "why" in r.logs


def test_stability_is_the_mean_of_many_draws(deviation):
    _, model, space, train, _x, target = network_case()
    query = query_of(model, space, train[:10], target)
    few = stability(query, 0.1, 2000)(query.x, query.rows())
    with torch.no_grad():
        noise = torch.randn(10, 200_000, 4, generator=torch.Generator().manual_seed(1))
        copies = query.x[:, None] + 0.1 * noise
        there = model.logits(copies.reshape(-1, 4)).softmax(1)[:, target].reshape(10, -1)
        here = model.logits(query.x).softmax(1)[:, target]
    parts = there - (here[:, None] - there).abs()
    error = parts.std(1) / 2000**0.5
    deviation(((few - parts.mean(1)).abs() / error).numpy(), oracle="200,000 draws", limit=3.5,
              unit="standard errors")  # fmt: skip


def test_stability_of_a_constant_model_is_its_probability(deviation):
    module, model, space, train, *_ = network_case()
    with torch.no_grad():
        module[-1].weight.zero_()
        module[-1].bias.copy_(torch.tensor([0.3, 1.0]))
    query = query_of(model, space, train[:5], 1)
    value = stability(query, 0.1, 50)(query.x, query.rows())
    exact = 1 / (1 + np.exp(-0.7))
    deviation.absolute(value, exact, oracle="its probability", limit=1e-6)


def test_stability_needs_predictions_only():
    p = PROBLEMS["black_box"]()
    method = p.fitted(RobustNearest, test="stability", draws=50, tau=0.3)
    assert p.explain(method).found.any()
    with pytest.raises(Exception, match="stability"):
        p.fitted(RobustNearest)


def test_two_hidden_layers_are_bounded_from_below(deviation):
    """The bound is below the margin of all 20,000 sampled corners of the weight intervals."""
    module, model, space, train, *_ = network_case((4, 8, 6, 2), 5)
    target = int(model.predict(train)[0])
    query = query_of(model, space, train[model.predict(train) == target][:10], target)
    delta = 0.01
    bound = weight_margin(query, query.model.relu(), delta)(query.x, query.rows())
    rng, x = torch.Generator().manual_seed(1), query.x.double()
    weights = [p.detach().double() for p in module.parameters()]
    least = torch.full((len(x),), torch.inf).double()
    for _ in range(20):
        moved = [
            p + delta * torch.randn((1000, *p.shape), generator=rng).sign().double()
            for p in weights
        ]
        h = x.expand(1000, -1, -1)
        for number in range(0, len(moved), 2):
            h = h.relu() if number else h
            h = h @ moved[number].transpose(1, 2) + moved[number + 1][:, None]
        least = torch.minimum(least, (h[..., target] - h[..., 1 - target]).amin(0))
    plain = query.model.margin(query.x, query.target)
    assert bool((bound < plain).all())
    deviation(
        (bound.double() - least).clamp(min=0).numpy(), oracle="20,000 shifted networks", limit=0.0,
        unit="margin above",
    )  # fmt: skip


def test_clear_points_need_few_copies():
    """Neighbours asked in order, with few copies of clear points: the answers of the full test."""
    _, model, _space, train, x, target = network_case((4, 8, 2), 2, n=12)
    method = RobustNearest(model, test="stability", optimal=False, sigma=0.05).fit(train)
    quick = method.explain(x, target)
    query = query_of(model, method.space_, x, target)
    score = stability(query, 0.05, method.draws)
    near = method.pool_.nearest(query.x, query.target, 40, region=query.region)
    flat, rows = near.x.flatten(0, 1), query.rows().repeat_interleave(40)
    passed = ((score(flat, rows) > method.tau) & query.accept(flat, rows)[1]).reshape(-1, 40)
    assert bool(passed.any(1).all())
    assert not bool(passed[:, 0].all())
    first = passed.to(torch.int8).argmax(1)
    np.testing.assert_array_equal(quick.x_cfs, near.x[query.rows(), first].numpy())


@pytest.mark.parametrize("slopes", [True, False])
def test_decisions_of_few_copies_are_those_of_all(slopes, monkeypatch):
    """Points on both sides of the threshold: the same side as with all copies, for less."""
    _, model, space, train, _x, target = network_case((4, 32, 2), 4)
    if not slopes:
        monkeypatch.setattr(ModelView, "differentiable", property(lambda self: False))
    query = query_of(model, space, train[:20], target)
    points = torch.as_tensor(train).repeat(5, 1)
    rows = query.rows().repeat(len(points) // 20)
    exact = stability(query, 0.1, 1000)(points, rows)
    asked, scores = [], ModelView.scores
    monkeypatch.setattr(ModelView, "scores", lambda v, x: asked.append(len(x)) or scores(v, x))
    tau = float(exact.median())
    quick = stability(query, 0.1, 1000, tau)(points, rows)
    assert bool(((quick > tau) == (exact > tau)).all())
    assert sum(asked) < (300 if slopes else 600) * len(points)
    near = (exact - tau).abs() < 0.005
    torch.testing.assert_close(quick[near], exact[near], rtol=0, atol=1e-5)


def test_guesses_of_a_linear_model_leave_no_rest():
    p = PROBLEMS["binary_numeric"]()
    query = query_of(p.model, p.space, p.x_train[:30], 1)
    exact = stability(query, 0.1, 1000)(query.x, query.rows())
    quick = stability(query, 0.1, 1000, 0.5)(query.x, query.rows())
    torch.testing.assert_close(quick, exact, rtol=0, atol=1e-5)
