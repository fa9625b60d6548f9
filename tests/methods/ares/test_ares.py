"""AReS against enumeration, planted rules and its own definitions."""

import os
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch

from cel.cf_methods.explanations.edits import Price
from cel.cf_methods.global_methods import AReS
from cel.cf_methods.global_methods.ares.comparisons import bradley_terry, feature_costs
from cel.cf_methods.global_methods.ares.conditions import (
    Conditions,
    count,
    feature_edges,
    if_items,
    inner_conditions,
    outer_conditions,
    pack,
    unpack,
)
from cel.cf_methods.global_methods.ares.rule_list import _changes, rule_objective
from cel.cf_methods.global_methods.ares.selection import (
    RuleLimits,
    SetFunction,
    exchange,
    lazy_greedy,
)
from cel.cf_methods.global_methods.ares.triples import build_triples
from cel.errors import ConfigError
from cel.protocols import Status
from cel.search import Budget
from cel.space import Feature, FeatureSpace
from cel.testing import ScoreModel


def binary_space(p):
    return FeatureSpace(
        tuple(
            Feature(
                name=f"b{i}", kind="categorical", columns=(2 * i, 2 * i + 1), categories=(0, 1)
            )
            for i in range(p)
        )
    )


def one_hot(bits):
    """(n, p) zeros and ones -> (n, 2p)."""
    return np.stack([1 - bits, bits], -1).reshape(len(bits), -1).astype(np.float32)


