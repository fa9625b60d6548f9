"""Limits of changes and structural equations, by hand."""

import numpy as np
import pytest
import torch

from cel.errors import ConfigError, DataError
from cel.space import ChangeLimit, Feature, FeatureSpace, Implication
from cel.space.causal import Mechanism, StructuralModel, _order

MIXED = (
    Feature(name="a", columns=(0,), lower=0.0, upper=9.0),
    Feature(name="c", kind="categorical", columns=(1, 2), categories=("u", "v")),
    Feature(name="b", columns=(3,), lower=0.0, upper=9.0),
)
HOME = np.array([[1.0, 1, 0, 1.0]])


def limited(most, units=()):
    return FeatureSpace(MIXED, (), ChangeLimit(most, units)).region(HOME)


@pytest.mark.parametrize(
    ("most", "kept"),
    [(1, [[1, 1, 0, 4]]), (2, [[1, 0, 1, 4]]), (3, [[1.5, 0, 1, 4]]), (4, [[1.5, 0, 1, 4]])],
)
def test_the_largest_changes_are_kept(most, kept):
    asked = np.array([[1.5, 0, 1, 4.0]])  # 0.5 of a, both columns of c, 3 of b
    region = limited(most)
    assert region.changed_units(asked).tolist() == [3]
    seen = region.snap(asked)
    assert seen.tolist() == kept
    assert region.contains(seen).tolist() == [True]
    assert region.violations(asked)["changes"].tolist() == [max(3 - most, 0)]
    assert region.contains(asked).tolist() == [most >= 3]


def test_things_that_belong_together_are_one_change():
    region = limited(1, (0, 0, 1))
    asked = np.array([[1.5, 0, 1, 2.5], [1.5, 0, 1, 1.0], [1.0, 1, 0, 1.0]])
    whole = region.select(torch.zeros(3, dtype=torch.long))
    assert whole.changed_units(asked).tolist() == [2, 1, 0]
    assert whole.snap(asked).tolist() == [[1.5, 0, 1, 1.0], [1.5, 0, 1, 1.0], [1.0, 1, 0, 1.0]]
    assert FeatureSpace(MIXED).change_units.tolist() == [0, 1, 2]
    assert FeatureSpace(MIXED, (), ChangeLimit(2)).change_units.tolist() == [0, 1, 2]
    assert FeatureSpace(MIXED, (), ChangeLimit(1, (0, 0, 1))).change_units.tolist() == [0, 0, 1]


def test_without_a_limit_changes_are_no_violation():
    assert "changes" not in FeatureSpace(MIXED).region(HOME).violations(HOME)
    with pytest.raises(ConfigError, match="at most 0 changes leave nothing"):
        ChangeLimit(0)
    assert ChangeLimit(1).most == 1


def chain():
    """x1 = 0.5 x0 + u1, x2 = 2 x1 - x0 + u2; x3 is a root."""
    return StructuralModel(
        FeatureSpace.continuous(4, -9.0, 9.0),
        {"x2": Mechanism.linear({"x1": 2.0, "x0": -1.0}), "x1": Mechanism.linear({"x0": 0.5})},
    )


X = torch.tensor([[2.0, 3.0, 4.0, 5.0]], dtype=torch.float64)


def acted(*names):
    return torch.tensor([[f"x{i}" in names for i in range(4)]])


def test_noise_is_what_parents_do_not_explain():
    assert chain().noise(X).tolist() == [[2.0, 3 - 1.0, 4 - (6 - 2.0), 5.0]]
    assert chain().order == ("x1", "x2")
    assert chain().graph == {"x2": ("x1", "x0"), "x1": ("x0",)}
    assert chain().is_linear


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("x0",), [3.0, 3.5, 4 + 1 - 1, 5.0]),  # x1 rises by 0.5: x2 by 2 * 0.5 - 1
        (("x1",), [2.0, 4.0, 6.0, 5.0]),
        (("x0", "x1"), [3.0, 4.0, 4 + 2 - 1, 5.0]),  # x1 no longer follows x0
        (("x2",), [2.0, 3.0, 5.0, 5.0]),
        (("x0", "x2"), [3.0, 3.5, 5.0, 5.0]),
        (("x3",), [2.0, 3.0, 4.0, 6.0]),
        ((), [2.0, 3.0, 4.0, 5.0]),
    ],
)
def test_rows_follow_from_actions(names, expected):
    one = torch.ones_like(X)
    assert chain().follow(X, one, acted(*names)).tolist() == [expected]
    change = chain().effects(acted(*names))[0] @ torch.ones(4, dtype=torch.float64)
    torch.testing.assert_close(X[0] + change, torch.tensor(expected, dtype=torch.float64))
    untouched = [i for i in range(4) if f"x{i}" not in names]
    assert not chain().effects(acted(*names))[0][:, untouched].any()


def test_what_nothing_changed_above_keeps_its_bits():
    odd = torch.tensor([[0.1, 0.3, 0.7, 0.2]])
    zero = torch.zeros_like(odd)
    assert torch.equal(chain().follow(odd, zero, acted("x0", "x1")), odd)


