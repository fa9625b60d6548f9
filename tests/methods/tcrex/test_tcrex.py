"""T-CREx against trees that are known, brute force, and the exhaustive grid of its paper."""

import itertools
import json
import os

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, norm

from cel.cf_methods.group_methods import TCREx
from cel.cf_methods.group_methods.tcrex.boxes import Boxes, Wanted, inside, maximal
from cel.cf_methods.group_methods.tcrex.metarules import cheapest_rules
from cel.cf_methods.group_methods.tcrex.reach import Reach
from cel.datasets import load_dataset
from cel.errors import ConfigError
from cel.models.classifiers import LogisticRegression
from cel.search import Budget
from cel.space import Feature, FeatureSpace
from cel.space.region import Region
from cel.testing import PROBLEMS, RuleModel


def depth_three(x):
    """A tree with three splits on every way; the values 0, .1, ..., 1 never hit a threshold."""
    left = (x[:, 1] > 0.55) & (x[:, 2] > 0.35)
    right = (x[:, 1] > 0.25) | (x[:, 2] > 0.65)
    return np.where(x[:, 0] > 0.45, right, left)


def moons_like(x):
    return x[:, 1] > 0.5 + 0.3 * np.sin(6 * x[:, 0])


GRID = np.random.default_rng(0).integers(0, 11, (3000, 4)).astype(np.float32) / 10
PLANE = np.random.default_rng(1).random((800, 2)).astype(np.float32)


def fitted(rule, x, space=None, **settings):
    method = TCREx(RuleModel(rule), space=space, **settings)
    return method.fit(x)


def rules_of(method, target=1):
    return method.explanation(target).state.rules


def brute_members(rules, x):
    """Loop over boxes, rows and columns."""
    return [
        [all(lo < v <= up for v, lo, up in zip(row, low, high, strict=True)) for row in x]
        for low, high in zip(rules.lower, rules.upper, strict=True)
    ]


# -- (i) a model that is a tree ---------------------------------------------------------------


@pytest.mark.parametrize("target", [0, 1])
def test_a_tree_is_recovered_and_clipping_works(target, deviation):
    method = fitted(depth_three, GRID, completion="clip", n_rules=1, tau=1.0, confidence=0.0)
    explanation = method.explanation(target)
    rules = explanation.state.rules
    assert explanation.logs["fidelity"] == 1.0
    assert explanation.logs["tau_effective"] == 1.0
    assert explanation.logs["held_out_accuracy"] == 1.0
    assert (rules.accuracy == 1).all()
    corners = np.array(list(itertools.product(np.arange(11) / 10, repeat=3)))
    corners = np.column_stack([corners, np.zeros(len(corners))]).astype(np.float32)
    member = inside(corners, rules.lower, rules.upper).any(0)
    wrong = member != (depth_three(corners) == target)
    deviation.rows(wrong, oracle="the tree itself", unit="wrong cells")
    rows = GRID[depth_three(GRID) != target][:500]
    assert method.explain(rows, target).found.all()


# -- (ii) brute force membership --------------------------------------------------------------


@pytest.mark.parametrize(("trees", "confidence"), [(1, 0.0), (1, 1.0), (8, 0.0)])
def test_rules_are_maximal_valid(trees, confidence, deviation):
    """Rules are accurate, frequent and in no other rule, by membership of each row."""
    x = PLANE[:400]
    method = fitted(moons_like, x, n_trees=trees, confidence=confidence)
    rules, hit = rules_of(method), moons_like(x)
    assert rules.tau == 0.9
    member = np.array(brute_members(rules, x))
    np.testing.assert_allclose(member.mean(1), rules.feasibility)
    share = (member & hit).sum(1) / member.sum(1)
    np.testing.assert_allclose(share, rules.accuracy)
    deviation.absolute(rules.accuracy, share, oracle="membership by loops", limit=1e-12)
    assert (rules.accuracy >= 0.9).all()
    assert (rules.feasibility >= 0.02).all()
    for i, j in itertools.permutations(range(len(rules)), 2):
        inner = (rules.lower[i] >= rules.lower[j]) & (rules.upper[i] <= rules.upper[j])
        assert not inner.all()
    boxes = method.surrogates_[0].at(0.02, Budget())
    for low, high in zip(boxes.lower, boxes.upper, strict=True):
        rows = ((x > low) & (x <= high)).all(1)
        wanted = Wanted(tau=0.9, rho=0.02, tau_floor=0.9, max_rules=9, confidence=confidence)
        good = wanted.lowered(np.array([hit[rows].sum()]), np.array([rows.sum()]))[0] >= 0.9
        covered = ((rules.lower <= low) & (rules.upper >= high)).all(1).any()
        everything = not (np.isfinite(low).any() or np.isfinite(high).any())
        assert covered or everything or not good or rows.mean() < 0.02


