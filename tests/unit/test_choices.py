"""Programs of choices against enumeration: grids, charges, options, rules, several demands."""

from itertools import product

import numpy as np

from cel.solvers.choices import ChoicePrograms, cheapest_choices

STEP, OPTIONS = 0.25, 4


def random_programs(rng, with_rule, gaps=(-0.2, 1.0)):
    n, m, q = 3, rng.integers(1, 4), rng.integers(0, 4)
    g = rng.integers(0 if q else 1, 3)
    gain, price = np.zeros((n, m, g, OPTIONS)), np.zeros((n, g, OPTIONS))
    gain[..., 1:] = rng.normal(size=(n, m, g, OPTIONS - 1))
    price[..., 1:] = rng.choice([1.0, 0.5, np.inf], size=(n, g, OPTIONS - 1))
    rules = []
    if with_rule and g == 2:
        first, second = (rng.random((n, OPTIONS)) < 0.6 for _ in range(2))
        rules = [(0, first, 1, second)]
    return ChoicePrograms(
        w=rng.normal(size=(n, m, q)),
        gap=rng.uniform(*gaps, (n, m)),
        lower=-rng.integers(0, 4, size=(n, q)) * STEP - 0.1,
        upper=rng.integers(0, 4, size=(n, q)) * STEP + 0.1,
        slope=rng.uniform(0.5, 2, (n, q)),
        charge=rng.choice([0.0, 0.3], size=(n, q)),
        step=np.full(q, STEP),
        phase=rng.choice([0.0, 0.1], size=(n, q)),
        gain=gain,
        price=price,
        rules=rules,
    )


def every_choice(p, i):
    """Return (cost, set of changes) of all choices of row i that meet its demands."""
    low, high = p.lower[i], p.upper[i]
    values = []
    for j in range(p.w.shape[2]):
        grid = p.phase[i, j] + STEP * np.arange(-9, 10)
        inside = grid[(grid >= low[j] - 1e-9) & (grid <= high[j] + 1e-9)]
        values.append(sorted({0.0, *np.round(inside, 9)}))
    options = [np.flatnonzero(np.isfinite(o)) for o in p.price[i]]
    row, found = np.array([i]), []
    for v, o in product(product(*values), product(*options)):
        offset, option = np.array([v]).reshape(1, -1), np.array([o], dtype=int).reshape(1, -1)
        met = (p.brought(row, offset, option)[0] >= p.gap[i] - 1e-9).all()
        held = all(ia[i, o[a]] or ib[i, o[b]] for a, ia, b, ib in p.rules)
        if met and held:
            moved = [j for j, d in enumerate(v) if abs(d) > 1e-12]
            switched = [100 + k for k, c in enumerate(o) if p.price[i, k, c] > 0]
            found.append((p.cost(row, offset, option)[0], frozenset(moved + switched)))
    return sorted(found, key=lambda pair: pair[0])


def expected(choices, count):
    kept, costs = [], []
    for cost, own in choices:
        if not any(s <= own for s in kept):
            kept.append(own)
            costs.append(cost)
    return costs[:count]


def test_choices_equal_enumeration():
    rng = np.random.default_rng(0)
    states = {True: 0, False: 0}
    for trial in range(24):
        programs, count = random_programs(rng, trial % 2), 1 + 2 * (trial % 3 == 0)
        got = cheapest_choices(programs, count=count)
        for i in range(len(programs)):
            want = expected(every_choice(programs, i), count)
            states[bool(want)] += 1
            padded = want + [np.inf] * (count - len(want))
            np.testing.assert_allclose(got.cost[i], padded, atol=1e-6)
            assert bool(got.infeasible[i]) == (not want)
            if want:
                assert got.bound[i] <= want[0] + 1e-12
                assert want[0] <= got.bound[i] * (1 + 1e-6) + 1e-8
    assert min(states.values()) > 12


def test_all_answers_of_a_row_equal_enumeration():
    """Small demands have many answers: none may be lost behind the first one."""
    rng, several = np.random.default_rng(2), 0
    for trial in range(20):
        programs = random_programs(rng, trial % 2, gaps=(0.05, 0.3))
        got = cheapest_choices(programs, count=5)
        for i in range(len(programs)):
            want = expected(every_choice(programs, i), 5)
            several += len(want) > 1
            np.testing.assert_allclose(got.cost[i], want + [np.inf] * (5 - len(want)), atol=1e-6)
    assert several > 5


def test_bounds_hold_at_every_limit_of_nodes():
    rng = np.random.default_rng(1)
    for _ in range(6):
        programs = random_programs(rng, with_rule=True)
        full = cheapest_choices(programs)
        for nodes in (1, 3, 10):
            few = cheapest_choices(programs, nodes=nodes)
            assert (few.bound <= full.bound + 1e-9).all()
            assert (few.cost[:, 0] >= full.cost[:, 0] - 1e-6).all()
            assert not (few.infeasible & ~full.infeasible).any()
