"""DiCE: sets against exact programs, determinants in closed form, and the limits it promises."""

import time

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cel.cf_methods.local_methods.dice import DiCE
from cel.cf_methods.local_methods.dice_gradient import diversity_of
from cel.cf_methods.local_methods.wachter import Wachter
from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.space.distances import changed_features
from cel.testing.problems import PROBLEMS, ToyModel

SEARCHES = ("random", "gradient", "kdtree", "genetic")
JITTER = MARGIN = 1e-4  # on the diagonal of the kernel; of accepted scores


def linear_problem(d=4, n=80, rows=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((n, d)).astype(np.float32)
    w = np.stack([np.zeros(d), np.array([5, -3, 2, 4, -1, 2, 3, 1][:d])]).astype(np.float32)
    b = np.array([0, -0.5 * w[1].sum() - 0.5], dtype=np.float32)
    model = ToyModel(w, b, Task.CLASSIFICATION)
    return model, x, x[model.predict(x) == 0][:rows]


def sets_of(model, rows, x, **changes):
    space = FeatureSpace.continuous(x.shape[1])
    return DiCE(model, space=space, **changes).fit(rows).explain(x, target=1)


def mad_of(rows):
    rows = rows.astype(np.float64)
    return np.median(np.abs(rows - np.median(rows, axis=0)), axis=0)


def least_objective(model, row, mad, weight):
    """Return min hinge + weight / d sum |delta| / mad over the valid part of the unit box.

    An LP in the ups and downs of the features and the value of the hinge.
    """
    w, b = (t.numpy().astype(np.float64) for t in model.linear_())
    row = row.astype(np.float64)
    slope = w[1] - w[0]
    margin = slope @ row + b[1] - b[0]
    way = np.concatenate([slope, -slope])
    price = weight / len(row) / mad
    bounds = [(0, 1 - v) for v in row] + [(0, v) for v in row] + [(0, None)]
    return linprog(
        np.concatenate([price, price, [1.0]]),
        A_ub=np.stack([np.append(-way, -1.0), np.append(-way, 0.0)]),
        b_ub=[margin - 1.0, margin - MARGIN],
        bounds=bounds,
    ).fun


def pairwise_distance(sets, mad):
    """Return the mean MAD distance (n,) between members."""
    k = sets.shape[1]
    gaps = (np.abs(sets[:, :, None] - sets[:, None]) / mad).sum(-1)
    return gaps.sum((1, 2)) / (k * (k - 1))


@pytest.mark.parametrize(("weight", "excess"), [(4.0, 1e-3), (0.5, 0.05)])
def test_one_member_without_diversity_has_the_least_objective(weight, excess):
    """Convex for a linear model. At the light weight of the paper the optimum is flat."""
    model, rows, x = linear_problem()
    mad = mad_of(rows)
    result = sets_of(
        model, rows, x, method="gradient", total_CFs=1, diversity_weight=0.0,
        proximity_weight=weight, posthoc_sparsity=None, max_iter=1500,
    )  # fmt: skip
    assert result.found.all()
    cf = result.x_cfs.astype(np.float64)
    w, b = (t.numpy().astype(np.float64) for t in model.linear_())
    hinge = np.maximum(0, 1 - (cf @ w.T + b) @ [-1, 1])
    value = hinge + weight / x.shape[1] * (np.abs(cf - x) / mad).sum(1)
    optimum = np.array([least_objective(model, row, mad, weight) for row in x])
    assert (value >= optimum * (1 - 1e-5)).all()
    assert (value <= optimum * (1 + excess)).all()


def test_one_member_without_diversity_is_wachter_up_to_the_margin_of_the_hinge():
    """The hinge asks for margin 1, where Wachter stops at the boundary."""
    model, rows, x = linear_problem()
    mad = mad_of(rows)
    # As if the boundary were at margin 1: what is nearest there is what the hinge asks for.
    moved = model.bias.numpy() - np.array([0, 1], dtype=np.float32)
    shifted = ToyModel(model.weights.numpy(), moved, Task.CLASSIFICATION)
    wachter = Wachter(shifted, space=FeatureSpace.continuous(x.shape[1])).fit(rows)
    theirs = wachter.explain(x, target=1).x_cfs
    ours = sets_of(
        model, rows, x, method="gradient", total_CFs=1, diversity_weight=0.0,
        proximity_weight=4.0, posthoc_sparsity=None, max_iter=1500,
    )  # fmt: skip
    distances = [(np.abs(v - x) / mad).sum(1) for v in (ours.x_cfs, theirs)]
    np.testing.assert_allclose(*distances, rtol=0.02)
    np.testing.assert_allclose(ours.x_cfs, theirs, atol=0.01)


def test_members_drift_apart_as_diversity_weighs_more():
    model, rows, x = linear_problem()
    mad = mad_of(rows)
    spreads = []
    for weight in (0.0, 0.5, 1.0, 5.0):
        result = sets_of(
            model, rows, x, method="gradient", total_CFs=4, diversity_weight=weight,
            posthoc_sparsity=None, max_iter=500,
        )  # fmt: skip
        assert not np.isnan(result.x_sets).any()
        spreads.append(pairwise_distance(result.x_sets, mad).mean())
    assert (np.diff(spreads) >= -1e-3 * np.array(spreads[1:])).all()
    assert spreads[-1] > 2 * spreads[0]


def test_members_come_nearer_as_proximity_weighs_more():
    model, rows, x = linear_problem()
    mad = mad_of(rows)
    distances = []
    for weight in (0.0, 0.1, 0.5, 2.0):
        result = sets_of(
            model, rows, x, method="gradient", total_CFs=3, proximity_weight=weight,
            posthoc_sparsity=None, max_iter=500,
        )  # fmt: skip
        assert not np.isnan(result.x_sets).any()
        gap = (np.abs(result.x_sets - x[:, None]) / mad).sum(-1)
        distances.append(gap.mean())
    assert (np.diff(distances) <= 1e-2 * np.array(distances[:-1])).all()
    assert distances[-1] < 0.9 * distances[0]


def test_the_determinant_of_two_and_three_members_is_the_closed_form():
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64)
    pair = torch.tensor([[[0.0, 0.0], [0.5, 0.25]]], dtype=torch.float64)  # distance 1
    expected = (1 + JITTER) ** 2 - 0.5**2
    assert float(diversity_of(pair, weight, "dpp")) == pytest.approx(expected, rel=1e-12)
    assert float(diversity_of(pair, weight, "logdet")) == pytest.approx(np.log(expected))
    assert float(diversity_of(pair, weight, "avg_dist")) == pytest.approx(0.5)
    three = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [3.0, 0.0]]], dtype=torch.float64)
    a, b, c, e = 1 / 2, 1 / 4, 1 / 3, 1 + JITTER
    expected = e**3 + 2 * a * b * c - e * (a**2 + b**2 + c**2)
    assert float(diversity_of(three, weight, "dpp")) == pytest.approx(expected, rel=1e-12)
    assert float(diversity_of(three, weight, "avg_dist")) == pytest.approx(1 - (a + b + c) / 3)