def test_mechanisms_may_be_functions_and_categories_may_be_causes():
    space = FeatureSpace(MIXED)
    model = StructuralModel(space, {"b": Mechanism(("c",), weights=torch.tensor([0.0, 3.0]))})
    x = torch.tensor([[1.0, 1, 0, 1.0]])
    to_v = torch.tensor([[0.0, -1, 1, 0]])
    assert model.follow(x, to_v, torch.tensor([[False, True, False]])).tolist() == [[1, 0, 1, 4]]
    square = StructuralModel(
        FeatureSpace.continuous(2), {"x1": Mechanism(("x0",), function=lambda p: p[:, 0] ** 2)}
    )
    assert not square.is_linear
    moved = square.follow(
        torch.tensor([[2.0, 1.0]]), torch.ones(1, 2), torch.tensor([[True, False]])
    )
    assert moved.tolist() == [[3.0, 1 + 9 - 4]]
    with pytest.raises(ConfigError, match="effects are constant for linear mechanisms only"):
        square.effects(torch.tensor([[True, False]]))


def test_wrong_equations_are_refused():
    space = FeatureSpace(MIXED)
    with pytest.raises(ConfigError, match="feature 'c' is categorical and cannot follow"):
        StructuralModel(space, {"c": Mechanism.linear({"a": 1.0})})
    with pytest.raises(ConfigError, match="feature 'b': 1 weights for 2 columns"):
        StructuralModel(space, {"b": Mechanism(("c",), weights=torch.ones(1))})
    with pytest.raises(ConfigError, match="z"):
        StructuralModel(space, {"b": Mechanism.linear({"z": 1.0})})
    with pytest.raises(ConfigError, match="the causes of a, b go round in a circle"):
        StructuralModel(space, {"b": Mechanism.linear({"a": 1.0}),
                                "a": Mechanism.linear({"b": 1.0})})  # fmt: skip
    assert _order({"d": ["c"], "c": ["a", "b"], "b": ["a"]}) == ("b", "c", "d")


def test_linear_equations_are_learnt_from_rows():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(300, 2))
    rows = np.column_stack([a, 3 * a[:, 0] - 2 * a[:, 1] + 5, a[:, 0]])
    space = FeatureSpace.continuous(4, -99.0, 99.0)
    model = StructuralModel.fitted(space, rows, {"x2": ["x0", "x1"], "x0": []})
    assert model.graph == {"x2": ("x0", "x1")}
    torch.testing.assert_close(
        model.mechanisms["x2"].weights, torch.tensor([3.0, -2.0], dtype=torch.float64),
        atol=1e-6, rtol=0,
    )  # fmt: skip
    assert model.is_linear


@pytest.mark.parametrize("n", [300, 1700])
def test_kernels_learn_curved_equations(n):
    rng = np.random.default_rng(0)
    a = np.sort(rng.uniform(-2, 2, n))
    rows = np.column_stack([a, np.sin(2 * a) + 7])
    space = FeatureSpace.continuous(2, -99.0, 99.0)
    model = StructuralModel.fitted(space, rows, {"x1": ["x0"]}, kind="kernel")
    assert not model.is_linear
    at = torch.linspace(-1.8, 1.8, 30, dtype=torch.float64)[:, None]
    told = model.mechanisms["x1"](at)
    torch.testing.assert_close(told, torch.sin(2 * at[:, 0]) + 7, atol=0.05, rtol=0)


def test_tensors_take_the_place_and_kind_of_others_and_arrays_stay_arrays():
    from cel.space._arrays import array_in_array_out, to_tensor
    from cel.space.target import distinct

    like = torch.zeros(1, dtype=torch.float64)
    assert to_tensor(np.ones(2, dtype=np.float32), like).dtype == torch.float64
    assert to_tensor(torch.ones(2, dtype=torch.float16)).dtype == torch.float16
    assert to_tensor([1, 2]).dtype == torch.float32

    @array_in_array_out
    def told(x):
        return {"a": to_tensor(x), "b": {"c": to_tensor(x) + 1, "d": "text"}}

    found = told(np.ones(2))
    assert isinstance(found["a"], np.ndarray)
    assert isinstance(found["b"]["c"], np.ndarray)
    assert found["b"]["d"] == "text"
    assert isinstance(told(torch.ones(2))["b"]["c"], torch.Tensor)
    with pytest.raises(DataError, match="labels must be plain values, not containers"):
        distinct(np.array([[1], {"a": 1}], dtype=object))


def test_halfway_between_two_ranks_lies_neither():
    """An implication speaks of ranks; a value between two of them has none."""
    rank = Feature(
        name="rank", kind="ordinal", columns=(0,), categories=("low", "high"), lower=0.0,
        upper=1.0, step=1.0,
    )  # fmt: skip
    job = Feature(name="job", kind="categorical", columns=(1, 2), categories=("a", "b"))
    rule = Implication(feature="rank", values=("high",), then_feature="job", then_values=("a",))
    space = FeatureSpace((rank, job), (rule,))
    x = torch.tensor([[0.0, 1.0, 0.0]]).repeat(3, 1)
    moved = torch.tensor([[0.5, 0.0, 1.0], [0.75, 0.0, 1.0], [0.25, 0.0, 1.0]])
    assert space.region(x).violations(moved)["relation"].tolist() == [0, 1, 0]