def binary_problem(seed, **settings):
    """Three binary features, a random labelling, affected rows of class 0."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=8)
    table[rng.integers(8)] = 5.0
    table[rng.integers(8)] = -5.0
    weights = 2 ** np.arange(3)

    def score(X):
        return table[(X[:, 1::2] > 0.5).astype(int) @ weights]

    X = one_hot(rng.integers(0, 2, (40, 3)))
    method = AReS(ScoreModel(score), space=binary_space(3), **settings).fit(X)
    rows, target = method._affected(1, method.train_)
    problem = method._problem(1, method.train_.x[rows], target[rows], Budget())
    return method, problem


def objective_of(method, problem):
    changes, conditions, _ = _changes(method, problem)
    outer = outer_conditions(conditions, support=0.01, length=1, limit=200)
    triples = build_triples(
        changes, conditions, outer, width=method.max_width, penalty=0.0, per_change=50
    )
    return rule_objective(method, problem, triples, changes), triples


@pytest.mark.parametrize("objective", ["accuracy", "original"])
@pytest.mark.parametrize("seed", range(6))
def test_greedy_and_exchange_are_near_the_enumerated_optimum(seed, objective, deviation):
    """Greedy and exchange reach at least 1 - 1/e of the best pair of rules."""
    method, problem = binary_problem(seed, objective=objective, max_rules=2)
    assert len(problem.query), "this labelling affects nobody; take another seed"
    function, triples = objective_of(method, problem)
    limits = RuleLimits(rules=2, groups=10)
    chosen, cut = exchange(function, lazy_greedy(function, limits), limits)
    sets = [[], *([i] for i in range(len(triples)))]
    sets += [list(s) for s in combinations(range(min(len(triples), 150)), 2)]
    best = max(function(s) for s in sets if function.fits(s, limits))
    floor = function([])
    assert not cut
    assert function(chosen) - floor >= (1 - 1 / np.e) * (best - floor) - 1e-9
    short = (best - function(chosen)) / (best - floor) if best > floor else 0.0
    oracle = "all pairs of rules"
    deviation(short, oracle=oracle, limit=1 / np.e, unit="missing share of the gain")


@pytest.mark.parametrize("objective", ["accuracy", "original"])
def test_the_objective_is_submodular(objective, deviation):
    method, problem = binary_problem(3, objective=objective)
    function, triples = objective_of(method, problem)
    rng = np.random.default_rng(0)
    for _ in range(300):
        large = rng.choice(len(triples), size=min(6, len(triples) - 1), replace=False).tolist()
        small, new = large[:3], int(rng.integers(len(triples)))
        if new in large:
            continue
        gain_small = function([*small, new]) - function(small)
        gain_large = function([*large, new]) - function(large)
        more = gain_large - gain_small
        deviation(more, oracle="submodularity", limit=1e-9, unit="gain of the larger set")
        assert function(small) >= 0


@pytest.mark.parametrize("objective", ["accuracy", "original"])
def test_the_objective_is_its_definition(objective, deviation):
    """The objective of random rule sets equals its definition, computed row by row."""
    method, problem = binary_problem(1, objective=objective, feature_costs={"b0": 2.0, "b1": 0.5})
    function, triples = objective_of(method, problem)
    n = len(problem.query)
    changes, _, _ = _changes(method, problem)
    cost = changes.tried.cost.double().numpy()
    rng = np.random.default_rng(0)
    for _ in range(20):
        chosen = rng.choice(len(triples), size=3, replace=False).tolist()
        right = unpack(triples.right[chosen], n)
        covered = unpack(triples.covered[chosen], n)
        price = cost[triples.change[chosen]]
        if objective == "accuracy":
            top = 10 * method.max_width
            least = np.where(right, price, top).min(0)
            want = 100 * right.any(0).mean() + 10 * (top - least).mean()
        else:
            touched = {"b0": 2.0, "b1": 0.5, "b2": 0.0}
            sets = [changes.sets[triples.change[i]] for i in chosen]
            fee = sum(touched[f"b{t.feature}"] for s in sets for t in s)
            change = sum(p[c].mean() for p, c in zip(price, covered, strict=True))
            wrong = (covered & ~right).sum()
            size = method.max_rules * method.max_width
            top = n * method.max_rules + (2.0 + problem.price.largest) * size
            want = top - wrong + covered.any(0).sum() - fee - change
        deviation.relative(function(chosen), want, oracle="definition", limit=1e-9)


def test_lazy_greedy_equals_plain_greedy(deviation):
    rng = np.random.default_rng(0)
    values = rng.random((60, 30)) * (rng.random((60, 30)) < 0.3)
    own = -rng.random(60)
    function = SetFunction(
        own=own, values=lambda i: values[i], rows=30, group=rng.integers(0, 5, 60)
    )
    limits = RuleLimits(rules=8, groups=3)
    chosen: list[int] = []
    while True:
        options = [
            (function([*chosen, i]) - function(chosen), -i)
            for i in range(60)
            if i not in chosen and function.fits([*chosen, i], limits)
        ]
        if not options or max(options)[0] <= 0:
            break
        chosen.append(-max(options)[1])
    lazy = lazy_greedy(function, limits)
    assert lazy == chosen
    deviation.rows(len(set(lazy) ^ set(chosen)), oracle="plain greedy", unit="wrong rules")


SPACE = FeatureSpace(
    (
        Feature(name="x1", columns=(0,)),
        Feature(name="x2", columns=(1,)),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("a", "b", "d")),
    )
)


def mixed_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    level = np.eye(3)[rng.integers(0, 3, n)]
    return np.hstack([rng.random((n, 2)), level]).astype(np.float32)


def planted(X):
    """Class 1 exactly where x1 > 0.7 and c = b."""
    return 4.0 * np.minimum(10 * (X[:, 0] - 0.7), np.where(X[:, 3] > 0.5, 1.0, -1.0))


def needs_both(X):
    """1 where b (column 0) > 0.7 and c is its first level; u is noise."""
    return np.where((X[:, 0] > 0.7) & (X[:, 1] > 0.5), 1.0, -1.0)


def test_rows_in_the_bin_of_the_new_value_need_no_other_change():
    """Of a bin across the threshold, the part below the new value can be sent there alone."""
    rng = np.random.default_rng(3)
    c, u = np.eye(2)[rng.integers(0, 2, 300)], np.eye(2)[rng.integers(0, 2, 300)]
    X = np.hstack([rng.random((300, 1)), c, u]).astype(np.float32)
    space = FeatureSpace((
        Feature(name="b", columns=(0,)),
        Feature(name="c", kind="categorical", columns=(1, 2), categories=("c1", "c2")),
        Feature(name="u", kind="categorical", columns=(3, 4), categories=("u1", "u2")),
    ))  # fmt: skip
    method = AReS(ScoreModel(needs_both), space=space).fit(X)
    rows = X[needs_both(X) < 0]
    result = method.explain(rows, 1)
    assert result.found.all()
    np.testing.assert_array_equal(result.x_cfs[:, 3:], rows[:, 3:])


def test_a_planted_rule_is_found_exactly():
    X = mixed_rows(600)
    method = AReS(ScoreModel(planted), space=SPACE, max_rules=1, weights=(1.0, 0.0)).fit(X)
    (rule,) = method.explanation(1).units
    effects = {t.feature: t.value for t in rule.effects}
    assert set(effects) == {"x1", "c"}
    assert effects["c"] == "b"
    assert effects["x1"] > 0.7
    # A rule leaves out who has one of the two already; a second one is meant for them.
    method = AReS(ScoreModel(planted), space=SPACE, max_rules=2, weights=(1.0, 0.0)).fit(X)
    assert method.explanation(1).validity == 1.0
    for unit in method.explanation(1):
        assert all(t.value == "b" if t.feature == "c" else t.value > 0.7 for t in unit.effects)
    result = method.explain(mixed_rows(200, seed=1), 1)
    assert result.found[result.explained].all()


def test_accuracy_does_not_fall_with_more_rules(deviation):
    X = mixed_rows(400)

    def rough(Z):
        return np.sin(9 * Z[:, 0]) + np.cos(7 * Z[:, 1]) + Z[:, 3] - 1.2

    shares = [
        AReS(ScoreModel(rough), space=SPACE, max_rules=e1, max_changes=1, weights=(1.0, 0.0))
        .fit(X)
        .explanation(1)
        .validity
        for e1 in (1, 2, 4, 8, 16)
    ]
    fall = [a - b for a, b in pairwise(shares)]
    deviation(fall, oracle="monotone in the rules", limit=1e-12, unit="fall of the share")


def _by_hand(method, X):
    """Apply every rule to every row: (matches, flips, costs), each (rules, n)."""
    explanation = method.explanation(1)
    state = explanation.state
    price = Price.of(method.space_, method.train_.x)
    matches, flips, costs = [], [], []
    for items, number in zip(state.conditions, range(len(explanation)), strict=True):
        held = np.ones(len(X), dtype=bool)
        for item in items:
            held &= item.holds(X, method.space_.features[item.feature])
        edit = state.edits.select([number])
        new = torch.where(edit.fixed, edit.value, torch.as_tensor(X)).numpy()
        matches.append(held)
        flips.append(method.model.predict(new) == 1)
        costs.append(price(torch.as_tensor(X), torch.as_tensor(new)).numpy())
    return np.array(matches), np.array(flips), np.array(costs)


def test_oracle_assignment_is_the_cheapest_rule_that_works(deviation):
    X, new = mixed_rows(400), mixed_rows(150, seed=2)

    def rough(Z):
        return np.sin(9 * Z[:, 0]) + np.cos(7 * Z[:, 1]) + Z[:, 3] - 1.2

    method = AReS(ScoreModel(rough), space=SPACE, max_rules=6, max_changes=2).fit(X)
    result = method.explain(new, 1)
    rows = np.flatnonzero(result.explained)
    matches, flips, costs = _by_hand(method, new[rows])
    works = matches & flips
    deviation.rows(result.found[rows] != works.any(0), oracle="every rule on every row")
    chosen = result.cf_group_ids[rows] - method.explanation(1).units[0].id
    for i in np.flatnonzero(works.any(0)):
        told = {"oracle": "cheapest rule that works", "limit": 1e-6, "unit": "absolute cost"}
        deviation.absolute(costs[chosen[i], i], costs[works[:, i], i].min(), **told)


def test_without_oracle_the_first_matching_rule_answers(deviation):
    X, new = mixed_rows(400), mixed_rows(150, seed=2)
    method = AReS(ScoreModel(planted), space=SPACE, oracle=False, max_rules=5).fit(X)
    result = method.explain(new, 1)
    rows = np.flatnonzero(result.explained)
    matches, flips, _ = _by_hand(method, new[rows])
    first = np.where(matches.any(0), matches.argmax(0), -1)
    chosen = result.cf_group_ids[rows] - method.explanation(1).units[0].id
    wrong = np.where(first >= 0, chosen, -1) != first
    deviation.rows(wrong, oracle="every rule on every row")
    works = flips[first, np.arange(len(rows))]
    assert np.array_equal(result.found[rows], (first >= 0) & works)
    if not works.all():
        assert (result.status[rows][(first >= 0) & ~works] == Status.INVALID.value).all()


@pytest.mark.parametrize("objective", ["accuracy", "original"])
def test_order_of_rows_does_not_matter(objective):
    X = mixed_rows(500)
    order = np.random.default_rng(0).permutation(len(X))
    settings = {"space": SPACE, "max_rules": 4, "objective": objective}
    one = AReS(ScoreModel(planted), **settings).fit(X).explanation(1)
    two = AReS(ScoreModel(planted), **settings).fit(X[order]).explanation(1)
    assert [str(u) for u in one] == [str(u) for u in two]


def test_a_default_rule_answers_everybody():
    X = mixed_rows(400)
    plain = AReS(ScoreModel(planted), space=SPACE, objective="original", max_rules=1).fit(X)
    extra = AReS(
        ScoreModel(planted), space=SPACE, objective="original", max_rules=1, default_rule=True
    ).fit(X)
    assert len(extra.explanation(1)) == len(plain.explanation(1)) + 1
    assert not extra.explanation(1).units[-1].conditions
    result = extra.explain(mixed_rows(100, seed=3), 1)
    assert result.has_candidate[result.explained].all()


def test_shifts_add_the_difference_of_bins():
    X = mixed_rows(500)

    def score(Z):
        return 10 * (Z[:, 0] - 0.6)

    method = AReS(ScoreModel(score), space=SPACE, then="shift", max_rules=6).fit(X)
    explanation = method.explanation(1)
    assert explanation.validity > 0.8
    for unit in explanation:
        amounts = [t for t in unit.effects if t.feature == "x1"]
        assert all(t.operator == "+" for t in amounts)
    result = method.explain(X[:200], 1)
    moved = result.x_cfs[result.found, 0] - result.x_origs[result.found, 0]
    assert len(np.unique(moved.round(4))) <= len(explanation) + 200 * (moved.max() < 0)


def test_monotone_features_keep_their_direction():
    space = SPACE.with_changes(x1={"direction": "down"}, x2={"mutable": False})
    X = mixed_rows(500)

    def score(Z):
        return 8 * (0.4 - Z[:, 0]) + 3 * Z[:, 1] - 1

    method = AReS(ScoreModel(score), space=space).fit(X)
    result = method.explain(X[:200], 1)
    found = result.found
    assert found.any()
    assert (result.x_cfs[found, 0] <= result.x_origs[found, 0]).all()
    assert np.array_equal(result.x_cfs[found, 1], result.x_origs[found, 1])
    touched = {t.feature for u in method.explanation(1) for t in u.effects}
    assert "x2" not in touched


def test_rules_that_are_not_worth_their_costs_are_not_given():
    X = mixed_rows(300)
    method = AReS(
        ScoreModel(planted), space=SPACE, objective="original", weights=(1.0, 1e-6, 0.0, 1.0)
    ).fit(X)
    assert not method.explanation(1).units
    assert "worth" in method.explanation(1).reason


def test_limits_on_size_hold():
    X = mixed_rows(500)
    method = AReS(
        ScoreModel(planted), space=SPACE, objective="original", weights=(5.0, 1.0, 0.0, 0.0),
        max_rules=6, max_width=3, max_groups=2,
    ).fit(X)  # fmt: skip
    explanation = method.explanation(1)
    assert 1 <= len(explanation) <= 6
    widths = [sum(t.operator != "any" for t in u.conditions) for u in explanation]
    assert max(widths) <= 3


def test_packed_rows_are_rows(deviation):
    """Packed bits unpack to the same rows and count the same."""
    rng = np.random.default_rng(0)
    for n in (1, 63, 64, 65, 300):
        rows = rng.random((5, n)) < 0.4
        deviation.rows(unpack(pack(rows), n) != rows, oracle="plain masks", unit="wrong bits")
        assert np.array_equal(count(pack(rows)), rows.sum(1))


def test_subgroups_equal_enumeration(deviation):
    X = mixed_rows(300)
    method = AReS(ScoreModel(planted), space=SPACE).fit(X)
    rows, target = method._affected(1, method.train_)
    problem = method._problem(1, method.train_.x[rows], target[rows], Budget())
    items = if_items(problem, 3)
    conditions = Conditions(problem, items)
    outer = outer_conditions(conditions, support=0.2, length=2, limit=10_000)
    everything = [i for group in items for i in group]
    x, want = problem.query.x.numpy(), {()}
    holds = {i: i.holds(x, SPACE.features[i.feature]) for i in everything}
    want |= {(i,) for i in everything if holds[i].mean() >= 0.2}
    want |= {
        (i, j)
        for i, j in combinations(everything, 2)
        if i.feature < j.feature and (holds[i] & holds[j]).mean() >= 0.2
    }
    oracle = "enumeration"
    deviation.rows(len(set(outer.items) ^ want), oracle=oracle, unit="wrong subgroups")
    assert not outer.cut


@pytest.mark.parametrize("penalty", [0.0, 0.5, 3.0])
def test_rules_kept_of_a_change_are_the_best_of_all_pairs(penalty, deviation):
    """Rows flipped minus the penalty for rows meant in vain, over every inner and outer pair."""
    X = mixed_rows(300)
    method = AReS(ScoreModel(planted), space=SPACE).fit(X)
    rows, target = method._affected(1, method.train_)
    problem = method._problem(1, method.train_.x[rows], target[rows], Budget())
    changes, conditions, _ = _changes(method, problem)
    outer = outer_conditions(conditions, support=0.05, length=1, limit=200)
    triples = build_triples(changes, conditions, outer, width=4, penalty=penalty, per_change=3)
    flips, n, vain = changes.tried.flips.numpy(), len(problem.query), 0
    groups = unpack(outer.bits, n)
    for number, change in enumerate(changes.sets):
        hit, used = flips[number], {t.feature for t in change}
        inner, bits = inner_conditions(conditions, change, pack(hit), penalty=penalty, width=4)
        scores = []
        for condition, covered in zip(inner, unpack(bits, n), strict=True):
            for items, group in zip(outer.items, groups, strict=True):
                size = sum(not i.trivial for i in condition) + len(items)
                both = covered & group
                if size <= 4 and not used & {i.feature for i in items} and (both & hit).any():
                    scores.append((both & hit).sum() - penalty * (both & ~hit).sum())
        kept = np.flatnonzero(triples.change == number)
        covered, right = unpack(triples.covered[kept], n), unpack(triples.right[kept], n)
        assert np.array_equal(right, covered & hit)
        vain += int((covered & ~hit).sum())
        ours = np.sort(right.sum(1) - penalty * (covered & ~right).sum(1))[::-1]
        best = np.sort(scores)[::-1][:3]
        assert len(ours) == len(best)
        if len(best):
            deviation.absolute(ours, best, oracle="all pairs of conditions", limit=1e-9)
    assert vain or penalty


def test_edges_isolate_frequent_values():
    column = np.r_[np.zeros(50), np.linspace(0.1, 1, 50)]
    edges = feature_edges(column, 5)
    assert 0.0 in edges
    assert edges.max() < 1
    assert set(edges) <= set(column)
    assert len(feature_edges(np.zeros(10), 5)) == 0


def test_bradley_terry_has_the_closed_form_of_two(deviation):
    """Bradley-Terry strengths of two features have the ratio of wins."""
    for wins, losses in ((3, 1), (10, 10), (1, 9)):
        strength = bradley_terry(np.array([[0.0, wins], [losses, 0.0]]), prior=1e-9)
        ratio = strength[0] / strength[1]
        deviation.relative(ratio, wins / losses, oracle="wins / losses", limit=1e-7)


def test_bradley_terry_is_stationary(deviation):
    rng = np.random.default_rng(0)
    wins = rng.integers(1, 9, (5, 5)).astype(float)
    np.fill_diagonal(wins, 0)
    s = bradley_terry(wins, prior=1e-12)
    expected = ((wins + wins.T) * s[:, None] / (s[:, None] + s)).sum(1)
    told = {"oracle": "stationarity of the likelihood", "limit": 1e-10}
    deviation.relative(expected, wins.sum(1), **told)


def test_costs_of_unknown_features_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'x1'"):
        feature_costs(SPACE, {"x11": 1.0}, None)
    costs = feature_costs(SPACE, None, [("x1", "x2"), ("x1", "c"), ("c", "x2")])
    assert costs[0] > costs[2] > costs[1]


NAMES = (
    "adult", "audit", "bank_marketing", "blobs", "credit_default", "digits", "german_credit",
    "give_me_some_credit", "heloc", "law", "lending_club", "moons", "wine",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_there_are_candidate_rules_on_every_dataset(name):
    from cel.datasets import load_dataset
    from cel.models.classifiers import LogisticRegression

    if not os.environ.get("CEL_DATA"):
        pytest.skip("CEL_DATA does not say where the files are")
    dataset = load_dataset(name, binary=True)
    split = dataset.split()
    model = LogisticRegression().fit(dataset.train_dataloader())
    explanation = AReS(model, max_rows=300).fit(split).explanation()
    assert explanation.logs["triples"] > 0
    assert 1 <= len(explanation) <= 20
    assert explanation.validity >= 0.9
