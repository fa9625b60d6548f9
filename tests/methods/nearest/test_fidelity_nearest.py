"""Nearest instance: brute force, real rows unchanged, sets that are sorted, distinct, diverse."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.nearest import NearestInstance
from cel.space import FeatureSpace
from cel.space.distances import gower, hamming, l2, mad, mad_scale
from cel.testing.problems import PROBLEMS


def distance_to(name, problem, x, rows):
    """Distances of a row to rows by the row-wise functions of `cel.space`."""
    space, many = problem.space, np.repeat(x[None], len(rows), 0)
    labels = hamming(many, rows, space) * len(space.categorical_features)
    if name == "gower":
        return gower(many, rows, space)
    if name == "l2":
        return np.sqrt(l2(many, rows, space) ** 2 + labels)
    if name == "l1_mad":
        return mad(many, rows, space, mad_scale(problem.x_train, space)) + labels
    return mad(many, rows, space, np.ptp(problem.x_train, axis=0)) + labels


def two_origins():
    """The mixed problem with an immutable feature of two values, so that real rows qualify."""
    problem = PROBLEMS["mixed"]()
    train, x = problem.x_train.copy(), problem.x.copy()
    train[:, 6], x[:, 6] = np.round(train[:, 6]), np.round(x[:, 6])
    return replace(problem, x_train=train, x=x[problem.model.predict(x) == 0])


@pytest.mark.parametrize("name", ["heom", "l1_mad", "l2", "gower"])
@pytest.mark.parametrize("projected", [True, False])
def test_the_nearest_rows_equal_brute_force(name, projected, deviation):
    problem = two_origins()
    method = problem.fitted(NearestInstance, k=3, distance=name, projected=projected)
    result = method.explain(problem.x, 1)
    rows = problem.x_train[problem.model.predict(problem.x_train) == 1]
    found = 0
    for i, x in enumerate(problem.x):
        region = problem.space.region(torch.as_tensor(np.repeat(x[None], len(rows), 0)))
        placed = region.snap(torch.as_tensor(rows)).numpy() if projected else rows
        good = region.contains(torch.as_tensor(placed)).numpy()
        good &= problem.model.predict(placed) == 1
        best = np.sort(distance_to(name, problem, x, np.unique(placed[good], axis=0)))[:3]
        members = result.x_sets[i][~np.isnan(result.x_sets[i]).any(1)]
        assert len(members) == len(best)
        found += len(members)
        if len(best):
            cost = distance_to(name, problem, x, members)
            deviation.absolute(cost, best, oracle="brute force over the pool", limit=1e-5)
    assert found > 3


def test_real_rows_are_returned_bit_for_bit(deviation):
    problem = PROBLEMS["binary_numeric"]()
    result = problem.fitted(NearestInstance, projected=False).explain(problem.x, 1)
    known = {r.tobytes() for r in problem.x_train}
    assert result.found.all()
    deviation.rows([r.tobytes() not in known for r in result.x_cfs], oracle="the training rows")


def test_sets_are_sorted_and_distinct():
    problem = PROBLEMS["mixed"]()
    method = problem.fitted(NearestInstance, k=8)
    result = method.explain(problem.x, 1)
    for x, members in zip(problem.x, result.x_sets, strict=True):
        members = members[~np.isnan(members).any(1)]
        away = distance_to("heom", problem, x, members)
        assert (np.diff(away) >= -1e-6).all()
        assert len({m.tobytes() for m in members}) == len(members)


def test_the_order_of_the_pool_does_not_matter():
    problem = PROBLEMS["mixed"]()
    forward = problem.build(NearestInstance).fit(problem.x_train).explain(problem.x, 1)
    backward = problem.build(NearestInstance).fit(problem.x_train[::-1].copy())
    assert np.array_equal(forward.x_cfs, backward.explain(problem.x, 1).x_cfs)


def test_a_row_is_never_its_own_answer():
    problem = PROBLEMS["binary_numeric"]()
    rows = np.concatenate([problem.x_train, problem.x])
    result = problem.build(NearestInstance).fit(rows).explain(problem.x, 1)
    assert (result.x_cfs != problem.x).any(1).all()


def test_no_row_of_the_class_means_not_found_and_says_so():
    problem = PROBLEMS["binary_numeric"]()
    rows = problem.x_train[problem.model.predict(problem.x_train) == 0]
    result = problem.build(NearestInstance).fit(rows).explain(problem.x, 1)
    assert set(result.status) == {"not_found"}
    assert result.logs["why"] == "the model puts no training row into class 1"


def test_diverse_sets_are_farther_apart_and_stay_within_the_slack(deviation):
    problem = PROBLEMS["binary_numeric"]()
    sets = {
        diverse: problem.fitted(NearestInstance, k=4, diverse=diverse).explain(problem.x, 1).x_sets
        for diverse in (False, True)
    }
    width = np.ptp(problem.x_train, axis=0)

    def spread(members):
        gaps = np.abs(members[:, None] - members[None]) / width
        return gaps.sum(-1)[np.triu_indices(len(members), 1)].min()

    near, wide = (np.array([spread(m) for m in sets[d]]) for d in (False, True))
    assert (wide >= near - 1e-6).all()
    plain, away = ((np.abs(sets[d] - problem.x[:, None]) / width).sum(-1) for d in (False, True))
    enough = plain[:, -1] <= 1.5 * plain[:, 0]  # four rows within the slack of a half
    assert enough.sum() >= 5
    assert (wide[enough] > near[enough] + 1e-6).any()
    assert (away[enough] <= 1.5 * plain[enough, :1] + 1e-6).all()
    deviation.absolute(away[:, 0], plain[:, 0], oracle="the nearest row", limit=0)


def test_greedy_max_min_by_hand(deviation):
    """Of rows at 1.0 to 1.4 the farthest from the nearest comes second, not the second nearest."""
    pool = np.array([[0.5, 0.0], [0.55, 0.05], [0.0, 0.6], [0.7, 0.7]], dtype=np.float32)
    problem = PROBLEMS["binary_numeric"]()

    class Always:
        task, classes_, n_outputs_ = problem.task, np.arange(2), 2

        def predict_proba(self, x):
            one = (np.asarray(x).sum(1) > 0.2).astype(float)
            return np.stack([1 - one, one], 1) * 0.98 + 0.01

        def predict(self, x):
            return self.predict_proba(x).argmax(1)

    space = FeatureSpace.continuous(2)
    method = NearestInstance(Always(), space=space, k=2, diverse=True, distance="gower").fit(pool)
    members = method.explain(np.zeros((1, 2), dtype=np.float32), 1).x_sets[0]
    deviation.absolute(members, pool[[0, 2]], oracle="by hand", limit=0)
