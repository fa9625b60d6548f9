"""Validity after retraining where the data have moved on; bounds that bisection finds."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression as Sklearn

from cel.metrics import MetricsOrchestrator
from cel.metrics.data_shift import elsewhere
from cel.metrics.retraining import NOISE, retrained_models
from cel.metrics.weight_changes import linear_layers, worst_margin
from cel.models.classifiers import MLPClassifier
from cel.protocols import Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space import Feature, FeatureSpace

PLACE = Feature(name="place", kind="categorical", columns=(1, 2), categories=("a", "b"))
YEAR = Feature(name="year", columns=(3,), mutable=False)
SPACE = FeatureSpace((Feature(name="x", columns=(0,)), PLACE, YEAR))


class Threshold(Sklearn):
    """Logistic regression with a task."""

    task = Task.CLASSIFICATION


def moved_data(n=400, seed=0):
    """The boundary lies at 0.4 in place a (most rows, early) and at 0.7 in place b (late)."""
    rng = np.random.default_rng(seed)
    b = rng.random(n) < 0.3
    x = rng.random(n)
    rows = np.column_stack([x, ~b, b, np.where(b, 0.8, 0.2) + 0.1 * rng.random(n)])
    return rows, (x > np.where(b, 0.7, 0.4)).astype(int)


def scored(metrics, x_new=(0.5, 0.9), recorded=True):
    rows, labels = moved_data()
    home = rows[:, 1] > 0.5
    model = Threshold(C=1e4).fit(rows[home], labels[home])
    x = np.tile([[0.1, 1.0, 0.0, 0.25]], (len(x_new), 1))
    cf = x.copy()
    cf[:, 0] = x_new
    result = ExplanationResult(
        x_origs=x, x_cfs=cf, y_origs=model.predict(x), y_cf_targets=np.ones(len(x), dtype=int),
        y_cfs=model.predict(cf), status=np.array(["found"] * len(x), dtype=object),
        source_ids=np.arange(len(x)), space=SPACE, method="by hand",
        context=EvaluationContext(model=model, x_train=rows, y_train=model.predict(rows)),
    )  # fmt: skip
    return MetricsOrchestrator(metrics=metrics).compute(
        result, labels=labels if recorded else None
    )


@pytest.mark.parametrize("feature", ["place", ["month", "place"]])
def test_an_answer_that_holds_here_may_fail_elsewhere(feature):
    scores = scored([{"retraining_shift": {"feature": feature}}, "retraining_leave_out"])
    assert scores.score("retraining_shift").values.tolist() == [0, 1]  # 0.5 and 0.9 against 0.7
    assert scores.score("retraining_leave_out").values[1] == 1


def test_later_rows_of_the_same_place_have_not_moved():
    """Above the median year there are rows of both places, and the model sees which is which."""
    scores = scored([{"retraining_shift": {"feature": "year"}}])
    assert scores.score("retraining_shift").values.tolist() == [1, 1]


def test_with_the_models_own_labels_nothing_has_moved():
    """Recorded outcomes are what makes the other side different."""
    metrics = [{"retraining_shift": {"feature": "place"}}]
    assert scored(metrics)["retraining_shift"] == 0.5
    assert scored(metrics, recorded=False)["retraining_shift"] == 1


def test_a_shift_needs_a_feature_and_rows_on_its_other_side():
    scores = scored([{"retraining_shift": {"feature": ["month", "region"]}}])
    assert np.isnan(scores["retraining_shift"])
    assert "none of 'month', 'region' is one" in scores.reasons["retraining_shift"]
    assert "none was named" in scored(["retraining_shift"]).reasons["retraining_shift"]


def test_the_other_side_is_above_the_median_or_away_from_the_largest_category():
    rows, _ = moved_data()
    b = np.flatnonzero(rows[:, 2] > 0.5)
    assert elsewhere(rows, PLACE).tolist() == b.tolist()
    late = elsewhere(rows, YEAR)
    assert (rows[late, 3] > np.median(rows[:, 3])).all()
    assert len(late) == len(rows) // 2
    assert set(b) <= set(late)


class Noting:
    """A model that remembers what it was trained on."""

    task = Task.CLASSIFICATION
    classes_ = np.arange(2)

    def __init__(self, random_state=0):
        self.random_state = random_state

    def get_params(self, deep=True):
        return {"random_state": self.random_state}

    def set_params(self, **params):
        vars(self).update(params)
        return self

    def fit(self, X, y):
        self.seen = np.asarray(X)
        return self


def noted(mode, n_models=4):
    from cel.metrics import Evaluation
    from cel.metrics.example import example

    result = example()
    context = EvaluationContext(
        model=Noting(), x_train=result.context.x_train, y_train=result.context.y_train
    )
    ev = Evaluation(result=result, context=context)
    models = retrained_models(ev, mode, n_models, 0)
    return result.context.x_train, [m.seen for m in models]


def test_folds_leave_out_every_row_exactly_once():
    rows, seen = noted("folds")
    assert [len(s) for s in seen] == [9] * 4
    left = sum(len(rows) - len(s) for s in seen)
    assert left == len(rows)
    counts = sum((s[:, None] == rows[None]).all(-1).sum(0) for s in seen)
    twice = (rows[:, None] == rows[None]).all(-1).sum(0)  # one row is there twice
    assert (counts == 3 * twice).all()


def test_perturbed_rows_differ_in_their_numbers_only():
    rows, seen = noted("perturbed")
    for some in seen:
        assert some.shape == rows.shape
        assert np.array_equal(some[:, 2:], rows[:, 2:])
        moved = some[:, :2] - rows[:, :2]
        assert (moved != 0).mean() > 0.9
        assert 0.3 * NOISE < moved.std() < 2 * NOISE
    assert not np.array_equal(seen[0], seen[1])


def test_the_certified_margin_is_where_the_bound_reaches_zero():
    rng = np.random.default_rng(0)
    rows = rng.random((300, 3)).astype(np.float32)
    model = MLPClassifier(hidden=(8, 8), epochs=30).fit(rows, (rows.sum(1) > 1.5).astype(int))
    cf = rows[model.predict(rows) == 1][:20]
    result = ExplanationResult(
        x_origs=cf - 0.9, x_cfs=cf, y_origs=model.predict(cf - 0.9),
        y_cf_targets=np.ones(20, dtype=int), y_cfs=np.ones(20, dtype=int),
        status=np.array(["found"] * 20, dtype=object), source_ids=np.arange(20),
        space=FeatureSpace.continuous(3), method="by hand",
        context=EvaluationContext(model=model),
    )  # fmt: skip
    told = MetricsOrchestrator(metrics=["certified_margin"]).compute(result)
    delta = torch.as_tensor(told.score("certified_margin").values)
    x, target = torch.as_tensor(cf, dtype=torch.float64), torch.ones(20, dtype=torch.long)
    layers = linear_layers(model, x)
    assert (delta > 0).all()
    assert (worst_margin(layers, x, target, delta * 0.999) > 0).all()
    assert (worst_margin(layers, x, target, delta * 1.001) <= 0).all()
