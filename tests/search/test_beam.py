"""Few changes at a time, by hand: which moves are tried, accepted, kept and combined."""

from itertools import combinations

import pytest
import torch

from cel.search import Budget, beam
from cel.search.beam import SingleMoves, _Step, few_changes


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


MOVES = SingleMoves(  # two values for the first column, one for the second, both of the last two
    value=tensor([1, 0, 0, 0], [2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 3, 4]),
    columns=torch.tensor(
        [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], dtype=torch.bool
    ),
    unit=torch.tensor([0, 0, 1, 2]),
)
ORIGIN = tensor([0, 0, 0, 0], [1, 0, 0, 0])
WEIGHT = tensor(1, 4, 0.5, 0.5)


def judge(x, rows):
    """The weighted sum, 3 less for the first row and 9 for the second."""
    return x, x @ WEIGHT - tensor(3, 9)[rows]


def cost(x, rows):
    return (x - ORIGIN[rows]).abs().sum(1)


def search(**changes):
    given = {"depth": 3, "width": 4, "keep": 5, "edge": 0.0, "budget": Budget()} | changes
    rules = {"judge": judge, "cost": cost} | {
        k: given.pop(k) for k in ("judge", "cost") if k in given
    }
    return few_changes(ORIGIN, MOVES, rules["judge"], rules["cost"], **given)


def test_units_and_sizes():
    assert (len(MOVES), MOVES.units) == (4, 3)
    none = SingleMoves(MOVES.value[:0], MOVES.columns[:0], MOVES.unit[:0])
    assert (len(none), none.units) == (0, 0)
    found = few_changes(ORIGIN, none, judge, cost, depth=2, width=2, keep=1, edge=0.0,
                        budget=Budget())  # fmt: skip
    assert len(found.x) == len(found.row) == 0
    assert found.best.tolist() == ORIGIN.tolist()
    assert found.margin.tolist() == [-3.0, -8.0]


def step(states=None, used=None, rows=None):
    states = ORIGIN[:, None] if states is None else states
    used = torch.zeros(*states.shape[:2], 3, dtype=torch.bool) if used is None else used
    rows = torch.arange(len(states)) if rows is None else rows
    return _Step.of(rows, states, used, MOVES, judge, cost)


def test_every_single_move_is_tried_but_those_that_move_nothing():
    one = step()
    inf = float("inf")
    assert one.margin.tolist() == [[-2, -1, 1, 0.5], [-inf, -7, -4, -4.5]]
    assert one.price.tolist() == [[1, 2, 1, 7], [inf, 1, 1, 7]]
    assert one.points[0].tolist() == [[1, 0, 0, 0], [2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 3, 4]]
    assert one.top().tolist() == [1, -4]
    assert one.best().tolist() == [[0, 1, 0, 0], [1, 1, 0, 0]]
    used = torch.tensor([[[False, True, False]], [[True, False, False]]])
    assert step(used=used).margin.tolist() == [[-2, -1, -inf, 0.5], [-inf, -inf, -4, -4.5]]
    gone = ORIGIN[:, None].clone()
    gone[0] = torch.nan
    assert step(states=gone).margin[0].tolist() == [-inf] * 4
    swapped = step(states=ORIGIN[[1, 0]][:, None], rows=torch.tensor([1, 0]))
    assert swapped.margin.tolist() == one.margin[[1, 0]].tolist()


def test_moves_that_cost_nothing_do_not_count():
    unused = torch.zeros(2, 1, 3, dtype=torch.bool)
    free = _Step.of(torch.arange(2), ORIGIN[:, None], unused, MOVES, judge,
                    lambda x, rows: cost(x, rows) * (x[:, 1] == 0))  # fmt: skip
    assert free.margin[0].tolist() == [-2, -1, -float("inf"), 0.5]


def test_the_cheapest_accepted_move_of_each_unit_is_kept():
    one = step()
    x, rows = one.accepted(5, -1.0)
    assert x.tolist() == [[0, 1, 0, 0], [2, 0, 0, 0], [0, 0, 3, 4]]  # by cost 1, 2, 7
    assert rows.tolist() == [0, 0, 0]
    x, _ = one.accepted(1, -1.0)
    assert x.tolist() == [[0, 1, 0, 0]]
    x, _ = one.accepted(5, -2.0)  # both values of the first column: the cheaper one
    assert x.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 3, 4]]
    x, rows = one.accepted(5, -4.0)
    assert rows.tolist() == [0, 0, 0, 1]
    assert len(one.accepted(5, 2.0)[0]) == 0


