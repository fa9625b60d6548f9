"""Protected groups and their gaps, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from cel.errors import ConfigError, MissingInputError
from cel.metrics.fairness import _gap, _largest, protected_groups
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="sex", kind="categorical", columns=(0, 1), categories=("F", "M"),
                protected=True),
        Feature(name="rank", kind="ordinal", columns=(2,), categories=("low", "mid", "top"),
                step=0.5, upper=1.0, protected=True),
        Feature(name="age", columns=(3,), lower=0.0, upper=99.0),
    )
)  # fmt: skip
X = np.array([
    [1, 0, 0.0, 10], [0, 1, 0.5, 30], [0.2, 0.3, 1.0, 31], [0, 1, 1.5, 90], [1, 0, -0.5, 29.0],
])  # fmt: skip


def evaluation(*, train=True):
    context = SimpleNamespace(x_train=np.array([[0, 0, 0, v] for v in (20.0, 30.0, np.nan, 40.0)]))
    return SimpleNamespace(
        space=SPACE, x=X, has=lambda name: train and name == "train", context=context,
        result=SimpleNamespace(x_origs=X),
    )  # fmt: skip


def test_categories_ranks_and_halves_are_groups():
    found = protected_groups(evaluation(), None, "each")
    assert list(found) == ["sex", "rank"]
    assert found["sex"].tolist() == ["F", "M", "", "M", "F"]
    assert found["rank"].tolist() == ["low", "mid", "top", "", ""]
    (age,) = protected_groups(evaluation(), "age", "joint").values()
    assert age.tolist() == ["<= 30", "<= 30", "> 30", "> 30", "<= 30"]
    (own,) = protected_groups(evaluation(train=False), "age", "each").values()
    assert own.tolist() == ["<= 30", "<= 30", "> 30", "> 30", "<= 30"]


def test_joint_groups_need_both_values():
    found = protected_groups(evaluation(), None, "joint")
    assert list(found) == ["sex & rank"]
    assert found["sex & rank"].tolist() == ["F & low", "M & mid", "", "", ""]


def test_what_is_not_protected_or_unknown_is_refused():
    with pytest.raises(ConfigError, match="by must be 'each' or 'joint', got 'both'"):
        protected_groups(evaluation(), None, "both")
    plain = evaluation()
    plain.space = FeatureSpace.continuous(4)
    with pytest.raises(MissingInputError, match="no feature of the space has protected=True"):
        protected_groups(plain, None, "each")


def test_gaps_are_between_means_of_groups_that_are_large_enough():
    values = np.array([1.0, 3.0, 5.0, np.nan, 9.0, 100.0, 7.0])
    labels = np.array(["a", "a", "b", "b", "b", "c", ""])
    found = _gap(None, values, labels, 2)
    assert found.value == 7.0 - 2.0
    assert found.note == "a 2, b 7"
    assert _gap(None, values, labels, 1).value == 98.0
    assert _gap(None, values, labels, 0).value == 98.0
    lone = _gap(None, values[:3], labels[:3], 2)
    assert np.isnan(lone.value)
    assert lone.note == "needs two groups of 2 rows, got a: 2, b: 1"
    assert _gap(None, values[:0], labels[:0], 2).note == "needs two groups of 2 rows, got none"
    alone = _gap(None, np.array([1.0, 2.0]), np.array(["", "a"]), 1)
    assert alone.note == "needs two groups of 1 rows, got unknown: 1, a: 1"


def test_the_largest_gap_counts():
    from cel.metrics.base import Noted

    told = _largest({"sex": Noted(0.5, "x"), "rank": Noted(np.nan, "y"), "age": Noted(2.0, "z")})
    assert told.value == 2.0
    assert told.note == "sex: x; rank: y; age: z"
    assert np.isnan(_largest({"rank": Noted(np.nan, "y")}).value)
