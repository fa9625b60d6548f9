"""Batched descent: rows mind their own business, and only points that count are kept."""

import torch

from cel.search import (
    Adam,
    Fista,
    gradient_search,
    row_gradient,
    search_weight,
    soft_threshold,
)
from cel.search.gradient import Found, Race
from cel.search.steppers import State


def _far(x, rows):
    return (x - 1.0).square().sum(-1)


def _accept(level):
    return lambda x, rows: (x, x[:, 0] >= level)


def _search(start, **changes):
    settings = {
        "stepper": Adam(0.05), "project": lambda x, rows: x, "accept": _accept(0.5),
        "cost": lambda x, rows: x.abs().sum(-1), "steps": 80,
    }  # fmt: skip
    return gradient_search(_far, start, **(settings | changes))


def test_a_row_does_not_depend_on_its_batch_mates():
    start = torch.linspace(-2, 0.4, 9)[:, None].repeat(1, 2)
    for settings in ({"patience": 10}, {"stop_at_first": True}, {}):
        together = _search(start, **settings)
        for i in range(len(start)):
            alone = _search(start[i : i + 1], **settings)
            assert torch.equal(alone.x[0].nan_to_num(), together.x[i].nan_to_num())


def test_rows_that_get_nowhere_are_given_up():
    calls = []

    def flat(x, rows):
        calls.append(len(x))
        return 0 * x.sum(-1) + 1

    found = gradient_search(
        flat, torch.zeros(4, 2), stepper=Adam(0.1), project=lambda x, rows: x,
        accept=_accept(0.5), cost=_far, steps=500, give_up=10,
    )  # fmt: skip
    assert not found.ok.any()
    assert len(calls) < 15


def test_rows_with_an_answer_end_when_they_have_come_to_rest():
    """Plain descent: by a third of the way a step; the second row swings between two walls."""

    class Plain:
        def start(self, x):
            return State()

        def step(self, state, x, grad, rows):
            return x - grad / 6

    calls = []

    def loss(x, rows):
        calls.append(rows.tolist())
        pull = torch.where(rows == 1, torch.cos(3 * torch.tensor(float(len(calls)))), 1.0)
        return (x[:, 0] - pull).square()

    def search(**more):
        calls.clear()
        return gradient_search(
            loss, torch.zeros(3, 1), stepper=Plain(), project=lambda x, rows: x,
            accept=lambda x, rows: (x, (x[:, 0] > 0.1) & (rows < 2)),
            cost=lambda x, rows: x[:, 0], steps=200, check_every=2, **more,
        )  # fmt: skip

    long = search()
    assert len(calls) == 200
    short = search(width=torch.ones(1))
    ends = [max(i for i, rows in enumerate(calls) if row in rows) for row in range(3)]
    assert 20 < ends[0] < 60  # 0.67^n < 1e-4 after some twenty steps, and three tests more
    assert ends[1:] == [199, 199]  # one that moves, and one that has no answer
    assert torch.equal(long.x.nan_to_num(), short.x.nan_to_num())
    search(width=1e-6 * torch.ones(1))
    assert max(i for i, rows in enumerate(calls) if 0 in rows) > ends[0]


def test_rows_without_hope_end_unless_they_were_accepted():
    start = torch.tensor([[-9.0, 0.0], [0.45, 0.0], [0.6, 0.0]])
    calls = []

    def hopeful(step, rows):
        calls.append((step, rows.tolist()))
        return rows == 1

    found = _search(start, check_every=4, steps=40, hopeful=hopeful)
    assert found.ok.tolist() == [False, True, True]
    # the first row has left the batch; the last one, accepted at once, goes on
    assert calls[0] == (4, [0, 1, 2])
    assert calls[-1] == (40, [1, 2])


