"""Draws of single features, crossover and mutation, with a stream that says what it is told."""

import numpy as np
import pytest
import torch

from cel.search.feature_draws import Sampler
from cel.search.streams import RowStreams
from cel.search.variation import Variation, changed, simulated_binary, tournament
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,), lower=0.0, upper=10.0),
        Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w"),
                allowed=("u", "w")),
        Feature(name="n", kind="integer", columns=(4,), lower=0.0, upper=8.0, step=2.0,
                direction="up"),
        Feature(name="fixed", columns=(5,), lower=0.0, upper=1.0, mutable=False),
    )
)  # fmt: skip
HOME = torch.tensor([[4.0, 1, 0, 0, 4.0, 0.5]])
ROWS = torch.tensor([0])


class Told:
    """A stream of given draws; each is spread to the shape that is asked for."""

    def __init__(self, *values):
        self.values = list(values)

    def uniform(self, *shape):
        return torch.as_tensor(self.values.pop(0), dtype=torch.float32).expand(1, *shape).clone()

    normal = uniform


def sampler():
    return Sampler.of(SPACE.region(HOME))


def test_what_can_be_drawn():
    s = sampler()
    assert s.count.tolist() == [3]
    assert s.order[0].tolist() == [0, 1, 2, 3]
    assert s.choices[0, :3].tolist() == [0, 2, 3]  # continuous; u and w; 4, 6 and 8
    assert s.low[0, :3].tolist() == [0.0, 0.0, 4.0] or s.low[0, [0, 2]].tolist() == [0.0, 4.0]
    assert s.table[0, 1, :2].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("which", "value", "expected"),
    [
        (0.0, 0.25, [2.5, 1, 0, 0, 4, 0.5]),
        (0.33, 0.75, [7.5, 1, 0, 0, 4, 0.5]),
        (0.34, 0.49, [4, 1, 0, 0, 4, 0.5]),
        (0.34, 0.5, [4, 0, 0, 1, 4, 0.5]),
        (0.67, 0.3, [4, 1, 0, 0, 4, 0.5]),
        (0.67, 0.4, [4, 1, 0, 0, 6, 0.5]),
        (0.99, 0.999, [4, 1, 0, 0, 8, 0.5]),
    ],
)
def test_one_feature_is_drawn_afresh(which, value, expected):
    found = sampler().change_one(HOME[:, None], ROWS, Told(which, value))
    np.testing.assert_allclose(found[0, 0], expected)


def test_all_features_at_quantiles():
    value = torch.tensor([[[0.1, 0.9, 0.7, 0.3], [0.0, 0.0, 0.0, 0.0]]])
    found = sampler().at(value, ROWS)
    np.testing.assert_allclose(found[0], [[1, 0, 0, 1, 8, 0.5], [0, 1, 0, 0, 4, 0.5]])
    told = sampler().everything(HOME[:, None].repeat(1, 2, 1), ROWS, Told(0.1))
    np.testing.assert_allclose(told[0], [[1, 1, 0, 0, 4, 0.5]] * 2)


def test_another_category_and_nothing_else():
    both = torch.tensor([[[9.0, 1, 0, 0, 6, 0.5], [9.0, 0, 0, 1, 6, 0.5], [9.0, 0, 1, 0, 6, 0.5]]])
    low = sampler().other(both, torch.zeros(1, 3, 4), ROWS)
    assert low[0].tolist() == [
        [9, 0, 0, 1, 6, 0.5], [9, 1, 0, 0, 6, 0.5], [9, 1, 0, 0, 6, 0.5],
    ]  # fmt: skip


def test_children_are_as_far_apart_as_their_parents_times_a_factor():
    first, second = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([2.0, 2.0, 2.0])
    low, high = simulated_binary(first, second, torch.tensor([0.5, 0.25, 0.75]), 1.0)
    near, far = 0.5**0.5, 2**0.5
    np.testing.assert_allclose(low, [0.0, 1 - near, 1 - far], atol=1e-6)
    np.testing.assert_allclose(high, [2.0, 1 + near, 1 + far], atol=1e-6)


def variation(sd=0.5):
    return Variation(sampler(), torch.full((6,), sd), 1.0)


PARENTS = (
    torch.tensor([[[2.0, 1, 0, 0, 4, 0.5]]]),
    torch.tensor([[[6.0, 0, 0, 1, 8, 0.5]]]),
)