def test_counts_of_nodes_equal_brute_force(deviation):
    method = fitted(moons_like, PLANE, n_trees=5)
    boxes = method.surrogates_[0].at(0.02, Budget())
    member = inside(PLANE, boxes.lower, boxes.upper)
    hit = moons_like(PLANE)
    told = {"oracle": "membership by brute force", "limit": 0, "unit": "rows"}
    deviation.absolute(boxes.size, member.sum(1), **told)
    deviation.absolute(boxes.hits(hit), (member & hit).sum(1), **told)


def test_maximal_equals_pairwise_comparison(deviation):
    rng = np.random.default_rng(3)
    ends = np.sort(rng.integers(0, 6, (200, 3, 2)).astype(np.float32), -1)
    ends[..., 1] += 1
    ends[rng.random(ends.shape) < 0.3] = np.nan
    lower = np.nan_to_num(ends[..., 0], nan=-np.inf)
    upper = np.nan_to_num(ends[..., 1], nan=np.inf)
    both = np.unique(np.concatenate([lower, upper], 1), axis=0)
    lower, upper = both[:, :3], both[:, 3:]
    contained = ((lower[None] <= lower[:, None]) & (upper[None] >= upper[:, None])).all(-1)
    np.fill_diagonal(contained, False)
    ours, exact = maximal(lower, upper), np.flatnonzero(~contained.any(1))
    np.testing.assert_array_equal(ours, exact)
    deviation.rows(np.setxor1d(ours, exact).size, oracle="all pairs", unit="wrong boxes")


def test_wilson_bound(deviation):
    """Lower bounds of accuracy are Wilson's."""
    wanted = Wanted(tau=0.9, rho=0.1, tau_floor=0.9, max_rules=9, confidence=1.0)
    assert wanted.lowered(np.array([9.0]), np.array([9.0]))[0] == pytest.approx(0.9)
    level = 2 * norm.cdf(1.0) - 1
    expected = binomtest(47, 51).proportion_ci(level, method="wilson").low
    ours = wanted.lowered(np.array([47.0]), np.array([51.0]))[0]
    deviation.relative(ours, expected, oracle="binomtest (scipy)", limit=1e-9)


# -- (iii) the target matters -----------------------------------------------------------------


def test_changing_the_target_swaps_the_rules(deviation):
    method = fitted(moons_like, PLANE)
    one, zero = rules_of(method, 1), rules_of(method, 0)
    member = inside(PLANE, zero.lower, zero.upper)
    assert ((member & ~moons_like(PLANE)).sum(1) / member.sum(1) >= 0.9).all()
    assert not inside(PLANE, one.lower, one.upper).any(0)[member.any(0)].any()
    other = fitted(lambda x: ~moons_like(x), PLANE)
    pairs = (rules_of(other, 0).lower, one.lower), (rules_of(other, 1).upper, zero.upper)
    for swapped, own in pairs:
        np.testing.assert_array_equal(swapped, own)
        deviation.rows(swapped != own, oracle="the other target", unit="wrong bounds")


# -- (iv) the exhaustive grid -----------------------------------------------------------------


@pytest.mark.parametrize("trees", [1, 10])
def test_cheapest_rule_equals_the_exhaustive_grid(trees, deviation):
    method = fitted(moons_like, PLANE, n_trees=trees)
    explanation = method.explanation(1)
    state = explanation.state
    rules = state.rules
    edges = [np.unique(np.r_[rules.lower[:, j], rules.upper[:, j]]) for j in range(2)]
    edges = [e[np.isfinite(e)] for e in edges]
    best = {}
    for cell in itertools.product(*(range(len(e) + 1) for e in edges)):
        padded = [np.r_[e[0] - 0.1, e, e[-1] + 0.1] for e in edges]
        middle = [(p[k] + p[k + 1]) / 2 for p, k in zip(padded, cell, strict=True)]
        costs = [
            sum(not lo < v <= up for v, lo, up in zip(middle, low, high, strict=True)) - feas
            for low, high, feas in zip(rules.lower, rules.upper, rules.feasibility, strict=True)
        ]
        best[cell] = int(np.argmin(costs))
    rows = np.random.default_rng(7).random((1000, 2)).astype(np.float32)
    rows = rows[~moons_like(rows)]
    cells = [
        tuple(int(np.searchsorted(e, v)) for e, v in zip(edges, r, strict=True)) for r in rows
    ]
    exhaustive = np.array([best[c] for c in cells])
    wrong = cheapest_rules(state.reach, rows) != exhaustive
    deviation.rows(wrong, oracle="exhaustive grid")
    told = state.metarules.rule[state.metarules.part_of(rows)]
    assert (told == exhaustive).mean() >= 0.99
    assert explanation.logs["metarule_agreement"] >= 0.99