def test_patience_ends_rows_whose_cost_is_negative():
    calls = []

    def creeping(x, rows):
        calls.append(len(x))
        return -1 - 1e-7 * len(calls) + 0 * x.sum(-1)

    gradient_search(
        _far, torch.ones(4, 2), stepper=Adam(0.1), project=lambda x, rows: x,
        accept=_accept(0.5), cost=creeping, steps=500, patience=10,
    )  # fmt: skip
    assert len(calls) < 15


def test_a_loss_without_gradient_is_flat():
    value, grad = row_gradient(lambda x, rows: torch.ones(3), torch.rand(3, 2), torch.arange(3))
    assert value.tolist() == [1.0, 1.0, 1.0]
    assert not grad.any()


def test_fista_is_judged_at_the_proximal_point():
    """The extrapolated point is not sparse; the one that is kept must be."""
    origin = torch.zeros(1, 3)
    target = torch.tensor([[1.0, 0.02, -0.02]])
    seen = []

    def accept(x, rows):
        seen.append(x.clone())
        return x, x[:, 0] > 0.3

    gradient_search(
        lambda x, rows: (x - target).square().sum(-1), origin,
        stepper=Fista(0.1, 50, prox=lambda x, step, rows: soft_threshold(x, 0.2 * step)),
        project=lambda x, rows: x, accept=accept, cost=lambda x, rows: x.abs().sum(-1), steps=50,
    )  # fmt: skip
    assert all(float(x[0, 1:].abs().max()) == 0.0 for x in seen)


def test_adam_shortens_long_gradients():
    steep = Adam(0.1, max_norm=1.0)
    x, grad = torch.zeros(1, 2), torch.tensor([[1e6, 0.0]])
    state = steep.start(x)
    steep.step(state, x, grad, torch.arange(1))
    assert float(state.tensors["v"].max()) < 1.0


def test_offers_keep_the_cheapest_accepted_point():
    best = Found.nothing(torch.zeros(2, 1))
    rows = torch.arange(2)
    best.offer(torch.tensor([[0.6], [0.1]]), rows, _accept(0.5), lambda x, r: x[:, 0])
    assert best.ok.tolist() == [True, False]
    improved = best.offer(torch.tensor([[0.55], [0.9]]), rows, _accept(0.5), lambda x, r: x[:, 0])
    assert improved.tolist() == [True, True]
    assert best.x[:, 0].tolist() == torch.tensor([0.55, 0.9]).tolist()


def test_weights_are_bracketed_and_bisected():
    """Row i is solved by weights of at least 3^i; the smallest one is approached."""
    limit = torch.tensor([1.0, 3.0, 9.0, 1e12])

    def solve(weight):
        ok = weight >= limit
        cost = torch.where(ok, weight, torch.inf)
        return Found(x=cost[:, None].clone(), ok=ok, cost=cost)

    found = search_weight(solve, torch.full((4,), 0.5), rounds=14)
    assert found.ok.tolist() == [True, True, True, False]
    assert (found.cost[:3] / limit[:3] < 1.05).all()


def test_of_several_starts_those_ahead_go_on_and_late_rows_end():
    asked = []

    def far(x, rows):
        asked.append(set(rows.tolist()))
        return _far(x, rows)

    settings = {
        "stepper": Adam(0.05), "project": lambda x, rows: x, "accept": _accept(0.99),
        "cost": lambda x, rows: x.abs().sum(-1), "steps": 60,
    }  # fmt: skip
    start = torch.tensor([[-0.5], [0.2], [-3.0], [0.4], [-1.0], [0.15]])
    race = Race(starts=3, keep=1, after=5)
    found = gradient_search(far, start, race=race, **settings)
    assert asked[4] == {0, 1, 2, 3, 4, 5}
    assert asked[5] == {1, 3}
    assert found.ok.tolist() == [False, True, False, True, False, False]
    asked.clear()
    found = gradient_search(far, start, late=20, **settings)
    assert len(asked[19]) == 6
    assert asked[-1] == {1, 3, 5}
    assert found.ok.tolist() == [False, True, False, True, False, True]
