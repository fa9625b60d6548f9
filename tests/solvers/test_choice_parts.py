"""The pieces of the search over choices by hand, and whole programs with continuous numbers."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from cel.solvers.choice_bounds import _hulls, evaluate
from cel.solvers.choice_programs import broken_rule, meets, on_grid, pick_option, tidy
from cel.solvers.choices import (
    ChoicePrograms,
    ChoiceStates,
    _lowest_of_rows,
    _roots,
    cheapest_choices,
    split_parts,
)


def program(w, gap, lower, upper, **more):
    """One program; slopes 1, no charges, no grids and no labels unless given."""
    w, gap = np.atleast_2d(np.asarray(w, float)), np.atleast_1d(np.asarray(gap, float))
    q = w.shape[1]
    given = {
        "slope": np.ones(q), "charge": np.zeros(q), "step": np.zeros(q), "phase": np.zeros(q),
        "gain": np.zeros((len(gap), 0, 1)), "price": np.zeros((0, 1)), "rules": (),
    } | {k: v if k == "rules" else np.asarray(v, float) for k, v in more.items()}  # fmt: skip
    rows = {"w": w, "gap": gap, "lower": np.asarray(lower, float),
            "upper": np.asarray(upper, float)}  # fmt: skip
    rows |= {k: given[k] for k in ("slope", "charge", "phase", "gain", "price")}
    return ChoicePrograms(
        **{k: v[None] for k, v in rows.items()}, step=given["step"], rules=given["rules"]
    )


LABELS = {"gain": [[[0.0, 1.0, 3.0]]], "price": [[0.0, 2.0, 3.0]]}
ROW = np.array([0])


def test_costs_and_gains_by_hand():
    p = program([[2.0, -1.0]], [1.0], [-3, -3], [3, 3], slope=[1.0, 0.5], charge=[0.25, 4.0],
                **LABELS)  # fmt: skip
    one = np.array([[-1.5, 0.0]]), np.array([[2]])
    assert p.cost(ROW, *one).tolist() == [1.5 + 0.25 + 3.0]
    assert p.brought(ROW, *one).tolist() == [[-3.0 + 3.0]]
    assert p.cost(ROW, np.array([[0.0, 2.0]]), np.array([[0]])).tolist() == [1.0 + 4.0]
    assert p.cost(ROW, np.array([[0.0, 1e-13]]), np.array([[0]]))[0] < 1e-12  # no charge
    assert len(p) == 1
    table = np.arange(12.0).reshape(2, 2, 3)
    assert pick_option(table, np.array([[0, 2], [1, 1]])).tolist() == [[0.0, 5.0], [7.0, 10.0]]


def test_demands_may_be_missed_by_rounding_only():
    p = program([[1.0]], [3.0], [-9], [9])
    told = [meets(p, ROW, np.array([[d]]), np.zeros((1, 0), int))[0]
            for d in (3.0, 3.0 - 3e-7, 3.0 - 5e-7, 4.0, 2.0)]  # fmt: skip
    assert told == [True, True, False, True, False]
    both = program([[1.0], [-1.0]], [1.0, -2.0], [-9], [9])  # 1 <= d <= 2
    told = [meets(both, ROW, np.array([[d]]), np.zeros((1, 0), int))[0] for d in (0.5, 1.5, 2.5)]
    assert told == [False, True, False]


def test_the_first_broken_rule_is_named():
    first, second = np.array([[True, False]]), np.array([[False, True]])
    price, gain = [[0.0, 1.0], [0.0, 1.0]], [[[0.0, 1.0], [0.0, 1.0]]]
    rules = [(0, first, 1, second), (1, first, 0, first)]
    p = program(np.zeros((1, 0)), [-1.0], [], [], gain=gain, price=price, rules=rules)
    options = np.array([[0, 0], [1, 1], [1, 0], [0, 1]])
    rows = np.zeros(4, int)
    assert broken_rule(p, rows, options).tolist() == [-1, 1, 0, -1]
    assert meets(p, rows, np.zeros((4, 0)), options).tolist() == [True, False, False, True]
    twice = program(np.zeros((1, 0)), [-1.0], [], [], gain=gain, price=price,
                    rules=[rules[0], rules[0]])  # fmt: skip
    assert broken_rule(twice, ROW, np.array([[1, 0]])).tolist() == [0]


def state(p, **changes):
    from dataclasses import replace

    return replace(_roots(p), **changes)


def test_ends_of_intervals_go_to_grid_points_and_home_counts_as_one():
    p = program([[1.0] * 4], [9.0], [-1.0] * 4, [1.0] * 4, step=[0.5, 0.5, 0.5, 0.0],
                phase=[0.1, 0.1, 0.1, 0.1])  # fmt: skip
    # grid: -0.9 -0.4 0.1 0.6
    lower, upper = np.array([[-0.7, 0.05, 0.1, -0.7]]), np.array([[0.5, 1.0, 0.1, 0.55]])
    found = tidy(p, state(p, lower=lower, upper=upper))
    np.testing.assert_allclose(found.lower, [[-0.4, 0.1, 0.1, -0.7]])
    np.testing.assert_allclose(found.upper, [[0.1, 0.6, 0.1, 0.55]])
    lower, upper = np.array([[-0.3, -0.05, 0.0, 0.0]]), np.array([[-0.05, 0.05, 0.09, 0.0]])
    found = tidy(p, state(p, lower=lower, upper=upper))
    np.testing.assert_allclose(found.lower, [[0.0, 0.0, 0.0, 0.0]])  # no grid point before home
    np.testing.assert_allclose(found.upper, [[-0.4, 0.0, 0.0, 0.0]])  # the first is empty
    near = tidy(p, state(p, lower=np.full((1, 4), 0.1 + 1e-8), upper=np.full((1, 4), 0.6 - 1e-8)))
    np.testing.assert_allclose(near.lower[0, :3], 0.1, atol=1e-12)  # rounding is no step
    np.testing.assert_allclose(near.upper[0, :3], 0.6, atol=1e-12)


def test_offsets_are_rounded_away_from_home_inside_their_interval():
    p = program([[1.0] * 5], [9.0], [-9] * 5, [9] * 5, step=[0.5, 0.5, 0.5, 0.5, 0.0])
    ends = np.full((1, 5), -0.8), np.full((1, 5), 0.8)
    found = on_grid(p, ROW, np.array([[0.2, -0.2, 0.7, 0.0, 0.2]]), *ends)
    assert found.tolist() == [[0.5, -0.5, 0.8, 0.0, 0.2]]
    assert on_grid(p, ROW, np.array([[-0.7, 0.5, 0.5 + 1e-8, 0.0, 0.0]]), *ends).tolist() == [
        [-0.8, 0.5, 0.5, 0.0, 0.0]
    ]


def test_grids_may_lie_off_home_also_when_rounding():
    p = program([[1.0] * 3], [9.0], [-9] * 3, [9] * 3, step=[0.5] * 3, phase=[0.1, 0.1, -0.2])
    ends = np.full((1, 3), -2.0), np.full((1, 3), 2.0)
    found = on_grid(p, ROW, np.array([[0.3, -0.3, -0.3]]), *ends)
    np.testing.assert_allclose(found, [[0.6, -0.4, -0.7]])


def test_under_one_demand_numbers_move_only_where_they_help():
    roots = _roots(program([[2.0, -1.0, 0.0]], [1.0], [-1, -2, -3], [4, 5, 6]))
    assert roots.lower.tolist() == [[0.0, -2.0, 0.0]]
    assert roots.upper.tolist() == [[4.0, 0.0, 0.0]]
    two = _roots(program([[2.0], [1.0]], [1.0, 1.0], [-1], [4]))
    assert (two.lower.item(), two.upper.item()) == (-1.0, 4.0)


def test_one_demand_is_filled_by_what_gains_most_per_cost():
    """2 per unit from the first, 1 from the second: 1 of the first, then half of the second."""
    p = program([[2.0, 1.0]], [2.5], [-1, -1], [1, 1])
    found = evaluate(p, _roots(p))
    np.testing.assert_allclose(found.offset, [[1.0, 0.5]])
    assert found.floor.item() == pytest.approx(1.5, abs=1e-8)
    assert found.floor.item() < 1.5
    assert found.whole.item()
    dear = program([[2.0, 1.0]], [2.5], [-1, -1], [1, 1], slope=[5.0, 1.0])
    np.testing.assert_allclose(evaluate(dear, _roots(dear)).offset, [[0.75, 1.0]])
    far = program([[2.0, 1.0]], [3.1], [-1, -1], [1, 1])
    assert np.isposinf(evaluate(far, _roots(far)).floor).all()
    edge = program([[2.0, 1.0]], [3.0], [-1, -1], [1, 1])
    assert evaluate(edge, _roots(edge)).floor.item() == pytest.approx(2.0, abs=1e-8)


def test_shares_of_charges_grids_and_options_are_floors_not_choices():
    charged = program([[1.0]], [0.5], [0], [2], charge=[3.0])
    found = evaluate(charged, _roots(charged))
    assert found.floor.item() == pytest.approx(0.25 * (2 + 3), abs=1e-8)  # a quarter of it all
    assert not found.whole.item()
    assert (found.split.item(), found.at.item()) == (0, pytest.approx(0.5))
    grid = program([[1.0]], [0.5], [0], [2], step=[0.4])
    found = evaluate(grid, _roots(grid))
    assert found.floor.item() == pytest.approx(0.5, abs=1e-8)
    assert (found.whole.item(), found.split.item()) == (False, 0)
    labels = program(np.zeros((1, 0)), [2.0], [], [], **LABELS)
    found = evaluate(labels, _roots(labels))
    assert found.floor.item() == pytest.approx(2.0, abs=1e-8)  # two thirds of the last option
    assert (found.whole.item(), found.split.item(), found.at.item()) == (False, 0, 2)
    done = program(np.zeros((1, 0)), [3.0], [], [], **LABELS)
    found = evaluate(done, _roots(done))
    assert found.floor.item() == pytest.approx(3.0, abs=1e-8)
    assert (found.whole.item(), found.option.item()) == (True, 2)


def test_hulls_take_the_best_gain_per_cost_first():
    price = np.array([[[0.0, 1.0, 2.0, 4.0, 0.0, np.inf]]])
    gain = np.array([[[0.0, 0.5, 3.0, 4.0, 0.25, 9.0]]])
    chain, stay = _hulls(price, gain)
    assert stay.tolist() == [[4]]  # as cheap as the first, and gains more
    told = [(t.item(), c.item(), g.item()) for t, c, g in chain]
    assert told == [(2, 2.0, 2.75), (3, 2.0, 1.0)]  # the second option lies below the hull
    flat, home = _hulls(np.zeros((2, 0, 1)), np.zeros((2, 0, 1)))
    assert (flat, home.shape) == ([], (2, 0))
    two, stay = _hulls(np.array([[[0.0, 1.0], [0.0, 2.0]]]), np.array([[[0.0, 2.0], [1.0, 0.5]]]))
    assert [(t.tolist(), c.tolist(), g.tolist()) for t, c, g in two] == [
        ([[1, 0]], [[1.0, 0.0]], [[2.0, 0.0]])
    ]
    assert stay.tolist() == [[0, 0]]


def test_parts_miss_no_choice_and_share_none():
    """Grid with home between two points, a charge, and options: by listing."""
    p = program([[1.0, 1.0]], [9.0], [-1, -1], [1, 1], step=[0.5, 0.0], phase=[0.1, 0.0],
                charge=[0.0, 2.0], gain=[[[0.0, 1.0, 3.0]]], price=[[0.0, 2.0, 3.0]])  # fmt: skip
    root = state(p, lower=np.array([[-0.9, -1.0]]), upper=np.array([[0.6, 1.0]]))

    def ends(split, at):
        parts = split_parts(p, state_with(root, split, at))
        return [(s.lower[0].tolist(), s.upper[0].tolist()) for s in parts if len(s)]

    def state_with(s, split, at):
        from dataclasses import replace

        return replace(s, split=np.array([split]), at=np.array([float(at)]))

    np.testing.assert_allclose(ends(0, 0.3), [[[-0.9, -1], [0.1, 1]], [[0.6, -1], [0.6, 1]]])
    np.testing.assert_allclose(ends(0, 0.1), [[[-0.9, -1], [0.1, 1]], [[0.6, -1], [0.6, 1]]])
    np.testing.assert_allclose(ends(0, 0.05), [[[-0.9, -1], [0.0, 1]], [[0.1, -1], [0.6, 1]]])
    np.testing.assert_allclose(ends(0, -0.2), [[[-0.9, -1], [-0.4, 1]], [[0.0, -1], [0.6, 1]]])
    still, up, down = split_parts(p, state_with(root, 1, 0.4))  # stay, or pay the charge
    assert (still.lower[0, 1], still.upper[0, 1], still.moving[0, 1]) == (0.0, 0.0, False)
    assert (up.lower[0, 1], up.upper[0, 1], up.moving[0, 1]) == (0.0, 1.0, True)
    assert (down.lower[0, 1], down.upper[0, 1], down.moving[0, 1]) == (-1.0, 0.0, True)
    assert not np.concatenate([still.moving[0, :1], up.moving[0, :1]]).any()
    paid = state_with(up, 1, 0.4)
    halves = [s for s in split_parts(p, paid) if len(s)]
    assert [(s.lower[0, 1], s.upper[0, 1]) for s in halves] == [(0.0, 0.4), (0.4, 1.0)]
    for at, first, second in ((0, [1, 0, 0], [0, 1, 1]), (1, [1, 0, 0], [0, 1, 1]),
                              (2, [1, 1, 0], [0, 0, 1])):  # fmt: skip
        told = [
            s.allowed[0, 0].astype(int).tolist() for s in split_parts(p, state_with(root, 2, at))
        ]
        assert told == [first, second]
    assert split_parts(p, state_with(root, -1, 0)) == []


def test_states_are_joined_and_the_lowest_of_each_row_comes_first():
    p = program([[1.0]], [1.0], [-1], [1])
    one = _roots(p)
    from dataclasses import replace

    rows = [(3, 2.0, False), (1, 5.0, False), (3, 1.0, False), (3, 1.0, True), (1, 7.0, True)]
    all_ = ChoiceStates.join([
        replace(one, row=np.array([r]), floor=np.array([f]), whole=np.array([w]))
        for r, f, w in rows
    ])  # fmt: skip
    assert len(all_) == 5
    assert _lowest_of_rows(all_).tolist() == [1, 3]  # of equal floors the decided one
    assert all_.pick(np.array([4, 0])).row.tolist() == [1, 3]


def mixed_programs(rng, n=6, m=1):
    """Programs of continuous numbers, some with charges, and one label."""
    q, k = 3, 3
    gain, price = rng.normal(size=(n, m, 1, k)), rng.uniform(0.2, 1.0, (n, 1, k))
    gain[..., 0], price[..., 0] = 0.0, 0.0
    return ChoicePrograms(
        w=rng.normal(size=(n, m, q)), gap=rng.uniform(0.2, 1.5, (n, m)),
        lower=-rng.uniform(0, 1, (n, q)), upper=rng.uniform(0, 1, (n, q)),
        slope=rng.uniform(0.5, 2, (n, q)), charge=rng.choice([0.0, 0.4], size=(n, q)),
        step=np.zeros(q), phase=np.zeros((n, q)), gain=gain, price=price,
    )  # fmt: skip


def by_milp(p, i):
    """Return the least cost of row i: rises, falls, whether each moved, and shares of options."""
    q, k, m = p.w.shape[2], p.price.shape[2], p.gap.shape[1]
    up, down = p.upper[i], -p.lower[i]
    cost = np.concatenate([p.slope[i], p.slope[i], p.charge[i], p.charge[i], p.price[i, 0]])
    eye, none = np.eye(q), np.zeros((q, q))
    pad = np.zeros((q, k))
    demands = np.hstack([p.w[i], -p.w[i], np.zeros((m, 2 * q)), p.gain[i, :, 0]])
    moved = np.vstack([
        np.hstack([eye, none, -np.diag(up), none, pad]),
        np.hstack([none, eye, none, -np.diag(down), pad]),
    ])  # fmt: skip
    one = np.concatenate([np.zeros(4 * q), np.ones(k)])[None]
    rows = np.concatenate([np.zeros(2 * q), np.ones(2 * q + k)])
    told = milp(
        cost, integrality=rows, options={"mip_rel_gap": 1e-9},
        bounds=Bounds(0, np.concatenate([up, down, np.ones(2 * q + k)])),
        constraints=[LinearConstraint(demands, p.gap[i], np.inf),
                     LinearConstraint(moved, -np.inf, 0), LinearConstraint(one, 1, 1)],
    )  # fmt: skip
    return told.fun if told.success else np.inf


@pytest.mark.parametrize("m", [1, 2])
def test_continuous_numbers_with_charges_equal_integer_programs(m):
    rng = np.random.default_rng(m)
    feasible = 0
    for _ in range(5):
        p = mixed_programs(rng, m=m)
        found = cheapest_choices(p)
        for i in range(len(p)):
            best = by_milp(p, i)
            feasible += np.isfinite(best)
            assert np.isposinf(best) == bool(found.infeasible[i])
            if np.isfinite(best):
                assert found.cost[i, 0] == pytest.approx(best, rel=1e-5, abs=1e-7)
                assert found.bound[i] <= best * (1 + 1e-9)
                assert found.bound[i] >= best * (1 - 1e-5)
    assert 8 < feasible < 30


def test_the_search_stops_when_it_is_told_and_says_what_it_knows():
    p = mixed_programs(np.random.default_rng(5), n=8)
    full = cheapest_choices(p)
    looked = []

    def expired():
        looked.append(1)
        return True

    few = cheapest_choices(p, expired=expired)
    assert len(looked) == 1
    assert (few.nodes <= 1).all()
    assert (few.bound <= full.bound + 1e-12).all()
    assert (few.bound[np.isfinite(few.bound)] > 0).all()
    assert (few.cost[:, 0] >= full.cost[:, 0] - 1e-9).all()
    hard = mixed_programs(np.random.default_rng(9), n=8, m=2)
    nodes = cheapest_choices(hard).nodes
    assert nodes.tolist() == [3, 0, 1, 1, 3, 3, 4, 19]  # as measured; more is a loss
    few = cheapest_choices(hard, nodes=1).nodes
    assert few.tolist() == np.minimum(nodes, 2).tolist()  # the second look says that it is over
    assert full.offset.shape == (8, 1, 3)
    assert np.isnan(full.offset[full.infeasible]).all()
    assert (full.option[full.infeasible] == -1).all()


def test_further_answers_change_something_less():
    """Each number alone, each option alone, or several together: sets that hold none before."""
    p = program([[1.0, 1.0]], [1.0], [0, 0], [1, 1], slope=[1.0, 2.0],
                gain=[[[0.0, 1.0, 0.5]]], price=[[0.0, 4.0, 0.25]])  # fmt: skip
    found = cheapest_choices(p, count=4)
    # half of the first and the small option; the whole first alone; the second ...; the dear one
    np.testing.assert_allclose(found.cost[0, :4], [0.75, 1.0, 1.25, 2.0], atol=1e-6)
    assert found.option[0].tolist() == [[2], [0], [2], [0]]
    np.testing.assert_allclose(
        found.offset[0], [[0.5, 0.0], [1.0, 0.0], [0.0, 0.5], [0.0, 1.0]], atol=1e-6
    )
    assert found.bound.item() == pytest.approx(0.75, rel=1e-6)
    two = program([[1.0, 1.0]], [1.0], [0, 0], [1, 1], slope=[1.0, 2.0])
    both = cheapest_choices(two, count=3)
    np.testing.assert_allclose(both.cost, [[1.0, 2.0, np.inf]], atol=1e-6)
    assert both.bound.item() == pytest.approx(1.0, rel=1e-6)


def test_what_the_first_look_rounds_up_is_kept_when_time_is_up():
    """0.5 lies between 0.4 and 0.8: the first relaxed solution, rounded away from home, is one."""
    p = program([[1.0]], [0.5], [0], [2], step=[0.4])
    few = cheapest_choices(p, expired=lambda: True)
    np.testing.assert_allclose(few.offset, [[[0.8]]])
    np.testing.assert_allclose(few.cost, [[0.8]])
    assert few.bound.item() == pytest.approx(0.5, abs=1e-8)


@pytest.mark.parametrize("step", [0.25, 0.5])
def test_solutions_of_several_demands_that_lie_on_the_grid_are_choices(step):
    """d_0 >= 0.5 and d_0 + d_1 >= 1: at 0.5 and 0.5, which no split can improve."""
    p = program([[1.0, 0.0], [1.0, 1.0]], [0.5, 1.0], [-2, -2], [2, 2], step=[step, step],
                slope=[2.0, 1.0])  # fmt: skip
    found = evaluate(p, _roots(p))
    assert found.whole.tolist() == [True]
    assert found.offset.tolist() == [[0.5, 0.5]]  # exactly
    assert cheapest_choices(p).nodes.tolist() == [1]
    off = program([[1.0, 0.0], [1.0, 1.0]], [0.6, 1.0], [-2, -2], [2, 2], step=[step, step],
                  slope=[2.0, 1.0])  # fmt: skip
    split = evaluate(off, _roots(off))
    assert split.whole.tolist() == [False]
    assert cheapest_choices(off).cost[0, 0] == pytest.approx({0.25: 1.75, 0.5: 2.0}[step])
