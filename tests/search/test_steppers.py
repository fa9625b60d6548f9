"""Steps against torch's optimisers and against the recursions of the papers; neighbours."""

import numpy as np
import pytest
import torch

from cel.search import Adam, Fista, LastOf, nearest, soft_threshold
from cel.search.steppers import State

ROWS = torch.arange(4)
CURVE = torch.tensor([1.0, 0.1, 3.0])


def start():
    return torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) - 0.5


def gradient(x):
    return 2 * CURVE * (x - 1) + torch.cos(x)


def path(stepper, steps, x=None):
    x = start() if x is None else x
    state = stepper.start(x)
    for _ in range(steps):
        x = stepper.step(state, x, gradient(x), ROWS[: len(x)])
    return x, state


@pytest.mark.parametrize("steps", [1, 2, 25])
def test_adam_equals_torch(steps):
    ours, _ = path(Adam(0.03, betas=(0.8, 0.95), eps=1e-6), steps)
    x = start().requires_grad_(True)
    theirs = torch.optim.Adam([x], lr=0.03, betas=(0.8, 0.95), eps=1e-6)
    for _ in range(steps):
        x.grad = gradient(x.detach())
        theirs.step()
    torch.testing.assert_close(ours, x.detach())


def test_adam_takes_the_proximal_map_in_its_own_metric():
    """After one step sqrt(v) is |grad|, so the map gets lr / (|grad| + eps) in each column."""
    told = []
    stepper = Adam(0.1, eps=0.5, prox=lambda x, step, rows: told.append((x, step, rows)) or x + 7)
    x = start()
    moved, _ = path(stepper, 1, x)
    eta = 0.1 / (gradient(x).abs() + 0.5)
    ((point, step, rows),) = told
    torch.testing.assert_close(step, eta)
    torch.testing.assert_close(point, x - eta * gradient(x))
    torch.testing.assert_close(moved, point + 7)
    assert torch.equal(rows, ROWS)


def test_adam_shortens_only_gradients_that_are_too_long():
    x, grad = torch.zeros(2, 2), torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    stepper = Adam(0.1, max_norm=1.0)
    state = stepper.start(x)
    stepper.step(state, x, grad, ROWS[:2])
    torch.testing.assert_close(state.tensors["m"], 0.1 * torch.tensor([[0.6, 0.8], [0.3, 0.4]]))


def test_rows_count_their_own_steps():
    """A row that starts later takes the same steps: counters belong to rows."""
    stepper = Adam(0.1)
    x, state = path(stepper, 3)
    fresh = stepper.start(start()[:1])
    mixed = State({k: torch.cat([state.tensors[k][:1], fresh.tensors[k]]) for k in state.tensors})
    both = stepper.step(
        mixed, *(torch.cat([f(x[:1]), f(start()[:1])]) for f in (lambda v: v, gradient)), ROWS[:2]
    )
    torch.testing.assert_close(both[:1], path(stepper, 4)[0][:1])
    torch.testing.assert_close(both[1:], path(stepper, 1)[0][:1])


def test_fista_by_the_recursion_of_the_paper():
    """Prox of the gradient step at the extrapolated point, momentum t / (t + 3), steps decay."""
    lr, total, weight = 0.05, 10, 0.3
    stepper = Fista(lr, total, prox=lambda x, step, rows: soft_threshold(x, weight * step))
    x, state = path(stepper, 6)
    y = old = start()
    for t in range(6):
        now = lr * (1 - t / total) ** 0.5
        new = y - now * gradient(y)
        new = new.sign() * (new.abs() - weight * now).clamp(min=0)
        y, old = new + (t + 1) / (t + 4) * (new - old), new
    torch.testing.assert_close(x, y)
    torch.testing.assert_close(state.point(x), old)


def test_fista_goes_on_with_tiny_steps_after_its_time():
    stepper = Fista(0.1, 2)
    _, state = path(stepper, 2)
    before = state.tensors["iterate"].clone()
    x = torch.zeros_like(before)
    stepper.step(state, x, torch.ones_like(x), ROWS)
    torch.testing.assert_close(state.tensors["iterate"], x - 0.1 * 1e-4**0.5)


def test_states_of_some_rows():
    _, state = path(Fista(0.1, 5), 2)
    some = state.select(torch.tensor([3, 1]))
    assert torch.equal(some.tensors["iterate"], state.tensors["iterate"][[3, 1]])
    x = torch.rand(2, 3)
    assert some.point(x) is some.tensors["iterate"]
    assert Adam().start(x).point(x) is x


def test_soft_threshold_is_the_proximal_map_of_the_l1_norm():
    grid = torch.linspace(-3, 3, 6001)
    for value in (-2.0, -0.3, 0.0, 0.7, 1.5):
        best = grid[((grid - value) ** 2 / 2 + 0.6 * grid.abs()).argmin()]
        assert float(soft_threshold(torch.tensor(value), 0.6)) == pytest.approx(
            float(best), abs=1e-3
        )


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_neighbours_by_looking_at_all(p, k):
    rng = np.random.default_rng(0)
    x, pool = rng.random((30, 4)), rng.random((40, 4))
    all_ = np.linalg.norm(x[:, None] - pool, ord=p, axis=2)
    distance, index = nearest(torch.as_tensor(x), torch.as_tensor(pool), k, p=p, chunk=100)
    order = all_.argsort(1, kind="stable")[:, :k]
    np.testing.assert_array_equal(index, order)
    np.testing.assert_allclose(distance, np.take_along_axis(all_, order, 1))


def test_the_one_nearest_is_the_earlier_of_equals():
    pool = torch.tensor([1.0, 0.0, 1.0, 0.0, -1.0, 0.0, 1.0] * 9)[:, None]
    _, index = nearest(torch.zeros(5, 1), pool)
    assert index.tolist() == [[1]] * 5


def test_what_is_remembered_belongs_to_an_unchanged_tensor():
    calls = []
    last = LastOf(lambda rows: calls.append(1) or rows.tolist())
    rows = torch.tensor([1, 2])
    assert last(rows) == last(rows) == [1, 2]
    assert len(calls) == 1
    tested = rows.clone()
    assert last(tested) == last(rows) == last(tested) == [1, 2]
    assert len(calls) == 2, "two are remembered"
    rows += 1
    assert last(rows) == [2, 3]
    assert len(calls) == 3
    last(rows.clone())
    last(tested)
    assert len(calls) == 5, "and no more than two"
