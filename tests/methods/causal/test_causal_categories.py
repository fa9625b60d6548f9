"""Causal recourse with categories that are acted on, and with equations that are uncertain."""

import itertools

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.causal import CausalRecourse
from cel.errors import ConfigError
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.space.causal import Mechanism, StructuralModel
from cel.testing.problems import ToyModel

NUMBERS = 2


def mixed_space(*, weight=1.0, mutable=True, levels=(2, 3)):
    """x0, x1 in [-5, 5], and two categories."""
    features = [Feature(name=f"x{i}", columns=(i,), lower=-5, upper=5) for i in range(NUMBERS)]
    at = NUMBERS
    for i, k in enumerate(levels):
        features.append(
            Feature(
                name=f"c{i}", kind="categorical", columns=tuple(range(at, at + k)),
                categories=tuple(f"v{j}" for j in range(k)), weight=weight, mutable=mutable,
            )
        )  # fmt: skip
        at += k
    return FeatureSpace(tuple(features))


def causes(space):
    """x1 follows from x0 and from the first category."""
    weights = torch.tensor([0.6, 0.0, 1.5], dtype=torch.float64)
    return StructuralModel(space, {"x1": Mechanism(("x0", "c0"), weights=weights)})


def two_classes(weights, bias):
    w = np.array([[0] * len(weights), weights], dtype=np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)


def rows_of(space, n, seed=0):
    rng = np.random.default_rng(seed)
    x = np.zeros((n, space.width), dtype=np.float32)
    x[:, :NUMBERS] = rng.uniform(-1.5, 0.5, (n, NUMBERS))
    for f in space.categorical_features:
        x[np.arange(n), np.array(f.columns)[rng.integers(len(f.columns), size=n)]] = 1
    return x


def brute_force(model, scm, space, row, values):
    """Cheapest cost over categories, sets of numbers and a grid of actions, by the definition."""
    best, blocks = np.inf, [list(f.columns) for f in space.categorical_features]
    for chosen in itertools.product(*blocks):
        switch = np.zeros(space.width, dtype=np.float32)
        for block, column in zip(blocks, chosen, strict=True):
            switch[block] = -row[block]
            switch[column] += 1
        price = (switch > 0).sum()
        for acted in itertools.product([False, True], repeat=NUMBERS):
            places = np.flatnonzero(acted)
            grid = np.array(list(itertools.product(values, repeat=len(places))))
            a = np.repeat(switch[None], len(grid), 0)
            if len(places):
                a[:, places] = grid
            sets = torch.zeros(len(grid), len(space), dtype=torch.bool)
            sets[:, list(places)] = True
            sets[:, NUMBERS:] = True
            rows = torch.as_tensor(np.repeat(row[None], len(grid), 0))
            end = scm.follow(rows, torch.as_tensor(a), sets).numpy()
            good = (model.predict(end) == 1) & (np.abs(end[:, :NUMBERS]) <= 5).all(1)
            if good.any():
                cost = np.abs(a[good, :NUMBERS]).sum(1) / 10 + price
                best = min(best, cost.min())
    return best


def cost_of(result, weight=1.0):
    """Costs of the actions in the logs: numbers in units of their range, switches at weight."""
    return np.array(
        [
            sum(
                (v > 0) * weight if "=" in name else abs(v) / 10
                for name, v in row.items()
            )
            for row in result.logs["action"]
        ]
    )  # fmt: skip


# Switches pay off in some rows, not in others: the model asks for much more than x1 alone gives.
MODEL = two_classes([0.1, 0.3, 0.0, 0.0, 0.0, 0.5, 2.0], -2.1)