def test_determinants_stay_in_range_and_the_logarithm_does_not_underflow():
    rng = np.random.default_rng(1)
    sets = torch.as_tensor(rng.random((5, 6, 4)))
    one = torch.ones(4, dtype=torch.float64)
    det = diversity_of(sets, one, "dpp")
    assert (det > 0).all()
    assert (det <= (1 + JITTER) ** 6).all()
    far = diversity_of(1e6 * sets, one, "dpp")
    np.testing.assert_allclose(far, (1 + JITTER) ** 6, rtol=1e-4)
    tight = torch.as_tensor(0.5 + 1e-3 * rng.random((1, 100, 4)))
    kernel = 1 / (1 + torch.cdist(tight, tight, p=1)) + JITTER * torch.eye(100)
    assert float(torch.linalg.det(kernel.float())) == 0.0
    value = float(diversity_of(tight, one, "logdet"))
    eigenvalues = np.linalg.eigvalsh(kernel[0].numpy())
    assert value == pytest.approx(np.log(eigenvalues).sum(), rel=1e-6)


def test_the_determinant_of_returned_sets_is_between_zero_and_one():
    model, rows, x = linear_problem()
    weight = torch.as_tensor(1 / mad_of(rows))
    for search in SEARCHES:
        result = sets_of(model, rows, x, method=search, total_CFs=4, samples=200, max_iter=60)
        whole = ~np.isnan(result.x_sets).any((1, 2))
        assert whole.sum() >= 4
        det = diversity_of(torch.as_tensor(result.x_sets[whole]), weight, "dpp")
        assert (det > 0).all()
        assert (det <= (1 + JITTER) ** 4).all()


def test_random_members_change_at_most_two_features_when_two_rounds_suffice():
    model, rows, x = linear_problem(d=8, rows=80)
    x = x[np.argsort(-model.logits(torch.as_tensor(x))[:, 1].numpy())[:8]]
    result = sets_of(model, rows, x, total_CFs=10, samples=400, posthoc_sparsity=None)
    assert not np.isnan(result.x_sets).any()
    changed = (result.x_sets != x[:, None]).sum(-1)
    assert changed.max() == 2
    assert changed.min() == 1


