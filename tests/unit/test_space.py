"""Features, spaces, regions and distances, checked by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from scipy.spatial import distance as scipy_distance

from cel.errors import ConfigError, DataError
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, Implication, LinearRelation, Region, Target
from cel.space import distances as d
from cel.space.serialize import plain_label, space_from_dict, space_to_dict


def mixed_space(*constraints) -> FeatureSpace:
    """Income, age (up only, grid 0.1), sex (immutable), job (not c), school (not mid)."""
    return FeatureSpace(
        (
            Feature(name="income", columns=(0,)),
            Feature(name="age", kind="integer", columns=(1,), step=0.1, direction="up"),
            Feature(
                name="sex",
                kind="categorical",
                columns=(2, 3),
                categories=("f", "m"),
                mutable=False,
            ),
            Feature(
                name="job",
                kind="categorical",
                columns=(4, 5, 6),
                categories=("a", "b", "c"),
                allowed=("a", "b"),
            ),
            Feature(
                name="school",
                kind="ordinal",
                columns=(7,),
                categories=("low", "mid", "high"),
                allowed=("low", "high"),
                step=0.5,
            ),
        ),
        constraints,
    )


#                     income age  f    m    a    b    c    school
ROW = torch.tensor([[0.5, 0.3, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]])


def moved(**columns: float) -> torch.Tensor:
    x = ROW.clone()
    names = ("income", "age", "f", "m", "a", "b", "c", "school")
    for name, value in columns.items():
        x[0, names.index(name)] = value
    return x


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": 2.0, "upper": 1.0}, "lower bound 2.0 is above upper bound 1.0"),
        ({"lower": float("nan")}, "not a number"),
        ({"kind": "integer"}, "needs a step"),
        ({"kind": "integer", "step": 0.0}, "step must be positive, got 0.0"),
        ({"kind": "number"}, "unknown kind 'number'"),
        ({"direction": "left"}, "unknown direction 'left'"),
        ({"weight": 0.0}, "weight must be positive, got 0.0"),
        ({"columns": ()}, "no columns"),
        ({"columns": (0, 1)}, "has one column, got 2"),
        ({"kind": "categorical"}, "no categories"),
        ({"kind": "categorical", "categories": ("a", "a")}, "listed twice"),
        ({"kind": "categorical", "categories": ("a", "b"), "allowed": ("z",)}, "'z' is not one"),
        ({"kind": "categorical", "categories": ("a", "b"), "direction": "up"}, "make it ordinal"),
        ({"kind": "categorical", "categories": tuple("abc"), "columns": (0, 1)}, "in 2 columns"),
        ({"kind": "ordinal", "categories": ("a",)}, "needs a step"),
    ],
)
def test_contradictory_features_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message) as caught:
        Feature(name="f", **arguments)
    assert "'f'" in str(caught.value)


def test_contradictory_spaces_are_refused():
    a, b = Feature(name="a"), Feature(name="b", columns=(1,))
    with pytest.raises(ConfigError, match="at least one"):
        FeatureSpace(())
    with pytest.raises(ConfigError, match="'a' is defined twice"):
        FeatureSpace((a, a.at((1,))))
    with pytest.raises(ConfigError, match="exactly once"):
        FeatureSpace((a, b.at((2,))))
    with pytest.raises(ConfigError, match="unknown feature 'aa'; did you mean 'a'"):
        FeatureSpace((a, b))["aa"]
    with pytest.raises(ConfigError, match="unknown feature"):
        FeatureSpace((a, b)).with_changes(zz={"mutable": False})


def test_contradictory_constraints_are_refused():
    with pytest.raises(ConfigError, match="'job' is categorical"):
        mixed_space(LinearRelation.of({"job": 1.0}, 1.0))
    with pytest.raises(ConfigError, match="unknown feature 'agee'; did you mean 'age'"):
        mixed_space(LinearRelation.of({"agee": 1.0}, 1.0))
    with pytest.raises(ConfigError, match="'job' has no category 'z'"):
        mixed_space(Implication("job", ("z",), "sex", ("f",)))
    with pytest.raises(ConfigError, match="'income' has no category 1"):
        mixed_space(Implication("job", ("a",), "income", (1,)))
    with pytest.raises(ConfigError, match="at least one feature"):
        LinearRelation.of({}, 1.0)


def test_regions_need_encoded_rows_of_the_right_width():
    raw = FeatureSpace((Feature(name="job", kind="categorical", categories=("a", "b")),))
    with pytest.raises(ConfigError, match="'job' is not one-hot"):
        raw.region(np.zeros((1, 1)))
    with pytest.raises(DataError, match="rows of 8 columns, got shape"):
        mixed_space().region(np.zeros((1, 3)))


# -- space -------------------------------------------------------------------------------------


def test_columns_and_names():
    space = mixed_space()
    assert space.width == 8
    assert space.column_names[3:6] == ("sex=m", "job=a", "job=b")
    assert space.owner.tolist() == [0, 1, 2, 2, 3, 3, 3, 4]
    assert space.numeric_columns.tolist() == [0, 1, 7]
    assert space.mutable_mask.tolist() == [True, True, False, True, True]
    assert space.with_changes(age={"upper": 2.0})["age"].upper == 2.0


def test_spaces_survive_json():
    space = mixed_space(
        LinearRelation.of({"income": 1.0, "age": -0.5}, 0.25),
        Implication("job", ("b",), "sex", ("f",)),
    ).with_changes(income={"upper": float("inf"), "lower": float("-inf"), "weight": 3.0})
    assert space_from_dict(json.loads(json.dumps(space_to_dict(space), allow_nan=False))) == space


def test_labels_keep_their_type_in_json():
    labels = (1, 2.5, "x", True, None, np.int64(7), np.str_("y"))
    plain = [plain_label(v) for v in labels]
    assert [type(v) for v in plain] == [int, float, str, bool, type(None), int, str]
    with pytest.raises(ConfigError, match="cannot be written to JSON"):
        plain_label(("a", "b"))
    with pytest.raises(ConfigError, match="nan"):
        plain_label(float("nan"))
    with pytest.raises(
        ConfigError, match="unknown feature attribute 'uper'; did you mean 'upper'"
    ):
        space_from_dict({"features": [{"name": "a", "uper": 1}], "constraints": []})


# -- region ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"income": 0.9}, {}),
        ({"age": 0.5}, {}),
        ({"a": 0.0, "b": 1.0}, {}),
        ({"school": 1.0}, {}),
        ({"income": 1.2}, {"bound": 1}),
        ({"income": -0.1}, {"bound": 1}),
        ({"age": 0.2}, {"direction": 1}),
        ({"age": 0.45}, {"integer": 1}),
        ({"age": -0.1}, {"direction": 1, "bound": 1}),
        ({"f": 0.0, "m": 1.0}, {"immutable": 1}),
        ({"f": 0.0}, {"immutable": 1}),
        ({"a": 0.0, "c": 1.0}, {"category": 1}),
        ({"a": 0.5, "b": 0.5}, {"category": 1}),
        ({"a": 0.0}, {"category": 1}),
        ({"b": 1.0}, {"category": 1}),
        ({"school": 0.5}, {"category": 1}),
        ({"school": 0.9}, {"integer": 1}),
        ({"income": 2.0, "age": 0.2, "f": 0.0}, {"bound": 1, "direction": 1, "immutable": 1}),
    ],
)
def test_violations_by_kind(changes, expected):
    region = mixed_space().region(ROW)
    counts = {k: int(v) for k, v in region.violations(moved(**changes)).items()}
    assert {k: v for k, v in counts.items() if v} == expected
    assert bool(region.contains(moved(**changes))) == (not expected)


def test_relations_and_implications_count_as_violations():
    space = mixed_space(
        LinearRelation.of({"income": 1.0, "age": 1.0}, 1.0),
        Implication("job", ("b",), "school", ("high",)),
    )
    region = space.region(ROW)
    assert region.violations(moved(income=0.8))["relation"].tolist() == [1]
    assert region.violations(moved(a=0.0, b=1.0))["relation"].tolist() == [1]
    assert region.violations(moved(income=0.8, a=0.0, b=1.0))["relation"].tolist() == [2]
    assert region.contains(moved(a=0.0, b=1.0, school=1.0)).all()


def test_what_the_origin_breaks_is_excused():
    space = mixed_space(
        LinearRelation.of({"income": 1.0}, 0.2), Implication("job", ("a",), "school", ("high",))
    )
    outside = moved(income=3.0, c=1.0, a=0.0)
    for origin in (ROW, outside):
        region = space.region(origin)
        assert region.contains(origin).all()
        assert region.snap(origin).equal(origin)
    region = space.region(outside)
    assert region.contains(moved(income=2.0, c=1.0, a=0.0)).all()
    assert region.violations(moved(income=3.5, c=1.0, a=0.0))["relation"].tolist() == [1]


def test_snap_by_hand():
    region = mixed_space().region(ROW)
    far = moved(income=1.7, age=0.47, f=0.1, m=0.9, a=0.2, b=0.3, c=0.9, school=0.6)
    expected = moved(income=1.0, age=0.5, a=0.0, b=1.0, school=1.0)
    assert torch.allclose(region.snap(far), expected)
    assert torch.allclose(region.snap(moved(age=0.1, school=0.4)), ROW)


def test_snap_keeps_the_present_category_on_ties():
    region = mixed_space().region(ROW)
    assert region.snap(moved(a=0.5, b=0.5)).equal(ROW)


def test_snap_pulls_relations_back():
    space = FeatureSpace(
        (Feature(name="used", columns=(0,)), Feature(name="total", columns=(1,))),
        (LinearRelation.of({"used": 1.0, "total": -1.0}, 0.0),),
    )
    region = space.region(torch.tensor([[0.2, 0.6]]))
    x = region.snap(torch.tensor([[0.9, 0.1]]))
    assert torch.allclose(x, torch.tensor([[0.5, 0.5]]))
    held = region.freeze([False, True]).snap(torch.tensor([[0.9, 0.1]]))
    assert torch.allclose(held, torch.tensor([[0.6, 0.6]]))


def test_a_row_on_the_edge_of_a_relation_moves_along_it():
    """used <= total on grids of different steps: the nearest pair that keeps it, or a step off."""
    space = FeatureSpace(
        (
            Feature(name="used", columns=(0,), kind="integer", step=0.1),
            Feature(name="total", columns=(1,), kind="integer", step=0.25),
        ),
        (LinearRelation.of({"used": 1.0, "total": -1.0}, 0.0),),
    )
    rows = torch.tensor([[0.5, 0.5]]).repeat(200, 1)
    wish = torch.rand(200, 2, generator=torch.Generator().manual_seed(0))
    x = space.region(rows).snap(wish)
    assert space.region(rows).contains(x).all()
    grid = torch.cartesian_prod(torch.arange(11) / 10, torch.arange(5) / 4)
    grid = grid[grid[:, 0] <= grid[:, 1] + 1e-6]
    nearest = torch.cdist(wish, grid).min(1).values
    assert ((x - wish).norm(dim=1) <= nearest + 0.25).all()
    both_down = wish.amax(1) < 0.2
    assert (x[both_down] < rows[both_down]).all()


def test_some_rows_of_a_region_that_was_asked_are_as_if_they_were_alone():
    rng = np.random.default_rng(0)
    space = mixed_space()
    rows = torch.cat([moved(income=v, age=v) for v in (0.1, 0.4, 0.9)])
    rows[1, 4:7] = torch.tensor([0.0, 0.0, 1.0])  # a job that others may not take
    region, which = space.region(rows), torch.tensor([2, 1, 1, 0])
    region.snap(rows)  # now it knows what is fixed and what is shut
    points = torch.as_tensor(rng.random((4, rows.shape[1])), dtype=torch.float32)
    known, fresh = region.select(which), space.region(rows[which])
    assert {"fixed", "_shut"} <= set(known.__dict__)
    assert torch.equal(known.fixed, fresh.fixed)
    assert torch.equal(known.snap(points), fresh.snap(points))
    assert torch.equal(known.project(points), fresh.project(points))


def test_frozen_features_stay():
    region = mixed_space().region(ROW.repeat(2, 1))
    frozen = region.freeze([[True, True, False, False, False], [False, False, False, True, True]])
    x = moved(income=0.9, age=0.6, a=0.0, b=1.0, school=1.0).repeat(2, 1)
    assert region.contains(x).all()
    assert frozen.violations(x)["immutable"].tolist() == [2, 2]
    expected = torch.cat([moved(a=0.0, b=1.0, school=1.0), moved(income=0.9, age=0.6)])
    for result in (frozen.snap(x), frozen.project(x)):
        assert torch.allclose(result, expected)


def test_a_frozen_or_immutable_feature_with_a_direction_stays():
    frozen = mixed_space().region(ROW).freeze([False, True, False, False, False])
    still = mixed_space().with_changes(age={"mutable": False}).region(ROW)
    for region in (frozen, still):
        assert not region.contains(moved(age=0.5)).any()
        assert region.violations(moved(age=0.5))["immutable"].tolist() == [1]


def test_leaving_the_upper_bound_of_a_feature_that_may_only_rise_is_a_violation():
    region = mixed_space().region(moved(age=1.0))
    assert region.violations(moved(age=1.1))["bound"].tolist() == [1]
    assert region.violations(moved(age=0.9))["direction"].tolist() == [1]


def test_columns_far_from_unit_scale_keep_their_grid_in_32_bits():
    age = Feature(name="x", kind="integer", lower=-300.0, upper=9000.0, step=1 / 3, anchor=-300.0)
    region = FeatureSpace((age,)).region(torch.tensor([[12.0]]))
    values = torch.linspace(-300, 9000, 27901)[:, None]
    assert region.select(torch.zeros(len(values), dtype=torch.long)).contains(values).all()


def test_unknown_category_may_stay():
    region = mixed_space().region(moved(a=0.0))
    assert region.contains(moved(a=0.0)).all()
    assert region.snap(moved(a=0.0)).equal(moved(a=0.0))
    assert region.snap(moved(a=0.1, b=0.4)).equal(moved(a=0.0, b=1.0))


def test_non_finite_rows_are_not_contained():
    region = mixed_space().region(ROW)
    assert not region.contains(moved(income=float("nan"))).any()
    assert not region.contains(moved(income=float("inf"))).any()


def test_read_only_arrays_are_welcome():
    rows = ROW.numpy().copy()
    rows.flags.writeable = False
    assert mixed_space().region(rows).contains(rows).all()


def test_empty_regions():
    region = mixed_space(LinearRelation.of({"income": 1.0}, 1.0)).region(np.zeros((0, 8)))
    assert region.snap(np.zeros((0, 8))).shape == region.project(np.zeros((0, 8))).shape == (0, 8)
    assert region.contains(np.zeros((0, 8))).shape == (0,)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_gpu_tensors_give_the_same():
    space = mixed_space(LinearRelation.of({"income": 1.0, "age": 1.0}, 1.0))
    x = torch.rand(64, 8)
    rows = ROW.repeat(64, 1)
    here, there = Region.around(space, rows), Region.around(space, rows.cuda())
    for name in ("project", "snap", "contains"):
        assert torch.allclose(getattr(there, name)(x.cuda()).cpu(), getattr(here, name)(x))


# -- distances ---------------------------------------------------------------------------------


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)

    def draw(n):
        x = rng.uniform(size=(n, 8))
        for columns in ([2, 3], [4, 5, 6]):
            x[:, columns] = np.eye(len(columns))[rng.integers(0, len(columns), n)]
        return x

    return draw(50), draw(50)


def test_numeric_distances_equal_scipy(rows):
    a, b = rows
    space, columns = mixed_space(), [0, 1, 7]
    pairs = [(u[columns], v[columns]) for u, v in zip(a, b, strict=True)]
    assert np.allclose(d.l1(a, b, space), [scipy_distance.cityblock(u, v) for u, v in pairs])
    assert np.allclose(d.l2(a, b, space), [scipy_distance.euclidean(u, v) for u, v in pairs])
    scale = d.mad_scale(a, space)
    expected = [scipy_distance.cityblock(u, v, w=1 / scale[columns]) for u, v in pairs]
    assert np.allclose(d.mad(a, b, space, scale), expected)


def test_label_distances_equal_scipy(rows):
    a, b = rows
    space, columns = mixed_space(), [2, 3, 4, 5, 6]
    codes = [np.stack([x[:, [2, 3]].argmax(1), x[:, [4, 5, 6]].argmax(1)], 1) for x in rows]
    pairs = list(zip(*codes, strict=True))
    assert np.allclose(d.hamming(a, b, space), [scipy_distance.hamming(u, v) for u, v in pairs])
    bits = [(u[columns] > 0.5, v[columns] > 0.5) for u, v in zip(a, b, strict=True)]
    assert np.allclose(d.jaccard(a, b, space), [scipy_distance.jaccard(u, v) for u, v in bits])
    expected = [scipy_distance.hamming(u, v) for u, v in bits]
    assert np.allclose(d.encoded_hamming(a, b, space), expected)


def test_distances_by_hand():
    space = mixed_space().with_changes(income={"upper": 2.0})
    x = moved(income=1.5, age=0.5, a=0.0, b=1.0)
    assert d.changed_numbers(ROW, x, space).tolist() == [[True, True, False]]
    assert d.changed_features(ROW, x, space).tolist() == [[True, True, False, True, False]]
    assert d.gower(ROW, x, space).item() == pytest.approx((1.0 / 2 + 0.2 + 1) / 5)
    assert d.hamming(ROW, x, space).item() == pytest.approx(1 / 2)
    assert d.jaccard(ROW, x, space).item() == pytest.approx(2 / 3)
    assert d.encoded_hamming(ROW, x, space).item() == pytest.approx(2 / 5)
    assert d.mixed(1.0, 0.5, space) == pytest.approx(3 / 5 + 2 / 5 * 0.5)


def test_distances_of_spaces_of_one_kind():
    numbers = FeatureSpace.continuous(2)
    a, b = np.zeros((3, 2)), np.ones((3, 2))
    for function in (d.hamming, d.jaccard, d.encoded_hamming):
        assert function(a, b, numbers).tolist() == [0.0, 0.0, 0.0]
    labels = FeatureSpace(
        (Feature(name="c", kind="categorical", columns=(0, 1), categories=("x", "y")),)
    )
    a, b = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    assert d.l1(a, b, labels).tolist() == d.l2(a, b, labels).tolist() == [0.0]
    assert d.gower(a, b, labels).tolist() == d.jaccard(a, b, labels).tolist() == [1.0]


def test_distances_take_tensors_and_unbounded_features(rows):
    a, b = (torch.as_tensor(x) for x in rows)
    space = mixed_space().with_changes(income={"upper": float("inf")})
    for function in (d.l1, d.l2, d.hamming, d.jaccard, d.gower, d.changed_features):
        result = function(a, b, space)
        assert isinstance(result, torch.Tensor)
        assert np.allclose(result.numpy(), function(a.numpy(), b.numpy(), space))
    assert d.changed_features(a, b, space)[:, 0].all()


def test_mad_scale_falls_back():
    space = FeatureSpace.continuous(4, upper=3.0).with_changes(x3={"upper": 0.0})
    x = np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [5.0, 9.0, 1.0, 0.0]])
    assert d.mad_scale(x, space).tolist() == [1.0, np.std([0, 0, 9]), 3.0, 1.0]


# -- target ------------------------------------------------------------------------------------


def test_targets_encode_and_decode():
    risk = Target(
        names=("risk",), task=Task.CLASSIFICATION, classes=("Bad", "Good"), desired="Good"
    )
    assert risk.desired_position == 1
    assert risk.decode(risk.encode(["Good", "Bad"])).tolist() == ["Good", "Bad"]
    with pytest.raises(DataError, match="'Gud' is not one of its classes; known: Bad, Good"):
        risk.encode(["Gud"])
    with pytest.raises(DataError, match="has 1 class"):
        Target(names=("risk",), task=Task.CLASSIFICATION, classes=("Bad",))
    with pytest.raises(ConfigError, match="no class 'Best'"):
        Target(names=("r",), task=Task.CLASSIFICATION, classes=("Bad", "Good"), desired="Best")
    price = Target(names=("a", "b"), task=Task.REGRESSION, lower=(0.0, 5.0), upper=(10.0, 5.0))
    y = np.array([[5.0, 5.0], [12.0, 6.0]])
    assert price.encode(y).tolist() == [[0.5, 0.0], [1.2, 1.0]]
    assert np.allclose(price.decode(price.encode(y)), y)


def test_outputs_and_positions_of_targets():
    words = Target(names=("t",), task=Task.CLASSIFICATION, classes=("a", "b", "c"))
    values = Target(names=("t", "u"), task=Task.REGRESSION, lower=(0.0, 0.0), upper=(1.0, 1.0))
    assert (words.n_outputs, values.n_outputs) == (3, 2)
    assert words.place(2, positions=True) == 2
    for wrong in (2, 3, -1, True):
        with pytest.raises(ConfigError, match="unknown target class"):
            words.place(wrong, positions=wrong != 2)
    with pytest.raises(ConfigError, match="unknown target class"):  # labels that are numbers win
        Target(names=("t",), task=Task.CLASSIFICATION, classes=(5, 6)).place(0, positions=True)


def test_steps_are_finite():
    for step in (np.inf, np.nan, 0.0, -1.0):
        with pytest.raises(ConfigError, match="step must be positive"):
            FeatureSpace([Feature(name="a", kind="integer", columns=(0,), step=step)])


def test_tolerance_is_that_of_the_size_of_a_column():
    from cel.space.layout import TOLERANCE, Layout

    bounds = [(0.0, 0.5), (-3.0, 1.0), (0.0, np.inf), (-2.0, 8.0)]
    space = FeatureSpace(
        [
            Feature(name=f"x{i}", kind="continuous", columns=(i,), lower=low, upper=high)
            for i, (low, high) in enumerate(bounds)
        ]
    )
    found = Layout.of(space, torch.zeros(1, 4, dtype=torch.float64)).tolerance / TOLERANCE
    np.testing.assert_allclose(found, [1.0, 3.0, 1.0, 8.0])


def test_only_features_of_broken_constraints_go_back():
    """Two relations over different features: the broken one is given back, the other stays."""
    space = FeatureSpace(
        [
            Feature(name=n, kind="continuous", columns=(i,), lower=0.0, upper=9.0)
            for i, n in enumerate("abcd")
        ],
        constraints=(
            LinearRelation((("a", 1.0), ("b", -1.0)), 0.0),
            LinearRelation((("c", 1.0), ("d", -1.0)), 0.0),
        ),
    )
    origin = torch.tensor([[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]])
    rules = Region.around(space, origin)._rules
    x = torch.tensor([[5.0, 3.0, 2.0, 4.0], [2.0, 4.0, 5.0, 3.0]])
    assert rules.give_back(x).tolist() == [[1, 2, 2, 4], [2, 4, 1, 2]]