def test_half_of_the_states_are_near_and_half_are_cheap():
    one = step()
    rows, states, used = one.onwards(2, 99.0, go_on=False)
    assert rows.tolist() == [0, 1]
    # nearest: the second column at margin 1; best rate of the rest: (0.5 + 2) / 7 < (-1 + 2) / 2
    assert states[0].tolist() == [[0, 1, 0, 0], [2, 0, 0, 0]]
    assert used[0].tolist() == [[False, True, False], [True, False, False]]
    assert states[1].tolist() == [[1, 1, 0, 0], [1, 0, 3, 4]]
    rows, states, _ = one.onwards(3, 99.0, go_on=False)
    assert states[0].tolist() == [[0, 1, 0, 0], [0, 0, 3, 4], [2, 0, 0, 0]]  # two near, one cheap
    rows, states, _ = one.onwards(2, 0.0, go_on=False)
    assert rows.tolist() == [1]  # the first row is there
    rows, states, used = one.onwards(2, 0.0, go_on=True)
    assert rows.tolist() == [0, 1]
    assert states[0].tolist() == [[2, 0, 0, 0], [1, 0, 0, 0]]  # what is accepted does not go on
    rows, states, _ = one.onwards(8, 0.9, go_on=True)
    assert states.shape[1] == 8
    known = states[0][~states[0].isnan().any(1)]
    assert known.unique(dim=0).tolist() == [[0, 0, 3, 4], [1, 0, 0, 0], [2, 0, 0, 0]]


def test_used_units_follow_their_state():
    states = torch.stack([tensor([1, 0, 0, 0], [0, 1, 0, 0])])
    used = torch.tensor([[[True, False, False], [False, True, False]]])
    one = step(states=states, used=used, rows=torch.tensor([0]))
    inf = float("inf")
    assert one.margin.tolist() == [[-inf, -inf, 2, 1.5, 2, 3, -inf, 4.5]]
    _, states, used = one.onwards(2, 99.0, go_on=False)
    assert states[0].tolist() == [[0, 1, 3, 4], [2, 1, 0, 0]]
    assert used[0].tolist() == [[False, True, True], [True, True, False]]
    x, rows = one.accepted(9, 0.0)
    assert x[:2].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0]]  # from either state
    assert sorted(x[2:].tolist()) == [[0, 1, 3, 4], [1, 0, 3, 4]]  # at the same cost
    assert rows.tolist() == [0] * 4


def test_a_wide_beam_finds_what_all_combinations_hold():
    found = search(width=64, keep=64, edge=99.0)
    for row in range(2):
        every = []
        for size in (1, 2, 3):
            for which in combinations(range(4), size):
                if len({int(MOVES.unit[m]) for m in which}) < size:
                    continue
                x = ORIGIN[row].clone()
                for m in which:
                    x = torch.where(MOVES.columns[m], MOVES.value[m], x)
                every.append(x)
        margin = judge(torch.stack(every), torch.full((len(every),), row))[1]
        assert float(found.margin[row]) == float(margin.max())
        assert found.best[row].tolist() == every[int(margin.argmax())].tolist()
    assert len(found.x) == 0


def test_rows_that_are_there_stop_and_depth_ends_the_rest():
    assert set(search().row[:2].tolist()) == {0}
    first = search(depth=1)
    assert set(first.row.tolist()) == {0}
    assert first.margin.tolist() == [1.0, -4.0]
    second = search(depth=2)
    assert second.margin.tolist() == [1.0, -0.5]  # (1, 1, 3, 4): 1 + 4 + 3.5 - 9
    third = search(depth=3)
    assert third.margin.tolist() == [1.0, 0.5]
    assert third.x[third.row == 1].unique(dim=0).tolist() == [[2, 1, 3, 4]]
    assert search(depth=9).margin.tolist() == third.margin.tolist()


def test_rows_go_on_for_more_answers_when_asked():
    """What is accepted does not go on, what is not does."""
    more = search(onwards=True, width=8, keep=64)
    assert more.x[more.row == 0].unique(dim=0).tolist() == [
        [0, 0, 3, 4], [0, 1, 0, 0], [1, 0, 3, 4], [1, 1, 0, 0], [2, 0, 3, 4], [2, 1, 0, 0],
    ]  # fmt: skip
    far = search(onwards=True, width=8, keep=64, edge=2.0)
    assert far.x[far.row == 0].unique(dim=0).tolist() == [
        [0, 1, 3, 4], [1, 1, 0, 0], [1, 1, 3, 4], [2, 0, 3, 4], [2, 1, 0, 0],
    ]  # fmt: skip


def test_a_spent_budget_ends_the_search():
    asked = []

    def counted(x, rows):
        asked.append(len(x))
        return judge(x, rows)

    found = search(judge=counted, budget=Budget(max_queries=0))
    assert asked == [2]  # the rows themselves
    assert len(found.x) == 0
    assert found.margin.tolist() == [-3.0, -8.0]


@pytest.mark.parametrize("cells", [1, 2**22])
def test_parts_of_the_rows_give_the_same(cells, monkeypatch):
    monkeypatch.setattr(beam, "CELLS", cells)
    found = search()
    assert found.margin.tolist() == [1.0, 0.5]
    assert found.row[:2].tolist() == [0, 0]
    assert found.row[2:].unique().tolist() == [1]
    assert found.x[:2].tolist() == [[0, 1, 0, 0], [0, 0, 3, 4]]
    assert found.x[2:].unique(dim=0).tolist() == [[2, 1, 3, 4]]
