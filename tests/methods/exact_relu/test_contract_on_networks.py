"""The whole contract on models with kinks; those of the suite itself are linear."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cel.cf_methods.local_methods import ExactReLU
from cel.testing import CHECKS, PROBLEMS, NotAsked

sys.path.insert(0, str(Path(__file__).parent))
from networks import random_module, wrapped


@cache
def problem(name):
    """A problem of the suite with a random network in place of its model."""
    p = PROBLEMS[name]()
    rows = np.concatenate([p.x, p.x_train])
    classes = 3 if name == "three_classes" else 2
    model = wrapped(random_module((rows.shape[1], 8, 6, classes), 4), p.space, classes)
    counts = np.bincount(model.predict(rows).astype(int), minlength=classes)
    target = int(np.argsort(counts)[-2])
    keep = np.flatnonzero(model.predict(rows) != target)[:6]
    return replace(p, model=model, x=rows[keep], x_train=rows[12:], target=target)


QUICK = ("feasible", "valid", "contradiction", "alone")


@pytest.mark.parametrize(
    "check",
    [pytest.param(c, marks=() if c in QUICK else pytest.mark.slow) for c in CHECKS],
)
@pytest.mark.parametrize("name", ["mixed", "related", "three_classes"])
def test_contract_with_a_network(name, check):
    try:
        CHECKS[check](ExactReLU, problem(name))
    except NotAsked as reason:
        pytest.skip(str(reason))