def test_metarules_partition_the_space_along_bounds_of_rules(deviation):
    method = fitted(moons_like, PLANE)
    state = method.explanation(1).state
    parts = state.metarules
    member = inside(PLANE, parts.lower, parts.upper)
    wrong = (member.sum(0) != 1) | (member.argmax(0) != parts.part_of(PLANE))
    deviation.rows(wrong, oracle="a partition")
    for j in range(2):
        known = np.r_[state.rules.lower[:, j], state.rules.upper[:, j], -np.inf, np.inf]
        assert np.isin(np.r_[parts.lower[:, j], parts.upper[:, j]], known).all()
    table = method.metarules(1)
    assert len(table) == len(parts)
    assert table["coverage"].sum() == pytest.approx(1)


# -- (v) the size -----------------------------------------------------------------------------


@pytest.mark.parametrize("leaves", [3, 8, None])
def test_one_tree_gives_at_most_as_many_rules_as_leaves(leaves):
    method = fitted(moons_like, PLANE, max_leaf_nodes=leaves)
    grown = method.surrogates_[0].at(0.02, Budget()).leaves
    assert len(rules_of(method)) + len(rules_of(method, 0)) <= grown
    assert leaves is None or grown <= leaves


# -- (vi) clipping ----------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["binary_numeric", "mixed", "three_classes", "regression"])
def test_clipping_always_ends_inside_the_rule(problem, deviation):
    p = PROBLEMS[problem]()
    target = 0.7 if p.target is None else p.target
    method = p.fitted(TCREx, n_trees=5)
    state = method.explanation(target).state
    x = torch.as_tensor(p.x_train)
    region = Region.around(p.space, x)
    costs = state.reach.costs(region)
    row, rule = costs.isfinite().nonzero(as_tuple=True)
    assert len(row) > 100
    clipped = state.reach.clip(region.select(row), rule)
    deviation.rows(~state.reach.contains(clipped, rule), oracle="box of the rule")
    assert region.select(row).contains(clipped).all()
    changed = state.reach.outside(x[row], rule)
    moved = (clipped != x[row])[:, [f.columns[0] for f in p.space.numeric_features]]
    numbers = [i for i, f in enumerate(p.space) if not f.is_categorical]
    assert torch.equal(moved, changed[:, numbers])


def test_costs_equal_a_loop_with_categories_and_constraints(deviation):
    p = PROBLEMS["mixed"]()
    method = p.fitted(TCREx, n_trees=5)
    state = method.explanation(1).state
    rules, x = state.rules, p.x_train[:60]
    costs = state.reach.costs(Region.around(p.space, x)).numpy()
    for i, k in itertools.product(range(len(x)), range(len(rules))):
        count, stuck = 0, False
        for f in p.space:
            c = list(f.columns)
            low, high, v = rules.lower[k, c], rules.upper[k, c], x[i, c]
            if ((v > low) & (v <= high)).all():
                continue
            count += 1
            levels = np.eye(3)[[p.space["job"].categories.index(a) for a in ("b", "c")]]
            if f.is_categorical:
                stuck |= not any(((o > low) & (o <= high)).all() for o in levels)
            else:
                below = v[0] <= low[0]
                stuck |= not f.mutable or f.direction == ("down" if below else "up")
        expected = np.inf if stuck else count - rules.feasibility[k]
        expected += rules.tier[k] * (len(p.space) + 1)
        if np.isfinite(expected):
            deviation.absolute(costs[i, k], expected, oracle="plain loops", limit=1e-6)
        assert np.isfinite(costs[i, k]) == np.isfinite(expected)


