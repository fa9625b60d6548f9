"""Causal recourse: closed forms on chains, consequences by hand, brute force over actions."""

import itertools

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.causal import CausalRecourse
from cel.cf_methods.local_methods.wachter import Wachter
from cel.datasets import CausalPeople, load_dataset
from cel.errors import ConfigError
from cel.models.classifiers import LogisticRegression
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.space.causal import Mechanism, StructuralModel
from cel.testing.problems import ToyModel


def two_classes(weights, bias, bend=0.0):
    w = np.array([[0] * len(weights), weights], dtype=np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION, bend=bend)


def wide(width, **changes):
    return FeatureSpace.continuous(width, -5.0, 5.0).with_changes(**changes)


def lin3(space):
    """The authors' sanity-3-lin: x2 = -x1 + u2, x3 = .05 x1 + .25 x2 + u3."""
    return StructuralModel(
        space,
        {
            "x1": Mechanism.linear({"x0": -1.0}),
            "x2": Mechanism.linear({"x0": 0.05, "x1": 0.25}),
        },
    )


def anm3(space):
    """Their sanity-3-anm: x2 = 3 / (1 + exp(-2 x1)) - 1 + u2, x3 = -.05 x1 - .25 x2^2 + u3."""
    return StructuralModel(
        space,
        {
            "x1": Mechanism(("x0",), function=lambda p: 3 / (1 + torch.exp(-2 * p[:, 0])) - 1),
            "x2": Mechanism(
                ("x0", "x1"), function=lambda p: -0.05 * p[:, 0] - 0.25 * p[:, 1] ** 2
            ),
        },
    )


def acted_on(*features, width=3):
    return torch.tensor([[j in features for j in range(width)]])


def test_linear_consequences_are_those_computed_by_hand(deviation):
    """sanity-3-lin, x = (1, 0, 2): action on the root, on the middle, on both."""
    model, x = lin3(wide(3)), torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
    step = torch.tensor([[0.5, 2.0, 0.0]], dtype=torch.float64)
    hand = {
        (0,): [1.5, -0.5, 2 + 0.05 * 0.5 - 0.25 * 0.5],
        (1,): [1.0, 2.0, 2 + 0.25 * 2.0],
        (0, 1): [1.5, 2.0, 2 + 0.05 * 0.5 + 0.25 * 2.0],
    }
    for features, wanted in hand.items():
        ours = model.follow(x, step, acted_on(*features))[0]
        deviation.absolute(ours, wanted, oracle="by hand", limit=1e-12)
    torch.testing.assert_close(
        model.noise(x), torch.tensor([[1.0, 1.0, 1.95]], dtype=torch.float64)
    )


def test_nonlinear_consequences_are_those_computed_by_hand(deviation):
    """sanity-3-anm, x = (0, 1, 2): u2 = .5, u3 = 2.25; action 0.5 on the root."""
    model, x = anm3(wide(3)), torch.tensor([[0.0, 1.0, 2.0]], dtype=torch.float64)
    step = torch.tensor([[0.5, 0.0, 0.0]], dtype=torch.float64)
    second = 3 / (1 + np.exp(-1.0)) - 1 + 0.5
    wanted = [0.5, second, -0.05 * 0.5 - 0.25 * second**2 + 2.25]
    ours = model.follow(x, step, acted_on(0))[0]
    deviation.absolute(ours, wanted, oracle="by hand", limit=1e-12)


@pytest.mark.parametrize("make", [lin3, anm3])
def test_no_action_returns_the_row_bit_for_bit(make):
    x = torch.rand(50, 3, generator=torch.manual_seed(0)) * 4 - 2
    model, none = make(wide(3)), torch.zeros(50, 3, dtype=torch.bool)
    assert torch.equal(model.follow(x, torch.zeros_like(x), none), x)
    assert torch.equal(model.follow(x, torch.zeros_like(x), ~none), x)


