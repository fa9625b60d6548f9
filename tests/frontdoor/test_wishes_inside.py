"""Between a wish and a search: margins, weights and trees seen through it, logs, sets."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from lightgbm import LGBMClassifier
from sklearn.linear_model import LogisticRegression

import cel
from cel.door.aimed import AimedModel
from cel.door.further_answers import fill_sets
from cel.door.merging import _logs
from cel.door.wanted import Aim, regression_wish


def test_margins_are_those_of_the_likeliest_wanted_class():
    proba = np.array([[0.5, 0.3, 0.2], [0.1, 0.7, 0.2]])
    aim = Aim((0, 2))
    assert np.allclose(aim.margin(proba), [math.log(0.5 / 0.3), math.log(0.2 / 0.7)])
    assert aim.best(proba).tolist() == [0, 2]


def test_margins_of_a_probability_vanish_at_it():
    proba = np.array([[0.2, 0.8], [0.5, 0.5], [0.1, 0.9]])
    margin = Aim((1,), 0.8).margin(proba)
    assert np.allclose(margin, [0, -math.log(4), math.log(9 / 4)])


def test_a_list_of_wishes_for_numbers_is_read_one_by_one():
    wishes = [cel.Target.at_least(2), cel.Target.at_most(3)]
    assert regression_wish(wishes) == [w.goal for w in wishes]


@pytest.fixture(scope="module")
def points():
    rng = np.random.default_rng(4)
    x = pd.DataFrame(rng.normal(size=(300, 2)), columns=["a", "b"])
    return x, (x.sum(axis=1) + rng.normal(size=300) > 0.4).astype(int)


@pytest.mark.parametrize("wanted", [0, 1])
def test_weights_seen_through_a_probability(points, wanted):
    x, y = points
    model = cel.wrap(LogisticRegression().fit(x, y), x)
    weight, bias = AimedModel(model, Aim((wanted,), 0.8)).linear_()
    codes = torch.as_tensor(np.asarray(model.pipeline_.transform(x)), dtype=weight.dtype)
    scores = codes @ weight.T + bias
    p = model.predict_proba(x)[:, wanted]
    sure = np.abs(p - 0.8) > 1e-4
    assert ((scores[:, 1] > scores[:, 0]).numpy() == (p > 0.8))[sure].all()


@pytest.mark.parametrize("wanted", [0, 1])
def test_boosted_trees_seen_through_a_probability(points, wanted):
    x, y = points
    made = LGBMClassifier(n_estimators=9, num_leaves=4, verbose=-1).fit(x, y)
    model = cel.wrap(made, x)
    view = AimedModel(model, Aim((wanted,), 0.7)).trees_()
    codes = np.asarray(model.pipeline_.transform(x))
    scores, p = view.scores(codes), model.predict_proba(x)[:, wanted]
    sure = np.abs(p - 0.7) > 1e-4
    assert 0 < (p > 0.7).sum() < len(p)
    assert ((scores[:, 1] > scores[:, 0]) == (p > 0.7))[sure].all()


class Part(SimpleNamespace):
    def __len__(self):
        return self.rows


def test_logs_of_parts_come_back_in_the_order_of_the_rows():
    parts = [
        (np.array([2, 0]), Part(rows=2, logs={"how": ["c", "a"], "seed": 1})),
        (np.array([1]), Part(rows=1, logs={"how": ["b"]})),
    ]
    assert _logs(parts, 3) == {"how": ["a", "b", "c"], "seed": 1}


def test_two_answers_that_cost_the_same_are_two_answers():
    region = SimpleNamespace(layout=SimpleNamespace(owner=torch.tensor([0, 1])), space=range(2))
    query = SimpleNamespace(x=torch.zeros(1, 2), region=region)
    sets = torch.full((1, 3, 2), torch.nan)
    sets[0, 0] = torch.tensor([0.1, 0.1])
    found = torch.tensor([[0.5, 0.0], [0.0, 0.5], [0.5, 0.0]])
    fill_sets(query, sets, found, torch.zeros(3, dtype=int), lambda p, _: p.abs().sum(1))
    assert sets[0, 0].tolist() == pytest.approx([0.1, 0.1])
    assert sorted(sets[0, 1:].tolist()) == [[0.0, 0.5], [0.5, 0.0]]