def test_two_forced_categories_are_out_of_reach(deviation):
    space = FeatureSpace(
        (Feature(name="c", kind="categorical", columns=(0, 1, 2), categories=("a", "b", "c")),)
    )
    lower = np.array([[0.5, 0.5, -np.inf], [0.5, -np.inf, -np.inf]], dtype=np.float32)
    some = np.array([0.5, 0.5])
    rules = Boxes(
        lower=lower, upper=np.full_like(lower, np.inf), feasibility=some, accuracy=some,
        tier=np.zeros(2, dtype=int), tau=0.9, rho=0.1,
    )  # fmt: skip
    x = torch.eye(3)
    costs = Reach.of(rules, x, space).costs(Region.around(space, x))
    assert costs[:, 0].isinf().all()
    deviation.absolute(costs[:, 1], [-0.5, 0.5, 0.5], oracle="by hand", limit=1e-7)


# -- completion -------------------------------------------------------------------------------


def test_completions_change_no_more_than_they_must(deviation):
    method = fitted(moons_like, PLANE, n_rules=1)
    rows = PLANE[~moons_like(PLANE)][:100]
    for how in ("clip", "interior", "donor"):
        method.set_params(completion=how)
        result = method.explain(rows, 1)
        have = result.has_candidate
        state = method.explanation(1).state
        rule = result.cf_group_ids[have] - 10_000
        assert state.reach.contains(torch.as_tensor(result.x_cfs[have]), rule).all()
        if how == "donor":
            assert result.found.all()
        else:
            must = state.reach.outside(torch.as_tensor(rows[have]), rule).numpy()
            wrong = (rows[have] != result.x_cfs[have]) != must
            deviation.rows(wrong.any(1), oracle="features outside the box")


def test_smooth_models_need_more_than_clipping():
    """On a linear model clipping answers less than half of the rows, donors answer all."""
    rng = np.random.default_rng(5)
    x = rng.random((1500, 6)).astype(np.float32)
    linear = fitted(lambda x: x.sum(1) > 3.4, x, completion="clip", n_rules=1)
    rows = x[x.sum(1) <= 3.4][:200]
    assert linear.explain(rows, 1).found.mean() < 0.5
    linear.set_params(completion="donor")
    assert linear.explain(rows, 1).found.all()


@pytest.mark.parametrize("order", ["gain", "difference"])
@pytest.mark.parametrize("width", [20, 150])
def test_the_shortest_prefix_is_found(width, order, deviation):
    """Rows copy just as many values of their donor as the class needs."""
    needed = width // 3
    x = np.repeat([0.0, 1.0], 50)[:, None].repeat(width, 1).astype(np.float32)
    method = fitted(lambda x: x.sum(1) > needed - 0.5, x, order=order)
    result = method.explain(x[:3], 1)
    assert result.found.all()
    told = {"oracle": "number of features needed", "limit": 0, "unit": "features"}
    deviation.absolute(result.x_cfs.sum(1), needed, **told)


def test_metarule_groups_answer_by_their_rule_alone():
    method = fitted(moons_like, PLANE, groups="metarule")
    explanation = method.explanation(1)
    rows = PLANE[~moons_like(PLANE)][:80]
    result = method.explain(rows, 1)
    assert result.found.all()
    state = explanation.state
    for unit in explanation:
        mine = torch.as_tensor(result.x_cfs[result.cf_group_ids == unit.id])
        rule = torch.full((len(mine),), unit.details["rule"])
        assert state.reach.contains(mine, rule).all()
    np.testing.assert_array_equal(
        [explanation[i].details["rule"] for i in result.cf_group_ids],
        state.metarules.rule[state.metarules.part_of(rows)],
    )


# -- relaxation, words and bad input ----------------------------------------------------------


def test_tau_is_relaxed_and_told():
    noise = np.random.default_rng(2).random((1000, 2)).astype(np.float32)
    noisy = lambda x: (np.sin(1e4 * x[:, 0]) + 1.4 * (x[:, 1] - 0.5)) > 0  # noqa: E731
    method = fitted(noisy, noise, tau_floor=0.3)
    explanation = method.explanation(1)
    assert 0.3 <= explanation.logs["tau_effective"] < 0.9
    assert explanation.logs["rho_effective"] == 0.02
    result = method.explain(noise[~noisy(noise)][:50], 1)
    assert result.logs["tau_effective"] == explanation.logs["tau_effective"]
    assert result.found.mean() >= 0.95


def test_rho_is_halved_for_a_rare_target():
    x = np.random.default_rng(3).random((3000, 2)).astype(np.float32)
    method = fitted(lambda x: (x < 0.12).all(1), x)
    explanation = method.explanation(1)
    assert explanation.logs["rho_effective"] < 0.02
    assert explanation.logs["tau_effective"] >= 0.85
    assert method.explain(x[(x > 0.3).any(1)][:50], 1).found.all()


