"""Fronts, crowding, draws and the loop of populations against plain code."""

import numpy as np
import pytest
import torch

from cel.search.budget import Budget
from cel.search.feature_draws import Sampler
from cel.search.fronts import DominatedVolume, crowding, nondominated
from cel.search.population import evolve
from cel.search.streams import RowStreams
from cel.search.variation import Variation, changed, simulated_binary, tournament
from cel.testing.problems import PROBLEMS


def plain_fronts(values):
    """Peel fronts one person at a time."""
    m = len(values)

    def beats(i, j):
        a, b = values[i], values[j]
        return all(x <= y for x, y in zip(a, b, strict=True)) and any(
            x < y for x, y in zip(a, b, strict=True)
        )

    front, left, number = [0] * m, set(range(m)), 0
    while left:
        now = {j for j in left if not any(beats(i, j) for i in left)}
        for j in now:
            front[j] = number
        left, number = left - now, number + 1
    return front


@pytest.mark.parametrize("levels", [3, 1000])
def test_fronts_equal_those_of_a_plain_peeling(levels):
    rng = np.random.default_rng(0)
    values = (rng.random((6, 50, 3)) * levels).round().astype(np.float32)
    ours = nondominated(torch.as_tensor(values)).tolist()
    assert ours == [plain_fronts(v.tolist()) for v in values]
    some = nondominated(torch.as_tensor(values), enough=20)
    for i in range(6):  # whatever the other rows need
        assert torch.equal(nondominated(torch.as_tensor(values[i : i + 1]), enough=20)[0], some[i])
    for row, plain in zip(some, ours, strict=True):
        known = torch.as_tensor(plain)
        last = int(row.max())
        assert (row[known < last] == known[known < last]).all()
        assert int((row < last).sum()) >= 20 or last == max(plain)


def test_rows_with_enough_people_wait_for_no_other_row():
    line = torch.arange(8.0)
    chain = torch.stack([line, line], 1)
    wide = torch.cat([torch.stack([line[:5], 4 - line[:5]], 1), chain[:3] + 5])
    fronts = nondominated(torch.stack([chain, wide]), enough=5)
    assert fronts.tolist() == [[0, 1, 2, 3, 4, 5, 5, 5], [0, 0, 0, 0, 0, 1, 1, 1]]


def plain_crowding(values, front, apart):
    """The definition, front by front, objective by objective."""
    m, o = values.shape
    out = np.zeros(m)
    for f in set(front):
        who = [i for i in range(m) if front[i] == f]
        gap, space = dict.fromkeys(who, 0.0), dict.fromkeys(who, 0.0)
        for k in range(o):
            order = sorted(who, key=lambda i: (values[i, k], i))
            width = max(values[order[-1], k] - values[order[0], k], 1e-30)
            for place, i in enumerate(order):
                if place in (0, len(order) - 1):
                    gap[i] = space[i] = np.inf
                    continue
                before, after = order[place - 1], order[place + 1]
                gap[i] += (values[after, k] - values[before, k]) / width
                space[i] += apart[i, before] + apart[i, after]
        for table in (gap, space):
            for i in who:
                below = sum(table[j] < table[i] for j in who)
                level = sum(table[j] == table[i] for j in who)
                out[i] += below + (level + 1) / 2
    return out


def test_crowding_equals_the_definition():
    rng = np.random.default_rng(1)
    values = rng.random((5, 24, 4)).round(2)
    x = rng.random((5, 24, 3))
    front = rng.integers(0, 4, (5, 24))
    apart = np.abs(x[:, :, None] - x[:, None]).sum(-1)
    ours = crowding(*(torch.as_tensor(v) for v in (values, front, apart)))
    plain = [plain_crowding(*parts) for parts in zip(values, front, apart, strict=True)]
    np.testing.assert_allclose(ours, plain)


def test_the_dominated_volume_is_that_of_the_box_and_never_falls():
    volume = DominatedVolume(torch.tensor([[2.0, 1.0]]), points=4000, power=1.0)
    row = torch.tensor([0])
    volume.add(torch.tensor([[[1.0, 0.25]]]), row)
    assert float(volume.share[0]) == pytest.approx(0.5 * 0.75, abs=0.01)
    volume.add(torch.tensor([[[1.5, 0.5]]]), row)  # dominated by the first
    assert float(volume.share[0]) == pytest.approx(0.5 * 0.75, abs=0.01)
    volume.add(torch.tensor([[[0.5, 0.75]]]), row)
    assert float(volume.share[0]) == pytest.approx(0.375 + 0.25 * 0.25, abs=0.01)


def test_binary_crossover_keeps_the_mean_and_spreads_as_published():
    u = torch.linspace(0.001, 0.999, 999)
    low, high = simulated_binary(torch.zeros(999), torch.ones(999), u, 5.0)
    torch.testing.assert_close(low + high, torch.ones(999))
    spread = high - low
    assert spread[499] == pytest.approx(1.0, abs=1e-4)
    assert spread[99] == pytest.approx(0.2 ** (1 / 6), rel=1e-4)
    assert spread[899] == pytest.approx(0.2 ** (-1 / 6), rel=1e-4)


