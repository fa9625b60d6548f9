"""GLANCE against exhaustive choice, a naive merge, and toys with known answers."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from cel.cf_methods.explanations.edits import Edits, Price, Tried, predict_edits
from cel.cf_methods.group_methods import GLANCE
from cel.cf_methods.group_methods.glance.actions import (
    Judged,
    centroid_query,
    choose,
    extract,
    greedy_actions,
    judge,
    thin,
)
from cel.cf_methods.group_methods.glance.groups import centroid, merge_clusters
from cel.cf_methods.group_methods.glance.subgroups import split_items
from cel.errors import ConfigError, UnsupportedError
from cel.protocols import Status
from cel.search import Budget
from cel.space import Feature, FeatureSpace
from cel.testing import ScoreModel


def band(X):
    """Class 1 between 0.4 and 0.6 of the first column."""
    return 40 * (0.1 - np.abs(X[:, 0] - 0.5))


def two_blobs(n=300, seed=0):
    """Rows left and right of the band, and some inside."""
    rng = np.random.default_rng(seed)
    middle = rng.choice([0.15, 0.85, 0.5], size=n, p=[0.4, 0.4, 0.2])
    return np.stack([middle + 0.02 * rng.normal(size=n), rng.random(n)], 1).astype(np.float32)


def test_two_groups_with_opposite_ways_need_two_actions(deviation):
    X = two_blobs()
    plane = FeatureSpace.continuous(2)
    one = GLANCE(ScoreModel(band), space=plane, n_actions=1).fit(X).explanation(1)
    two = GLANCE(ScoreModel(band), space=plane, n_actions=2).fit(X).explanation(1)
    deviation.absolute(one.validity, 0.5, oracle="share of the larger group", limit=0.1)
    assert two.validity == 1.0
    shifts = sorted(t.value for u in two for t in u.effects if t.feature == "x0")
    assert shifts[0] < -0.2
    assert shifts[-1] > 0.2


@pytest.mark.parametrize("select", ["merge", "greedy"])
def test_effectiveness_does_not_fall_with_more_actions(select, deviation):
    X = two_blobs(500)
    shares = [
        GLANCE(ScoreModel(band), n_actions=s, select=select).fit(X).explanation(1).validity
        for s in (1, 2, 3, 5)
    ]
    fall = [a - b for a, b in pairwise(shares)]
    deviation(fall, oracle="monotone in the actions", limit=1e-12, unit="fall of the share")
    assert shares[-1] == 1.0


def test_one_action_is_the_same_for_everybody(deviation):
    rng = np.random.default_rng(0)
    X = rng.random((400, 3)).astype(np.float32)
    model = ScoreModel(lambda Z: 6 * (Z[:, 0] + 0.5 * Z[:, 1] - 1))
    method = GLANCE(model, n_actions=1).fit(X)
    result = method.explain(X, 1)
    (unit,) = method.explanation(1).units
    assert set(result.cf_group_ids[result.has_candidate]) == {unit.id}
    x, cf = result.x_origs[result.found], result.x_cfs[result.found]
    high = X.max(0)
    free = (cf < high - 1e-6) & (cf > X.min(0) + 1e-6)
    for j in range(3):
        moved = (cf - x)[free[:, j], j]
        spread = np.ptp(moved) if moved.size else 0.0
        deviation(spread, oracle="one action", limit=2e-6, unit="spread of the change")


MIXED = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("x", "y", "z"),
                allowed=("x", "y")),
        Feature(name="n", kind="integer", columns=(4,), step=0.1, direction="up"),
        Feature(name="fixed", columns=(5,), mutable=False),
    )
)  # fmt: skip


def mixed_rows(n, seed=0):
    rng = np.random.default_rng(seed)
    level = np.eye(3)[rng.integers(0, 3, n)]
    steps = rng.integers(0, 11, (n, 1)) / 10
    return np.hstack([rng.random((n, 1)), level, steps, rng.random((n, 1))]).astype(np.float32)


def mixed_score(X):
    return 4 * (2 * X[:, 0] + 1.5 * X[:, 2] + X[:, 4] + 0.7 * X[:, 5] - 3)


def problem_of(method, target=1):
    rows, targets = method._affected(target, method.train_)
    return method._problem(target, method.train_.x[rows], targets[rows], Budget())


@pytest.mark.parametrize("generator", ["nun", "random"])
@pytest.mark.parametrize("variant", ["clusters", "tree"])
def test_actions_set_one_level_and_honour_the_space(generator, variant, deviation):
    X = mixed_rows(400)
    method = GLANCE(
        ScoreModel(mixed_score),
        space=MIXED,
        generator=generator,
        variant=variant,
        initial_clusters=20,
    ).fit(X)
    state = method.explanation(1).state
    fixed, value = state.edits.fixed.numpy(), state.edits.value.numpy()
    block = fixed[:, 1:4]
    assert np.array_equal(block.any(1), block.all(1))
    levels = value[block.any(1), 1:4].sum(1)
    deviation.absolute(levels, 1, oracle="one level is on", limit=0)
    assert (value[:, 3] == 0).all()
    assert (state.edits.shift.numpy()[:, 4] >= 0).all()
    steps = state.edits.shift.numpy()[:, 4] * 10
    assert np.abs(steps - steps.round()).max() < 1e-4
    assert not (state.edits.shift.numpy()[:, 5] != 0).any()
    result = method.explain(mixed_rows(200, seed=1), 1)
    found = result.found
    assert found[result.explained].mean() > 0.9
    assert np.array_equal(result.x_cfs[found, 5], result.x_origs[found, 5])
    assert (result.x_cfs[found, 4] >= result.x_origs[found, 4] - 1e-6).all()
    assert np.allclose(result.x_cfs[found, 1:4].sum(1), 1)


def test_the_chosen_action_is_the_best_of_an_exhaustive_table(deviation):
    X = mixed_rows(250)
    method = GLANCE(ScoreModel(mixed_score), space=MIXED).fit(X)
    problem = problem_of(method)
    rng = np.random.default_rng(0)
    donors = problem.train.x[problem.hit]
    ends = donors[torch.as_tensor(rng.integers(len(donors), size=40))]
    home = centroid(problem.query.x, MIXED)[None].expand(40, -1)
    actions = extract(home, ends, MIXED, problem.price)
    best = choose(judge(problem.query, actions, problem), "max-eff", 0.95)
    table = []
    for i in range(40):
        one = predict_edits(problem.query, actions.select([i]), problem.price)
        flips = one.flips[0]
        table.append((-int(flips.sum()), round(float(one.cost[0][flips].sum()), 3), i))
    assert min(table)[:2] == table[best][:2]
    gap = np.abs(np.subtract(min(table)[:2], table[best][:2]))
    deviation(gap, oracle="exhaustive table", limit=0, unit="rows or cost")


def test_of_equally_effective_actions_the_cheapest_is_chosen():
    """Actions 1 to 3 flip two rows each; the cost of rows that do not flip does not count."""
    flips = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]]) > 0
    cost = torch.tensor([[0.1, 9, 9], [2.0, 2.0, 0.0], [8.0, 1.0, 2.0], [3.0, 1.0, 1.0]])
    tried = Tried(margin=torch.where(flips, 1.0, -1.0), cost=cost)
    judged = Judged(edits=Edits.nothing(4, torch.zeros(1, 2)), tried=tried, screened=False)
    assert choose(judged, "max-eff", 0.9) == 2
    assert choose(judged, "mean-act", 0.9) == 2
    assert choose(judged, "low-cost", 0.6) == 2
    assert choose(judged, "low-cost", 0.3) == 0


def test_low_cost_takes_the_cheapest_that_is_good_enough(deviation):
    X = mixed_rows(250)
    method = GLANCE(ScoreModel(mixed_score), space=MIXED).fit(X)
    problem = problem_of(method)
    donors = problem.train.x[problem.hit][:30]
    home = centroid(problem.query.x, MIXED)[None].expand(len(donors), -1)
    judged = judge(problem.query, extract(home, donors, MIXED, problem.price), problem)
    best = choose(judged, "low-cost", 0.5)
    share = judged.tried.flips.double().mean(1)
    mean = [
        float(judged.tried.cost[i][judged.tried.flips[i]].mean()) if share[i] >= 0.5 else np.inf
        for i in range(len(donors))
    ]
    deviation.relative(mean[best], min(mean), oracle="exhaustive table", limit=1e-5)


def test_greedy_actions_against_enumeration(deviation):
    """Greedy choice flips at least 1 - 1/e of the rows of the best pair of actions."""
    rng = np.random.default_rng(0)
    X = mixed_rows(200)
    method = GLANCE(ScoreModel(mixed_score), space=MIXED).fit(X)
    problem = problem_of(method)
    donors = problem.train.x[problem.hit]
    ends = donors[torch.as_tensor(rng.integers(len(donors), size=15))]
    starts = problem.query.x[torch.as_tensor(rng.integers(len(problem.query), size=15))]
    judged = judge(problem.query, extract(starts, ends, MIXED, problem.price), problem)
    flips = judged.tried.flips
    pairs = [(flips[i] | flips[j]).sum() for i in range(15) for j in range(15)]
    chosen = greedy_actions(judged.tried, 2, problem.price.largest)
    short = 1 - flips[chosen].any(0).sum() / max(pairs)
    oracle = "all pairs of actions"
    deviation(short, oracle=oracle, limit=1 / np.e, unit="missing share of the rows")


def naive_merge(x, labels, points, owners, count, price):
    """Recompute every centroid and every pair at each step."""
    rows = {k: list(np.flatnonzero(labels == k)) for k in range(labels.max() + 1)}
    cfs = {k: list(np.flatnonzero(owners == k)) for k in rows}
    merges = []
    while len(rows) > count:
        small = min(rows, key=lambda k: (len(rows[k]), k))
        gaps = {}
        for other in rows:
            if other != small:
                home = [centroid(x[rows[k]], MIXED) for k in (small, other)]
                aim = [centroid(points[cfs[k]], MIXED) for k in (small, other)]
                gaps[other] = 0.5 * float(price(*home)) + 0.5 * float(price(*aim))
        big = min(gaps, key=lambda k: (gaps[k], k))
        merges.append((small, big))
        rows[big] = sorted(rows[big] + rows.pop(small))
        cfs[big] = sorted(cfs[big] + cfs.pop(small))
    return merges, rows


def test_merging_equals_a_naive_reference(deviation):
    rng = np.random.default_rng(0)
    x = torch.as_tensor(mixed_rows(120)).double()
    points = torch.as_tensor(mixed_rows(60, seed=1)).double()
    price = Price.of(MIXED, x)
    labels = np.r_[np.arange(20), rng.integers(0, 20, 100)]
    owners = np.r_[np.arange(20), rng.integers(0, 20, 40)]
    got = merge_clusters(x, labels, points, owners, 4, MIXED, price)
    merges, rows = naive_merge(x, labels, points, owners, 4, price)
    assert got.merges == merges
    wrong = sum(a != b for a, b in zip(got.merges, merges, strict=True))
    deviation.rows(wrong, oracle="naive merging in cubic time", unit="wrong merges")
    want = {frozenset(map(int, r)) for r in rows.values()}
    have = {frozenset(np.flatnonzero(got.rows == k).tolist()) for k in range(4)}
    assert have == want


def test_thinning_keeps_the_target_and_never_costs_more(deviation):
    X = mixed_rows(300)
    method = GLANCE(ScoreModel(mixed_score), space=MIXED).fit(X)
    problem = problem_of(method)
    query = centroid_query(problem, problem.query.x[:50])
    donors = problem.train.x[problem.hit][:50].clone()
    donors[:, 5] = query.x[:, 5]
    good = torch.as_tensor(method.model.predict(donors) == 1)
    small = thin(query, donors, problem.price)
    assert (method.model.predict(small[good].numpy()) == 1).all()
    dearer = problem.price(query.x, small) - problem.price(query.x, donors)
    deviation(dearer, oracle="donors before", limit=1e-5, unit="absolute cost")
    # Nothing that is left can go back any more, except where an earlier one did.
    owner = query.region.layout.owner
    for f in range(4):
        trial = torch.where(owner == f, query.x, small)
        moved = (trial != small).any(1) & good
        assert (method.model.predict(trial[moved].numpy()) == 0).all()


def test_without_oracle_a_row_takes_the_action_of_its_cluster(deviation):
    X = two_blobs()
    method = GLANCE(ScoreModel(band), n_actions=2, oracle=False).fit(X)
    state = method.explanation(1).state
    result = method.explain(X, 1)
    rows = result.explained
    near = state.bin_cost(state.homes[:, None], torch.as_tensor(X[rows])[None]).argmin(0).numpy()
    first = method.explanation(1).units[0].id
    wrong = result.cf_group_ids[rows] - first != near
    deviation.rows(wrong, oracle="nearest centroid")
    assert result.has_candidate[rows].all()


def test_mean_actions_can_miss_and_say_so():
    X = two_blobs()
    method = GLANCE(ScoreModel(band), n_actions=1, choice="mean-act", oracle=False, goal=0.0).fit(
        X
    )
    result = method.explain(X, 1)
    status = set(result.status[result.explained])
    assert Status.INVALID.value in status


def test_trees_split_each_feature_once_in_a_branch(deviation):
    X = mixed_rows(600)
    method = GLANCE(
        ScoreModel(mixed_score), space=MIXED, variant="tree", split_features=["c", "a", "n"],
        initial_clusters=20, node_actions=1,
    ).fit(X)  # fmt: skip
    explanation = method.explanation(1)
    leaves = {tuple(str(t) for t in u.conditions) for u in explanation}
    assert len(leaves) > 2
    for unit in explanation:
        names = [t.feature for t in unit.conditions]
        assert len(names) == len(set(names))
    # Siblings keep the features that their cousins used: every branch is as deep.
    assert {len(u.conditions) for u in explanation} == {3}
    items = method.explanation(1).state.items
    rows = X[method.model.predict(X) == 0]
    inside = np.array(
        [
            np.logical_and.reduce([i.holds(rows, MIXED.features[i.feature]) for i in leaf])
            for leaf in dict.fromkeys(items)
        ]
    )
    deviation.rows(inside.sum(0) != 1, oracle="a partition")


def test_splits_cover_every_value_once(deviation):
    X = mixed_rows(300)
    problem = problem_of(GLANCE(ScoreModel(mixed_score), space=MIXED).fit(X))
    for feature in range(3):
        for children in (2, 3):
            items = split_items(problem, feature, X, children)
            held = np.array([i.holds(X, MIXED.features[feature]) for i in items])
            deviation.rows(held.sum(0) != 1, oracle="a partition")
            assert 2 <= len(items) <= children


def test_no_target_row_is_a_reason():
    X = mixed_rows(100)
    method = GLANCE(ScoreModel(lambda Z: -5 + 0 * Z[:, 0]), space=MIXED).fit(X)
    assert "no training row has the target" in method.explanation(1).reason
    result = method.explain(X, 1)
    assert not result.has_candidate.any()
    assert result.logs["reason"]


def test_wrong_settings_are_refused():
    X = mixed_rows(50)
    with pytest.raises(ConfigError, match="did you mean 'fixed'"):
        GLANCE(
            ScoreModel(mixed_score), space=MIXED, variant="tree", split_features=["fixd"]
        ).fit(X).explanation(1)  # fmt: skip
    with pytest.raises(UnsupportedError, match="needs logits"):
        GLANCE(ScoreModel(mixed_score), space=MIXED, generator="gradient").fit(X)
    with pytest.raises(ConfigError, match="choice='best' is unknown"):
        GLANCE(ScoreModel(mixed_score), space=MIXED, choice="best").fit(X)
