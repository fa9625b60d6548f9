"""Taking over features of a donor, round by round, worked out by hand."""

import torch

from cel.search import Budget
from cel.search.introduce import introduce_features

OWNER = torch.tensor([0, 1, 2, 2])  # the last feature has two columns


def _gain(new, old, known):
    return (new - old[:, None])[..., 0]


def _total(enough, allowed=lambda x: torch.ones(len(x), dtype=torch.bool)):
    def judge(x, rows):
        total = x.sum(1)
        return allowed(x), total >= enough, total[:, None]

    return judge


def test_the_largest_gain_comes_first_and_ties_go_to_the_earlier_feature():
    origin = torch.zeros(3, 4)
    donor = torch.tensor([[1.0, 5.0, 2.0, 2.0], [3.0, 3.0, 1.0, 1.0], [0.0, 1.0, 0.0, 0.0]])
    done = introduce_features(origin, donor, _total(6.0), _gain, OWNER)
    assert done.x.tolist() == [[0, 5, 2, 2], [3, 3, 0, 0], [0, 1, 0, 0]]
    assert done.round.tolist() == [[0, 1, 2], [1, 2, 0], [0, 1, 0]]
    assert done.ok.tolist() == [True, True, False]


def test_where_no_feature_is_admissible_groups_come_next_then_the_donor():
    """Row 0 may go anywhere, row 1 only by two features at once, row 2 only to the donor."""
    origin, donor = torch.zeros(3, 4), torch.ones(3, 4)
    origin[1, 0], origin[2, 0] = -1.0, -2.0

    def allowed(x):
        taken = (x[:, :2] == 1).sum(1)
        whole = (x == 1).all(1)
        two = (x[:, 0] == 1) & (x[:, 1] == 1)
        kind = torch.where(x[:, 0] == 1, 0.0, x[:, 0])
        return whole | (kind == 0) | ((kind == -1) & two) | (taken < 0)

    def judge(x, rows):
        start = torch.tensor([0.0, -1.0, -2.0])[rows]
        two = (x[:, 0] == 1) & (x[:, 1] == 1)
        whole = (x == 1).all(1)
        fine = (start == 0) | ((start == -1) & two) | whole
        return fine, whole | ((start == -1) & two), x.sum(1)[:, None]

    groups = torch.tensor([[True, True, False]])
    done = introduce_features(origin, donor, judge, _gain, OWNER, groups=groups)
    assert done.ok.tolist() == [True, True, True]
    assert done.x.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]
    assert done.round.tolist() == [[2, 3, 1], [1, 1, 0], [1, 1, 1]]
    alone = introduce_features(origin, donor, judge, _gain, OWNER)
    assert alone.round.tolist() == [[2, 3, 1], [1, 1, 1], [1, 1, 1]]


def test_features_that_are_alike_are_not_asked_for():
    seen = []

    def judge(x, rows):
        seen.append(len(x))
        return torch.ones(len(x), dtype=torch.bool), x.sum(1) >= 9, x.sum(1)[:, None]

    origin = torch.zeros(1, 4)
    introduce_features(origin, torch.tensor([[0.0, 1.0, 0.0, 1.0]]), judge, _gain, OWNER)
    assert seen == [1, 2, 1]  # the row, two features, the one that is left


def test_a_budget_that_is_left_ends_nothing_and_a_spent_one_everything():
    origin, donor = torch.zeros(1, 4), torch.ones(1, 4)
    done = introduce_features(origin, donor, _total(4.0), _gain, OWNER, budget=Budget(60.0))
    assert done.ok.tolist() == [True]
    late = introduce_features(origin, donor, _total(4.0), _gain, OWNER, budget=Budget(0.0))
    assert torch.equal(late.x, origin)
    assert not late.ok.any()


def test_no_groups_are_as_good_as_none():
    def judge(x, rows):
        total = x.sum(1)
        return total > -1, total >= 4, total[:, None]

    def gain(new, old, known):
        return (new - old[:, None])[..., 0]

    origin, donor = torch.zeros(1, 3), torch.tensor([[1.0, 3.0, 2.0]])
    none = torch.zeros(0, 3, dtype=torch.bool)
    for groups in (None, none):
        found = introduce_features(origin, donor, judge, gain, torch.arange(3), groups=groups)
        assert found.x.tolist() == [[0.0, 3.0, 2.0]]
        assert found.round.tolist() == [[0, 1, 2]]
