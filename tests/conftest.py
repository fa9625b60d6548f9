"""The same examples in every run, and no traces of one file in the next."""

import sys

import pytest
from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")


@pytest.fixture(scope="module", autouse=True)
def _registries_and_path_are_restored():
    """What a test file registers or imports by name is gone when the next file begins."""
    from cel.cf_methods import METHODS
    from cel.datasets import DATASETS
    from cel.metrics import METRICS
    from cel.models import MODELS

    registries = (METHODS, DATASETS, METRICS, MODELS)
    before = [dict(r._items) for r in registries]
    path = list(sys.path)
    yield
    for registry, items in zip(registries, before, strict=True):
        registry._items.clear()
        registry._items.update(items)
    sys.path[:] = path
