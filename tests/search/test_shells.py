"""Shells: how far their points lie, that no draw is used twice, and which point wins."""

import pytest
import torch
from scipy import stats

from cel.search import Budget, RowStreams, shells
from cel.search.shells import grow_shells

CENTER = torch.tensor([[0.0, 0.0, 0.0], [2.0, -1.0, 0.5], [5.0, 5.0, 5.0]])


def run(judge, *, center=CENTER, samples=5, limit=3.0, step=1.0, draw=0, **more):
    stream = RowStreams(RowStreams.of(CENTER, 1).keys[: len(center)], draw)
    return grow_shells(
        center, judge, like=center, rng=stream, step=step, samples=samples,
        limit=torch.as_tensor(limit).expand(len(center)), **more,
    )  # fmt: skip


class Never:
    """A judge that accepts nothing and keeps what it was shown."""

    def __init__(self):
        self.points, self.rows = [], []

    def __call__(self, x, rows):
        self.points.append(x)
        self.rows.append(rows.tolist())
        return x, torch.full(x.shape[:2], torch.inf)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_shells_take_the_numbers_of_one_stream_one_after_the_other(p):
    """An endless stream would give the same points: no number is drawn twice, none is left out."""
    seen = Never()
    run(seen, p=p, draw=4, step=0.5, limit=2.0)
    stream = RowStreams(RowStreams.of(CENTER, 1).keys, 4)
    assert len(seen.points) == 4
    for shell, points in enumerate(seen.points):
        way = stream.normal(5, 3)
        radius = (shell + stream.uniform(5)) * 0.5
        unit = way / way.norm(p=p, dim=-1, keepdim=True)
        torch.testing.assert_close(points, CENTER[:, None] + radius[..., None] * unit)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_radii_are_uniform_in_the_shell_and_ways_have_no_favourite(p):
    seen = Never()
    run(seen, center=CENTER[1:2], samples=4000, limit=2.0, step=0.7, p=p)
    for shell, points in enumerate(seen.points):
        away = (points[0] - CENTER[1]).double()
        radius = away.norm(p=p, dim=1)
        share = radius / 0.7 - shell
        assert 0 <= float(share.min()) <= float(share.max()) <= 1 + 1e-5
        assert stats.kstest(share.numpy(), "uniform").pvalue > 1e-3
        unit = away / away.norm(dim=1, keepdim=True)
        assert float(unit.mean(0).abs().max()) < 0.03
    directions = [
        (x[0] - CENTER[1]) / (x[0] - CENTER[1]).norm(dim=1, keepdim=True) for x in seen.points
    ]
    cosine = (directions[0] * directions[1]).sum(1)
    assert abs(float(cosine.mean())) < 0.05


def test_a_row_ends_beyond_its_own_limit():
    seen = Never()
    found = run(seen, limit=torch.tensor([0.5, 1.0, 2.5]))
    assert seen.rows == [[0, 1, 2], [2], [2]]
    assert not found.ok.any()


def test_the_cheapest_point_of_the_first_shell_with_one_wins():
    shown = []

    def judge(x, rows):
        shown.append(rows.tolist())
        far = (x - CENTER[rows, None]).norm(dim=-1)
        return x + 100, torch.where(far > 1.2 + 0 * far, 10 - far, torch.inf)

    found = run(judge, samples=50, limit=9.0)
    assert found.ok.all()
    assert shown == [[0, 1, 2], [0, 1, 2]]
    far = (found.x - 100 - CENTER).norm(dim=1)
    torch.testing.assert_close(found.cost, 10 - far)
    seen = Never()
    run(seen, samples=50, limit=2.0)
    widest = (seen.points[1] - CENTER[:, None]).norm(dim=-1).amax(1)
    torch.testing.assert_close(far, widest, atol=1e-4, rtol=0)


def test_parts_of_the_rows_give_the_same_answers(monkeypatch):
    def judge(x, rows):
        cost = x.square().sum(-1)
        return x, torch.where(cost > 4, cost, torch.inf)

    whole = run(judge)
    monkeypatch.setattr(shells, "CHUNK_VALUES", 1)
    parts = run(judge)
    assert torch.equal(whole.x, parts.x)
    assert torch.equal(run(judge, center=CENTER[:1]).x[0], whole.x[0])


