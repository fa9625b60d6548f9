"""What metrics share and where their definitions have an edge, by hand."""

import inspect

import numpy as np
import pytest

from cel.errors import ConfigError
from cel.metrics import METRICS, MetricsOrchestrator
from cel.metrics.bootstrap import bootstrap_interval
from cel.metrics.evaluation import Evaluation
from cel.metrics.neighbours import _hits, _index
from cel.metrics.references import References
from cel.metrics.retraining import MODES, kept_share
from cel.protocols import Task
from cel.result import EvaluationContext, ExplanationResult
from cel.space import FeatureSpace


class Cut:
    """Class 1 from a threshold of the first column on."""

    task, classes_ = Task.CLASSIFICATION, np.array([0, 1])

    def __init__(self, at):
        self.at = at

    def predict(self, X):
        return (np.asarray(X)[:, 0] >= self.at).astype(int)

    def predict_proba(self, X):
        one = self.predict(X).astype(float)
        return np.stack([1 - one, one], 1)


class Line:
    """The number itself."""

    task = Task.REGRESSION

    def predict(self, X):
        return np.asarray(X, dtype=float)[:, :1]


class Near:
    """log p(x | c) = -|x - c|, for a number as context."""

    def log_prob(self, x, context=None):
        return -(x[:, 0] - context.to(x).reshape(len(x), -1)[:, 0]).abs()


def result(model, x, cf, target, **context):
    x, cf = np.array(x, dtype=float)[:, None], np.array(cf, dtype=float)[:, None]
    numbers = model.task is Task.REGRESSION
    wanted = np.array(target, dtype=float)[:, None] if numbers else np.array(target)
    return ExplanationResult(
        x_origs=x, x_cfs=cf, y_origs=model.predict(x), y_cf_targets=wanted,
        y_cfs=model.predict(cf), status=np.array(["found"] * len(x), dtype=object),
        source_ids=np.arange(len(x)), space=FeatureSpace.continuous(1, lower=-9, upper=9),
        context=EvaluationContext(model=model, **context), method="by hand",
    )  # fmt: skip


def scored(given, *metrics):
    return MetricsOrchestrator(metrics=list(metrics)).compute(given)


def test_ranks_of_numbers_are_among_all_held_out_rows():
    held = np.array([[0.0], [1.0], [2.0], [4.0]])
    aims = np.array([[0.5], [1.0], [0.0], [1.0]])  # log-densities -0.5, 0, -2, -3
    given = result(
        Line(), [0, 0, 0], [1.0, 3.0, 0.5], [2.0, 3.0, 3.0], density=Near(), x_test=held,
        y_test=aims,
    )  # fmt: skip
    told = scored(given, "density_percentile").score("density_percentile").values
    assert told.tolist() == [0.5, (3 + 4) / 8, 0.25]  # -1, 0 (a tie) and -2.5


def test_an_answer_at_the_very_edge_is_connected():
    rows = np.array([[0.0], [0.25], [0.5], [2.0], [2.25]])
    given = result(Cut(-5), [-8, -8, -8], [0.75, 0.8125, 2.5], [1, 1, 1], x_train=rows,
                   y_train=np.ones(5, dtype=int))  # fmt: skip
    told = scored(given, {"connectedness": {"k": 1, "quantile": 1.0}})
    assert told.score("connectedness").values.tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize(("ahead", "counted"), [(1e-4, 1.0), (1e-8, 0.5), (-1e-4, 0.0)])
def test_only_equal_distances_are_ties(ahead, counted):
    members = np.array([[0.5 + ahead]])
    told = _hits(np.zeros((1, 1)), np.ones((1, 1)), _index(members), members, 1, True)
    assert told.tolist() == [counted]


def test_models_do_not_share_what_they_predict():
    rows, store = np.array([[0.2], [0.8]]), References()
    for at, wanted in ((0.5, [0, 1]), (0.1, [1, 1]), (0.9, [0, 0])):
        given = result(Cut(at), [0.0], [1.0], [1], x_train=rows, x_test=rows[::-1])
        ev = Evaluation(result=given, context=given.context, references=store)
        assert ev.y_train.tolist() == wanted
        assert ev.y_test.tolist() == wanted[::-1]


def test_only_models_that_still_reject_the_row_count():
    given = result(Cut(0.5), [0.3, 0.3], [0.6, 0.9], [1, 1])
    ev = Evaluation(result=given, context=given.context).of("found")
    models = [Cut(0.2), Cut(0.5), Cut(0.7), Cut(0.95)]  # the first accepts the row itself
    assert kept_share(ev, models, False).tolist() == [2 / 4, 3 / 4]
    assert kept_share(ev, models, True).tolist() == [1 / 3, 2 / 3]
    assert np.isnan(kept_share(ev, models[:1], True)).all()


def test_every_way_of_retraining_is_a_metric():
    assert {f"retraining_{mode}" for mode in MODES} <= set(METRICS)


def test_one_draw_is_enough_and_none_is_not():
    given = result(Cut(0.5), [0.0], [5.0], [1])
    assert scored(given, {"noise_robustness": {"draws": 1}})["noise_robustness"] == 1.0
    with pytest.raises(ConfigError, match="draws must be at least 1"):
        scored(given, {"noise_robustness": {"draws": 0}})


def test_intervals_do_not_depend_on_how_much_fits_in_memory(monkeypatch):
    values = np.random.default_rng(0).normal(size=11)
    whole = bootstrap_interval(values)
    defaults = {k: p.default for k, p in inspect.signature(bootstrap_interval).parameters.items()}
    del defaults["values"]
    assert defaults == {"level": 0.95, "n": 1000, "seed": 0, "aggregate": "mean"}
    assert bootstrap_interval(values, seed=1) != whole
    monkeypatch.setattr("cel.metrics.bootstrap.CHUNK_VALUES", 22)
    assert bootstrap_interval(values) == whole
