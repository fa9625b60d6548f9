"""One step of repeated linearisation by hand: what is proposed, judged, punished and ended."""

from itertools import pairwise

import pytest
import torch

from cel.search import Budget
from cel.search.gradient import Found
from cel.solvers import linearised
from cel.solvers.closed_forms import Nearest
from cel.solvers.linearised import Demands, _Linearised


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def plan(delta, dual, *, feasible=True):
    return Nearest(delta=tensor(delta), feasible=torch.tensor([feasible]), dual=tensor(dual))


def state(**changes):
    """One row at 0 with one demand `x_0 >= 1` of two columns."""
    given = {
        "rows": torch.tensor([0]), "x": tensor([0.0, 0.0]), "surplus": tensor([-1.0]),
        "slope": tensor([[1.0, 0.0]]), "radius": tensor(1.0), "penalty": tensor([0.0]),
        "boosts": tensor(0.0), "live": torch.tensor([True]),
    }  # fmt: skip
    return _Linearised(**(given | changes))


def demands(**changes):
    def cost(x, rows):
        return (x - changes.get("center", tensor([0.0, 0.0]))[rows]).square().sum(1)

    given = {
        "linearise": lambda x, rows: (x[:, :1] - 1, tensor([[1.0, 0.0]]).expand(len(x), 1, 2)),
        "solve": None, "accept": lambda x, rows: (x, x[:, 0] >= 1), "cost": cost,
        "center": tensor([0.0, 0.0]), "lower": tensor([-9.0, -9.0]), "upper": tensor([9.0, 9.0]),
        "width": tensor(1.0, 2.0), "grid": tensor(0.0, 0.0),
    }  # fmt: skip
    return Demands(**(given | changes))


def test_programs_are_asked_around_the_centre_inside_trust_region_and_box():
    asked = []

    def solve(w, gap, low, high, rows):
        asked.append((w, gap, low, high, rows))
        return plan([2.0, float("nan")], [1.0])

    given = demands(solve=solve, center=tensor([1.0, 1.0]), upper=tensor([2.5, 2.5]))
    s = state(x=tensor([2.0, 3.0]), slope=tensor([[2.0, -1.0]]), surplus=tensor([-4.0]))
    trial, _ = linearised._propose(given, s)
    ((w, gap, low, high, rows),) = asked
    assert w.tolist() == [[[2.0, -1.0]]]
    assert gap.tolist() == [[2 * 1.0 - 1 * 2.0 + 4.0]]  # 2 d_0 - d_1 >= gap at d = x' - centre
    assert low.tolist() == [[2.0 - 1 - 1, 3.0 - 2 - 1]]
    assert high.tolist() == [[1.5, 1.5]]  # the box of 2.5 is nearer than the trust region
    assert rows.tolist() == [0]
    assert trial.tolist() == [[2.5, 3.0]]  # 1 + 2, in the box; what is not a number stays


def test_a_step_that_keeps_its_promise_is_taken_and_trusted_further():
    s = state()
    gain = linearised._judge(
        demands(), s, plan([1.0, 0.0], [2.0]), tensor([1.0, 0.0]), tensor([0.0]),
        tensor([[5.0, 5.0]]),
    )  # fmt: skip
    # penalty 2 * 2; promised = 0 - 1 + 4 * 1 = 3 of a merit of 0 + 4 * 1
    assert s.penalty.tolist() == [[4.0]]
    assert gain.tolist() == [0.75]
    assert s.x.tolist() == [[1.0, 0.0]]
    assert s.surplus.tolist() == [[0.0]]
    assert s.slope.tolist() == [[[5.0, 5.0]]]
    assert s.radius.tolist() == [2.0]


@pytest.mark.parametrize(
    ("surplus", "moves", "radius"),
    [
        (-0.1, True, 2.0),  # delivers -1 + 4 * 0.9 = 2.6 of 3
        (-0.5, True, 1.0),  # 1 of 3: taken, trusted as before
        (-0.7, True, 1 / 3),  # 0.2 of 3: taken, trusted less
        (-0.76, False, 1 / 3),  # -0.04
        (-2.0, False, 1 / 3),
    ],
)
def test_a_step_is_judged_by_what_it_delivers(surplus, moves, radius):
    s = state()
    linearised._judge(
        demands(), s, plan([1.0, 0.0], [2.0]), tensor([1.0, 0.0]), tensor([surplus]),
        tensor([[5.0, 5.0]]),
    )  # fmt: skip
    assert s.x.tolist() == [[1.0 if moves else 0.0, 0.0]]
    assert s.surplus.tolist() == [[surplus if moves else -1.0]]
    assert s.slope.tolist() == [[[5.0, 5.0] if moves else [1.0, 0.0]]]
    assert s.radius.item() == pytest.approx(radius)