def test_continuous_features_are_mixed_and_others_change_places():
    one, two = variation().cross(*PARENTS, Told(0.0, 0.0, 0.25), pair=0.5, gene=0.5)
    half = 2 * 0.5**0.5
    np.testing.assert_allclose(one[0, 0], [4 - half, 0, 0, 1, 8, 0.5], atol=1e-6)
    np.testing.assert_allclose(two[0, 0], [4 + half, 1, 0, 0, 4, 0.5], atol=1e-6)
    for draws in ((0.5, 0.0, 0.25), (0.0, 0.5, 0.25)):  # no pair, or no feature of it
        same = variation().cross(*PARENTS, Told(*draws), pair=0.5, gene=0.5)
        assert [c.tolist() for c in same] == [p.tolist() for p in PARENTS]
    some = torch.tensor([0.9, 0.0, 0.9, 0.9])
    one, _ = variation().cross(*PARENTS, Told(0.0, some, 0.25), pair=0.5, gene=0.5)
    assert one[0, 0].tolist() == [2, 0, 0, 1, 4, 0.5]


def test_numbers_get_a_step_and_categories_become_another():
    child = variation().mutate(PARENTS[0], ROWS, Told(0.0, 0.0, 2.0, 0.0), person=0.5, gene=0.5)
    # 2 deviations of 0.5, or 2 steps of a grid; the category w
    np.testing.assert_allclose(child[0, 0, :5], [3.0, 0, 0, 1, 8])
    for draws in ((0.5, 0.0, 2.0, 0.0), (0.0, 0.5, 2.0, 0.0)):
        same = variation().mutate(PARENTS[0], ROWS, Told(*draws), person=0.5, gene=0.5)
        assert same.tolist() == PARENTS[0].tolist()
    plain = FeatureSpace.continuous(2)
    region = plain.region(torch.tensor([[0.5, 0.5]]))
    vary = Variation(Sampler.of(region), torch.tensor([0.1, 0.2]))
    x = torch.tensor([[[0.5, 0.5]]])
    moved = vary.mutate(x, ROWS, Told(0.0, 0.0, 1.0, 0.0), person=1, gene=1)
    np.testing.assert_allclose(moved[0, 0], [0.6, 0.7], atol=1e-6)


def test_features_are_given_back_with_a_probability():
    back = torch.tensor([0.1, 0.9, 0.1, 0.9])
    found = variation().reset(PARENTS[1], ROWS, Told(back), 0.5)
    assert found[0, 0].tolist() == [4, 0, 0, 1, 4, 0.5]


def test_people_are_put_inside_their_region():
    wild = torch.tensor([[[12.0, 0.4, 0.1, 0.5, 2.9, 0.9]]])
    seen = variation().inside(wild, ROWS)
    assert seen[0, 0].tolist() == [10, 0, 0, 1, 4, 0.5]
    plain = FeatureSpace.continuous(2)
    region = plain.region(torch.tensor([[0.5, 0.5]]))
    vary = Variation(Sampler.of(region), torch.ones(2))
    out = vary.inside(torch.tensor([[[-1.0, 2.0]]]), ROWS)
    assert out[0, 0].tolist() == [0.0, 1.0]
    assert vary.inside(torch.tensor([[[-1.0, 2.0]]]), ROWS, surely=True)[0, 0].tolist() == [0, 1]


def test_changed_features_are_told_by_feature():
    x = torch.tensor([[[4.0, 0, 0, 1, 4, 0.5], [4.0 + 1e-7, 1, 0, 0, 6, 0.5]]])
    told = changed(x, HOME, SPACE.region(HOME))
    assert told.tolist() == [[[False, True, False, False], [False, False, True, False]]]
    plain = FeatureSpace.continuous(2)
    origin = torch.tensor([[0.5, 0.5]])
    told = changed(torch.tensor([[[0.5, 0.6]]]), origin, plain.region(origin))
    assert told.tolist() == [[[False, True]]]


def test_the_fitter_of_two_is_a_parent():
    class Integers:
        def __init__(self):
            self.asked = []

        def integers(self, high, count):
            self.asked.append((high, count))
            return torch.tensor([[3, 0, 5]]) if len(self.asked) == 1 else torch.tensor([[1, 2, 5]])

    stream = Integers()
    assert tournament(stream, 6, 3).tolist() == [[1, 0, 5]]
    assert stream.asked == [(6, 3), (6, 3)]


def test_integers_reach_both_ends_and_no_further():
    stream = RowStreams.of(torch.rand(4, 2), 0)
    drawn = stream.integers(3, 500)
    assert drawn.shape == (4, 500)
    assert sorted(drawn.unique().tolist()) == [0, 1, 2]

    class Top(RowStreams):
        def uniform(self, *shape):
            return torch.ones(len(self), *shape)  # rounding of the largest draw

    assert Top(stream.keys).integers(3, 2).unique().tolist() == [2]
    assert stream.draw == 1
    assert stream.select(torch.tensor([2])).draw == 1