def test_a_spent_budget_ends_the_search():
    budget, seen = Budget(max_queries=1), Never()

    def judge(x, rows):
        budget.spend(len(rows))
        return seen(x, rows)

    run(judge, budget=budget)
    assert len(seen.points) == 1


def test_shells_grow_in_their_own_units_along_free_axes():
    """Shells of row i are 0.5, 1 and 2 thick, in its unit, from 0.25 on; column 1 stays."""
    seen, unit = Never(), torch.tensor([1.0, 2.0, 0.5])
    free = torch.tensor([[True, False, True]]).expand(3, 3)
    run(seen, start=0.25, step=0.5, growth=2.0, unit=unit, free=free, limit=3.0, samples=200)
    edges = [0.25, 0.75, 1.75, 3.75, 7.75]
    rows = [[0, 1, 2], [0, 1, 2], [0, 2], [2]]  # limits of 3, 1.5 and 6 units
    assert seen.rows == rows
    for shell, (points, own) in enumerate(zip(seen.points, rows, strict=True)):
        away = points - CENTER[own, None]
        assert not away[..., 1].any()
        radius = away.norm(dim=-1) / unit[own, None]
        assert (radius >= edges[shell] - 1e-4).all()
        assert (radius <= edges[shell + 1] + 1e-4).all()
        width = edges[shell + 1] - edges[shell]
        assert (radius.amax(1) - radius.amin(1) > 0.9 * width).all()


@pytest.mark.parametrize("free", [None, torch.tensor([[True, True, False]])])
def test_points_that_fill_a_shell_evenly(free):
    """With d free axes the share of points within r is (r^d - a^d) / (b^d - a^d)."""
    stream = RowStreams.of(CENTER[:1], 3)
    points = shells.shell_points(
        CENTER[:1], stream, 1.0, 2.0, samples=5000, free=free, radial="volume"
    )
    radius = (points[0] - CENTER[0]).double().norm(dim=1)
    d = 3 if free is None else 2
    assert stats.kstest(((radius**d - 1) / (2**d - 1)).numpy(), "uniform").pvalue > 1e-3
    assert 1 <= float(radius.min()) <= float(radius.max()) <= 2 + 1e-5
    two = shells.shell_points(
        CENTER[:2], RowStreams.of(CENTER[:2], 0), torch.tensor([0.0, 4.0]),
        torch.tensor([1.0, 5.0]), samples=50,
    )  # fmt: skip
    far = (two - CENTER[:2, None]).norm(dim=-1)
    assert (far[0] <= 1 + 1e-5).all()
    assert ((far[1] >= 4 - 1e-4) & (far[1] <= 5 + 1e-4)).all()


@pytest.mark.parametrize("ahead", [1, 16])
@pytest.mark.parametrize("chunk", [1, 40, 10**6])
def test_shared_directions_shell_by_shell(ahead, chunk):
    """One shell after the other, one row at a time, gives the same points and the same answers."""
    torch.manual_seed(0)
    center, keys = torch.randn(40, 3), RowStreams.of(torch.randn(40, 3), 1).keys
    ways, limit = shells.shared_ways(16, center, 1.0), torch.linspace(1.0, 6.0, 40)
    wanted = 6 * torch.rand(40)

    def judge(x, rows):
        far = (x - center[rows, None]).norm(dim=-1)
        cost = (x * torch.tensor([1.0, 2.0, 3.0])).sum(-1).abs()
        return x, torch.where(far > wanted[rows, None] * 0.5, cost, torch.inf)

    found = grow_shells(
        center, judge, like=center, rng=RowStreams(keys, 2), step=0.1, samples=4, limit=limit,
        p=1.0, ways=ways, ahead=ahead, chunk=chunk,
    )  # fmt: skip
    answered = []
    for row in range(40):
        shell = 0
        while shell * 0.1 < float(limit[row]):
            start = int(RowStreams(keys[row : row + 1], 2 + 3 * shell).integers(16 - 4 + 1))
            taken = ways[start : start + 4]
            points = center[row] + ((shell + taken[:, 3]) * 0.1)[:, None] * taken[:, :3]
            _, cost = judge(points[None], torch.tensor([row]))
            shell += 1
            if cost.isfinite().any():
                answered.append(row)
                assert torch.equal(found.x[row], points[cost[0].argmin()])
                assert torch.equal(found.cost[row], cost.min())
                break
    assert found.ok.nonzero()[:, 0].tolist() == answered
    assert 20 < len(answered) < 40