def test_bounds_of_integers_and_categories_are_worded():
    space = FeatureSpace(
        (
            Feature(name="age", kind="integer", columns=(0,), lower=0, upper=10, step=1),
            Feature(name="job", kind="categorical", columns=(1, 2), categories=("x", "y")),
        )
    )
    rng = np.random.default_rng(4)
    job = rng.integers(0, 2, 500)
    x = np.column_stack([rng.integers(0, 11, 500), 1 - job, job]).astype(np.float32)
    method = fitted(lambda x: (x[:, 0] > 3) & (x[:, 2] > 0.5), x, space=space)
    (unit,) = method.explanation(1)
    assert [str(t) for t in unit.effects] == ["age > 3.0", "job = y"]
    told = json.loads(method.explanation(1).to_json())
    assert told["units"][0]["effects"][0] == {"feature": "age", "operator": ">", "value": 3.0}
    assert "go to age > 3.0, job = y" in str(method.explanation(1))
    assert list(method.explanation(1).to_frame()["then"]) == ["age > 3.0, job = y"]


def holds(term, frame):
    values = frame[term.feature]
    if term.operator in ("=", "!=", "in"):
        labels = term.value if term.operator == "in" else (term.value,)
        inside = values.isin(labels)
        return ~inside if term.operator == "!=" else inside
    if values.dtype == object or str(values.dtype) in ("category", "str", "string"):
        order = list(MIXED.space[term.feature].categories)
        rank = values.map({label: i for i, label in enumerate(order)}).astype(int)
        bound = order.index(term.value)
        return rank <= bound if term.operator == "<=" else rank > bound
    if term.operator == "between":
        return (values > term.value[0]) & (values <= term.value[1])
    return values <= term.value if term.operator == "<=" else values > term.value


MIXED = load_dataset("mixed").split()


def test_words_in_original_units_mean_what_the_boxes_mean(deviation):
    model = LogisticRegression().fit(MIXED.train.X, MIXED.train.y, space=MIXED.space)
    method = TCREx(model, n_trees=10).fit(MIXED)
    explanation = method.explanation(MIXED.target.classes[1])
    rules = explanation.state.rules
    assert len(rules) >= 3
    member = inside(MIXED.test.X, rules.lower, rules.upper)
    for unit, rows in zip(explanation, member, strict=True):
        told = np.ones(len(rows), dtype=bool)
        for term in unit.effects:
            told &= holds(term, MIXED.test.frame).to_numpy(dtype=bool)
        deviation.rows(told != rows, oracle="membership of encoded rows")
    assert explanation.logs["held_out_source"] == "held-out rows"
    hit = model.predict_proba(MIXED.test.X).argmax(1) == 1
    expected = (member & hit).sum() / member.sum()
    assert explanation.logs["held_out_accuracy"] == pytest.approx(expected)


def test_assign_equals_explain(deviation):
    p = PROBLEMS["mixed"]()
    method = p.fitted(TCREx)
    direct = method.explain(p.x, 1)
    told = method.explanation(1).assign(p.x)
    np.testing.assert_array_equal(direct.x_cfs, told.x_cfs)
    gap = (told.x_cfs - direct.x_cfs)[direct.found]
    deviation.absolute(gap, 0, oracle="explain", limit=0)
    np.testing.assert_array_equal(direct.cf_group_ids, told.cf_group_ids)


def test_rows_behind_immutable_faces_get_rules_of_their_own(deviation):
    """Rows behind immutable faces get rules of their own and keep the immutable value."""
    x = np.random.default_rng(6).random((1500, 3)).astype(np.float32)
    space = FeatureSpace.continuous(3).with_changes(x0={"mutable": False})
    rule = lambda x: 3 * (x[:, 0] > 0.5) + x[:, 1] + x[:, 2] > 3 - 1.3 * (x[:, 1] > 0.8)  # noqa: E731
    rows = x[~rule(x) & (x[:, 0] < 0.5)][:40]
    sparse = fitted(rule, x, space=space, actionable=False, tau_floor=0.3)
    full = fitted(rule, x, space=space, tau_floor=0.3)
    lost, result = sparse.explain(rows, 1).found.mean(), full.explain(rows, 1)
    assert result.found.mean() >= lost
    moved = result.x_cfs[result.found][:, 0] != rows[result.found][:, 0]
    deviation.rows(moved, oracle="own immutable value")
    assert full.explanation(1).logs["out_of_reach"] == 0


