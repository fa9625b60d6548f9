"""Exact ReLU networks against enumeration of patterns, of points, and a solver from outside."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from cel.cf_methods.local_methods import Actionable, ExactReLU, Wachter
from cel.models.classifiers import MLPClassifier
from cel.models.relu_view import ReluView
from cel.space import Feature, FeatureSpace
from cel.space.constraints import Implication, LinearRelation
from cel.space.distances import mad_scale
from cel.testing.doubles import BlackBox

sys.path.insert(0, str(Path(__file__).parent))
from networks import AIM, by_patterns, by_scip, random_module, weights, wrapped

TENTH = np.float32(0.1)


def case(widths, seed=0, n=8, classes=2):
    d = widths[0]
    module = random_module(widths, seed)
    space = FeatureSpace.continuous(d)
    train = np.random.default_rng(seed).random((300, d)).astype(np.float32)
    model = wrapped(module, space, classes)
    target = int(model.predict(train)[0] == 0) if classes == 2 else 0
    x = train[model.predict(train) != target][:n]
    return module, model, train, x, target, mad_scale(train, space)


def cost_of(result, x, scale):
    return (np.abs(result.x_cfs.astype(np.float64) - x) / scale).sum(1)


@pytest.mark.parametrize(
    ("widths", "classes"), [((3, 6, 2), 2), ((4, 3, 3, 2), 2), ((2, 5, 3), 3)]
)
def test_costs_equal_enumeration_of_activation_patterns(widths, classes, deviation):
    module, model, train, x, target, scale = case(widths, seed=1, n=5, classes=classes)
    result = ExactReLU(model).fit(train).explain(x, target)
    best = np.array([by_patterns(module, row.astype(float), target, scale) for row in x])
    found = np.isfinite(best)
    assert found.sum() >= 3
    assert (result.status == np.where(found, "found", "infeasible")).all()
    assert (result.proof[found] == "optimal").all()
    deviation.excess(
        cost_of(result, x, scale)[found], best[found], oracle="all activation patterns",
        limit=1e-5, below=1e-5,
    )  # fmt: skip
    deviation.relative(
        result.bound[found], best[found], oracle="all activation patterns", limit=1e-5
    )


def test_rows_are_infeasible_exactly_when_no_pattern_will_do(deviation):
    """In small boxes some rows have no answer; a linear program per pattern says which."""
    module, _, train, x, target, scale = case((3, 5, 2), seed=3, n=12)
    wrong, none = [], 0
    for row in x:
        low, high = row.astype(float) - 0.12, row.astype(float) + 0.12
        space = FeatureSpace(
            tuple(
                Feature(name=f"f{j}", columns=(j,), lower=low[j], upper=high[j]) for j in range(3)
            )
        )
        result = ExactReLU(wrapped(module, space)).fit(train).explain(row[None], target)
        best = by_patterns(module, row.astype(float), target, scale, low, high)
        none += np.isinf(best)
        wrong.append(result.status[0] != ("infeasible" if np.isinf(best) else "found"))
    assert 0 < none < 12
    deviation.rows(wrong, oracle="all activation patterns")


def test_costs_equal_a_fine_grid_in_the_plane(deviation):
    """A million points: none is cheaper, and the cheapest is within a step of the answer."""
    module, model, train, x, target, scale = case((2, 8, 8, 2), seed=5, n=4)
    result = ExactReLU(model).fit(train).explain(x, target)
    axis = np.linspace(0, 1, 1001)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    with torch.no_grad():
        out = module.double()(torch.as_tensor(grid)).numpy()
    module.float()
    good = grid[out[:, target] - out[:, 1 - target] >= AIM]
    best = np.array([(np.abs(good - row) / scale).sum(1).min() for row in x])
    cost = cost_of(result, x, scale)
    assert (cost <= best + 1e-4).all()
    deviation(best - cost, oracle="a million points", limit=float((2e-3 / scale).sum()),
              unit="cost above")  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("widths", [(5, 16, 2), (5, 12, 12, 2), (8, 16, 16, 2)])
def test_costs_equal_scip(widths, deviation):
    """Where SCIP ends and its point is an answer, costs are equal; ours is never dearer."""
    pytest.importorskip("pyscipopt", reason="the extra `exact` brings the oracle")
    module, model, train, x, target, scale = case(widths, seed=7, n=12)
    result = ExactReLU(model, nodes=4000).fit(train).explain(x, target)
    ours = cost_of(result, x, scale)
    pairs = []
    for i, row in enumerate(x):
        status, best, point = by_scip(module, row.astype(float), target, scale, 20)
        if result.status[i] == "infeasible":
            assert point is None
        if point is None or result.proof[i] != "optimal":
            continue
        with torch.no_grad():
            out = module(torch.as_tensor(point).float())
        if status == "optimal" and out[target] > out[1 - target]:
            pairs.append((ours[i], best))
    assert len(pairs) >= 6
    ours, best = np.array(pairs).T
    deviation.excess(ours, best, oracle="SCIP", limit=1e-4, below=1e-4)


def test_a_network_without_kinks_is_the_linear_case(deviation):
    """One output layer, and one whose ReLUs are always on: both equal `actionable`."""
    rng = np.random.default_rng(9)
    train = rng.random((200, 4)).astype(np.float32)
    space = FeatureSpace.continuous(4)
    w = rng.normal(size=(2, 4)) * 3
    plain = nn.Sequential(nn.Linear(4, 2))
    deep = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        bias = torch.as_tensor(-(w @ np.full(4, 0.5))).float()
        for layer in (plain[0], deep[2]):
            layer.weight.copy_(torch.as_tensor(w))
        plain[0].bias.copy_(bias)
        deep[0].weight.copy_(torch.eye(4))
        deep[0].bias.fill_(1.0)
        deep[2].bias.copy_(bias - deep[2].weight.sum(1))
    x = train[wrapped(plain, space).predict(train) == 0][:10]

    class Linear:
        task, classes_, n_outputs_ = "classification", np.arange(2), 2
        predict = staticmethod(lambda rows: wrapped(plain, space).predict(rows))
        predict_proba = staticmethod(lambda rows: wrapped(plain, space).predict_proba(rows))
        logits = staticmethod(lambda rows: plain(rows).detach())
        linear_ = staticmethod(lambda: (plain[0].weight, plain[0].bias))

    exact = Actionable(Linear(), space=space).fit(train).explain(x, 1)
    for module in (plain, deep):
        result = ExactReLU(wrapped(module, space)).fit(train).explain(x, 1)
        assert (result.proof[result.found] == "optimal").all()
        # `actionable` asks for a margin of 1.5e-4, half as much again
        deviation.relative(
            result.bound[result.found], exact.bound[result.found], oracle="actionable",
            limit=3e-4,
        )  # fmt: skip


MIXED = FeatureSpace(
    (
        Feature(name="a", kind="integer", columns=(0,), step=0.1),
        Feature(name="b", kind="integer", columns=(1,), step=0.1, direction="up"),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(
            name="d", kind="categorical", columns=(5, 6), categories=("off", "on"), weight=0.5
        ),
        Feature(name="e", kind="ordinal", columns=(7,), step=0.5, categories=("lo", "mid", "hi")),
    ),
    (
        LinearRelation.of({"a": 1, "b": -1}, 0.2),
        Implication("c", ("w",), "d", ("on",)),
    ),
)


def mixed_points():
    tenth = TENTH * np.arange(11, dtype=np.float32)
    grids = np.meshgrid(tenth, tenth, range(3), range(2), np.float32([0, 0.5, 1]), indexing="ij")
    a, b, c, d, e = (g.ravel() for g in grids)
    return np.column_stack([a, b, np.eye(3)[c], np.eye(2)[d], e]).astype(np.float32)


@pytest.mark.parametrize("seed", [11, 12])
def test_grids_categories_and_rules_equal_trying_every_point(seed, deviation):
    module = random_module((8, 8, 6, 2), seed)
    model, every = wrapped(module, MIXED), mixed_points()
    region = MIXED.region(every)
    clean = every[region.contains(every) & (every[:, 0] - every[:, 1] <= 0.2 + 1e-6)]
    clean = clean[~((clean[:, 4] > 0) & (clean[:, 5] > 0))]
    train = np.random.default_rng(seed).permutation(clean)[:300]
    target = int(model.predict(train)[0] == 0)
    x = train[model.predict(train) != target][:6]
    result = ExactReLU(model).fit(train).explain(x, target)
    scale = mad_scale(train, MIXED)
    with torch.no_grad():
        out = module(torch.as_tensor(clean)).numpy()
    good = clean[out[:, target] - out[:, 1 - target] >= AIM]
    best = []
    for row in x:
        legal = good[MIXED.region(row[None].repeat(len(good), 0)).contains(good)]
        far = np.abs(legal.astype(np.float64) - row)
        cost = (far / scale)[:, [0, 1, 7]].sum(1) + far[:, 2:5].max(1) + 0.5 * far[:, 5:7].max(1)
        best.append(cost.min(initial=np.inf))
    best = np.array(best)
    found = np.isfinite(best)
    assert found.sum() >= 3
    assert (result.status == np.where(found, "found", "infeasible")).all()
    assert (result.proof[found] == "optimal").all()
    deviation.relative(result.bound[found], best[found], oracle="every point", limit=1e-5)


@pytest.mark.parametrize("nodes", [1, 10, 100])
def test_bounds_never_exceed_the_optimum(nodes, deviation):
    module, model, train, x, target, scale = case((4, 5, 2), seed=13, n=4)
    result = ExactReLU(model, nodes=nodes).fit(train).explain(x, target)
    best = np.array([by_patterns(module, row.astype(float), target, scale) for row in x])
    known = np.isfinite(best)
    over = np.maximum(result.bound[known] - best[known], 0.0)
    deviation(over, oracle="all activation patterns", limit=1e-5, unit="bound above optimum")
    assert not (result.status[known] == "infeasible").any()


def test_wachters_answers_are_never_below_the_bound(deviation):
    """On a network of 256-256 bounds may be loose, but never above an answer."""
    _module, model, train, x, target, scale = case((6, 256, 256, 2), seed=15, n=16)
    exact = ExactReLU(model, nodes=4).fit(train).explain(x, target)
    known = Wachter(model).fit(train).explain(x, target)
    rows = known.found & ~np.isnan(exact.bound)
    assert rows.sum() >= 10
    over = exact.bound[rows] / cost_of(known, x, scale)[rows] - 1
    deviation(np.maximum(over, 0), oracle="Wachter", limit=1e-5, unit="bound above an answer")


def test_a_target_that_no_output_reaches_is_infeasible():
    module = random_module((3, 6, 2), 17)
    with torch.no_grad():
        module[2].bias.copy_(torch.tensor([50.0, -50.0]))
    train = np.random.default_rng(0).random((100, 3)).astype(np.float32)
    result = (
        ExactReLU(wrapped(module, FeatureSpace.continuous(3))).fit(train).explain(train[:5], 1)
    )
    assert set(result.status) == {"infeasible"}


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 8))]
)
def test_planted_answers_are_never_called_impossible(part, deviation):
    """200 random networks; the region is the box between a row and one of the other class."""
    wrong = seen = 0
    for seed in range(25 * part, 25 * part + 25):
        d = 2 + seed % 4
        module = random_module((d, 6, 6, 2) if seed % 2 else (d, 12, 2), seed)
        rows = np.random.default_rng(seed).random((80, d)).astype(np.float32)
        with torch.no_grad():
            out = module(torch.as_tensor(rows)).numpy()
        margin = out[:, 1] - out[:, 0]
        start, end = np.flatnonzero(margin < 0), np.flatnonzero(margin > 2e-3)
        if not len(start) or not len(end):
            continue
        row, planted = rows[start[0]], rows[end[seed % len(end)]]
        low, high = np.minimum(row, planted) - 1e-6, np.maximum(row, planted) + 1e-6
        space = FeatureSpace(
            tuple(
                Feature(name=f"f{j}", columns=(j,), lower=float(low[j]), upper=float(high[j]))
                for j in range(d)
            )
        )
        result = ExactReLU(wrapped(module, space), nodes=60, steps=10).fit(rows)
        status = result.explain(row[None], 1).status[0]
        seen += 1
        wrong += status == "infeasible"
    assert seen >= 15
    deviation.rows(wrong, oracle="planted answer")


def test_a_time_limit_never_makes_a_wrong_proof():
    module, model, train, x, target, scale = case((4, 5, 2), seed=13, n=4)
    best = np.array([by_patterns(module, row.astype(float), target, scale) for row in x])
    for limit in (1e-4, 1e-2, 0.1):
        result = ExactReLU(model, time_limit=limit).fit(train).explain(x, target)
        assert not (result.status[np.isfinite(best)] == "infeasible").any()
        if result.bound is not None:
            known = ~np.isnan(result.bound) & np.isfinite(best)
            assert (result.bound[known] <= best[known] * (1 + 1e-5)).all()


def test_the_scope_of_a_proof_names_space_and_weights():
    module, model, train, x, target, _ = case((3, 6, 2), seed=1, n=3)
    method = ExactReLU(model).fit(train)
    first = method.explain(x, target).logs["proof_scope"]
    again = method.explain(x, target).logs["proof_scope"]
    assert first == again
    with torch.no_grad():
        module[0].weight[0, 0] += 1e-3
    other = method.explain(x, target).logs["proof_scope"]
    assert other["space"] == first["space"]
    assert other["network"] != first["network"]


def test_views_are_the_network_or_refused():
    module, model, train, *_ = case((3, 6, 4, 2), seed=1)
    view = model.relu_()
    assert isinstance(view, ReluView)
    assert view.hidden == 10
    np.testing.assert_allclose(
        view.scores(torch.as_tensor(train)), module(torch.as_tensor(train)).detach(), atol=1e-5
    )
    own = MLPClassifier(hidden=(5, 4), epochs=2).fit(train, (train[:, 0] > 0.5).astype(int))
    np.testing.assert_allclose(
        own.relu_().scores(torch.as_tensor(train)), own.logits(torch.as_tensor(train)), atol=1e-5
    )
    space = FeatureSpace.continuous(3)
    for bad, word in [
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), "Tanh"),
        (Skip(), "Skip"),
    ]:
        with pytest.raises(Exception, match=word):
            ExactReLU(wrapped(bad, space)).fit(train)
    with pytest.raises(Exception, match="BlackBox is none"):
        ExactReLU(BlackBox(model), space=space).fit(train)
    assert len(weights(module)) == 3


class Skip(nn.Module):
    """A network whose layers are not applied in the order in which they are listed."""

    def __init__(self):
        super().__init__()
        self.second, self.first = nn.Linear(3, 2), nn.Linear(3, 3)

    def forward(self, x):
        return self.second(self.first(x).relu())