@pytest.mark.parametrize("needed", [3, 5])
def test_random_members_change_what_is_needed_when_two_rounds_do_not_suffice(needed):
    """All weights are equal, so that class 1 takes `needed` features near their upper bound."""
    d = 6
    w = np.stack([np.zeros(d), np.ones(d)]).astype(np.float32)
    model = ToyModel(w, np.array([0, 0.2 - needed], dtype=np.float32), Task.CLASSIFICATION)
    x = np.zeros((4, d), dtype=np.float32) + 0.01
    space = FeatureSpace.continuous(d)
    result = DiCE(model, space=space, total_CFs=3, samples=4000).explain(x, target=1)
    changed = (result.x_sets != x[:, None]).sum(-1)
    valid = ~np.isnan(result.x_sets).any(-1)
    assert valid.any(1).all()
    assert changed[valid].min() >= needed


@pytest.mark.parametrize("search", SEARCHES)
def test_immutable_features_are_bit_equal(search):
    problem = PROBLEMS["mixed"]()
    method = problem.fitted(DiCE, method=search, total_CFs=4, max_iter=60)
    result = method.explain(problem.x, target=1)
    assert result.found.sum() >= 6
    fixed = ~problem.space.mutable_mask[problem.space.owner]
    valid = ~np.isnan(result.x_sets).any(-1)
    row = np.nonzero(valid)[0]
    np.testing.assert_array_equal(
        result.x_sets[valid][:, fixed].view(np.int32), problem.x[row][:, fixed].view(np.int32)
    )


@pytest.mark.parametrize("search", SEARCHES)
def test_giving_small_changes_back_never_adds_changes_and_keeps_the_class(search):
    model, rows, x = linear_problem()
    settings = {"method": search, "total_CFs": 6, "samples": 300, "max_iter": 60}
    plain = sets_of(model, rows, x, posthoc_sparsity=None, **settings)
    sparse = sets_of(model, rows, x, posthoc_sparsity=0.5, **settings)
    valid = ~np.isnan(plain.x_sets).any(-1)
    np.testing.assert_array_equal(valid, ~np.isnan(sparse.x_sets).any(-1))
    row = np.nonzero(valid)[0]
    space = FeatureSpace.continuous(x.shape[1])
    before, after = (
        changed_features(x[row], r.x_sets[valid], space).sum(1) for r in (plain, sparse)
    )
    assert (after <= before).all()
    assert (model.predict(sparse.x_sets[valid]) == 1).all()
    moved = [np.abs(r.x_sets[valid] - x[row]) for r in (plain, sparse)]
    assert (moved[1] <= moved[0] + 1e-6).all()
    assert moved[1].sum() < moved[0].sum()


def test_a_small_change_is_taken_back_and_a_large_one_is_not():
    """x1 does not matter: a change of it below the median deviation goes, a larger one stays."""
    w = np.array([[0, 0], [4, 0]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2], dtype=np.float32), Task.CLASSIFICATION)
    rows = np.random.default_rng(2).random((101, 2)).astype(np.float32)
    x = np.array([[0.1, 0.5]], dtype=np.float32)
    plain = sets_of(model, rows, x, total_CFs=20, posthoc_sparsity=None)
    sparse = sets_of(model, rows, x, total_CFs=20, posthoc_sparsity=0.5)
    small = mad_of(rows)[1]
    change = np.abs(plain.x_sets[0, :, 1] - 0.5)
    assert ((change > 0) & (change < 0.9 * small)).any()
    assert (change > 1.1 * small).any()
    kept = sparse.x_sets[0, :, 1]
    np.testing.assert_array_equal(kept[change <= 0.99 * small], np.float32(0.5))
    large = change > 1.01 * small
    np.testing.assert_array_equal(kept[large], plain.x_sets[0, large, 1])


@pytest.mark.parametrize("search", SEARCHES)
def test_a_class_that_does_not_exist_is_soon_given_up(search):
    d = 4
    model = ToyModel(
        np.zeros((2, d), dtype=np.float32), np.array([1, 0], dtype=np.float32),
        Task.CLASSIFICATION,
    )  # fmt: skip
    rows = np.random.default_rng(3).random((50, d)).astype(np.float32)
    started = time.process_time()
    result = sets_of(model, rows, rows[:5], method=search, total_CFs=4, max_iter=500)
    assert time.process_time() - started < 20
    assert (result.status == Status.NOT_FOUND.value).all()
    assert np.isnan(result.x_cfs).all()
