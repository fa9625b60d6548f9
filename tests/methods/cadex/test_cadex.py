"""CADEX: the path of Adam on a linear model, masks, directions and categories."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.cadex import CADEX
from cel.errors import ConfigError
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.space.distances import changed_features
from cel.testing.problems import ToyModel

D = 6


def linear(seed=0, d=D, zero=()):
    rng = np.random.default_rng(seed)
    w = np.stack([np.zeros(d), rng.normal(size=d) * 1.5]).astype(np.float32)
    w[1, list(zero)] = 0.0
    return ToyModel(
        w, np.array([0.0, -w[1].sum() / 2 - 0.5], dtype=np.float32), Task.CLASSIFICATION
    )


def rows(model, n=30, seed=1, d=D):
    x = np.random.default_rng(seed).random((n * 8, d)).astype(np.float32)
    return x[model.predict(x) == 0][:n]


def margin(model, x):
    z = model.logits(torch.as_tensor(x)).numpy()
    return z[:, 1] - z[:, 0]


def test_all_features_move_equally_far_on_a_linear_model(deviation):
    """Adam turns gradients into signs: all features with a weight move equally far."""
    model = linear(zero=(2,))
    x = rows(model)
    wide = FeatureSpace.continuous(D, -9.0, 9.0)
    result = CADEX(model, space=wide).explain(x, 1)
    assert result.found.all()
    delta = result.x_cfs - x
    weights = model.weights[1].numpy()
    assert (delta[:, 2] == 0).all()
    moved = np.abs(np.delete(delta, 2, 1))
    deviation.absolute(moved / moved.mean(1, keepdims=True), 1.0, oracle="equal steps", limit=1e-4)
    assert (np.sign(np.delete(delta, 2, 1)) == np.sign(np.delete(weights, 2))).all()
    exact = -margin(model, x) / np.abs(weights).sum()
    deviation.relative(moved.mean(1), exact, oracle="gap / |w|_1", limit=0.01)


@pytest.mark.parametrize("lr", [0.001, 0.02])
def test_the_step_size_does_not_decide_the_answer(lr, deviation):
    model = linear(1)
    x = rows(model)
    space = FeatureSpace.continuous(D, -9.0, 9.0)
    a = CADEX(model, space=space).explain(x, 1)
    b = CADEX(model, lr=lr, max_iter=int(3 / lr), space=space).explain(x, 1)
    deviation.absolute(b.x_cfs, a.x_cfs, oracle="the default step size", limit=1e-4)


def test_answers_overshoot_by_almost_nothing(deviation):
    model = linear(2)
    x = rows(model)
    result = CADEX(model, space=FeatureSpace.continuous(D)).explain(x, 1)
    beyond = margin(model, result.x_cfs[result.found])
    assert (beyond > 0).all()
    step = np.abs(model.weights[1].numpy()).sum()
    deviation(beyond / step, oracle="boundary", limit=1e-4, unit="overshoot / |w|_1")


@pytest.mark.parametrize("n", [1, 2, 4])
def test_at_most_n_features_change(n, deviation):
    model = linear(3)
    x = rows(model)
    space = FeatureSpace.continuous(D, -9.0, 9.0)
    result = CADEX(model, n_changed=n, space=space).explain(x, 1)
    assert result.found.all()
    changed = np.abs(result.x_cfs - x) > 1e-6
    top = np.argsort(-np.abs(model.weights[1].numpy()))[:n]
    wrong = (changed.sum(1) > n) | np.delete(changed, top, 1).any(1)
    deviation.rows(wrong, oracle="largest |w|")


def test_skipped_features_stay(deviation):
    model = linear(4)
    x = rows(model)
    space = FeatureSpace.continuous(D, -9.0, 9.0)
    order = np.argsort(-np.abs(model.weights[1].numpy()))
    for n_changed in (None, 2):
        result = CADEX(model, n_changed=n_changed, n_skip=1, space=space).explain(x, 1)
        assert result.found.all()
        deviation.rows(result.x_cfs[:, order[0]] != x[:, order[0]], oracle="largest |w|")
    assert (np.abs(result.x_cfs - x)[:, order[1]] > 0).all()


def test_directions_hold_and_do_not_waste_the_mask(deviation):
    """A feature that may not move in the useful direction stays, and another is chosen."""
    model = linear(5)
    x = rows(model)
    weights = model.weights[1].numpy()
    best = int(np.abs(weights).argmax())
    wrong = "down" if weights[best] > 0 else "up"
    space = FeatureSpace.continuous(D, -9.0, 9.0).with_changes(
        **{f"x{best}": {"direction": wrong}}
    )
    result = CADEX(model, n_changed=1, space=space).explain(x, 1)
    assert result.found.all()
    deviation.rows(result.x_cfs[:, best] != x[:, best], oracle="own value")


MIXED = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="k", kind="integer", columns=(1,), step=0.1),
        Feature(name="c", kind="categorical", columns=(2, 3, 4), categories=("u", "v", "w")),
        Feature(name="d", kind="categorical", columns=(5,), categories=("only",)),
    )
)


def mixed_rows(n=80):
    rng = np.random.default_rng(0)
    c = np.eye(3)[rng.integers(0, 3, n)]
    return np.column_stack([rng.random(n), rng.integers(0, 11, n) / 10, c, np.ones(n)]).astype(
        np.float32
    )


def mixed_model(c=(-2.0, 0.5, 2.0)):
    w = np.array([[0] * 6, [0.5, 0.4, *c, 0.0]], dtype=np.float32)
    return ToyModel(w, np.array([0, -1.0], dtype=np.float32), Task.CLASSIFICATION)


def test_categories_are_switched_as_a_whole(deviation):
    model, x = mixed_model(), mixed_rows()
    x = x[model.predict(x) == 0]
    result = CADEX(model, space=MIXED).explain(x, 1)
    assert result.found.mean() > 0.95
    block = result.x_cfs[result.found][:, 2:5]
    broken = ~np.isin(block, (0.0, 1.0)).all(1) | (block.sum(1) != 1)
    deviation.rows(broken, oracle="one category is on")
    steps = result.x_cfs[result.found][:, 1] * 10
    np.testing.assert_allclose(steps, steps.round(), atol=1e-5)


def test_a_block_is_one_feature(deviation):
    """With n_changed = 1 a switched category is the one change."""
    model, x = mixed_model(), mixed_rows()
    x = x[model.predict(x) == 0]
    result = CADEX(model, n_changed=1, space=MIXED).explain(x, 1)
    changed = changed_features(x, np.nan_to_num(result.x_cfs, nan=0.0), MIXED)[result.found]
    assert result.found.any()
    deviation.rows((changed.sum(1) != 1) | ~changed[:, 2], oracle="one changed feature")


def test_the_threshold_decides_when_a_category_is_taken():
    model, x = mixed_model((-0.6, 0.4, 0.6)), mixed_rows()
    x = x[(model.predict(x) == 0) & (x[:, 2] == 1)]
    early = CADEX(model, tau_cat=0.02, space=MIXED).explain(x, 1)
    late = CADEX(model, tau_cat=0.4, space=MIXED).explain(x, 1)
    assert early.found.all()
    assert late.found.all()
    moved = [np.abs(r.x_cfs - x)[:, 0].mean() for r in (early, late)]
    assert moved[0] < 0.5 * moved[1]


def test_a_category_that_was_left_is_not_taken_again():
    """Where the other category always looks better, the walk ends as not found."""

    class Swing(ToyModel):
        def logits(self, x):
            # Whichever of u and v is on, the other one looks better; w never helps.
            z = 2 * x[:, 2] * (x[:, 3] - 0.5) + 2 * x[:, 3] * (x[:, 2] - 0.5) + 0.3 * x[:, 0] - 1
            return torch.stack([torch.zeros_like(z), z], 1)

    base = mixed_model()
    model = Swing(base.weights.numpy(), base.bias.numpy(), Task.CLASSIFICATION, bend=1e-9)
    x = mixed_rows()
    x = x[x[:, 4] == 0][:10]
    result = CADEX(model, space=MIXED, lr=0.02, max_iter=100).explain(x, 1)
    assert set(result.status) == {"not_found"}


def test_rows_alone_equal_rows_in_a_batch(deviation):
    model, x = mixed_model(), mixed_rows()
    x = x[model.predict(x) == 0][:8]
    method = CADEX(model, space=MIXED, lr=0.01, max_iter=200)
    together = method.explain(x, 1)
    alone = np.concatenate([method.explain(row[None], 1).x_cfs for row in x])
    assert np.array_equal(np.isnan(together.x_cfs), np.isnan(alone))
    gap = np.nan_to_num(together.x_cfs - alone)
    deviation.absolute(gap, 0, oracle="rows one by one", limit=1e-6)


def test_sets_hold_one_answer_per_setting_and_the_first_choice_is_sparsest(deviation):
    model = linear(6)
    x = rows(model)
    space = FeatureSpace.continuous(D)
    method = CADEX(model, n_changed=(1, 2, 4), n_skip=(0, 1), lr=0.01, max_iter=150, space=space)
    result = method.explain(x, 1)
    assert result.x_sets.shape == (len(x), 6, D)
    changed = (np.abs(result.x_sets - x[:, None]) > 1e-6).sum(-1).astype(float)
    changed[np.isnan(result.x_sets).any(-1)] = np.inf
    chosen = (np.abs(result.x_cfs - x) > 1e-6).sum(1)
    wrong = (chosen != changed.min(1))[result.found]
    deviation.rows(wrong, oracle="fewest changes of the set")
    for i in np.flatnonzero(result.found):
        assert any(np.array_equal(result.x_cfs[i], m) for m in result.x_sets[i])


def test_wrong_numbers_are_refused():
    x = rows(linear())
    for settings in ({"n_changed": 0}, {"n_changed": (1, 0)}, {"n_skip": -1}, {"n_changed": ()}):
        with pytest.raises(ConfigError, match="at least"):
            CADEX(linear(), space=FeatureSpace.continuous(D), **settings).explain(x, 1)
