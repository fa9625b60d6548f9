"""GeCo: scores by hand, draws as frequent as data, and exhaustive search on small problems."""

import itertools

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.geco import GeCo
from cel.cf_methods.local_methods.geco.few_changes import VALID, _FewChanges, norm_mean
from cel.cf_methods.local_methods.geco.group_values import GroupValues, feature_gaps, groups_of
from cel.cf_methods.query import Query
from cel.cf_methods.view import ModelView
from cel.errors import ConfigError
from cel.protocols import Task
from cel.search import Budget, RowStreams
from cel.space import Feature, FeatureSpace
from cel.testing import Counting
from cel.testing.problems import PROBLEMS, ToyModel

QUARTERS = (0.25, 0.25, 0.25, 0.25)


def two_classes(weights, bias):
    w = np.array([[0] * len(weights), weights], dtype=np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)


def query_of(model, space, x):
    x = torch.as_tensor(x)
    return Query(
        x=x, target=torch.ones(len(x), dtype=torch.long), region=space.region(x),
        model=ModelView(model), rng=RowStreams.of(x, 0), budget=Budget(),
    )  # fmt: skip


def test_a_single_lever_moves_alone_in_the_first_generation(deviation):
    """Where one feature decides, the first people hold an answer that changes it alone."""
    model, space = two_classes([0.0, 0.0, 9.0, 0.0], -5.0), FeatureSpace.continuous(4)
    train = np.random.default_rng(1).random((200, 4)).astype(np.float32)
    x = train[model.predict(train) == 0][:20]
    query = query_of(model, space, x)
    method = GeCo(model, space=space).fit(train)
    search = _FewChanges(query, method.known_, groups_of(space, None), method._settings())
    people, score = search.first(RowStreams(query.rng.keys))
    assert bool((score[:, 0] <= VALID).all())
    lever = np.array([False, False, True, False])
    deviation.rows((people[:, 0].numpy() != x) != lever, oracle="the lever, first people")
    result = method.explain(x, target=1)
    assert result.found.all()
    deviation.rows((result.x_cfs != x) != lever, oracle="the lever, last people")


def test_the_distance_is_the_mean_of_four_norms(deviation):
    """Hand values: one number moves by half its range, one category of three features changes."""
    space = FeatureSpace(
        (
            Feature(name="a", columns=(0,), lower=-2, upper=2),
            Feature(name="b", columns=(1,)),
            Feature(name="c", kind="categorical", columns=(2, 3), categories=("u", "v")),
        )
    )
    origin = torch.tensor([[0.0, 0.3, 1.0, 0.0]])
    points = torch.tensor([[2.0, 0.3, 1.0, 0.0], [0.0, 0.3, 0.0, 1.0], [2.0, 0.3, 0.0, 1.0]])
    gaps = feature_gaps(points, origin, space)
    hand = [
        (1 / 3 + 0.5 / 3 + np.sqrt(0.25 / 3) + 0.5) / 4,
        (1 / 3 + 1 / 3 + np.sqrt(1 / 3) + 1) / 4,
        (2 / 3 + 1.5 / 3 + np.sqrt(1.25 / 3) + 1) / 4,
    ]
    deviation.absolute(norm_mean(gaps, QUARTERS), hand, oracle="by hand", limit=1e-6)


def test_values_are_as_frequent_as_in_the_data(deviation):
    """Draws of a category and of a number, chi-squared against the frequencies of the rows."""
    from scipy.stats import chisquare

    space = FeatureSpace(
        (
            Feature(name="n", kind="integer", columns=(0,), step=0.25),
            Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w")),
        )
    )
    rng = np.random.default_rng(3)
    n = rng.choice(5, 400, p=[0.1, 0.4, 0.2, 0.05, 0.25]) / 4
    c = np.eye(3)[rng.choice(3, 400, p=[0.5, 0.15, 0.35])]
    known = torch.as_tensor(np.column_stack([n, c]).astype(np.float32))
    region = space.region(torch.tensor([[0.25, 0.0, 1.0, 0.0]]))
    values = GroupValues.of(known, groups_of(space, None), region)
    u = torch.rand(20000, generator=torch.manual_seed(0))
    start = torch.tensor([[0.25, 0.0, 1.0, 0.0]]).expand(20000, -1)
    row = torch.zeros(20000, dtype=torch.long)
    worst = 0.0
    for group, column, possible in ((0, 0, [0, 0.5, 0.75, 1.0]), (1, None, [0, 2])):
        which = torch.full_like(row, group)
        rank = (u * values.count[0, group]).long()
        drawn = values.put(start, row, which, rank)
        got, all_ = (
            (drawn[:, 0], known[:, 0])
            if column is not None
            else (drawn[:, 1:].argmax(1), known[:, 1:].argmax(1))
        )
        counts = [int((got == v).sum()) for v in possible]
        assert sum(counts) == 20000
        wanted = np.array([int((all_ == v).sum()) for v in possible])
        p = chisquare(counts, wanted / wanted.sum() * 20000).pvalue
        worst = max(worst, 1 - p)
    deviation(worst, oracle="frequencies of the rows", limit=0.999, unit="1 - p of chi-squared")


