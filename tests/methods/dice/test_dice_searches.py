"""The shortcuts of DiCE's searches change how much is computed, not what is found."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.dice import DiCE, genetic
from cel.cf_methods.local_methods.dice.dpp import (
    GradientSettings,
    _SetProblem,
    diversity_of,
)
from cel.cf_methods.local_methods.dice.sampling import _schedule
from cel.cf_methods.query import Query
from cel.cf_methods.view import CHUNK_ROWS, ModelView
from cel.search import Budget, LastOf, RowStreams
from cel.testing import PROBLEMS, Counting, ToyModel


def query_of(problem):
    x = torch.as_tensor(problem.x)
    return Query(
        x=x, target=torch.ones(len(x), dtype=torch.long), region=problem.space.region(x),
        model=ModelView(problem.model), rng=RowStreams.of(x, 0), budget=Budget(),
    )  # fmt: skip


@pytest.mark.parametrize("name", ["binary_numeric", "mixed"])
def test_the_genetic_search_gives_up_on_a_class_that_cannot_be_reached(name):
    problem = PROBLEMS[name]()
    far = problem.model.bias.numpy() - np.array([0, 100], dtype=np.float32)
    model = Counting(ToyModel(problem.model.weights.numpy(), far, problem.task))
    method = DiCE(model, method="genetic", total_CFs=4, space=problem.space).fit(problem.x_train)
    model.asked.clear()
    result = method.explain(problem.x, target=1)
    assert not result.found.any()
    assert np.isnan(result.x_sets).all()
    assert model.rows < 100 * 40 * len(problem.x)  # of 500 generations of 40 people


@pytest.mark.parametrize("name", ["binary_numeric", "mixed"])
def test_children_that_are_not_looked_at_would_not_have_counted(name, monkeypatch):
    problem = PROBLEMS[name]()
    asked, sets = [], []
    for looks in ((1.0,), genetic._LOOKS):
        monkeypatch.setattr(genetic, "_LOOKS", looks)
        model = Counting(problem.model)
        method = DiCE(model, method="genetic", total_CFs=4, space=problem.space)
        sets.append(method.fit(problem.x_train).explain(problem.x, target=1).x_sets)
        asked.append(model.rows)
    np.testing.assert_array_equal(*sets)
    assert asked[1] < asked[0]


def test_genetic_searches_of_parts_are_the_search_of_all(monkeypatch):
    problem = PROBLEMS["mixed"]()
    method = problem.fitted(DiCE, method="genetic", total_CFs=4)
    whole = method.explain(problem.x, target=1).x_sets
    monkeypatch.setattr(genetic, "_PART", 120)
    np.testing.assert_array_equal(method.explain(problem.x, target=1).x_sets, whole)


def test_diversity_counts_each_pair_once():
    sets, weight = torch.rand(5, 6, 3), torch.tensor([1.0, 4.0, 0.5])
    apart = ((sets[:, :, None] - sets[:, None]).abs() * weight).sum(-1).double()
    kernel = 1 / (1 + apart) + 1e-4 * torch.eye(6, dtype=torch.float64)
    expected = {
        "dpp": torch.linalg.det(kernel), "logdet": torch.linalg.slogdet(kernel)[1],
        "avg_dist": 1 - (1 / (1 + apart)).triu(1).sum((1, 2)) / 15,
    }  # fmt: skip
    for kind, value in expected.items():
        torch.testing.assert_close(diversity_of(sets, weight, kind), value, rtol=1e-5, atol=1e-7)


def test_members_beyond_the_hinge_need_no_graph():
    query = query_of(PROBLEMS["binary_numeric"]())
    settings = GradientSettings(
        k=3, proximity_weight=0.5, diversity_weight=0.0, diversity="dpp", lr=0.1, steps=1,
        patience=1,
    )  # fmt: skip
    problem = _SetProblem(query, torch.ones(query.x.shape[1]), settings)
    start = torch.rand(len(query), 3 * query.x.shape[1], generator=torch.manual_seed(0)) * 2
    flat, plain = (start.clone().requires_grad_(True) for _ in range(2))
    value = problem.smooth(flat, query.rows())
    each = query.rows().repeat_interleave(3)
    margin = query.model.margin_of(
        query.model.logits(plain.reshape(len(each), -1)), query.target[each]
    )
    hinge = torch.relu(1 - margin)
    assert 0 < (hinge > 0).float().mean() < 1
    torch.testing.assert_close(value, hinge.reshape(-1, 3).mean(1))
    value.sum().backward()
    hinge.reshape(-1, 3).mean(1).sum().backward()
    torch.testing.assert_close(flat.grad, plain.grad)
    with torch.no_grad():
        torch.testing.assert_close(problem.smooth(flat, query.rows()), value)


def test_what_is_remembered_follows_the_rows():
    made = []
    double = LastOf(lambda rows: made.append(len(rows)) or 2 * rows)
    rows = torch.tensor([1, 2])
    assert double(rows) is double(rows)
    assert len(made) == 1
    rows += 1
    assert double(rows).tolist() == [4, 6]
    assert double(rows[:1]).tolist() == [4]
    assert len(made) == 3


def test_scores_in_chunks_are_the_scores():
    problem = PROBLEMS["binary_numeric"]()
    x = torch.rand(2 * CHUNK_ROWS + 5, problem.space.width)
    model = Counting(problem.model)
    torch.testing.assert_close(ModelView(model).scores(x), problem.model.logits(x))
    assert model.rows == len(x)


@pytest.mark.parametrize(("k", "first"), [(1, 4), (10, 40), (50, 200), (100, 200)])
def test_every_copy_is_asked_about_once_a_round_and_few_at_first(k, first):
    steps = _schedule(1000, 4, k)
    assert [(r, part.stop) for r, part in steps[:2]] == [(1, first), (2, first)]
    for number in (1, 2, 3, 4):
        copies = [i for r, part in steps if r == number for i in range(part.start, part.stop)]
        assert copies == list(range(1000))
    sizes = [part.stop - part.start for r, part in steps if r == 1]
    assert max(sizes) <= 200
    assert sizes[:3] == [min(200, first * 2**i) for i in range(3)]
