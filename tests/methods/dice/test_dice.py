"""DiCE: sets, draws, and what each search needs."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.dice import DiCE
from cel.cf_methods.local_methods.dice.sampling import Sampler, unique_first
from cel.errors import ConfigError, NotFittedError, UnsupportedError
from cel.search import RowStreams
from cel.testing import PROBLEMS, BlackBox

SEARCHES = ("random", "gradient", "kdtree", "genetic")


def mixed(search, **changes):
    problem = PROBLEMS["mixed"]()
    settings = {"method": search, "total_CFs": 4, "max_iter": 100} | changes
    return problem, problem.fitted(DiCE, **settings)


@pytest.mark.parametrize("search", SEARCHES)
def test_members_are_valid_distinct_and_hold_the_answer(search):
    problem, method = mixed(search)
    result = method.explain(problem.x, target=1)
    assert result.found.mean() > 0.5
    for row, (answer, members) in enumerate(zip(result.x_cfs, result.x_sets, strict=True)):
        members = members[~np.isnan(members).any(1)]
        if not result.found[row]:
            assert not len(members)
            continue
        assert (problem.model.predict(members) == 1).all()
        assert len(np.unique(members, axis=0)) == len(members)
        assert (np.abs(members - answer).max(1) < 1e-6).any()


@pytest.mark.parametrize("search", SEARCHES)
def test_the_closest_member_is_put_forward(search, deviation):
    problem, method = mixed(search, posthoc_sparsity=None)
    result = method.explain(problem.x, target=1)
    unit = np.where(method.space_.vector("lower") < 9, 1.0, 1.0)
    numeric = problem.space.numeric_columns
    unit[numeric] = method.mad_.numpy()[numeric]
    distance = (np.abs(result.x_sets - result.x_origs[:, None]) / unit).sum(-1)
    own = (np.abs(result.x_cfs - result.x_origs) / unit).sum(-1)
    rows = result.found
    nearest = np.nanmin(distance[rows], axis=1)
    deviation.relative(own[rows], nearest, oracle="nearest member", limit=1e-6)
    first = mixed(search, select="first", posthoc_sparsity=None)[1].explain(problem.x, target=1)
    members = [s[~np.isnan(s).any(1)] for s in first.x_sets]
    for row in np.flatnonzero(first.found):
        np.testing.assert_allclose(first.x_cfs[row], members[row][0], atol=1e-6)


@pytest.mark.parametrize("search", ["random", "kdtree", "genetic"])
def test_three_searches_need_probabilities_only(search):
    problem = PROBLEMS["binary_numeric"]()
    box = BlackBox(problem.model)
    method = DiCE(box, method=search, total_CFs=4, space=problem.space).fit(problem.x_train)
    result = method.explain(problem.x, target=1)
    assert result.found.all()


def test_what_is_missing_is_named():
    problem = PROBLEMS["binary_numeric"]()
    with pytest.raises(UnsupportedError, match="gradient"):
        DiCE(BlackBox(problem.model), method="gradient", space=problem.space).explain(problem.x)
    with pytest.raises(NotFittedError, match="kdtree"):
        DiCE(problem.model, method="kdtree", space=problem.space).explain(problem.x)
    with pytest.raises(ConfigError, match="'anneal'"):
        problem.fitted(DiCE, method="anneal")
    with pytest.raises(ConfigError, match="at least 1"):
        problem.fitted(DiCE, total_CFs=0).explain(problem.x, target=1)


def test_random_search_works_without_training_rows():
    problem = PROBLEMS["mixed"]()
    method = DiCE(problem.model, total_CFs=5, samples=200, space=problem.space)
    assert method.explain(problem.x, target=1).found.all()


def test_draws_are_uniform_over_what_each_row_can_reach(deviation):
    problem = PROBLEMS["mixed"]()
    x = torch.as_tensor(problem.x[:3])
    region = problem.space.region(x)
    sampler, rows = Sampler.of(region), torch.arange(3)
    copies = x[:, None, :].repeat(1, 20000, 1)
    drawn = sampler.everything(copies, rows, RowStreams.of(x, 0))
    flat = drawn.flatten(0, 1)
    assert region.select(rows.repeat_interleave(20000)).contains(flat).all()
    assert (drawn[..., 6] == x[:, None, 6]).all()  # immutable
    low, high = region.lower[:, 0], region.upper[:, 0]
    mean = drawn[..., 0].mean(1)
    oracle = "mean of the uniform law"
    deviation.absolute(mean, (low + high) / 2, oracle=oracle, limit=0.02)
    age = (drawn[..., 5] / 0.05).round()
    start = (x[:, 5] / 0.05).round()
    torch.testing.assert_close(age.mean(1), (start + 20) / 2, atol=0.3, rtol=0)
    for row in range(3):
        shares = drawn[row, :, 2:5].mean(0)
        open_ = region.reachable[row, 2:5].float()
        oracle = "equal shares of categories"
        deviation.absolute(shares, open_ / open_.sum(), oracle=oracle, limit=0.02)


def test_one_more_feature_changes_per_round(deviation):
    problem = PROBLEMS["mixed"]()
    x = torch.as_tensor(problem.x[:4])
    region = problem.space.region(x)
    sampler, stream = Sampler.of(region), RowStreams.of(x, 0)
    copies = x[:, None, :].repeat(1, 500, 1)
    owner = region.layout.owner
    for number in range(1, 5):
        copies = sampler.change_one(copies, torch.arange(4), stream)
        moved = ((copies - x[:, None, :]).abs() > 1e-6).float()
        changed = torch.zeros(4, 500, len(problem.space)).index_add_(2, owner, moved) > 0
        deviation.rows(changed.sum(-1) > number, oracle="number of rounds", unit="wrong draws")


def test_the_smallest_distinct_keys_come_first():
    """Of repeated keys the smallest distinct ones are kept, in order."""
    keys = torch.tensor([[5, 3, 3, 9, 1], [2, 2, 2, 2, 7]])
    value, index = unique_first(keys, 3)
    assert value[0].tolist() == [1, 3, 5]
    assert index[0].tolist() == [4, 1, 0]
    assert value[1, :2].tolist() == [2, 7]
    assert value[1, 2] == torch.iinfo(torch.int64).max


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_change_is_small_below_the_quantile_and_below_the_mad(share):
    """The threshold of each number is the smaller of the two, and both ways round occur."""
    rng = np.random.default_rng(0)
    rows = (rng.random((200, 3)) ** [1, 3, 0.3]).astype(np.float32)
    problem = PROBLEMS["binary_numeric"]()
    method = problem.build(DiCE, posthoc_sparsity=share).fit(rows)
    away = np.abs(rows - np.median(rows, axis=0)).astype(np.float64)
    mad = np.median(away, axis=0)
    quantile = np.quantile(away, share, axis=0)
    np.testing.assert_allclose(method.small_, np.minimum(quantile, mad), rtol=1e-5)
    if share != 0.5:
        assert ((quantile < mad) == (share < 0.5)).all()
