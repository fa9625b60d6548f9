"""How much work solvers do: Newton steps, iterations, parts. Measured once; more is a loss."""

import numpy as np
import pytest
import torch

from cel.solvers import halfspaces, nearest_all
from cel.solvers.admm import INFEASIBLE, SOLVED, Programs, solve_programs
from cel.solvers.ellipsoid import Ellipsoids


def half_spaces(n=60, c=4, d=6, seed=0):
    rng = np.random.default_rng(seed)
    w = torch.as_tensor(rng.normal(size=(n, c, d)))
    gap = torch.as_tensor(rng.normal(size=(n, c)) * 0.8 + 0.6)
    return w, gap, torch.as_tensor(-rng.random((n, d))), torch.as_tensor(rng.random((n, d)))


@pytest.mark.parametrize(
    ("settings", "steps", "of_rows"),
    [({}, 22, 879), ({"l1": 0.5, "square": 0.0}, 23, 885)],
)
def test_newton_steps(settings, steps, of_rows, monkeypatch):
    """Rows leave as soon as they have settled: the sum over steps of the rows that are left."""
    taken = []
    step = halfspaces._Newton.step

    def counted(self):
        taken.append(len(self.p))
        return step(self)

    monkeypatch.setattr(halfspaces._Newton, "step", counted)
    found = nearest_all(*half_spaces(), **settings)
    assert int(found.feasible.sum()) == 17
    assert len(taken) <= steps + 1
    assert sum(taken) <= of_rows * 1.03
    assert len(taken) >= steps - 1
    assert sum(taken) >= of_rows * 0.97