def test_regression_targets_are_intervals():
    p = PROBLEMS["regression"]()
    method = p.fitted(TCREx)
    for wanted in (0.3, 0.62, -0.01):
        key = int(method._key_of(torch.tensor([[wanted]]), torch.zeros(1, 1))[0])
        assert key >= 0
        assert abs(method._value(key) - wanted) <= 0.025 + 1e-9
    result = method.explain(p.x_train, 0.62)
    assert result.found.sum() >= 0.9 * (result.status != "not_applicable").sum()
    assert np.abs(p.model.predict(result.x_cfs[result.found]) - 0.62).max() <= 0.05
    assert method.explanation(0.62).target == pytest.approx(0.6)


@pytest.mark.parametrize("x", [PLANE, PLANE[:, :1]])
def test_hopeless_inputs_give_a_reason(x):
    constant = fitted(lambda x: np.zeros(len(x)), x)
    result = constant.explain(x[:5], 1)
    assert set(result.status) == {"not_found"}
    assert "no training row" in str(constant.explanation(1))
    assert not len(constant.explanation(0))
    assert constant.explanation(0).reason
    with pytest.raises(ConfigError, match="no metarules"):
        constant.metarules(1)


def test_bad_settings_are_refused():
    for bad in ({"tau": 0.0}, {"rho": 2.0}, {"completion": "best"}, {"n_rules": 0}):
        with pytest.raises(ConfigError):
            fitted(moons_like, PLANE, **bad)


def test_thousands_of_columns():
    """All rows with 1500 columns are found within a minute."""
    x = np.random.default_rng(8).random((300, 1500)).astype(np.float32)
    method = fitted(lambda x: x[:, 7] > 0.6, x, time_limit=60)
    assert method.explain(x[x[:, 7] < 0.5][:20], 1).found.all()


def test_limits_are_told():
    """An explanation that max_rules cut says so."""
    method = fitted(moons_like, PLANE, n_trees=10, max_rules=1)
    assert method.explanation(1).budget_hit
    assert len(method.explanation(1)) == 1


@pytest.mark.data
@pytest.mark.parametrize("name", ["law", "german_credit"])
def test_real_data(name):
    """At least 95 % of test rows of Law and German Credit are found."""
    if not os.environ.get("CEL_DATA"):
        pytest.skip("CEL_DATA does not name a folder with the data files")
    split = load_dataset(name, binary=True).split()
    model = LogisticRegression().fit(split.train.X, split.train.y, space=split.space)
    method = TCREx(model).fit(split)
    wanted = split.target.desired_position
    rows = split.test.X[model.predict_proba(split.test.X).argmax(1) != wanted]
    result = method.explain(rows, split.target.desired)
    assert result.found.mean() >= 0.95
    assert result.logs["held_out_accuracy"] >= 0.85


# -- the imitation of the printed tables ---------------------------------------------------------


def test_mirrored_boxes_leave_a_separable_line_where_it_is():
    """One threshold on one axis: every row lies in the mirrored box of the other class."""
    line = np.linspace(0, 1, 101, dtype=np.float32)[:, None]
    settings = {"completion": "clip", "n_rules": 1, "confidence": 0.0, "max_leaf_nodes": 8}
    rows = line[line[:, 0] <= 0.45]

    def answers(bounds):
        method = fitted(lambda x: x[:, 0] > 0.455, line, bounds=bounds, **settings)
        rules = rules_of(method)
        ends = np.round(np.column_stack([rules.lower, rules.upper]).astype(float), 3)
        return method.explain(rows, target=1), set(map(tuple, ends.tolist()))

    (right, one), (mirrored, both) = answers("tree"), answers("mirrored")
    assert (right.status == "found").all()
    assert (mirrored.status == "not_found").all(), "every row stays, which is no answer"
    assert one == {(0.455, np.inf)}
    assert both == {(0.455, np.inf), (-np.inf, 0.455)}, "of either class"


def test_mirrored_boxes_ask_no_class():
    method = fitted(depth_three, GRID, bounds="mirrored", confidence=0.0, max_leaf_nodes=8)
    rules = rules_of(method)
    assert (rules.accuracy == 1).all()
    member = np.array(brute_members(rules, GRID[:300]))
    assert member.any()
    truth = depth_three(GRID[:300])
    assert any(truth[m].mean() < 0.5 for m in member if m.any()), "boxes of the other class count"
