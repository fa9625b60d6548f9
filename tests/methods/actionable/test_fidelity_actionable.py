"""Actionable recourse: enumeration, linear programs, Wachter's knapsack, flipsets and proofs."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.cf_methods.local_methods.actionable import Actionable
from cel.cf_methods.local_methods.actionable.linear_recourse import Percentiles
from cel.cf_methods.local_methods.wachter import Wachter
from cel.cf_methods.tangent.margins import AIM
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, Implication, LinearRelation
from cel.space.distances import changed_features, mad_scale
from cel.testing.problems import PROBLEMS, ToyModel

JOBS, HOMES = ("none", "clerk", "smith"), ("rent", "own")


def space_of(constrained=True):
    features = (
        Feature(name="age", kind="integer", step=0.25, direction="up"),
        Feature(name="debt", kind="integer", columns=(1,), step=0.2),
        Feature(
            name="school", kind="ordinal", columns=(2,), step=0.25, categories=tuple("abcde"),
            allowed=tuple("ace"),
        ),
        Feature(
            name="job", kind="categorical", columns=(3, 4, 5), categories=JOBS,
            allowed=("clerk", "smith"),
        ),
        Feature(name="home", kind="categorical", columns=(6, 7), categories=HOMES, weight=0.5),
        Feature(name="born", kind="integer", columns=(8,), step=0.5, mutable=False),
    )  # fmt: skip
    rules = (
        LinearRelation.of({"age": 1, "debt": -1}, 0.3),
        Implication("home", ("own",), "job", ("smith",)),
    )
    return FeatureSpace(features, rules if constrained else ())


def rows_of(n, rng):
    return np.column_stack(
        [
            rng.integers(0, 5, n) / 4, rng.integers(0, 6, n) / 5, rng.integers(0, 5, n) / 4,
            np.eye(3)[rng.integers(0, 3, n)], np.eye(2)[rng.integers(0, 2, n)],
            rng.integers(0, 3, n) / 2,
        ]
    ).astype(np.float32)  # fmt: skip


def linear_model(rng, classes=2, d=9):
    w = rng.normal(size=(classes, d)).astype(np.float32) * 2
    b = rng.normal(size=classes).astype(np.float32)
    return ToyModel(w, b, Task.CLASSIFICATION)


def every_point(space, row):
    """Return all decodable points of the region of a row."""
    region = space.region(torch.as_tensor(row[None]))
    choices = []
    for f in space:
        if f.one_hot:
            choices.append([tuple(v) for v in np.eye(len(f.columns))])
        else:
            own = float(row[f.columns[0]])
            grid = [f.anchor + f.step * k for k in range(round(1 / f.step) + 1)]
            away = [v for v in grid if abs(v - own) > 1e-4]
            choices.append([(v,) for v in [own, *away]] if f.mutable else [(own,)])
    points = np.array([sum(c, ()) for c in product(*choices)], dtype=np.float32)
    many = region.select(torch.zeros(len(points), dtype=torch.long))
    inside = many.contains(torch.as_tensor(points)).numpy()
    return points[inside]


def margins(model, x, target):
    z = model.logits(torch.as_tensor(x)).double().numpy()
    return z[:, target] - np.delete(z, target, 1).max(1)


def plain_cost(space, x, points, scale, beta):
    total = np.zeros(len(points))
    for f in space:
        c = list(f.columns)
        gap = np.abs(points[:, c].astype(np.float64) - x[c])
        moved = (gap > 1e-4).any(1)
        total += f.weight * (moved if f.one_hot else gap[:, 0] / scale[c[0]]) + beta * moved
    return total


def solve(model, space, train, x, target=1, **settings):
    method = Actionable(model, space=space, **settings).fit(train)
    return method, method.explain(x, target)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("beta", [0.0, 0.4])
def test_answers_equal_enumeration(constrained, classes, beta, deviation):
    """Grids, ranks, categories, a relation and an implication: equal to trying every point."""
    space, seen = space_of(constrained), {"found": 0, "infeasible": 0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        model, train = linear_model(rng, classes), rows_of(200, rng)
        x = train[model.predict(train) != 1][:6]
        method, result = solve(model, space, train[50:], x, beta=beta)
        for i, row in enumerate(x):
            points = every_point(space, row)
            margin = margins(model, points, 1)
            cost = plain_cost(space, row, points, method.scale_, beta)
            assert not ((margin > -2e-5) & (margin < 2 * AIM)).any()  # nothing in doubt
            good = margin >= AIM
            seen[result.status[i]] += 1
            assert (result.status[i] == "found") == good.any()
            if good.any():
                ours = plain_cost(space, row, result.x_cfs[i : i + 1], method.scale_, beta)[0]
                deviation.absolute(ours, cost[good].min(), oracle="every point", limit=2e-5)
                assert result.proof[i] == "optimal"
                assert result.bound[i] <= ours * (1 + 1e-6)  # points are stored in 32 bits
            else:
                assert result.status[i] == "infeasible"
    assert min(seen.values()) >= (1 if classes == 3 or constrained else 0)
    assert seen["found"] >= 5


def test_a_continuous_problem_is_wachters_knapsack(case, deviation):
    c = case(d=6, n=12)
    scale = mad_scale(c.train, c.space)
    ours, wachter = c.answers(Actionable), c.answers(Wachter)
    cost = [(np.abs(x - c.x) / scale).sum(1) for x in (ours, wachter)]
    deviation.relative(*cost, oracle="Wachter, closed form", limit=1e-5)
    assert set(c.run(Actionable).proof) == {"optimal"}


@pytest.mark.parametrize("relation", [False, True])
def test_several_classes_and_relations_equal_linear_programs(relation, deviation):
    """Continuous features, four classes, a relation: equal to HiGHS."""
    space = FeatureSpace(
        FeatureSpace.continuous(4).features,
        (LinearRelation.of({"x0": 1, "x1": -1}, 0.1),) if relation else (),
    )
    compared = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        train = rng.random((200, 4)).astype(np.float32)
        if relation:
            train = train[train[:, 0] <= train[:, 1] + 0.1]
        model = linear_model(rng, 4, 4)
        target = int(np.bincount(model.predict(train)).argmax())
        x = train[model.predict(train) != target][:6]
        method, result = solve(model, space, train, x, target)
        w, b = model.weights.double().numpy(), model.bias.double().numpy()
        for i, row in enumerate(x.astype(np.float64)):
            form = np.delete(w[target] - w, target, 0)
            gap = AIM - form @ row - np.delete(b[target] - b, target)
            a_ub, b_ub = [np.hstack([-form, form])], [-gap]
            if relation:
                c = np.array([1, -1, 0, 0])
                a_ub.append(np.hstack([c, -c])[None])
                b_ub.append([0.1 - c @ row])
            bounds = [(0, 1 - v) for v in row] + [(0, v) for v in row]
            price = np.tile(1 / method.scale_, 2)
            best = linprog(price, np.vstack(a_ub), np.concatenate(b_ub), bounds=bounds)
            if best.status == 0:
                compared += 1
                ours = (np.abs(result.x_cfs[i] - row) / method.scale_).sum()
                deviation.excess([ours], [best.fun], oracle="HiGHS", limit=1e-4)
                assert result.bound[i] <= best.fun * (1 + 1e-6)
                assert result.proof[i] == "optimal"
            else:
                assert result.status[i] == "infeasible"
    assert compared >= 10


@pytest.mark.parametrize("kind", ["log_percentile", "max_percentile"])
def test_percentile_costs_equal_enumeration(kind, deviation):
    rng = np.random.default_rng(0)
    train = rng.random((60, 3)).astype(np.float32) ** 2
    space = FeatureSpace.continuous(3).with_changes(x2={"direction": "up"})
    model = linear_model(rng, 2, 3)
    x = train[model.predict(train) == 0][:6]
    _, result = solve(model, space, train, x, cost=kind, levels=12)
    ranks = Percentiles(train, 12)
    grids = [ranks.grid(f) for f in space]
    compared = 0
    for i, row in enumerate(x):
        values = [np.append(g, row[j]) for j, g in enumerate(grids)]
        values[2] = values[2][values[2] >= row[2] - 1e-6]
        points = np.array(list(product(*values)), dtype=np.float32)
        prices = np.stack(
            [ranks.price(row[j : j + 1], points[None, :, j], j, kind)[0] for j in range(3)], 1
        )
        cost = prices.max(1) if kind == "max_percentile" else prices.sum(1)
        good = margins(model, points, 1) >= AIM
        assert (result.status[i] == "found") == good.any()
        if good.any():
            compared += 1
            own = np.stack(
                [
                    ranks.price(row[j : j + 1], result.x_cfs[i : i + 1, j : j + 1], j, kind)[0]
                    for j in range(3)
                ],
                1,
            )
            ours = own.max() if kind == "max_percentile" else own.sum()
            deviation.absolute(ours, cost[good].min(), oracle="every point", limit=1e-6)
            assert result.proof[i] == "optimal"
    assert compared >= 3


def test_flipsets_rise_in_cost_and_hold_no_superset(deviation):
    """Costs ascend, sets of features differ, and none contains a cheaper one."""
    rng = np.random.default_rng(1)
    space, model, train = space_of(), linear_model(rng), rows_of(300, rng)
    x = train[model.predict(train) == 0][:12]
    method, result = solve(model, space, train, x, flips=5, beta=0.1)
    sizes = []
    for i, row in enumerate(x):
        members = result.x_sets[i][~np.isnan(result.x_sets[i]).any(1)]
        sizes.append(len(members))
        cost = plain_cost(space, row, members, method.scale_, 0.1)
        assert (np.diff(cost) >= -1e-5).all()
        moved = changed_features(np.repeat(row[None], len(members), 0), members, space)
        sets = [frozenset(np.flatnonzero(m)) for m in moved]
        assert not any(a <= b for k, b in enumerate(sets) for a in sets[:k])
        points = every_point(space, row)
        good = points[margins(model, points, 1) >= AIM]
        price = plain_cost(space, row, good, method.scale_, 0.1)
        changed = changed_features(np.repeat(row[None], len(good), 0), good, space)
        best, kept = [], []
        for k in np.argsort(price, kind="stable"):
            own = frozenset(np.flatnonzero(changed[k]))
            if not any(s <= own for s in kept):
                kept.append(own)
                best.append(price[k])
        assert len(members) == min(5, len(best))
        if len(members):
            deviation.absolute(cost, best[:5], oracle="every point", limit=2e-5)
    assert max(sizes) >= 3


def test_infeasible_means_that_the_best_corner_fails(deviation):
    """Under one demand and a box, a row is infeasible iff the best corner misses the class."""
    rng = np.random.default_rng(2)
    space = FeatureSpace.continuous(5).with_changes(x0={"mutable": False}, x1={"direction": "up"})
    train, wrong, seen = rng.random((400, 5)).astype(np.float32), 0, set()
    for seed in range(8):
        model = linear_model(np.random.default_rng(seed), 2, 5)
        model.bias[1] -= 2.5  # so that some rows cannot make it
        x = train[model.predict(train) == 0][:20]
        if not len(x):
            continue
        region = space.region(torch.as_tensor(x))
        w = (model.weights[1] - model.weights[0])[None]
        corner = torch.where(w > 0, region.upper, region.lower).numpy()
        fails = margins(model, corner, 1) < 0
        _, result = solve(model, space, train, x)
        wrong += int(((result.status == "infeasible") != fails).sum())
        seen |= set(result.status)
    deviation.rows(wrong, oracle="best corner")
    assert seen == {"found", "infeasible"}


def test_a_model_of_an_intercept_alone_is_infeasible():
    model = ToyModel(
        np.zeros((2, 3), dtype=np.float32), np.array([0.5, 0], dtype=np.float32),
        Task.CLASSIFICATION,
    )  # fmt: skip
    x = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    _, result = solve(model, FeatureSpace.continuous(3), x, x)
    assert set(result.status) == {"infeasible"}


def test_few_nodes_give_a_bound_and_no_wrong_proof():
    rng = np.random.default_rng(3)
    space, model, train = space_of(), linear_model(rng, 3), rows_of(300, rng)
    x = train[model.predict(train) != 1][:20]
    _, full = solve(model, space, train, x, beta=0.2)
    for nodes in (1, 2, 5):
        _, few = solve(model, space, train, x, beta=0.2, nodes=nodes)
        assert not ((few.status == "infeasible") & full.found).any()
        known = np.isfinite(few.bound) & np.isfinite(full.bound)
        assert (few.bound[known] <= full.bound[known] + 1e-6).all()


def test_mixed_rows_are_proved_optimal_or_impossible():
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(Actionable).explain(problem.x, 1)
    assert set(result.proof[result.found]) == {"optimal"}
    assert set(result.status) <= {"found", "infeasible"}
