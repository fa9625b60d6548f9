"""When a descent looks, when it ends and what it keeps, counted in steps."""

import pytest
import torch

from cel.search import Budget, Found, gradient_search, row_gradient, search_weight
from cel.search.steppers import State


class Still:
    """A stepper that stays where it is."""

    def start(self, x):
        return State()

    def step(self, state, x, grad, rows):
        return x


class Runs:
    """A descent whose losses, acceptances and costs are written down step by step."""

    def __init__(self, loss=lambda t: 1.0, ok=lambda t: True, cost=lambda t: 1.0, n=1):
        self.loss, self.ok, self.cost, self.n = loss, ok, cost, n
        self.steps, self.looks = 0, []

    def __call__(self, steps, **settings):
        def loss(x, rows):
            self.steps += 1
            return self.loss(self.steps) + 0 * x.sum(-1)

        def accept(x, rows):
            self.looks.append(self.steps)
            return x, torch.full((len(x),), bool(self.ok(self.steps)))

        return gradient_search(
            loss, torch.zeros(self.n, 2), stepper=Still(), project=lambda x, rows: x,
            accept=accept, cost=lambda x, rows: 0 * x[:, 0] + self.cost(self.steps),
            steps=steps, **settings,
        )  # fmt: skip


@pytest.mark.parametrize(("every", "looks"), [(1, [1, 2, 3, 4]), (3, [3, 4]), (9, [4])])
def test_points_are_looked_at_every_so_many_steps_and_at_the_end(every, looks):
    run = Runs()
    run(4, check_every=every)
    assert run.looks == looks


@pytest.mark.parametrize(("every", "end"), [(1, 21), (5, 25), (8, 32), (20, 40)])
def test_patience_counts_steps_not_looks(every, end):
    """The first look improves; then 20 steps without improvement, seen at the next look."""
    run = Runs()
    run(500, check_every=every, patience=20)
    assert run.steps == end


def test_patience_begins_anew_with_every_improvement_beyond_a_relative_1e_5():
    worth = Runs(cost=lambda t: 1 - 2e-5 * t)
    worth(60, patience=5)
    assert worth.steps == 60
    worthless = Runs(cost=lambda t: 1 - 0.9e-6 * t)
    worthless(60, patience=5)
    assert worthless.steps == 6


def test_patience_waits_for_the_first_accepted_point():
    run = Runs(ok=lambda t: t >= 30)
    found = run(100, patience=5)
    assert run.steps == 35
    assert found.ok.all()


@pytest.mark.parametrize(("every", "end"), [(1, 11), (4, 12), (25, 25)])
def test_rows_are_given_up_after_steps_without_a_lower_loss(every, end):
    run = Runs(ok=lambda t: False)
    run(500, check_every=every, give_up=10)
    assert run.steps == end


def test_small_falls_of_the_loss_add_up():
    """Falls of 0.04 % are an improvement every third step, so that nobody is given up."""
    run = Runs(loss=lambda t: 0.9996**t, ok=lambda t: False)
    run(100, give_up=3)
    assert run.steps == 100
    run = Runs(loss=lambda t: 0.9998**t, ok=lambda t: False)
    run(100, give_up=3)
    assert run.steps == 4


def test_found_rows_are_not_given_up():
    run = Runs()
    run(50, give_up=3)
    assert run.steps == 50


def test_the_first_accepted_point_ends_a_row_that_asks_for_no_more():
    run = Runs(ok=lambda t: t >= 7, cost=lambda t: -t)
    found = run(50, stop_at_first=True)
    assert run.steps == 7
    assert float(found.cost) == -7


def test_a_spent_budget_ends_the_search():
    budget = Budget(max_queries=3)
    run = Runs(loss=lambda t: budget.spend(1) or 1.0, ok=lambda t: False)
    run(50, budget=budget)
    assert run.steps == 3


def test_the_cheapest_accepted_point_wins():
    costs = {1: 5.0, 2: 2.0, 3: 1.0, 4: 3.0}
    found = Runs(ok=lambda t: t != 3, cost=costs.get)(4)
    assert float(found.cost) == 2.0


def test_nothing_accepted_is_nan_and_infinitely_dear():
    found = Runs(ok=lambda t: False, n=3)(2)
    assert not found.ok.any()
    assert found.x.isnan().all()
    assert found.cost.isinf().all()


def test_rows_leave_the_batch_when_a_tenth_has_ended():
    """Rows end one after the other; the sizes of the batch say when they leave."""
    sizes, end = [], torch.arange(1, 21)

    def loss(x, rows):
        sizes.append(len(x))
        return 0 * x.sum(-1)

    gradient_search(
        loss, torch.zeros(20, 1), stepper=Still(), project=lambda x, rows: x,
        accept=lambda x, rows: (x, end[rows] <= len(sizes)), cost=lambda x, rows: 0 * x[:, 0],
        steps=30, stop_at_first=True,
    )  # fmt: skip
    # 20 rows: two must end; 18: two; ... 10 or less: every one is a tenth.
    assert sizes == [20, 20, 18, 18, 16, 16, 14, 14, 12, 12, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]


def test_steps_are_projected():
    seen = []
    gradient_search(
        lambda x, rows: x.square().sum(-1), torch.ones(1, 2), stepper=Still(),
        project=lambda x, rows: x + 1,
        accept=lambda x, rows: (seen.append(x.clone()) or x, x[:, 0] > 9),
        cost=lambda x, rows: x[:, 0], steps=3,
    )  # fmt: skip
    assert [x[0].tolist() for x in seen] == [[2, 2], [3, 3], [4, 4]]


