"""What gradient methods share: other starts, changes of category, prices of both."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.tangent.costs import SeparableCost
from cel.cf_methods.tangent.margins import class_margins
from cel.cf_methods.tangent.nearest_point import NearestPoint
from cel.cf_methods.tangent.prototypes import nearest_rows
from cel.cf_methods.tangent.starts import other_starts
from cel.cf_methods.tangent.switches import (
    search_switches_together,
    search_with_switches,
    switched,
)
from cel.cf_methods.view import ModelView
from cel.protocols import Task
from cel.search import Budget, RowStreams
from cel.space import Feature, FeatureSpace
from cel.testing import PROBLEMS, Counting, ToyModel

CHANGE = 0.4  # price of a category


def query_of(model, space, x, target):
    x = torch.as_tensor(x)
    return Query(
        x=x, target=torch.as_tensor(target), region=space.region(x), model=ModelView(model),
        rng=RowStreams.of(x, 0), budget=Budget(),
    )  # fmt: skip


def classes(n=200, count=6):
    p = PROBLEMS["three_classes"]()
    rows = np.random.default_rng(0).random((n, 2)).astype(np.float32)
    train = TrainRows(x=torch.as_tensor(rows), y=torch.as_tensor(p.model.predict(rows)))
    target = torch.tensor([0, 1, 2, 0, 1, 2][:count])
    return query_of(p.model, p.space, p.x[:count], target), train


def test_starts_are_the_nearest_training_rows_of_the_wanted_class():
    query, train = classes()
    starts = other_starts(query, train, 4)
    for i in range(len(query)):
        peers = train.x[train.y == query.target[i]]
        order = (peers - query.x[i]).norm(dim=1).argsort()
        assert torch.equal(starts[i], peers[order[:4]])


def test_missing_starts_are_drawn_from_the_region():
    query, train = classes()
    few = TrainRows(x=train.x[train.y == 1][:2], y=torch.ones(2, dtype=torch.long))
    box = query.region.space.with_changes(x0={"lower": 0.2, "upper": 0.3})
    query = replace(query, region=box.region(query.x.clamp(0.2, 0.3)))
    starts = other_starts(query, few, 5)
    assert starts.shape == (6, 5, 2)
    for i in range(6):
        known = 2 if int(query.target[i]) == 1 else 0
        drawn = starts[i, known:]
        assert ((drawn[:, 0] >= 0.2) & (drawn[:, 0] <= 0.3)).all()
        assert len(torch.unique(drawn, dim=0)) == 5 - known
    alone = query.select(torch.tensor([3]))
    alone = replace(alone, rng=RowStreams(query.rng.keys[3:4], 0))
    assert torch.equal(other_starts(alone, None, 5)[0], starts[3])


def test_no_starts_are_asked_for():
    query, train = classes()
    assert other_starts(query, train, 0).shape == (6, 0, 2)
    assert other_starts(query.select(torch.arange(0)), train, 3).shape == (0, 3, 2)


def test_starts_of_values_have_the_nearest_predictions():
    p = PROBLEMS["multi_output"]()
    target = torch.tensor([[0.5, 0.5], [0.9, 0.2]])
    train = TrainRows(x=torch.as_tensor(p.x_train), y=torch.as_tensor(p.model.predict(p.x_train)))
    starts = other_starts(query_of(p.model, p.space, p.x[:2], target), train, 3)
    for i in range(2):
        order = (train.y - target[i]).norm(dim=1).argsort()[:3]
        assert torch.equal(starts[i], train.x[order])


SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", kind="categorical", columns=(1, 2, 3), categories=("p", "q", "r")),
        Feature(name="c", kind="categorical", columns=(4, 5, 6), categories=("s", "t", "u"),
                allowed=("s", "t")),
    )
)  # fmt: skip
WEIGHTS = np.array([2.0, 0.0, 0.6, 1.1, 0.0, 0.9, 5.0], dtype=np.float32)


def labelled(n=30, bias=-2.2, seed=1):
    """A nearest-point problem with one number and two categories; "u" may not be reached."""
    rng = np.random.default_rng(seed)
    one, two = (np.eye(3)[rng.integers(0, k, n)] for k in (3, 2))
    x = np.column_stack([rng.random(n), one, two]).astype(np.float32)
    model = ToyModel(
        np.stack([0 * WEIGHTS, WEIGHTS]), np.array([0, bias], dtype=np.float32),
        Task.CLASSIFICATION,
    )  # fmt: skip
    x = x[model.predict(x) == 0]
    query = query_of(Counting(model), SPACE, x, np.ones(len(x), dtype=np.int64))
    cost = SeparableCost.around(query.region, l1=1.0, l2=False, change=CHANGE, center=query.x)
    return NearestPoint(
        query=query, cost=cost, margins=class_margins(query), accept=query.accept
    ), bias


def cheapest(problem, bias, most):
    """Try all choices of at most `most` new categories; the number closes what is left."""
    best = []
    for row in problem.query.x.numpy():
        costs = [np.inf]
        for b, c in product(range(3), range(2)):
            changes = int(not row[1 + b]) + int(not row[4 + c])
            need = (-bias - WEIGHTS[1 + b] - WEIGHTS[4 + c]) / WEIGHTS[0]
            if changes <= most and need <= 1:
                costs.append(CHANGE * changes + max(need - row[0], 0))
        best.append(min(costs))
    return np.array(best)


@pytest.mark.parametrize("search", [search_with_switches, search_switches_together])
@pytest.mark.parametrize("most", [0, 1, 2])
def test_the_number_and_the_categories_cost_as_little_as_the_best_choice(most, search):
    problem, bias = labelled()
    found = search(problem, steps=20, switches=most)
    best = cheapest(problem, bias, most)
    assert np.array_equal(found.ok.numpy(), np.isfinite(best))
    ok = np.isfinite(best)
    excess = found.cost.numpy()[ok] - best[ok]
    assert excess.min() > -1e-3
    assert (excess < 2e-3).mean() > 0.8  # categories are taken one after the other
    assert excess.mean() < 0.05
    if most:
        assert np.nanmean(best[ok]) < np.nanmean(cheapest(problem, bias, 0)[ok])


def test_the_nearest_rows_are_those_of_a_stable_sort():
    rng = np.random.default_rng(0)
    x = torch.as_tensor(rng.integers(0, 4, (30, 2)) / 4).float()
    pool = torch.as_tensor(rng.integers(0, 4, (40, 3)) / 4).float()
    pool[:, 2] = torch.arange(40)  # tells rows apart that are equally far
    x = torch.cat([x, torch.zeros(30, 1)], 1)
    numeric, none = torch.tensor([True, True, False]), torch.zeros(3, 3)
    target, labels = torch.zeros(30, dtype=torch.long), torch.zeros(40, dtype=torch.long)
    order = (x[:, None, :2] - pool[:, :2]).square().sum(-1).argsort(dim=1, stable=True)
    for k in (2, 5, 39, 40):
        rows = nearest_rows(x, target, pool, labels, numeric, none, k)
        assert torch.equal(rows[..., 2].long(), order[:, :k])


def test_the_category_that_brings_most_for_its_price_is_switched_first():
    problem, _ = labelled()
    rounds = list(switched(problem, 5))
    assert len(rounds) == 2  # no feature is switched twice
    now, rows = rounds[0]
    x = problem.query.x
    assert len(rows) > 10
    for i in range(len(x)):
        missing = float(problem.missing(x[i : i + 1], torch.tensor([i])))
        gains = {}
        for block, levels in ((range(1, 4), 3), (range(4, 7), 2)):
            for k in list(block)[:levels]:
                if x[i, k] == 0:
                    gain = WEIGHTS[k] - float(
                        x[i, list(block)] @ torch.as_tensor(WEIGHTS[list(block)])
                    )
                    gains[k] = min(gain, missing)
        best = max(gains, key=gains.get)
        assert (i in rows.tolist()) == (gains[best] > 0)
        if i not in rows.tolist():
            assert torch.equal(now[i], x[i])
            continue
        assert float(now[i, best]) == 1
        assert float(now[i, 6]) == 0
        assert now[i, 1:4].sum() == now[i, 4:].sum() == 1
    assert torch.equal(now[:, 0], x[:, 0])


@pytest.mark.parametrize("search", [search_with_switches, search_switches_together])
def test_a_spent_budget_ends_the_switches(search):
    problem, _ = labelled()
    problem.query.budget.max_queries = 0
    model = problem.query.model.model
    model.asked.clear()
    search(problem, steps=20)
    spent = len(model.asked)
    other, _ = labelled()
    other.query.model.model.asked.clear()
    search(other, steps=20)
    assert spent < len(other.query.model.model.asked)


def test_switches_together_find_what_they_find_one_after_the_other():
    """Spare margins included: a step of the number takes back what tangents gain."""
    problem, _ = labelled()
    one, other = (
        search(problem, steps=20, switches=2)
        for search in (search_with_switches, search_switches_together)
    )
    assert torch.equal(one.ok, other.ok)
    assert torch.allclose(one.cost[one.ok], other.cost[one.ok], atol=1e-4)


def test_switches_that_alone_cost_more_than_an_answer_are_not_followed(monkeypatch):
    problem, _ = labelled()
    asked, tangent = [], NearestPoint.tangent

    def counted(self, start, **settings):
        asked.append(self.cost.value(start, self.query.rows()))
        return tangent(self, start, **settings)

    monkeypatch.setattr(NearestPoint, "tangent", counted)
    found = search_switches_together(problem, steps=20)
    first, second = (len(rows) for _, rows in switched(problem, 4))
    assert len(asked[0]) == len(problem.query) + first  # without a change and with one
    assert 0 < len(asked[1]) < second
    assert found.ok.any()