def test_an_action_cuts_a_feature_off_from_its_causes():
    model, x = lin3(wide(3)), torch.tensor([[1.0, 0.0, 2.0]])
    step = torch.tensor([[1.0, 0.0, 0.0]])
    both = model.follow(x, step, acted_on(0, 1))
    alone = model.follow(x, step, acted_on(0))
    assert both[0, 1] == 0.0  # held where it was
    assert alone[0, 1] == -1.0  # follows


def test_effects_are_the_consequences_of_unit_actions(deviation):
    model = lin3(wide(3))
    sets = torch.tensor(list(itertools.product([False, True], repeat=3)))
    x = torch.rand(8, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    a = torch.rand(8, 3, dtype=torch.float64, generator=torch.manual_seed(1)) - 0.5
    followed = model.follow(x, a, sets)
    linear = x + (model.effects(sets) @ a[..., None])[..., 0]
    deviation.absolute(linear, followed, oracle="forward pass", limit=1e-12)


def test_circles_and_impossible_effects_are_refused():
    space = wide(2)
    with pytest.raises(ConfigError, match="circle"):
        StructuralModel(
            space, {"x0": Mechanism.linear({"x1": 1.0}), "x1": Mechanism.linear({"x0": 1.0})}
        )
    mixed = FeatureSpace(
        (
            Feature(name="a", columns=(0,)),
            Feature(name="c", kind="categorical", columns=(1, 2), categories=("u", "v")),
        )
    )
    with pytest.raises(ConfigError, match="categorical"):
        StructuralModel(mixed, {"c": Mechanism.linear({"a": 1.0})})
    with pytest.raises(ConfigError, match="its own parent"):
        Feature(name="a", parents=("a",))
    with pytest.raises(ConfigError, match="actionable but not mutable"):
        Feature(name="a", mutable=False, actionable=True)


def test_without_edges_it_is_the_nearest_point(case, deviation):
    """No graph: the cost is that of the exact L1/MAD counterfactual."""
    c = case(d=6, n=12)
    ours = c.run(CausalRecourse, distance="mad")
    exact = c.run(Wachter)
    assert ours.found.all()
    scale = np.median(np.abs(c.train - np.median(c.train, 0)), 0)
    costs = [(np.abs(r.x_cfs - c.x) / scale).sum(1) for r in (ours, exact)]
    deviation.relative(costs[0], costs[1], oracle="Wachter, exact", limit=1e-3)
    assert set(ours.proof) <= {"optimal", "within_gap"}


@pytest.mark.parametrize("path", [3.0, 0.4, -2.0])
def test_on_a_chain_the_cause_is_cheaper_by_its_coefficient(path, deviation):
    """x2 = c x1 + u, the model sees x2: cost gap / max(1, |c|), in units of the range."""
    space, model = wide(2), two_classes([0.0, 2.0], -1.0)
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": path})})
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(-0.5, 0.5, 15), rng.uniform(-1, 0.3, 15)]).astype(np.float32)
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    gap = (1e-4 - (2 * x[:, 1].astype(np.float64) - 1)) / 2
    wanted = gap / max(1.0, abs(path)) / 10
    told = result.logs["action"]
    cost = np.array([sum(abs(v) for v in row.values()) / 10 for row in told])
    deviation.relative(cost, wanted, oracle="closed form", limit=1e-3)
    assert all(set(row) == {"x0" if abs(path) > 1 else "x1"} for row in told)


def brute_force(model, scm, x, values):
    """Cheapest cost over all sets and all grid actions, by the definition."""
    best = np.inf
    for size in (1, 2, 3):
        for features in itertools.combinations(range(3), size):
            grid = np.array(list(itertools.product(values, repeat=size)))
            a = np.zeros((len(grid), 3), dtype=np.float32)
            a[:, features] = grid
            act = torch.zeros(len(grid), 3, dtype=torch.bool)
            act[:, list(features)] = True
            rows = torch.as_tensor(np.repeat(x[None], len(grid), 0))
            end = scm.follow(rows, torch.as_tensor(a), act).numpy()
            good = (model.predict(end) == 1) & (np.abs(end) <= 5).all(1)
            if good.any():
                best = min(best, np.abs(a[good]).sum(1).min() / 10)
    return best


