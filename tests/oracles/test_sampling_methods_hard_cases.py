"""Unreachable targets, poor training data and odd shapes: a status for each row, never a hang."""

import time

import numpy as np
import pytest

from cel.cf_methods.local_methods.artelt import Artelt
from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.cf_methods.local_methods.cearm import CEARM
from cel.cf_methods.local_methods.dice import DiCE
from cel.cf_methods.local_methods.sace import SACE
from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

WAYS = {
    "artelt": (Artelt, {"n_components": 2}),
    "artelt_scp": (Artelt, {"n_components": 2, "extension": "scp"}),
    "dice_random": (DiCE, {"total_CFs": 5, "samples": 100}),
    "dice_gradient": (DiCE, {"method": "gradient", "total_CFs": 2, "max_iter": 200}),
    "dice_kdtree": (DiCE, {"method": "kdtree"}),
    "dice_genetic": (DiCE, {"method": "genetic", "max_iter": 20}),
    "cchvae": (CCHVAE, {"samples": 50, "steps": 60}),
    "sace": (SACE, {}),
    "cearm": (CEARM, {"rounds": 4, "candidates": 32, "ascent": 4, "fit_rows": 30}),
}
ROWS = np.random.default_rng(0).random((120, 3)).astype(np.float32)


def model(bias=-2.5, scale=1.0, linear=True):
    w = scale * np.array([[0, 0, 0], [4, 3, -2]], dtype=np.float32)
    toy = ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)
    if not linear:
        del toy.linear_  # the model hides what it is
    return toy


@pytest.fixture(params=list(WAYS))
def way(request):
    cls, settings = WAYS[request.param]
    linear = request.param != "artelt_scp"

    def build(rows=ROWS, space=None, bias=-2.5, scale=1.0, **changes):
        toy = model(bias, scale, linear)
        space = space or FeatureSpace.continuous(3)
        return cls(toy, space=space, **(settings | changes)).fit(rows), toy

    return build


def negatives(toy, rows=ROWS):
    return rows[toy.predict(rows) == 0]


def test_no_rows_and_one_row(way):
    """One row is answered, and no rows give an empty result."""
    method, toy = way()
    assert len(method.explain(ROWS[:0], target=1)) == 0
    one = method.explain(negatives(toy)[:1], target=1)
    assert one.status[0] == Status.FOUND.value
    assert toy.predict(one.x_cfs).tolist() == [1]


def test_a_class_that_cannot_be_reached(way):
    """A class that no point has is not found or infeasible, within 20 seconds."""
    method, _ = way(bias=-50.0)
    started = time.monotonic()
    result = method.explain(ROWS[:8], target=1)
    assert time.monotonic() - started < 20
    assert not result.found.any()
    allowed = {Status.NOT_FOUND.value, Status.INFEASIBLE.value}
    assert set(result.status) <= allowed


def test_one_training_row_of_the_target_class(way):
    """With one training row of the class found rows are valid."""
    toy = model()
    rows = np.concatenate([negatives(toy), ROWS[toy.predict(ROWS) == 1][:1]])
    method, toy = way(rows=rows)
    result = method.explain(negatives(toy)[:6], target=1)
    assert set(result.status) <= {s.value for s in Status} - {Status.INVALID.value}
    assert (toy.predict(result.x_cfs[result.found]) == 1).all()


def test_a_class_without_training_rows(way):
    """Without a training row of the class found rows are valid and nothing is proved."""
    toy = model()
    method, toy = way(rows=negatives(toy))
    result = method.explain(negatives(toy)[:4], target=1)
    assert Status.INFEASIBLE.value not in result.status  # nothing is proved
    assert (toy.predict(result.x_cfs[result.found]) == 1).all()


def test_constant_features(way, deviation):
    """A constant feature keeps its value."""
    rows = ROWS.copy()
    rows[:, 1] = 0.5
    space = FeatureSpace.continuous(3).with_changes(x1={"lower": 0.5, "upper": 0.5})
    method, toy = way(rows=rows, space=space, bias=-2.0)
    result = method.explain(negatives(toy, rows)[:8], target=1)
    assert result.found.any()
    deviation.rows(result.x_cfs[result.found][:, 1] != 0.5, oracle="own value")


def test_saturated_scores(way):
    """Found rows are valid where scores are saturated."""
    method, toy = way(bias=-2500.0, scale=1000.0)
    result = method.explain(negatives(toy)[:6], target=1)
    assert (toy.predict(result.x_cfs[result.found]) == 1).all()


def test_nothing_can_change(way):
    """Rows are infeasible where nothing may change."""
    frozen = {name: {"mutable": False} for name in ("x0", "x1", "x2")}
    method, toy = way(space=FeatureSpace.continuous(3).with_changes(**frozen))
    result = method.explain(negatives(toy)[:4], target=1)
    assert set(result.status) == {Status.INFEASIBLE.value}


def test_a_time_limit_of_nothing(way):
    """With a time limit of zero every row ends as a timeout."""
    method, toy = way(time_limit=0.0)
    result = method.explain(negatives(toy)[:4], target=1)
    assert set(result.status) == {Status.TIMEOUT.value}


def test_few_queries_end_the_search(way):
    """A limit of three queries ends the search within ten seconds."""
    method, _ = way(max_queries=3, bias=-50.0)
    started = time.monotonic()
    method.explain(ROWS[:8], target=1)
    assert time.monotonic() - started < 10


def test_one_feature_may_only_rise(way, deviation):
    """Features that may only rise do not fall, an immutable one stays."""
    space = FeatureSpace.continuous(3).with_changes(
        x0={"direction": "up"}, x1={"mutable": False}, x2={"direction": "up"}
    )
    method, toy = way(space=space)
    x = negatives(toy)[:10]
    result = method.explain(x, target=1)
    rows = result.found
    assert rows.any()
    fall = (x - result.x_cfs)[rows][:, [0, 2]]
    deviation(fall, oracle="own values", limit=1e-6, unit="absolute fall")
    np.testing.assert_array_equal(result.x_cfs[rows][:, 1], x[rows][:, 1])
