"""Robust answers of rows whose features are tied by a relation."""

import numpy as np
import pytest

from cel.cf_methods.local_methods import PROBE, ROAR
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, LinearRelation
from cel.testing.problems import ToyModel


def tied(bend):
    """a <= b between whole numbers; the model wants a up and b down, and c up at a high price."""
    features = tuple(
        Feature(name=n, kind="integer", columns=(i,), lower=0, upper=1, step=0.02)
        for i, n in enumerate("abc")
    )
    space = FeatureSpace(features, (LinearRelation((("a", 1.0), ("b", -1.0)), 0.0),))
    w = np.array([[0, 0, 0], [12.0, -20.0, 3.0]], dtype=np.float32)
    return space, ToyModel(
        w, np.array([0, -1.0], dtype=np.float32), Task.CLASSIFICATION, bend=bend
    )


@pytest.mark.parametrize("bend", [0.0, 0.05])
@pytest.mark.parametrize(("method", "params"), [(ROAR, {"delta": 0.3}), (PROBE, {})])
def test_rows_whose_cheapest_way_breaks_a_relation_are_answered(method, params, bend):
    space, model = tied(bend)
    rng = np.random.default_rng(0)
    b = rng.integers(5, 20, 20) * 0.02
    x = np.column_stack([b - 0.02, b, rng.integers(0, 10, 20) * 0.02]).astype(np.float32)
    x = x[model.predict(x) == 0]
    result = method(model, space=space, **params).fit(x).explain(x, 1)
    assert result.found.all(), result.counts()
    assert (result.x_cfs[:, 0] <= result.x_cfs[:, 1] + 1e-5).all()