@pytest.mark.parametrize(("make", "bend"), [(lin3, 0.0), (lin3, 0.2), (anm3, 0.0)])
def test_actions_are_as_cheap_as_brute_force_over_sets_and_grids(make, bend, deviation):
    """Three nodes, a grid of 0.1: linear equations never above it, bent ones within a step."""
    space, model = wide(3), two_classes([0.5, 1.0, -1.5], -1.5, bend)
    scm = make(space)
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (6, 3)).astype(np.float32)
    x = x[model.predict(x) == 0]
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    cost = [sum(abs(v) for v in row.values()) / 10 for row in result.logs["action"]]
    values = np.linspace(-3, 3, 61)
    best = [brute_force(model, scm, row, values) for row in x]
    excess = np.array(cost) - np.array(best)
    limit = 1e-3 if make is lin3 else 0.01  # a step of the grid, in units of the range
    deviation(excess.clip(min=0), oracle="brute force", limit=limit, unit="cost above")
    deviation((-excess).clip(min=0), oracle="brute force", limit=0.03, unit="cost below")


def test_consequences_stay_inside_their_bounds(deviation):
    """Where the cheap way would push an effect over its bound, another one is taken."""
    space = FeatureSpace(
        (
            Feature(name="x0", columns=(0,), lower=-5, upper=5),
            Feature(name="x1", columns=(1,), lower=-5, upper=1),
        )
    )
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 3.0})})
    model = two_classes([1.0, 1.0], -2.6)
    x = np.array([[0.0, 0.0], [0.2, 0.4]], dtype=np.float32)
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    assert (result.x_cfs[:, 1] <= 1 + 1e-6).all()
    cost = [abs(r.get("x0", 0)) / 10 + abs(r.get("x1", 0)) / 6 for r in result.logs["action"]]
    # Following x0, x1 would pass 1 long before the sum is 2.6; so x1 is held, and x0 does it all.
    wanted = (2.6 + 1e-4 - x.astype(np.float64).sum(1)) / 10
    assert (x[:, 1] + 3 * (2.6 - x.sum(1)) > 1).all()
    deviation.relative(cost, wanted, oracle="by hand", limit=1e-3)


def test_bounds_of_consequences_are_part_of_the_programs(deviation):
    """An effect that cannot be held ends at its bound; the rest is done by the dearer feature."""
    space = FeatureSpace(
        (
            Feature(name="x0", columns=(0,), lower=-5, upper=5),
            Feature(name="x1", columns=(1,), lower=-5, upper=1, actionable=False),
            Feature(name="x2", columns=(2,), lower=-5, upper=5),
        )
    )
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 3.0})})
    model = two_classes([1.0, 0.0, 0.5], -1.5)
    x = np.array([[0.0, 0.1, 0.0], [0.2, 0.4, 0.3]], dtype=np.float32)
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.proof.tolist() == ["within_gap", "within_gap"]
    first = (1 - x[:, 1].astype(np.float64)) / 3
    rest = (1.5 + 1e-4 - x[:, 0] - first - 0.5 * x[:, 2]) / 0.5
    cost = [sum(map(abs, r.values())) / 10 for r in result.logs["action"]]
    deviation.relative(cost, (first + rest) / 10, oracle="by hand", limit=1e-3)


def test_what_cannot_be_acted_on_changes_as_a_consequence_only():
    space = wide(2, x1={"actionable": False})
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 0.5})})
    model, x = two_classes([0.0, 2.0], -1.0), np.array([[0.1, 0.2]], dtype=np.float32)
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    assert set(result.logs["action"][0]) == {"x0"}
    assert result.x_cfs[0, 1] > 0.5
    train = np.random.default_rng(0).uniform(-1, 1, (40, 2)).astype(np.float32)
    other = Wachter(model, space=space).fit(train).explain(x, target=1)
    assert not other.found.any()  # to all other methods it is fixed