def test_radii_follow_the_longest_move_in_widths():
    s = state(radius=tensor(0.5))
    linearised._judge(demands(), s, plan([1.0, 3.0], [20.0]), tensor([1.0, 3.0]), tensor([0.0]),
                      tensor([[1.0, 0.0]]))  # fmt: skip
    assert s.radius.item() == 3.0  # 2 * max(1 / 1, 3 / 2)
    short = state(radius=tensor(9.0))
    linearised._judge(demands(), short, plan([1.0, 0.0], [2.0]), tensor([1.0, 0.0]),
                      tensor([-3.0]), tensor([[1.0, 0.0]]))  # fmt: skip
    assert short.radius.item() == pytest.approx(1 / 3)  # of the move, not of the radius


def test_rows_that_ended_stay_where_they_are():
    s = state(live=torch.tensor([False]))
    linearised._judge(demands(), s, plan([1.0, 0.0], [2.0]), tensor([1.0, 0.0]), tensor([0.0]),
                      tensor([[5.0, 5.0]]))  # fmt: skip
    assert s.x.tolist() == [[0.0, 0.0]]


def test_penalties_are_twice_the_duals_and_never_fall():
    old = tensor([1.0, 8.0])
    told = linearised._penalty(old, plan([0.0], [3.0, 3.0]), tensor(9.0), tensor([0.5, 0.5]))
    assert told.tolist() == [[6.0, 8.0]]


def test_where_a_program_has_no_answer_progress_must_be_worth_its_cost():
    """Twice what the step costs more, less what the old penalties pay, over what it gains."""
    none = plan([0.0], [3.0, 3.0, 3.0], feasible=False)
    progress, old = tensor([0.5, -0.25, 1.5]), tensor([1.0, 2.0, 0.0])
    told = linearised._penalty(old, none, tensor(4.0), progress)
    more = (2 * 4.0 - (0.5 - 0.5 + 0.0)) / 2.0
    assert told.tolist() == [[1.0 + more, 2.0, more]]
    nothing = linearised._penalty(old, none, tensor(4.0), tensor([0.0, -1.0, 1e-10]))
    assert nothing.tolist() == old.tolist()
    cheap = linearised._penalty(tensor([9.0]), plan([0.0], [0.0], feasible=False), tensor(1.0),
                                tensor([0.5]))  # fmt: skip
    assert cheap.tolist() == [[9.0]]  # it already is


@pytest.mark.parametrize(
    ("radius", "gain", "surplus", "boosts", "goes", "boosted"),
    [
        (2e-4, 2e-6, -1.0, 0.0, True, False),
        (0.9e-4, 2e-6, -1.0, 0.0, True, True),  # settled outside: minds the demand more
        (2e-4, 0.9e-6, -1.0, 0.0, True, True),
        (2e-4, 0.9e-6, -1.0, 2.0, True, True),
        (2e-4, 0.9e-6, -1.0, 3.0, False, False),  # for the fourth time
        (2e-4, 0.9e-6, -0.9e-3, 0.0, False, False),  # settled near enough
        (2e-4, 0.9e-6, 1.0, 0.0, False, False),
    ],
)
def test_rows_end_where_they_settle_unless_they_settle_outside(
    radius, gain, surplus, boosts, goes, boosted
):
    s = state(radius=tensor(radius), surplus=tensor([5.0, surplus]), penalty=tensor([1.0, 2.0]),
              boosts=tensor(boosts))  # fmt: skip
    assert linearised._goes_on(s, tensor(gain), 8.0).tolist() == [goes]
    assert s.boosts.tolist() == [boosts + boosted]
    assert s.penalty.tolist() == [[10.0, 20.0] if boosted else [1.0, 2.0]]
    assert s.radius.item() == pytest.approx(0.8 if boosted else radius)


def test_searches_begin_without_penalties():
    s = linearised._begin(demands(), tensor([3.0, 0.0], [0.0, 0.0]), 0.5)
    assert s.rows.tolist() == [0, 1]
    assert s.surplus.tolist() == [[2.0], [-1.0]]
    assert s.radius.tolist() == [0.5, 0.5]
    assert s.penalty.tolist() == [[0.0], [0.0]]
    assert s.boosts.tolist() == [0.0, 0.0]
    assert s.live.tolist() == [True, True]
    kept = s.select(torch.tensor([1]))
    assert (kept.rows.tolist(), kept.surplus.tolist()) == ([1], [[-1.0]])


