"""FOCUS: the soft trees, their slopes, and what the descent returns."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.local_methods import FOCUS
from cel.models import wrap
from cel.models.trees.soft_trees import soft_trees
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS

SPACE = FeatureSpace.continuous(3)
MAKE = {
    "tree": lambda: DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": lambda: RandomForestClassifier(8, max_depth=4, random_state=0),
    "boosting": lambda: GradientBoostingClassifier(n_estimators=8, max_depth=3, random_state=0),
}


def case(kind, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.random((300, 3)).astype(np.float32)
    y = (x[:, 0] + 0.5 * x[:, 1] + 0.1 * rng.normal(size=300) > 0.8).astype(int)
    model = MAKE[kind]().fit(x, y)
    return model, wrap(model, space=SPACE), x


@pytest.mark.parametrize("kind", MAKE)
def test_hard_splits_are_the_trees(kind, deviation):
    """With sigmoids as steep as steps, sums are those of the leaves."""
    _, wrapped, x = case(kind)
    view = wrapped.trees_()
    soft = soft_trees(wrapped, view)
    rows = torch.as_tensor(x, dtype=torch.float64)
    deviation.absolute(soft(rows, 1e12), view.sums(x), oracle="the hard trees", limit=1e-9)


def test_categories_and_ranks_are_split_as_the_trees_do(deviation):
    p = PROBLEMS["trees_mixed"]()
    view = p.model.trees_()
    soft = soft_trees(p.model, view)
    rows = torch.as_tensor(p.x_train, dtype=torch.float64)
    deviation.absolute(soft(rows, 1e12), view.sums(p.x_train), oracle="the hard trees", limit=1e-9)


@pytest.mark.parametrize("kind", MAKE)
def test_slopes_are_those_of_finite_differences(kind, deviation):
    _, wrapped, x = case(kind)
    soft = soft_trees(wrapped, wrapped.trees_())
    rows = torch.as_tensor(x[:20], dtype=torch.float64).requires_grad_(True)
    (slope,) = torch.autograd.grad(soft(rows, 5.0)[:, 1].sum(), rows)
    step, at = 1e-6, rows.detach()
    for j in range(3):
        move = torch.zeros(3, dtype=torch.float64)
        move[j] = step
        change = (soft(at + move, 5.0) - soft(at - move, 5.0))[:, 1] / (2 * step)
        deviation.absolute(slope[:, j], change, oracle="finite differences", limit=1e-6)


def test_one_split_is_crossed_and_hardly_more():
    rng = np.random.default_rng(0)
    train = rng.random((200, 3)).astype(np.float32)
    model = DecisionTreeClassifier(max_depth=1).fit(train, (train[:, 1] > 0.6).astype(int))
    x = train[model.predict(train) == 0][:10]
    wrapped = wrap(model, space=SPACE)
    result = FOCUS(wrapped, lr=0.01, steps=400, beta=0.01).fit(train).explain(x, 1)
    assert result.found.all()
    beyond = result.x_cfs[:, 1] - model.tree_.threshold[0]
    assert (beyond > 0).all()
    assert (beyond < 0.15).all()
    np.testing.assert_allclose(result.x_cfs[:, [0, 2]], x[:, [0, 2]], atol=0.02)


@pytest.mark.parametrize("kind", ["forest", "boosting"])
def test_found_rows_are_valid_on_the_hard_trees(kind):
    model, _, train = case(kind)
    space = SPACE.with_changes(x2={"mutable": False})
    x = train[model.predict(train) == 0][:20]
    method = FOCUS(wrap(model, space=space), sharpness=10.0, lr=0.01, steps=200).fit(train)
    result = method.explain(x, 1)
    assert result.found.mean() > 0.5
    assert (model.predict(result.x_cfs[result.found]) == 1).all()
    np.testing.assert_array_equal(result.x_cfs[result.found, 2], x[result.found, 2])


def test_a_row_does_not_depend_on_its_company():
    """Losses are summed, not averaged: a step is as long in a crowd as alone."""
    model, wrapped, train = case("forest")
    x = train[model.predict(train) == 0][:8]
    method = FOCUS(wrapped, sharpness=10.0, lr=0.02, steps=60).fit(train)
    together, alone = method.explain(x, 1), method.explain(x[:1], 1)
    np.testing.assert_allclose(together.x_cfs[:1], alone.x_cfs, atol=1e-6)
