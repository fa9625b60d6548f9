"""Distances of pools by hand, their lower bounds, and who is counted."""

import pytest
import torch

from cel.errors import ConfigError
from cel.search.pool import DISTANCES, Pool
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,), lower=0.0, upper=10.0),
        Feature(name="c", kind="categorical", columns=(1, 2), categories=("u", "v")),
        Feature(name="n", kind="integer", columns=(3,), lower=0.0, upper=8.0, step=2.0),
    )
)
ROWS = torch.tensor(
    [[0.0, 1, 0, 0], [1.0, 0, 1, 4], [2.0, 1, 0, 4], [4.0, 0, 1, 2]], dtype=torch.float64
)
Y = torch.tensor([0, 1, 1, 1])


@pytest.mark.parametrize(
    ("distance", "expected"),
    [
        ("heom", [1 / 4 + 1 + 4 / 4, 2 / 4 + 4 / 4, 4 / 4 + 1 + 2 / 4]),
        ("gower", [(0.1 + 1 + 0.5) / 3, (0.2 + 0.5) / 3, (0.4 + 1 + 0.25) / 3]),
        # median absolute deviations: of 0 1 2 4 it is 1, of 0 4 4 2 it is 1
        ("l1_mad", [1 / 1 + 1 + 4 / 1, 2 / 1 + 4 / 1, 4 / 1 + 1 + 2 / 1]),
        ("l2", [(1 + 1 + 16) ** 0.5, (4 + 16) ** 0.5, (16 + 1 + 4) ** 0.5]),
    ],
)
def test_distances_by_hand(distance, expected):
    pool = Pool.of(ROWS, Y, SPACE, distance)
    found = pool.between(ROWS[:1].expand(3, -1), ROWS[1:])
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    near = pool.nearest(ROWS[:1], torch.tensor([1]), 3)
    order = torch.tensor(expected).argsort()
    assert near.row[0].tolist() == (order + 1).tolist()
    torch.testing.assert_close(near.distance[0], found[order])
    torch.testing.assert_close(
        pool.crowd(ROWS[:1], torch.tensor([1]), 2), found[order][:2].mean()[None]
    )
    torch.testing.assert_close(pool.crowd(ROWS[:1], torch.tensor([1])), found.mean()[None])
    assert pool.crowd(ROWS[:1], torch.tensor([7])).tolist() == [float("inf")]


def test_other_distances_are_refused():
    assert set(DISTANCES) == {"heom", "l1_mad", "l2", "gower"}
    with pytest.raises(ConfigError, match="cosine"):
        Pool.of(ROWS, Y, SPACE, "cosine")


@pytest.mark.parametrize("distance", DISTANCES)
def test_bounds_are_below_the_distance_of_what_a_region_makes_of_a_row(distance):
    """Without a region they are the distances; inside one they are tight where nothing rounds."""
    pool = Pool.of(ROWS, Y, SPACE, distance)
    part = pool.parts[1]
    x = ROWS[[0, 2]]
    plain = pool.gauge.floors(x, part, None)
    for i in range(2):
        torch.testing.assert_close(plain[i], pool.between(x[i].expand(3, -1), ROWS[part.rows]))
    tight = FeatureSpace(
        (
            Feature(name="a", columns=(0,), lower=0.0, upper=1.5),
            Feature(name="c", kind="categorical", columns=(1, 2), categories=("u", "v"),
                    mutable=False),
            Feature(name="n", kind="integer", columns=(3,), lower=0.0, upper=8.0, step=2.0,
                    direction="up"),
        )
    )  # fmt: skip
    narrow = Pool.of(ROWS, Y, tight, distance)
    region = tight.region(x)
    floors = narrow.gauge.floors(x, narrow.parts[1], region)
    for i in range(2):
        here = region.select(torch.full((3,), i))
        seen = here.snap(ROWS[narrow.parts[1].rows])
        torch.testing.assert_close(floors[i], narrow.between(x[i].expand(3, -1), seen))


def test_rows_that_are_the_row_itself_or_lie_at_one_place_count_once():
    rows = torch.tensor([[1.0], [2.0], [2.0], [3.0]])
    pool = Pool.of(rows, torch.zeros(4, dtype=torch.long), FeatureSpace.continuous(1, 0.0, 9.0))
    near = pool.nearest(rows[:1], torch.tensor([0]), 3)
    assert near.row.tolist() == [[1, 3, -1]]
    assert near.ok.tolist() == [[True, True, False]]
    assert near.x[0, :2, 0].tolist() == [2.0, 3.0]
    assert near.x[0, 2].isnan().all()
    assert near.distance[0, 2] == torch.inf
    one = pool.nearest(torch.tensor([[2.5]]), torch.tensor([0]))
    assert one.row.tolist() == [[1]]  # of equal distances the earlier
    none = pool.nearest(rows[:1], torch.tensor([5]))
    assert none.row.tolist() == [[-1]]


def test_constraints_that_share_features_are_one_group():
    from cel.search.pool_floor import _components
    from cel.space import LinearRelation

    a, b, c, d = (
        LinearRelation.of(dict.fromkeys(names, 1.0)) for names in ("pq", "rs", "tu", "qr")
    )
    told = [sorted(sorted(r.features) for r in group) for group in _components((a, b, c, d))]
    assert told == [[["t", "u"]], [["p", "q"], ["q", "r"], ["r", "s"]]]
    e = LinearRelation.of({"s": 1.0, "t": 1.0})
    assert len(_components((a, b, c, d, e))) == 1
    assert _components(()) == []


def test_clipped_values_beside_the_grid_are_loose():
    from cel.search.pool_floor import Gauge, _box, _clipped, _loose

    space = FeatureSpace(
        (Feature(name="n", kind="integer", columns=(0,), lower=0.0, upper=7.0, step=2.0),)
    )
    rows = torch.tensor([[0.0], [4.0], [8.0]])
    gauge = Gauge.of(space, rows, scale=torch.ones(1), square=False)
    part = gauge.part(rows, torch.arange(3))
    region = space.region(torch.tensor([[2.0], [4.0]]))
    (f,) = space
    assert _box(part, None, 0, 0) == ()
    low, high = _box(part, region, 0, 0)
    assert (low.flatten().tolist(), high.flatten().tolist()) == ([0, 0], [7, 7])
    assert _clipped(part, region, 0, 0).tolist() == [[0, 4, 7], [0, 4, 7]]
    assert _loose(f, part, region, 0).tolist() == [[False, False, True]] * 2
    even = FeatureSpace((Feature(name="n", kind="integer", columns=(0,), lower=0.0, upper=6.0,
                                 step=2.0),))  # fmt: skip
    assert _loose(even.features[0], part, even.region(torch.tensor([[2.0]])), 0) is None
    whole = FeatureSpace((Feature(name="n", kind="integer", columns=(0,), lower=0.0, upper=8.0,
                                  step=2.0),))  # fmt: skip
    inside = whole.region(torch.tensor([[2.0]]))
    assert _box(part, inside, 0, 0) == ()
    assert _loose(whole.features[0], part, inside, 0) is None
    up = FeatureSpace((Feature(name="n", kind="integer", columns=(0,), lower=0.0, upper=8.0,
                               step=2.0, direction="up"),))  # fmt: skip
    odd = up.region(torch.tensor([[1.0], [3.0]]))
    assert _loose(up.features[0], part, odd, 0).tolist() == [[True, False, False]] * 2