def test_only_points_near_the_wanted_side_are_offered_also_rounded_the_way_that_helps():
    seen = []

    def accept(x, rows):
        seen.append((x.tolist(), rows.tolist()))
        return x, torch.zeros(len(x), dtype=torch.bool)

    center = tensor([0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0])
    s = state(
        rows=torch.arange(4), live=torch.tensor([True, True, True, False]),
    )  # fmt: skip
    x = tensor([1.0, 0.0], [0.5, 0.5], [3.0, 2.0], [1.0, 1.0])
    surplus = tensor([0.0, -0.9e-3], [0.0, -1.1e-3], [2.0, 1.0], [1.0, 1.0])
    slope = tensor([[1.0, 1.0], [-2.0, 3.0]]).expand(4, 2, 2)
    given = demands(accept=accept, center=center, grid=tensor(1.0, 0.5))
    linearised._test(given, Found.nothing(center), s, x, surplus, slope)
    plain, shifted = seen
    assert plain == ([[1.0, 0.0], [3.0, 2.0]], [0, 2])
    assert shifted[1] == [0, 2]
    for got, want in zip(
        shifted[0], [[1.0 - 0.499, 0.0], [3.0 - 0.499, 2.0 + 0.2495]], strict=True
    ):
        assert got == pytest.approx(want)  # columns at home are not shifted
    seen.clear()
    linearised._test(demands(accept=accept, center=center), Found.nothing(center), s, x, surplus,
                     slope)  # fmt: skip
    assert len(seen) == 1  # nothing to round


def test_surpluses_that_stand_aside_do_not_choose_the_way_of_rounding():
    slope = tensor([[1.0, -1.0], [-1.0, 1.0]])
    both = demands(grid=tensor(0.5, 2.0)).helpful(tensor([0.2, 0.1]), slope)
    assert both.tolist() == [[-0.5, 2.0]]
    first = demands(grid=tensor(0.5, 2.0), aside=1).helpful(tensor([0.2, 0.1]), slope)
    assert first.tolist() == [[0.5, -2.0]]


def test_repairs_ask_for_more_each_time_and_only_of_columns_that_moved():
    asked = []

    def linearise(x, rows):
        asked.append(x.tolist())
        return x[:, :1] + x[:, 1:] - 2, tensor([[1.0, 1.0]]).expand(len(x), 1, 2)

    given = demands(linearise=linearise, accept=lambda x, rows: (x, x[:, 0] > 9))
    linearised._repair(given, Found.nothing(tensor([0.0, 0.0])), tensor([1.0, 0.0]), Budget())
    # misses 1: by 1.2 of it, then nothing is missed any more
    firsts = [points[0][0] for points in asked]
    assert firsts == pytest.approx([1.0, 2.2, 2.2, 2.2, 2.2, 2.2], abs=1e-5)
    assert [points[0][1] for points in asked] == [0.0] * 6


def test_what_is_missed_again_is_asked_for_with_more_to_spare():
    asked = []

    def shy(x, rows):
        asked.append(x[0, 0].item())
        return tensor([-1.0]), tensor([[1.0, 0.0]])

    given = demands(linearise=shy, accept=lambda x, rows: (x, x[:, 0] > 99),
                    upper=tensor([99.0, 99.0]))  # fmt: skip
    linearised._repair(given, Found.nothing(tensor([0.0, 0.0])), tensor([1.0, 0.0]), Budget())
    steps = [b - a for a, b in pairwise(asked)]
    assert steps == pytest.approx([1.2, 1.6, 2.0, 2.4, 2.8], abs=1e-6)


def test_repairs_end_when_nothing_cheaper_is_left_or_time_is_up():
    asked = []

    def linearise(x, rows):
        asked.append(rows.tolist())
        return x[:, :1] - 1, tensor([[1.0, 0.0]]).expand(len(x), 1, 2)

    center = tensor([0.0, 0.0], [0.0, 0.0])
    best = Found.nothing(center)
    given = demands(linearise=linearise, center=center, lower=center - 9, upper=center + 9)
    given.offer(best, tensor([1.0, 0.0]), torch.tensor([0]))
    linearised._repair(given, best, tensor([1.0, 0.0], [0.5, 0.0]), Budget())
    assert asked[0] == [1]  # the first row costs no less than what is known
    assert best.ok.tolist() == [True, True]
    assert best.x[1, 0].item() == pytest.approx(1.1)
    asked.clear()
    linearised._repair(given, Found.nothing(center), center + 0.5, Budget(max_queries=0))
    assert asked == []


def test_roundings_bisect_how_far_to_shift():
    tried = []

    def accept(x, rows):
        tried.append(x[0, 0].item())
        return x, x[:, 0] >= 1.7

    given = demands(accept=accept, grid=tensor(1.0, 1.0))
    best = Found.nothing(tensor([0.0, 0.0]))
    linearised._round(given, best, tensor([1.0, 0.0]), Budget())
    assert tried == [1.5, 1.75, 1.625, 1.6875, 1.71875, 1.703125]
    assert best.x.tolist() == [[1.703125, 0.0]]
    tried.clear()
    linearised._round(given, best, tensor([1.0, 0.0]), Budget(max_queries=0))
    assert tried == []