def test_actions_on_categories_are_as_cheap_as_brute_force(deviation):
    """Two numbers, six combinations of categories; the category also moves its consequence."""
    space = mixed_space()
    scm, x = causes(space), rows_of(space, 24)
    x = x[MODEL.predict(x) == 0][:10]
    result = CausalRecourse(MODEL, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    values = np.linspace(-7, 7, 141)
    best = np.array([brute_force(MODEL, scm, space, row, values) for row in x])
    excess = cost_of(result) - best
    deviation(excess.clip(min=0), oracle="brute force", limit=1e-3, unit="cost above")
    deviation(
        (-excess).clip(min=0), oracle="brute force", limit=0.03, unit="cost below"
    )  # steps of the grid
    switched = np.array([any("=" in n for n in row) for row in result.logs["action"]])
    assert 0 < switched.sum() < len(x)  # both kinds occur
    gap = cost_of(result) - result.bound  # what the margin beyond the boundary costs
    assert ((gap >= -1e-6) & (gap <= 1e-4)).all()
    assert (result.proof[result.bound > 0.1] == "within_gap").all()


def test_a_switched_cause_moves_its_consequence_and_costs_its_weight():
    """Only c0 = v1 can bring the class, through x1: 1.5 higher, paid with the weight alone."""
    space = mixed_space(weight=0.25).with_changes(
        x0={"mutable": False}, x1={"actionable": False}, c1={"mutable": False}
    )
    model = two_classes([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0], -1.0)
    x = np.array([[0.0, 0.0, 1, 0, 1, 0, 0]], dtype=np.float32)
    method = CausalRecourse(model, space=space, scm=causes(space)).fit(x)
    result = method.explain(x, target=1)
    assert result.found.all()
    assert result.logs["action"] == [{"c0=v0": -1.0, "c0=v1": 1.0}]
    np.testing.assert_allclose(result.x_cfs, [[0.0, 1.5, 0, 1, 1, 0, 0]], atol=1e-6)
    assert result.bound[0] == pytest.approx(0.25, abs=1e-5)
    none = CausalRecourse(model, space=space, scm=causes(space), max_switches=0).fit(x)
    assert none.explain(x, target=1).status.tolist() == ["not_found"]  # nothing is proved


def test_impossible_is_proved_over_all_combinations_of_categories():
    space = mixed_space().with_changes(x0={"mutable": False}, x1={"actionable": False})
    x = np.array([[0.0, 0.0, 1, 0, 1, 0, 0]], dtype=np.float32)
    for bias, status in ((-3.4, "found"), (-3.6, "infeasible")):  # 1.5 of x1 and 2 of c1 = v2
        model = two_classes([0.0, 1.0, 0.0, 0.0, 0.0, 0.5, 2.0], bias)
        method = CausalRecourse(model, space=space, scm=causes(space)).fit(x)
        assert method.explain(x, target=1).status.tolist() == [status]


def test_of_many_categories_the_helpful_ones_are_tried_and_nothing_is_proved():
    """5 x 12 categories, at most 4 choices: the answer needs the best of both."""
    space = mixed_space(levels=(5, 12)).with_changes(
        x0={"mutable": False}, x1={"actionable": False}
    )
    weights = np.zeros(space.width)
    weights[[2 + 3, 7 + 8]] = 2.0
    weights[[2 + 1, 7 + 2]] = 1.0
    x = np.zeros((1, space.width), dtype=np.float32)
    x[0, [2, 7]] = 1
    scm = StructuralModel(space, {})
    for bias, status in ((-3.5, "found"), (-4.5, "not_found")):
        model = two_classes(list(weights), bias)
        method = CausalRecourse(model, space=space, scm=scm, max_switches=4).fit(x)
        result = method.explain(x, target=1)
        assert result.status.tolist() == [status]
        assert np.isnan(result.bound).all()


def test_a_network_learns_a_bent_equation(deviation):
    rng = np.random.default_rng(0)
    cause = rng.uniform(-2, 2, 1500)
    effect = np.sin(2 * cause) + 0.1 * rng.standard_normal(1500)
    space = FeatureSpace.continuous(2, -5, 5)
    scm = StructuralModel.fitted(space, np.column_stack([cause, effect]), {"x1": ("x0",)}, "mlp")
    at = torch.linspace(-1.8, 1.8, 50, dtype=torch.float64)
    ours = scm.mechanisms["x1"](at[:, None])
    deviation.absolute(ours, np.sin(2 * at.numpy()), oracle="the generator", limit=0.1)
    x, act = torch.tensor([[0.5, 0.1]]), torch.tensor([[True, False]])
    moved = scm.follow(x, torch.tensor([[0.3, 0.0]]), act)[0, 1] - 0.1
    assert float(moved) == pytest.approx(np.sin(1.6) - np.sin(1.0), abs=0.05)


def uncertain(caution, draws=15):
    """x1 = 2 x0 + u learnt from 30 noisy rows; only x0 can be acted on, only x1 is seen."""
    rng = np.random.default_rng(3)
    cause = rng.uniform(-1, 1, 30)
    train = np.column_stack([cause, 2 * cause + rng.normal(0, 1.0, 30)]).astype(np.float32)
    space = FeatureSpace.continuous(2, -5, 5).with_changes(x1={"actionable": False})
    model = two_classes([0.0, 2.0], -1.0)
    method = CausalRecourse(
        model, space=space, graph={"x1": ["x0"]}, caution=caution, draws=draws
    ).fit(train)
    x = np.array([[-0.5, -0.6], [0.1, 0.2], [0.4, -1.0]], dtype=np.float32)
    return method, x, method.explain(x, target=1)


def confidence(method, x, action, caution):
    """The lower confidence bound of p(1) - p(0), computed from the weights alone."""
    slopes = np.array([float(m.mechanisms["x1"].weights[0]) for m in method.doubt_.models])
    score = 2 * (x[:, 1, None] + action[:, None] * slopes) - 1
    lead = np.tanh(score / 2)
    return lead.mean(1) - caution * lead.std(1)


@pytest.mark.parametrize("caution", [0.5, 1.5])
def test_a_cautious_action_keeps_the_class_for_most_equations_and_no_more(caution, deviation):
    method, x, result = uncertain(caution)
    assert result.found.all()
    action = np.array([row["x0"] for row in result.logs["action"]])
    reached = confidence(method, x, action, caution)
    assert (reached >= -1e-6).all()
    deviation(reached.clip(min=0), oracle="closed form", limit=2e-3, unit="lead above zero")
    assert (confidence(method, x, 0.97 * action, caution) < 0).all()


def test_more_caution_costs_more():
    costs = []
    for caution in (0.0, 0.5, 1.5):
        _, _, result = uncertain(caution)
        costs.append([abs(row["x0"]) for row in result.logs["action"]])
    assert (np.diff(costs, axis=0) > 0).all()


def test_given_equations_leave_nothing_open():
    space = FeatureSpace.continuous(2)
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 0.5})})
    x = np.zeros((4, 2), dtype=np.float32)
    with pytest.raises(ConfigError, match=r"caution=2\.0 is about equations that are learnt"):
        CausalRecourse(two_classes([1.0, 1.0], -0.5), space=space, scm=scm, caution=2.0).fit(x)