def test_gradients_are_of_each_row_alone():
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    with torch.no_grad():
        value, grad = row_gradient(
            lambda x, rows: x.square().sum(1) * (rows + 1), x, torch.arange(2)
        )
    assert value.tolist() == [5.0, 20.0]
    assert grad.tolist() == [[2.0, 4.0], [12.0, -4.0]]
    assert not value.requires_grad


def test_gradients_that_are_not_numbers_are_zero():
    x = torch.tensor([[0.0, 1.0]])
    _, grad = row_gradient(
        lambda x, rows: x.sqrt().sum(1) + 0 * x.log().sum(1), x, torch.arange(1)
    )
    assert grad.tolist() == [[0.0, 0.5]]


def _found(cost):
    cost = torch.tensor(cost)
    return Found(x=cost[:, None].clone(), ok=cost.isfinite(), cost=cost)


def test_the_cheaper_of_two_answers():
    inf = float("inf")
    a, b = _found([1.0, 2.0, inf, inf]), _found([3.0, 1.0, 5.0, inf])
    best = a.better(b)
    assert best.cost.tolist() == [1.0, 1.0, 5.0, inf]
    assert best.x[:3, 0].tolist() == [1.0, 1.0, 5.0]
    assert best.ok.tolist() == [True, True, True, False]
    tied = _found([1.0])
    tied.x.fill_(7.0)
    assert float(_found([1.0]).better(tied).x) == 1.0
    a.put_better(torch.tensor([3, 0]), _found([4.0, 0.5]))
    assert a.cost.tolist() == [0.5, 2.0, inf, 4.0]
    assert a.ok.tolist() == [True, True, False, True]
    assert a.select(torch.tensor([3, 1])).cost.tolist() == [4.0, 2.0]


def test_offers_tell_what_is_a_real_improvement():
    best = _found([1.0, -1.0, float("inf"), 1.0])
    price = torch.tensor([1 - 2e-5, -1 - 5e-6, 3.0, 2.0])
    told = best.offer(
        price[:, None], torch.arange(4), lambda x, r: (x, x[:, 0] < 9), lambda x, r: x[:, 0]
    )
    assert told.tolist() == [True, False, True, False]
    assert best.cost.tolist() == [*price[:3].tolist(), 1.0]
    empty = best.offer(price[:0, None], torch.arange(0), None, None)
    assert empty.tolist() == []


class Weights:
    """Solved by weights of at least `limit`; the weights that were tried are kept."""

    def __init__(self, limit, cost=lambda w: w):
        self.limit, self.cost, self.tried = torch.tensor(limit), cost, []

    def __call__(self, weight):
        self.tried.append(weight.tolist())
        ok = weight >= self.limit
        cost = torch.where(ok, self.cost(weight), torch.inf)
        return Found(x=torch.where(ok, weight, torch.nan)[:, None], ok=ok, cost=cost)

    def of(self, row):
        return pytest.approx([w[row] for w in self.tried])


def test_weights_grow_and_shrink_by_a_factor_and_are_halved_on_a_logarithmic_scale():
    inf = float("inf")
    solve = Weights([inf, 0.0, 30.0, 0.05])
    search_weight(solve, torch.full((4,), 2.0), rounds=5, growth=4.0)
    assert solve.of(0) == [2, 8, 32, 128, 512]
    assert solve.of(1) == [2, 0.5, 0.125, 0.03125, 0.0078125]
    # 2 no, 8 no, 32 yes, then sqrt(8 * 32) = 16 no, sqrt(16 * 32)
    assert solve.of(2) == [2, 8, 32, 16, 512**0.5]
    # 2 yes, 0.5 yes, 0.125 yes, 0.03125 no, sqrt(0.125 * 0.03125)
    assert solve.of(3) == [2, 0.5, 0.125, 0.03125, 0.0625]


def test_weights_are_never_raised_beyond_the_largest():
    solve = Weights([float("inf")])
    search_weight(solve, torch.tensor([1.0]), rounds=4, largest=50.0)
    assert solve.of(0) == [1, 10, 50, 50]


def test_all_rounds_compete():
    """The dearest weight has the cheapest answer: it is kept although later ones are solved."""
    solve = Weights([0.0], cost=lambda w: 1 / w)
    found = search_weight(solve, torch.tensor([8.0]), rounds=4)
    assert float(found.x) == 8.0
    with pytest.raises(ValueError, match="rounds"):
        search_weight(solve, torch.tensor([8.0]), rounds=0)


def test_a_spent_budget_ends_the_search_for_a_weight():
    solve, budget = Weights([float("inf")]), Budget(max_queries=1)
    budget.spend(1)
    search_weight(solve, torch.tensor([1.0]), rounds=9, budget=budget)
    assert len(solve.tried) == 1


def test_budgets():
    budget = Budget(max_queries=3)
    budget.spend(2)
    assert (budget.queries, budget.expired) == (2, False)
    budget.spend(1)
    assert (budget.queries, budget.expired) == (3, True)
    assert not budget.late
    assert Budget(0.0).expired
    assert Budget(0.0).late
    assert not Budget().expired
    assert not Budget(60.0).expired