def test_tournaments_prefer_the_fitter():
    places = tournament(RowStreams.of(torch.ones(1, 2), 0), 10, 20000)[0]
    shares = torch.bincount(places, minlength=10) / 20000
    expected = torch.tensor([(19 - 2 * i) / 100 for i in range(10)])
    torch.testing.assert_close(shares, expected, atol=0.01, rtol=0)


def test_another_category_is_never_the_same_one_and_all_are_equally_likely():
    problem = PROBLEMS["related"]()
    x = torch.as_tensor(problem.x[:4])
    sampler, rows = Sampler.of(problem.space.region(x)), torch.arange(4)
    copies = x[:, None, :].repeat(1, 6000, 1)
    value = RowStreams.of(x, 0).uniform(6000, len(problem.space))
    new = sampler.other(copies, value, rows)
    assert (new[..., :3] == copies[..., :3]).all()
    job, own = new[..., 3:6], copies[..., 3:6]
    assert (job.sum(-1) == 1).all()
    assert not (job * own).any()
    expected = (1 - own[:, 0]) / 2
    torch.testing.assert_close(job.mean(1), expected, atol=0.03, rtol=0)


def test_a_category_without_alternative_stays():
    problem = PROBLEMS["mixed"]()  # of three jobs only b and c may be reached
    x = torch.as_tensor(problem.x[:12])
    region = problem.space.region(x)
    new = Sampler.of(region).other(x[:, None], torch.rand(12, 1, 6), torch.arange(12))[:, 0]
    was_a = x[:, 2] > 0.5
    assert (new[:, 2] == 0).all()  # a may not be reached, and who has it leaves it
    assert (new[~was_a, 3:5] == 1 - x[~was_a, 3:5]).all()
    frozen = region.freeze(torch.tensor([False, False, True, False, False, False]))
    same = Sampler.of(frozen).other(x[:, None], torch.rand(12, 1, 6), torch.arange(12))[:, 0]
    assert torch.equal(same, x)


@pytest.mark.parametrize("name", ["binary_numeric", "mixed", "related"])
def test_children_are_inside_and_counted(name):
    problem = PROBLEMS[name]()
    x = torch.as_tensor(problem.x)
    region, rows = problem.space.region(x), torch.arange(len(x))
    vary = Variation(Sampler.of(region), torch.full((x.shape[1],), 0.3))
    stream = RowStreams.of(x, 0)
    parents = vary.inside(torch.as_tensor(problem.x_train[:120]).reshape(12, 10, -1), rows,
                          surely=True)  # fmt: skip
    both = vary.cross(parents[:, :5], parents[:, 5:], stream, pair=0.9, gene=0.5)
    child = vary.mutate(torch.cat(both, 1), rows, stream, person=0.9, gene=0.5)
    seen = vary.inside(vary.reset(child, rows, stream, 0.2), rows)
    source = rows.repeat_interleave(10)
    assert bool(region.select(source).contains(seen.flatten(0, 1)).all())
    moved = changed(seen, x, region)
    columns = (seen - x[:, None]).abs() > 1e-6
    for i, f in enumerate(problem.space):
        assert torch.equal(moved[..., i], columns[..., list(f.columns)].any(-1))


def test_a_grid_moves_by_a_step_even_if_its_deviation_is_smaller():
    problem = PROBLEMS["mixed"]()  # months has steps of 0.1
    x = torch.as_tensor(problem.x[:6])
    rows = torch.arange(6)
    vary = Variation(Sampler.of(problem.space.region(x)), torch.full((8,), 1e-3))
    child = vary.mutate(x[:, None].repeat(1, 500, 1), rows, RowStreams.of(x, 0), person=1, gene=1)
    moved = (vary.inside(child, rows)[..., 1] != x[:, None, 1]).float().mean()
    assert 0.4 < moved < 0.8  # a normal step of one width is rounded away in 38 % of all cases


class Walk:
    """People that take a random step down; a row ends at zero or after two steps in vain."""

    draws, tolerance = 1, 0.0

    def __init__(self, start):
        self.start, self.seen = start, []

    def first(self, stream):
        return self.start[:, None, None].clone(), self.start[:, None].clone()

    def breed(self, people, worth, rows, stream):
        self.seen.append(len(rows))
        step = stream.uniform(1) * (rows != 2)[:, None]
        value = (worth - step).clamp(min=0)
        return value[..., None], value

    def goal(self, worth, rows):
        return worth[:, 0]

    def open(self, worth, stale, rows):
        return (worth[:, 0] > 0) & (stale < 2)


def test_rows_end_one_by_one_and_do_not_see_each_other():
    start = torch.tensor([0.5, 3.0, 4.0])
    keys = RowStreams.of(start[:, None], 0)
    walk = Walk(start)
    worth = evolve(walk, keys, generations=100)[1]
    assert worth[:, 0].tolist() == [0.0, 0.0, 4.0]
    assert (walk.seen[0], walk.seen[-1]) == (3, 1)
    assert walk.seen == sorted(walk.seen, reverse=True)
    for most in (1, 3):
        whole = evolve(Walk(start), keys, generations=most)[1]
        alone = evolve(Walk(start[1:2]), keys.select(torch.tensor([1])), generations=most)[1]
        assert torch.equal(whole[1:2], alone)
    spent = Budget(max_queries=0)
    assert torch.equal(evolve(Walk(start), keys, generations=9, budget=spent)[1][:, 0], start)
