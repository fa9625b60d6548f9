"""What every registered metric must keep to, those of other packages included."""

from __future__ import annotations

import inspect
import math
import re
from dataclasses import replace

import numpy as np
import pytest

from cel.errors import ConfigError
from cel.metrics import METRICS, Evaluation, MetricsOrchestrator
from cel.metrics.base import NEEDS
from cel.metrics.docs import SETTINGS
from cel.metrics.example import ExampleMethod, example, regression_example
from cel.protocols import Task
from cel.result import EvaluationContext

NAMES = sorted({m.name for _, m in METRICS.items()})
RESULT = example()
METHOD = ExampleMethod(RESULT.context.model)
OPTIONAL = {
    "density": ("density",),
    "coach": ("density",),
    "train": ("x_train", "y_train"),
    "test": ("x_test", "y_test"),
}


def score(name, result=RESULT, context=None, method=METHOD):
    view = Evaluation(result=result, context=context or result.context, method=method)
    return METRICS.get(name).score(view, **SETTINGS.get(name, {}))


def shown(name):
    return regression_example() if METRICS.get(name).tasks == {Task.REGRESSION} else RESULT


@pytest.mark.parametrize("name", NAMES)
def test_a_metric_explains_itself(name):
    metric = METRICS.get(name)
    assert re.fullmatch(r"[a-z0-9_]+", name)
    assert metric.meaning.endswith(".")
    assert len(metric.formula) > 3
    assert metric.needs <= set(NEEDS)
    assert metric.better in ("higher", "lower")
    assert metric.function.__doc__ or metric.function.__qualname__ == name


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_a_default_and_typos_are_named(name):
    metric = METRICS.get(name)
    for setting, default in metric.parameters.items():
        assert default is not inspect.Parameter.empty
        assert setting.isidentifier()
    with pytest.raises(ConfigError, match="has no setting 'colour'"):
        metric.check_parameters({"colour": "red"})


@pytest.mark.parametrize("name", NAMES)
def test_a_value_or_a_reason(name):
    result = shown(name)
    method = METHOD if result is RESULT else None
    found = score(name, result, method=method)
    assert math.isfinite(found.value), found.reason
    if found.values is not None:
        assert found.values.shape == found.positions.shape
        assert found.values.dtype == np.float64


@pytest.mark.parametrize("name", NAMES)
def test_it_says_whether_it_trains_models(name, monkeypatch):
    result, fits = shown(name), []
    kind = type(result.context.model)
    plain = getattr(kind, "fit", None)

    def fit(self, *args, **options):
        fits.append(name)
        return plain(self, *args, **options)

    if plain is not None:
        monkeypatch.setattr(kind, "fit", fit)
    score(name, result, method=METHOD if result is RESULT else None)
    assert METRICS.get(name).trains == bool(fits)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_becomes_a_reason(name):
    metric, result = METRICS.get(name), shown(name)
    without = {
        "model": lambda: score(name, result, replace(result.context, model=None)),
        "density": lambda: score(name, result, replace(result.context, density=None)),
        "coach": lambda: score(name, result, replace(result.context, density=None)),
        "train": lambda: score(name, result, replace(result.context, x_train=None)),
        "test": lambda: score(name, result, replace(result.context, x_test=None)),
        "sets": lambda: score(name, replace(result, x_sets=None)),
        "method": lambda: score(name, result, method=None),
        "protected": lambda: score(
            name, replace(result, space=result.space.with_changes(sex={"protected": False}))
        ),
        "units": lambda: score(name, replace(result, cf_group_ids=None, logs={})),
    }
    for need in metric.needs:
        found = without[need]()
        assert math.isnan(found.value)
        assert found.values is None
        assert NEEDS[need] in found.reason


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_declared_is_not_needed(name):
    """With nothing but the declared inputs the value is the same."""
    metric, result = METRICS.get(name), shown(name)
    keep = {f for need in metric.needs for f in OPTIONAL.get(need, ())}
    if "model" in metric.needs:
        keep.add("model")
    if metric.needs & {"train", "test"}:
        keep |= {"y_train", "y_test"}  # what the model predicts is stored with the rows
    context = EvaluationContext(**{f: getattr(result.context, f) for f in keep})
    bare = replace(
        result,
        context=context,
        x_sets=result.x_sets if "sets" in metric.needs else None,
        cf_group_ids=result.cf_group_ids if "units" in metric.needs else None,
    )
    method = METHOD if "method" in metric.needs else None
    full = METHOD if result is RESULT else None
    found, whole = score(name, bare, method=method), score(name, result, method=full)
    assert found.value == pytest.approx(whole.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_wrong_task_is_a_reason(name):
    metric = METRICS.get(name)
    for task, result in ((Task.REGRESSION, regression_example()), (Task.CLASSIFICATION, RESULT)):
        found = score(name, result, method=None)
        if task not in metric.tasks:
            assert math.isnan(found.value)
            assert found.reason.startswith("defined for")


@pytest.mark.parametrize("name", NAMES)
def test_empty_rows_are_a_reason(name):
    metric = METRICS.get(name)
    nobody = shown(name).select(np.zeros(0, dtype=np.int64))
    found = score(name, nobody)
    if metric.rows != "cell":
        assert math.isnan(found.value)
        assert found.reason


def test_aliases_lead_to_the_same_metric():
    assert METRICS.get("actionability") is METRICS.get("unchanged")


def test_third_party_metrics_come_by_entry_point(monkeypatch):
    from cel import registry

    mine = replace(METRICS.get("l2"), name="mine")

    class Entry:
        name = "mine"

        def load(self):
            return mine

    fresh = type(METRICS)("metric", group="cel.metrics")
    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry()])
    assert fresh.get("mine") is mine


def test_the_listing_of_the_paper_runs():
    scores = MetricsOrchestrator(conf_path="default.yaml").compute(RESULT)
    assert scores["validity"] == pytest.approx(4 / 7)
