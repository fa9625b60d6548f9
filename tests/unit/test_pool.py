"""The pool is exact under every kind of constraint: it equals trying every row of it."""

import numpy as np
import pytest
import torch

from cel.search import Budget
from cel.search.pool import DISTANCES, Pool
from cel.space import Feature, FeatureSpace, Implication, LinearRelation


def hard_space(seed):
    return FeatureSpace(
        (
            Feature(name="a", kind="integer", step=0.1, direction="up"),
            Feature(name="b", kind="integer", columns=(1,), step=0.1),
            Feature(
                name="job", kind="categorical", columns=(2, 3, 4), categories=("x", "y", "z"),
                allowed=("y", "z"),
            ),
            Feature(
                name="sex", kind="categorical", columns=(5, 6), categories=("F", "M"),
                mutable=seed % 2 == 0,
            ),
            Feature(name="c", columns=(7,), direction="down", upper=0.8),
            Feature(
                name="school", kind="ordinal", columns=(8,), step=0.25,
                categories=tuple("abcde"), allowed=tuple("ace"),
            ),
        ),
        (LinearRelation.of({"a": 1, "b": -1}), Implication("job", ("z",), "sex", ("F",))),
    )  # fmt: skip


def rows_of(seed, n=300):
    rng = np.random.default_rng(seed)
    rows = np.column_stack(
        [
            rng.integers(0, 11, n) / 10, rng.integers(0, 11, n) / 10,
            np.eye(3)[rng.integers(0, 3, n)], np.eye(2)[rng.integers(0, 2, n)],
            rng.random(n), rng.integers(0, 5, n) / 4,
        ]
    ).astype(np.float32)  # fmt: skip
    return torch.as_tensor(rows), torch.as_tensor(rng.integers(0, 3, n))


def brute(pool, x, label, region, k):
    members = (pool.y == label).nonzero()[:, 0]
    seen = region.select(torch.zeros_like(members)).snap(pool.x[members])
    distance = pool.between(x.expand_as(seen), seen)
    found, places = [], set()
    for j in np.lexsort((members.numpy(), distance.numpy())):
        place = tuple(seen[j].tolist())
        if bool((seen[j] != x).any()) and place not in places:
            places.add(place)
            found.append(int(members[j]))
    return (found + [-1] * k)[:k]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("k", [1, 5])
def test_nearest_under_a_region_equals_trying_every_row(distance, k):
    for seed in range(3):
        space, (rows, y) = hard_space(seed), rows_of(seed)
        pool, x, target = Pool.of(rows, y, space, distance), rows[:30], (y[:30] + 1) % 3
        region = space.region(x)
        got = pool.nearest(x, target, k, region=region)
        for i in range(len(x)):
            part = region.select(torch.tensor([i]))
            expected = brute(pool, x[i : i + 1], int(target[i]), part, k)
            assert got.row[i].tolist() == expected


def test_rows_off_the_grid_and_bounds_off_the_grid_are_no_exception():
    space = FeatureSpace(
        (
            Feature(name="a", kind="integer", step=0.3, upper=0.8),
            Feature(name="b", kind="integer", columns=(1,), step=0.25, lower=0.1),
        ),
        (LinearRelation.of({"a": 1, "b": 1}, 1.2),),
    )
    rng = np.random.default_rng(0)
    rows, y = torch.as_tensor(rng.random((200, 2)), dtype=torch.float32), torch.arange(200) % 2
    pool, x = Pool.of(rows, y, space), rows[:40]
    got = pool.nearest(x, 1 - y[:40], 2, region=space.region(x))
    for i in range(len(x)):
        region = space.region(x[i : i + 1])
        assert got.row[i].tolist() == brute(pool, x[i : i + 1], int(1 - y[i]), region, 2)


def test_the_search_goes_on_until_the_pool_is_exhausted():
    rows = torch.linspace(0, 1, 500)[:, None]
    pool = Pool.of(rows, torch.ones(500, dtype=torch.long), FeatureSpace.continuous(1))
    asked = []

    def accept(x, source):
        asked.append(len(x))
        return x, x[:, 0] > 0.99

    near = pool.nearest(torch.zeros(1, 1), torch.tensor([1]), accept=accept)
    assert float(near.x) == float(rows[rows > 0.99].min())
    never = pool.nearest(
        torch.zeros(1, 1), torch.tensor([1]), accept=lambda x, r: (x, x[:, 0] > 2)
    )
    assert not bool(never.ok.any())
    assert max(asked) == 500
    stop = Budget(max_queries=0)
    early = pool.nearest(torch.zeros(1, 1), torch.tensor([1]), accept=accept, budget=stop)
    assert not bool(early.ok.any())


def test_a_pool_of_some_rows_has_the_classes_of_these():
    x, y = torch.rand(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    among = torch.tensor([True, True, False, True, False, False])
    pool = Pool.of(x, y, FeatureSpace.continuous(2), among=among)
    assert {k: part.rows.tolist() for k, part in pool.parts.items()} == {0: [0, 3], 1: [1]}
    whole = Pool.of(x, y, FeatureSpace.continuous(2))
    assert {k: part.rows.tolist() for k, part in whole.parts.items()} == {
        0: [0, 3], 1: [1, 4], 2: [2, 5],
    }  # fmt: skip


def test_rows_on_their_grid_leave_no_more_slack_than_rounding():
    from cel.search.pool_floor import TOLERANCE, Gauge

    space = FeatureSpace(
        [
            Feature(
                name="n", kind="integer", columns=(0,), lower=0.0, upper=1.0, anchor=0.0, step=0.25
            )
        ]
    )
    scale = torch.tensor([2.0])
    even = Gauge.of(space, torch.tensor([[0.25], [0.75], [1.0]]), scale=scale, square=False)
    odd = Gauge.of(space, torch.tensor([[0.25], [0.35]]), scale=scale, square=False)
    assert even.slack == pytest.approx(2 * TOLERANCE)
    assert (even.off_grid, odd.off_grid) == (False, True)
    assert odd.slack == pytest.approx(2 * (0.1 + TOLERANCE), rel=1e-5)
