"""The same examples in every run, no traces of one file in the next, and measured deviations."""

import atexit
import json
import os
import shutil
import sys
import tempfile
import zlib

import numpy as np
import pytest
from hypothesis import settings

from cel.protocols import Status, Task
from cel.space import FeatureSpace
from cel.testing.problems import ToyModel

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")

os.environ["CEL_STORE"] = tempfile.mkdtemp(
    prefix="cel-store-"
)  # models of `cel run`, not the user's
atexit.register(shutil.rmtree, os.environ["CEL_STORE"], ignore_errors=True)

SLOW_PART = 6  # one in so many tests marked slow runs unless all are asked for


def pytest_collection_modifyitems(config, items):
    """Run a seeded part of the tests marked slow; CEL_SLOW=all runs all of them, none runs none.

    A test that is named with its own id always runs.
    """
    asked = os.environ.get("CEL_SLOW", "part")
    if asked == "all" or any("::" in str(a) for a in config.args):
        return
    seed = os.environ.get("CEL_SLOW_SEED", "0")

    def stays(item):
        if item.get_closest_marker("slow") is None:
            return True
        place = zlib.crc32(f"{seed}:{item.nodeid}".encode())
        return asked == "part" and place % SLOW_PART == 0

    left = [i for i in items if not stays(i)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [i for i in items if stays(i)]


@pytest.fixture(scope="module", autouse=True)
def _registries_and_path_are_restored():
    """What a test file registers or imports by name is gone when the next file begins."""
    from cel.cf_methods import METHODS
    from cel.datasets import DATASETS
    from cel.metrics import METRICS
    from cel.models import MODELS

    registries = (METHODS, DATASETS, METRICS, MODELS)
    MODELS.names()  # built-in models are imported, and registered, once only
    before = [dict(r._items) for r in registries]
    path = list(sys.path)
    yield
    for registry, items in zip(registries, before, strict=True):
        registry._items.clear()
        registry._items.update(items)
    sys.path[:] = path


class Deviation:
    """Demand that a measured deviation is at most `limit`, and record it for docs/fidelity.md.

    A property "deviation" of the test's report holds it, which `pytest --junitxml` writes down.
    """

    def __init__(self, properties):
        self.properties = properties

    def __call__(self, value, *, oracle, limit, unit):
        assert np.size(value), f"nothing was compared with {oracle}"
        value = float(np.max(np.asarray(value, dtype=np.float64), initial=0.0))
        told = {"value": value, "limit": limit, "oracle": oracle, "unit": unit}
        self.properties.append(("deviation", json.dumps(told)))
        assert value <= limit, f"{unit}: {value:.3g} against {oracle}, at most {limit:g} allowed"

    def absolute(self, ours, exact, *, unit="absolute", **told):
        gap = np.asarray(ours, dtype=np.float64) - np.asarray(exact, dtype=np.float64)
        self(np.abs(gap), unit=unit, **told)

    def relative(self, ours, exact, *, unit="relative", **told):
        ours, exact = (np.asarray(v, dtype=np.float64) for v in (ours, exact))
        self(np.abs(ours - exact) / np.abs(exact), unit=unit, **told)

    def excess(self, cost, best, *, below=1e-4, unit="relative cost", **told):
        """Costs (n,) within a share of the optimum, and none below it but for rounding."""
        ratio = np.asarray(cost, dtype=np.float64) / np.asarray(best, dtype=np.float64) - 1
        self(np.abs(ratio), unit=unit, **told)
        assert ratio.min() > -below, f"a cost {-ratio.min():.3g} below the optimum"

    def rows(self, wrong, *, oracle, unit="wrong rows"):
        """No row is wrong: `wrong` is a mask or a number of rows."""
        self(np.sum(np.asarray(wrong)), oracle=oracle, limit=0, unit=unit)


@pytest.fixture
def deviation(request):
    return Deviation(request.node.user_properties)


class LinearCase:
    """Rows of class 0 that can reach class 1 (score `w.x + b > 0`), and training rows.

    With `bend` the score becomes `z + bend sin(3 z)`: not linear, so closed forms do not apply,
    but it has the same sign, hence the same boundary and the same optimum.
    """

    margin = 1e-4  # what methods ask for

    def __init__(self, bend=0.0, n=12, seed=0, box=1.0, d=6):
        rng = np.random.default_rng(seed)
        self.w = (rng.normal(size=d) * 3).astype(np.float32)
        self.b = np.float32(-0.6 * self.w.clip(min=0).sum() - 0.4 * self.w.clip(max=0).sum())
        self.train = (rng.random((300, d)) ** rng.uniform(0.5, 4, d)).astype(np.float32)
        self.model = two_classes(self.w, self.b, bend)
        rows = rng.random((400, d)).astype(np.float32)
        self.x = rows[self.score(rows) < -0.5][:n]
        self.low, self.high = 0.5 - box / 2, 0.5 + box / 2
        self.space = FeatureSpace.continuous(d, self.low, self.high)

    def score(self, x):
        return np.asarray(x, dtype=np.float64) @ self.w.astype(np.float64) + float(self.b)

    def run(self, cls, **settings):
        method = cls(self.model, space=self.space, **settings)
        return method.fit(self.train).explain(self.x, target=1)

    def answers(self, cls, **settings):
        return all_found(self.run(cls, **settings))

    def optimum(self, objective, margin=margin, low=None, high=None, rules=lambda z: []):
        """Minimise a sum over rows of a convex function of x', in the box, past the boundary."""
        import cvxpy

        z = cvxpy.Variable(self.x.shape)
        low, high = self.low if low is None else low, self.high if high is None else high
        side = z @ self.w.astype(np.float64) + float(self.b) >= margin
        program = cvxpy.Problem(
            cvxpy.Minimize(objective(z)), [z >= low, z <= high, side, *rules(z)]
        )
        program.solve(solver=cvxpy.CLARABEL)
        assert program.status == "optimal"
        return np.asarray(z.value)


def two_classes(w, b, bend=0.0):
    weights = np.stack([np.zeros_like(w), w])
    return ToyModel(weights, np.array([0, b], dtype=np.float32), Task.CLASSIFICATION, bend=bend)


def all_found(result):
    assert set(result.status) == {Status.FOUND.value}
    return result.x_cfs.astype(np.float64)


@pytest.fixture(name="case")
def _case():
    """The class itself: tests call it with their own settings."""
    return LinearCase


@pytest.fixture(name="check")
def _check():
    """Helpers around `LinearCase`."""

    class Check:
        pass

    Check.found, Check.two_classes = staticmethod(all_found), staticmethod(two_classes)
    return Check


@pytest.fixture
def one_thread():
    """Products of matrices in one order of sums, as in workers of a benchmark."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