def test_directions_bind_actions_but_not_consequences():
    space = wide(2, x1={"direction": "up"})
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 4.0})})
    model, x = two_classes([0.0, -2.0], -1.0), np.array([[0.1, 0.2]], dtype=np.float32)
    result = CausalRecourse(model, space=space, scm=scm).fit(x).explain(x, target=1)
    assert result.found.all()
    assert set(result.logs["action"][0]) == {"x0"}
    assert result.x_cfs[0, 1] < x[0, 1]


def test_rows_that_no_action_helps_are_proved_infeasible():
    space = FeatureSpace.continuous(2, 0.0, 1.0)
    scm = StructuralModel(space, {"x1": Mechanism.linear({"x0": 0.5})})
    x = np.array([[0.1, 0.2], [0.9, 0.9]], dtype=np.float32)
    method = CausalRecourse(two_classes([1.0, 1.0], -1.95), space=space, scm=scm).fit(x)
    assert method.explain(x, target=1).status.tolist() == ["found", "found"]
    method = CausalRecourse(two_classes([1.0, 1.0], -2.1), space=space, scm=scm).fit(x)
    assert method.explain(x, target=1).status.tolist() == ["infeasible", "infeasible"]
    # The best corner has the class, but not by the margin that is asked for: nothing is proved.
    method = CausalRecourse(two_classes([1.0, 1.0], -1.99995), space=space, scm=scm).fit(x)
    assert method.explain(x, target=1).status.tolist() == ["not_found", "not_found"]


def test_equations_of_the_generated_people_are_learnt(deviation):
    """Coefficients by least squares against the known ones, in raw units."""
    people = CausalPeople()
    frame = people.sample(20000, seed=1)
    names = list(people.start)
    space = FeatureSpace.continuous(6, -100, 100, names=tuple(names))
    graph = {n: tuple(w) for n, w in people.weights.items()}
    scm = StructuralModel.fitted(space, frame[names].to_numpy(), graph)
    for name, weights in people.weights.items():
        ours = scm.mechanisms[name].weights
        deviation.absolute(ours, list(weights.values()), oracle="the generator", limit=0.02)
    effects = scm.effects(torch.eye(6, dtype=torch.bool))
    for i, cause in enumerate(names):
        for j, effect in enumerate(names):
            known = people.total_effect(cause, effect)
            deviation.absolute(float(effects[i, j, i]), known, oracle="sum over paths", limit=0.02)


def test_a_kernel_learns_a_bent_equation(deviation):
    rng = np.random.default_rng(0)
    cause = rng.uniform(-2, 2, 1500)
    effect = np.sin(2 * cause) + 0.1 * rng.standard_normal(1500)
    space = FeatureSpace.continuous(2, -5, 5)
    x = np.column_stack([cause, effect])
    scm = StructuralModel.fitted(space, x, {"x1": ("x0",)}, "kernel")
    at = torch.linspace(-1.8, 1.8, 50, dtype=torch.float64)
    ours = scm.mechanisms["x1"](at[:, None])
    deviation.absolute(ours, np.sin(2 * at.numpy()), oracle="the generator", limit=0.1)


def test_cards_carry_the_graph():
    """The generated dataset: ratings follow, and actions on causes are not dearer than without."""
    split = load_dataset("causal_people", n=800).split()
    assert split.space["rating"].parents == ("savings", "debt")
    assert not split.space["rating"].can_act
    model = LogisticRegression().fit(split.loader("train"))
    rows = split.test.X[model.predict_proba(split.test.X).argmax(1) == 0][:40]
    with_causes = CausalRecourse(model).fit(split)
    assert with_causes.scm_.graph["debt"] == ("income",)
    without = CausalRecourse(model, graph={}).fit(split)
    costs = []
    for method in (with_causes, without):
        result = method.explain(rows, split.target.classes[1])
        told = result.logs["action"]
        cost = [np.inf if r is None else sum(map(abs, r.values())) for r in told]
        assert all("rating" not in r and "age" not in r for r in told if r)
        costs.append(np.array(cost))
    assert np.isfinite(costs[0]).all()
    assert (costs[0] <= costs[1] + 1e-4).all()
    assert (costs[0] < 0.9 * costs[1]).mean() > 0.5