def test_every_valid_person_comes_before_every_other():
    problem = PROBLEMS["mixed"]()
    query = query_of(problem.model, problem.space, problem.x[:6])
    groups = groups_of(problem.space, None)
    settings = GeCo(problem.model)._settings()
    search = _FewChanges(query, torch.as_tensor(problem.x_train), groups, settings)
    people, score = search.first(RowStreams(query.rng.keys))
    alive = score.isfinite()
    margin = torch.stack([ModelView(problem.model).margin(p, query.target[:1].expand(len(p)))
                          for p in people])  # fmt: skip
    valid = (margin >= 1e-4) & alive
    assert valid.any()
    assert (alive & ~valid).any()
    assert torch.equal(score <= VALID, valid)
    assert bool((score[:, 1:] >= score[:, :-1]).all())


@pytest.mark.parametrize("seed", range(4))
def test_three_binary_features_are_searched_exhaustively(seed, deviation):
    """The answer is the cheapest of all seven other states."""
    space = FeatureSpace(
        tuple(
            Feature(name=f"c{j}", kind="categorical", columns=(2 * j, 2 * j + 1),
                    categories=("no", "yes"))
            for j in range(3)
        )
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    w = np.zeros(6)
    w[1::2] = rng.normal(size=3) * 2
    model = two_classes(w, -w.clip(min=0).sum() + 0.4)
    states = np.array(list(itertools.product([0, 1], repeat=3)))
    rows = np.stack([1 - states, states], -1).reshape(8, 6).astype(np.float32)
    x = rows[model.predict(rows) == 0]
    result = GeCo(model, space=space).fit(np.repeat(rows, 20, 0)).explain(x, target=1)
    best = []
    for row in x:
        cost = norm_mean(
            feature_gaps(torch.as_tensor(rows), torch.as_tensor(row), space), QUARTERS
        )
        best.append(float(cost[torch.as_tensor(model.predict(rows) == 1)].min()))
    assert result.found.all()
    ours = norm_mean(
        feature_gaps(torch.as_tensor(result.x_cfs), torch.as_tensor(x), space), QUARTERS
    )
    deviation.absolute(ours, best, oracle="all states", limit=1e-6)


def test_the_features_of_a_group_move_together():
    """Grouped features change together or not at all, to values of one training row."""
    rng = np.random.default_rng(5)
    train = rng.random((150, 4)).astype(np.float32)
    model, space = two_classes([3.0, 3.0, 0.0, 1.0], -4.2), FeatureSpace.continuous(4)
    x = train[model.predict(train) == 0][:12]
    method = GeCo(model, space=space, groups=[["x0", "x1"]]).fit(train)
    result = method.explain(x, target=1)
    assert result.found.all()
    pairs = {tuple(p) for p in train[:, :2].tolist()}
    for row, cf in zip(x, result.x_cfs, strict=True):
        moved = cf != row
        assert moved[0] == moved[1]
        if moved[0]:
            assert tuple(cf[:2].tolist()) in pairs
    assert (result.x_cfs[:, 0] != x[:, 0]).any()
    with pytest.raises(ConfigError, match="two groups"):
        GeCo(model, space=space, groups=[["x0"], ["x0", "x1"]]).fit(train)


@pytest.mark.parametrize("name", ["mixed", "binary_numeric"])
def test_children_that_are_not_judged_would_not_have_counted(name, monkeypatch):
    """Judging cheapest people first changes how often the model is asked, not what is found."""
    from cel.cf_methods.local_methods.geco import few_changes

    problem, found, asked = PROBLEMS[name](), [], []
    for looks in ((10**6,), few_changes._LOOKS):
        monkeypatch.setattr(few_changes, "_LOOKS", looks)
        model = Counting(problem.model)
        method = GeCo(model, space=problem.space, size=20).fit(problem.x_train)
        model.asked.clear()
        found.append(method.explain(problem.x, target=1).x_sets)
        asked.append(model.rows)
    np.testing.assert_array_equal(*found)
    assert asked[1] < asked[0]


def test_answers_are_cheaper_than_the_best_training_row():
    """No answer is dearer than the cheapest training row of the class that the region allows."""
    problem = PROBLEMS["binary_numeric"]()
    result = problem.fitted(GeCo, size=100).explain(problem.x, 1)
    rows = problem.x_train[problem.model.predict(problem.x_train) == 1]
    for x, cf in zip(problem.x, result.x_cfs, strict=True):
        known = feature_gaps(torch.as_tensor(rows), torch.as_tensor(x), problem.space)
        own = feature_gaps(torch.as_tensor(cf), torch.as_tensor(x), problem.space)
        assert norm_mean(own, QUARTERS) <= norm_mean(known, QUARTERS).min()