def test_large_batches_are_solved_in_parts(monkeypatch):
    sizes, interior = [], halfspaces._interior

    def counted(curve, w, *rest, **more):
        sizes.append(len(w))
        return interior(curve, w, *rest, **more)

    monkeypatch.setattr(halfspaces, "_interior", counted)
    whole = nearest_all(*half_spaces())
    (left,) = sizes
    assert halfspaces.CHUNK == 2**17
    monkeypatch.setattr(halfspaces, "CHUNK", 10 * 4 * 6)  # ten rows of 4 half-spaces, 6 columns
    parts = nearest_all(*half_spaces())
    assert sizes[1:] == [10] * (left // 10) + [left % 10] * (left % 10 > 0)
    torch.testing.assert_close(parts.delta, whole.delta, atol=1e-7, rtol=0)


def ball(centre, radius):
    d = len(centre)
    return Ellipsoids.of(torch.tensor([centre]), torch.eye(d)[None], torch.tensor([radius]))


def programs(norm, offsets=1.0, **more):
    """From (3, 0) into the unit ball around 0, and below a plane x_0 <= offset."""
    double = torch.float64
    given = {
        "origin": torch.tensor([[3.0, 0.0]], dtype=double),
        "weight": torch.tensor([1.0, 2.0], dtype=double),
        "normals": torch.tensor([[[2.0, 0.0]]], dtype=double),
        "offsets": torch.tensor([[2 * offsets]], dtype=double),
        "lower": torch.tensor([[-9.0, -9.0]], dtype=double),
        "upper": torch.tensor([[9.0, 9.0]], dtype=double),
        "which": torch.tensor([0]),
        "ellipsoids": ball([0.0, 0.0], 1.0),
        "norm": norm,
    }
    return Programs(**(given | more))


@pytest.mark.parametrize(("norm", "iterations"), [("l1", (175, 575)), ("l2", (100, 125))])
def test_consensus_iterations(norm, iterations):
    """They are looked at every 25."""
    found = solve_programs(programs(norm, offsets=0.5))
    assert found.iterations == iterations[0]
    assert found.status.tolist() == [SOLVED]
    np.testing.assert_allclose(found.x, [[0.5, 0.0]], atol=1e-5)
    empty = solve_programs(programs(norm, offsets=-1.5))
    assert empty.iterations == 25
    assert empty.status.tolist() == [INFEASIBLE]
    rng = np.random.default_rng(0)
    many = 12
    hard = Programs(
        origin=torch.as_tensor(rng.normal(size=(many, 2)) * 2),
        weight=torch.tensor([1.0, 2.0], dtype=torch.float64),
        normals=torch.as_tensor(rng.normal(size=(many, 2, 2))),
        offsets=torch.as_tensor(rng.normal(size=(many, 2)) * 0.7 + 0.5),
        lower=torch.full((many, 2), -2.5, dtype=torch.float64),
        upper=torch.full((many, 2), 2.5, dtype=torch.float64),
        which=torch.zeros(many, dtype=torch.int64),
        ellipsoids=ball([0.0, 0.3], 1.5),
        norm=norm,
    )
    found = solve_programs(hard)
    assert found.iterations == iterations[1]
    assert set(found.status.tolist()) == {SOLVED}
    assert float(hard.violation(found.x).max()) < 1e-5
    few = solve_programs(hard, max_iter=50)
    assert few.iterations == 50
    again = solve_programs(hard, start=found.x)
    assert again.iterations <= iterations[1]
    torch.testing.assert_close(hard.value(again.x), hard.value(found.x), atol=1e-5, rtol=0)


def test_what_programs_measure_by_hand():
    p = programs("l1", offsets=0.5)
    x = torch.tensor([[2.0, 1.0]], dtype=torch.float64)
    assert p.value(x).tolist() == [1.0 + 2.0]
    assert programs("l2").value(x).tolist() == [(1.0 + 1.0) / 2]
    assert p.violation(x).tolist() == [4.0]  # |x|^2 = 5 of 1; 1.5 beyond the plane
    far = programs("l1", offsets=-5.0)
    assert far.violation(x).tolist() == [7.0]
    assert programs("l1").violation(torch.tensor([[0.5, 0.0]]).double()).tolist() == [0.0]
    tight = p.tightened(0.1)
    assert tight.offsets.tolist() == [[1.0 - 0.1 * 2.0]]
    assert tight.ellipsoids.radius.tolist() == [0.9]
    box = p.within(torch.tensor([[-1.0, -99.0]]).double(), torch.tensor([[99.0, 2.0]]).double())
    assert (box.lower.tolist(), box.upper.tolist()) == ([[-1.0, -9.0]], [[9.0, 2.0]])


def test_multipliers_prove_emptiness_by_the_sum_of_supports():
    """x_0 <= -1.5 and the unit ball: push 1 on 2 x_0 <= -3, pull (-2, 0): -3 + 2 + 0 < 0."""
    one = torch.tensor([[1.0]], dtype=torch.float64)
    pull = torch.tensor([[-2.0, 0.0]], dtype=torch.float64)
    assert programs("l1", offsets=-1.5).proved_empty(one, pull).tolist() == [True]
    assert programs("l1", offsets=-0.9).proved_empty(one, pull).tolist() == [False]
    assert programs("l1", offsets=-1.5).proved_empty(0 * one, 0 * pull).tolist() == [False]
    box = programs("l1", offsets=-1.5, lower=torch.tensor([[-1.0, -9.0]]).double())
    assert box.proved_empty(one, 0 * pull).tolist() == [True]  # -3 + 2 * 1
    assert programs("l1", offsets=-1.5).proved_empty(one, 0 * pull).tolist() == [False]
    low = programs("l1", offsets=-1.5, lower=torch.tensor([[-1.5, -9.0]]).double())
    assert low.proved_empty(one, 0 * pull).tolist() == [False]  # they touch


def test_the_end_of_similar_programs_is_a_better_start():
    first = solve_programs(programs("l1", offsets=0.5))
    near = programs("l1", offsets=0.49)
    cold, warm = solve_programs(near), solve_programs(near, start=first.x, warm=first.splitting)
    assert warm.iterations < cold.iterations
    assert (warm.status == SOLVED).all()
    torch.testing.assert_close(warm.x, cold.x, atol=1e-4, rtol=0)
