"""Pipelines and their steps, checked by hand, and what they say about bad tables."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import ColumnTransformer
from sklearn.preprocessing import MinMaxScaler as SkMinMax
from sklearn.preprocessing import OneHotEncoder as SkOneHot
from sklearn.preprocessing import RobustScaler as SkRobust
from sklearn.preprocessing import StandardScaler as SkStandard

from cel.errors import ConfigError, DataError, NotFittedError
from cel.preprocessing import (
    STEPS,
    Imputer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PreprocessingPipeline,
    RobustScaler,
    StandardScaler,
    Step,
    infer_space,
)
from cel.space import Feature, FeatureSpace, Implication, LinearRelation


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "age": [20, 60, 40, 30],
            "job": ["clerk", "nurse", "clerk", "cook"],
            "income": [1000.0, 5000.0, 2500.0, 3000.0],
            "school": ["low", "high", "mid", "low"],
            "owner": [True, False, True, True],
        },
        index=["w", "x", "y", "z"],
    )


@pytest.fixture
def space(frame):
    return infer_space(frame, ordinal={"school": ["low", "mid", "high"]}, immutable=["owner"])


@pytest.fixture
def fitted(frame, space):
    return PreprocessingPipeline().fit(frame, space)


# -- the default pipeline ----------------------------------------------------------------------


def test_default_matrix_by_hand(frame, fitted):
    names = "age job=clerk job=cook job=nurse income school owner=False owner=True"
    assert list(fitted.space_.column_names) == names.split()
    expected = [
        [0.0, 1, 0, 0, 0.0, 0.0, 0, 1],
        [1.0, 0, 0, 1, 1.0, 1.0, 1, 0],
        [0.5, 1, 0, 0, 0.375, 0.5, 0, 1],
        [0.25, 0, 1, 0, 0.5, 0.0, 0, 1],
    ]
    x = fitted.transform(frame)
    assert x.dtype == np.float32
    assert x.flags.c_contiguous
    assert np.allclose(x, expected)
    pd.testing.assert_frame_equal(fitted.inverse_transform(x, index=frame.index), frame)


def test_encoded_features(fitted):
    age, school, owner = (fitted.space_[n] for n in ("age", "school", "owner"))
    assert (age.kind, age.lower, age.upper, age.step, age.anchor) == (
        "integer",
        0.0,
        1.0,
        1 / 40,
        0.0,
    )
    assert (school.kind, school.step, school.upper, school.categories) == (
        "ordinal",
        0.5,
        1.0,
        ("low", "mid", "high"),
    )
    assert owner.columns == (6, 7)
    assert not owner.mutable
    assert fitted.raw_space_["income"].upper == 5000.0


def test_equals_scikit_learn(frame):
    frame = frame.drop(columns=["school", "owner"])
    order = [0, 4, 1, 2, 3]  # scikit-learn puts numbers first
    for ours, theirs in (
        (MinMaxScaler(), SkMinMax()),
        (StandardScaler(), SkStandard()),
        (RobustScaler(), SkRobust()),
    ):
        reference = ColumnTransformer(
            [("n", theirs, ["age", "income"]), ("c", SkOneHot(sparse_output=False), ["job"])]
        )
        pipeline = PreprocessingPipeline([OneHotEncoder(), ours])
        x = pipeline.fit_transform(frame, infer_space(frame))
        assert np.allclose(x[:, order], reference.fit_transform(frame), atol=1e-6)


def test_declared_bounds_win_over_the_training_range(frame):
    space = FeatureSpace(
        (
            Feature(name="age", kind="integer", lower=0, upper=120, step=1),
            Feature(name="income", columns=(1,), lower=0, upper=float("inf")),
        )
    )
    pipeline = PreprocessingPipeline().fit(frame[["age", "income"]], space)
    age, income = pipeline.space_["age"], pipeline.space_["income"]
    assert (age.lower, age.upper) == (-0.5, 2.5)
    assert (income.lower, income.upper) == (-0.25, 1.0)


def test_new_values_beyond_the_range_are_not_clipped(frame, fitted):
    new = frame.assign(age=[100, 0, 41, 30], income=[-1000.0, 0.0, 9000.0, 500.0])
    x = fitted.transform(new)
    assert np.allclose(x[:2, 0], [2.0, -0.5])
    pd.testing.assert_frame_equal(fitted.inverse_transform(x, index=frame.index), new)


def test_relations_and_implications_are_translated(frame, space):
    rules = (
        LinearRelation.of({"income": 1.0, "age": -100.0}, 500.0),
        Implication("job", ("nurse",), "school", ("high",)),
    )
    pipeline = PreprocessingPipeline().fit(frame, FeatureSpace(space.features, rules))
    relation, implication = pipeline.space_.constraints
    assert implication == rules[1]
    # income = 1000 + 4000 u, age = 20 + 40 v: 4000 u - 4000 v <= 500 - 1000 + 2000
    assert dict(relation.terms) == pytest.approx({"income": 1.0, "age": -1.0})
    assert relation.bound == pytest.approx(1500 / 4000)


def test_constant_columns_keep_a_valid_feature(frame):
    flat = pd.DataFrame({"a": [7, 7], "b": [0.1, 0.1], "c": ["x", "x"]})
    for scaler in (MinMaxScaler(), StandardScaler(), RobustScaler()):
        pipeline = PreprocessingPipeline([OneHotEncoder(), scaler])
        x = pipeline.fit_transform(flat, infer_space(flat))
        assert x.tolist() == [[0.0, 0.0, 1.0]] * 2
        assert pipeline.space_["a"].lower == pipeline.space_["a"].upper == 0.0
        pd.testing.assert_frame_equal(pipeline.inverse_transform(x), flat)
        assert pipeline.space_.region(x).contains(x).all()


def test_far_integers_keep_their_grid():
    frame = pd.DataFrame({"year": [1_000_000, 1_000_003, 1_000_010]})
    pipeline = PreprocessingPipeline()
    x = pipeline.fit_transform(frame, infer_space(frame))
    assert pipeline.space_["year"].anchor == 0.0
    assert pipeline.inverse_transform(x).equals(frame)
    region = pipeline.space_.region(x[[0, 0, 0]])
    assert region.contains(x).all()


def test_robust_scaler_without_quartile_distance():
    frame = pd.DataFrame({"gain": [0.0] * 9 + [100.0]})
    pipeline = PreprocessingPipeline([RobustScaler()])
    x = pipeline.fit_transform(frame, infer_space(frame))
    assert x.max() == pytest.approx(100 / frame["gain"].std(ddof=0))


# -- tables in, tables out ---------------------------------------------------------------------


def test_column_order_of_new_tables_does_not_matter(frame, fitted):
    assert np.array_equal(fitted.transform(frame[frame.columns[::-1]]), fitted.transform(frame))


def test_table_order_survives_when_the_space_has_another(frame, space):
    shuffled = frame[["owner", "income", "school", "job", "age"]]
    pipeline = PreprocessingPipeline()
    x = pipeline.fit_transform(shuffled, space)
    assert pipeline.space_.names == space.names
    pd.testing.assert_frame_equal(pipeline.inverse_transform(x, index=frame.index), shuffled)
    assert np.array_equal(pipeline.transform(shuffled.to_numpy()), x)


def test_arrays_and_tensors_are_welcome(frame, fitted):
    x = fitted.transform(frame)
    assert np.array_equal(fitted.transform(frame.to_numpy()), x)
    back = fitted.inverse_transform(torch.as_tensor(x, dtype=torch.float64), index=frame.index)
    pd.testing.assert_frame_equal(back, frame)
    numbers = np.array([[1.0, 2.0], [3.0, 6.0]])
    pipeline = PreprocessingPipeline()
    z = pipeline.fit_transform(torch.tensor(numbers), FeatureSpace.continuous(2, upper=10.0))
    assert z.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert np.allclose(pipeline.inverse_transform(z).to_numpy(), numbers)


def test_no_rows_are_fine_after_fit(frame, fitted):
    x = fitted.transform(frame.iloc[:0])
    assert x.shape == (0, 8)
    assert fitted.inverse_transform(x).dtypes.equals(frame.dtypes)


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2, 5], dtype="Int64"),
        pd.Series([1, None, 5], dtype="Int64"),
        pd.Series([1.5, None, 5.0], dtype="Float64"),
        pd.Series([True, None, False], dtype="boolean"),
        pd.Series(["a", None, "b"], dtype="string[python]"),
        pd.Series(["a", None, "b"], dtype="string[pyarrow]"),
        pd.Series(["a", None, "b"], dtype="category"),
        pd.Series([3, 1, 2], dtype=pd.CategoricalDtype([3, 1, 2])),
        pd.Series(["lo", None, "hi"], dtype=pd.CategoricalDtype(["lo", "hi"], ordered=True)),
        pd.Series([1, 2.5, np.nan], dtype=object),
        pd.Series([7, 200, 3], dtype="uint8"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_dtypes_survive(values):
    frame = pd.DataFrame({"v": values, "w": [1, 2, 3]})
    steps = [Imputer(), OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
    pipeline = PreprocessingPipeline(steps)
    x = pipeline.fit_transform(frame, infer_space(frame))
    back = PreprocessingPipeline.from_dict(json.loads(json.dumps(pipeline.to_dict())))
    for decode in (pipeline, back):
        pd.testing.assert_frame_equal(decode.inverse_transform(x), frame)


def test_integer_labels_of_float_columns():
    frame = pd.DataFrame({"code": [0.0, 2.0, np.nan, 1.0]})
    space = FeatureSpace((Feature(name="code", kind="categorical", categories=(0, 1, 2)),))
    pipeline = PreprocessingPipeline([Imputer(), OneHotEncoder()])
    x = pipeline.fit_transform(frame, space)
    assert x.argmax(1).tolist() == [0, 2, 3, 1]
    pd.testing.assert_frame_equal(pipeline.inverse_transform(x), frame)


def test_whole_numbers_of_a_continuous_feature():
    frame = pd.DataFrame({"v": [0, 5, 10]})
    space = FeatureSpace((Feature(name="v", lower=0, upper=10),))
    pipeline = PreprocessingPipeline().fit(frame, space)
    assert pipeline.inverse_transform(np.array([[0.1], [0.5]]))["v"].tolist() == [1, 5]
    assert pipeline.inverse_transform(np.array([[0.1], [0.5]]))["v"].dtype == np.int64
    assert pipeline.inverse_transform(np.array([[0.15]]))["v"].tolist() == [1.5]


def test_values_beyond_a_small_dtype_widen_it():
    frame = pd.DataFrame({"v": pd.Series([0, 200], dtype="uint8")})
    pipeline = PreprocessingPipeline().fit(frame, infer_space(frame))
    back = pipeline.inverse_transform(np.array([[-1.0], [2.0]]))
    assert back["v"].tolist() == [-200, 400]


def test_soft_rows_decode_to_the_nearest(fitted):
    x = np.array([[0.26, 0.2, 0.5, 0.3, 0.1, 0.7, 0.6, 0.4]])
    row = fitted.inverse_transform(x).iloc[0].to_dict()
    assert row == {"age": 30, "job": "cook", "income": 1400.0, "school": "mid", "owner": False}


# -- missing and unknown values ----------------------------------------------------------------


def test_missing_is_a_state_of_its_own(frame, space):
    holes = frame.assign(
        income=[1000.0, np.nan, 2500.0, 3000.0],
        job=["clerk", None, "clerk", "cook"],
        school=["low", "high", None, "low"],
    )
    space = infer_space(holes, ordinal={"school": ["low", "mid", "high"]})
    steps = [Imputer(), OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
    pipeline = PreprocessingPipeline(steps)
    x = pd.DataFrame(
        pipeline.fit_transform(holes, space), columns=list(pipeline.space_.column_names)
    )
    names = ("age", "job", "income", "income__missing", "school", "school__missing", "owner")
    assert pipeline.space_.names == names
    assert x["income"][1] == pytest.approx(1500 / 2000)  # the median, 2500
    assert x["income__missing=True"].tolist() == [0, 1, 0, 0]
    assert x["job=missing"].tolist() == [0, 1, 0, 0]
    assert x["school"][2] == 0.0
    assert pipeline.space_["job"].allowed == ("clerk", "cook")
    assert pipeline.space_["income__missing"].allowed == (False,)
    back = pipeline.inverse_transform(x.to_numpy(), index=frame.index)
    pd.testing.assert_frame_equal(back, holes.mask(holes.isna()))  # None and NaN are one


def test_no_advice_is_to_lose_a_value():
    frame = pd.DataFrame({"v": [1.0, np.nan, 3.0], "c": ["a", "b", None]})
    pipeline = PreprocessingPipeline([Imputer(), OneHotEncoder(), MinMaxScaler()])
    x = pipeline.fit_transform(frame, infer_space(frame))
    full = pipeline.space_.region(x[[0, 0, 0]])
    assert full.contains(x).tolist() == [True, False, False]
    gone = pipeline.space_.region(x[[1, 2]])
    assert gone.contains(x[[0, 0]]).all()


def test_imputer_takes_columns_by_name(frame, space):
    steps = [Imputer(features=["income", "job"]), OneHotEncoder(), OrdinalEncoder()]
    pipeline = PreprocessingPipeline(steps).fit(frame, space)
    new = frame.assign(income=np.nan, job=None)
    back = pipeline.inverse_transform(pipeline.transform(new), index=frame.index)
    assert back[["income", "job"]].isna().all(axis=None)
    with pytest.raises(DataError, match=r"'school' has a missing value in row 'w'.*complete when"):
        pipeline.transform(frame.assign(school=None))


def test_imputer_label_must_be_new():
    frame = pd.DataFrame({"c": ["missing", None, "x"]})
    with pytest.raises(ConfigError, match="has a category 'missing' already"):
        PreprocessingPipeline([Imputer(), OneHotEncoder()]).fit(frame, infer_space(frame))
    other = PreprocessingPipeline([Imputer(label="?"), OneHotEncoder()])
    x = other.fit_transform(frame, infer_space(frame))
    assert other.space_["c"].categories == ("missing", "x", "?")
    pd.testing.assert_frame_equal(other.inverse_transform(x), frame.mask(frame.isna()))


def test_negative_integers_are_not_missing():
    frame = pd.DataFrame({"v": [-1, -2, 3]})
    pipeline = PreprocessingPipeline([Imputer(), MinMaxScaler()])
    assert pipeline.fit_transform(frame, infer_space(frame)).shape == (3, 1)


def test_unknown_categories(frame, space, fitted):
    new = frame.assign(job=["clerk", "clark", "cook", "cook"])
    with pytest.raises(DataError, match=r"'job'.*'clark' in row 'x'; did you mean 'clerk'"):
        fitted.transform(new)
    steps = [OneHotEncoder(handle_unknown="ignore"), OrdinalEncoder(), MinMaxScaler()]
    pipeline = PreprocessingPipeline(steps).fit(frame, space)
    x = pipeline.transform(new)
    assert x[1, 1:4].tolist() == [0.0, 0.0, 0.0]
    back = pipeline.inverse_transform(x, index=frame.index)
    assert back["job"].isna().tolist() == [False, True, False, False]
    with pytest.raises(DataError, match="'high!'"):
        pipeline.transform(frame.assign(school="high!"))
    with pytest.raises(DataError, match="'job' has a missing value in row 'w'; add an Imputer"):
        pipeline.transform(frame.assign(job=None))


def test_unknown_and_missing_are_told_apart():
    frame = pd.DataFrame({"c": ["a", None, "b"]})
    steps = [Imputer(), OneHotEncoder(handle_unknown="ignore")]
    pipeline = PreprocessingPipeline(steps).fit(frame, infer_space(frame))
    x = pipeline.transform(pd.DataFrame({"c": ["b", None, "z"]}))
    assert x.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_category_lists_come_from_the_space_not_from_the_rows(frame):
    job = Feature(name="job", kind="categorical", categories=("cook", "clerk", "nurse", "judge"))
    pipeline = PreprocessingPipeline().fit(frame[["job"]].iloc[:1], FeatureSpace((job,)))
    assert pipeline.transform(frame[["job"]]).argmax(1).tolist() == [1, 2, 1, 0]


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns="age"), "column 'age' is missing; add it"),
        (lambda f: f.rename(columns={"age": "agee"}), "'age' is missing; did you mean 'agee'"),
        (lambda f: f.assign(y=1), "unknown column 'y'; drop it"),
        (lambda f: f.loc[:, [*f.columns, "age"]], "column 'age' occurs twice"),
        (
            lambda f: f.assign(income=[1.0, np.nan, 2.0, 3.0]),
            "'income' holds nan in row 'x'; add an Imputer or drop the rows",
        ),
        (
            lambda f: f.assign(income=[1.0, 1.0, -np.inf, 3.0]),
            "'income' holds -inf in row 'y'; replace",
        ),
        (
            lambda f: f.assign(age=["20", "3o", "40", "50"]),
            r"'age' holds '3o' in row 'x', but numbers are expected .*pandas.to_numeric",
        ),
        (lambda f: f.assign(age=["20", "30", "40", "50"]), "'age' holds '20' in row 'w'"),
        (lambda f: f.assign(age=pd.Timestamp("2020-01-01")), "numbers are expected"),
        (lambda f: f.assign(job=[1, 2, 3, 4]), "unknown category 1 in row 'w'"),
    ],
)
def test_bad_tables_are_named(frame, space, fitted, change, message):
    bad = change(frame)
    with pytest.raises(DataError, match=message):
        fitted.transform(bad)
    with pytest.raises(DataError, match=message):
        PreprocessingPipeline().fit(bad, space)


def test_infinity_is_refused_even_with_an_imputer(frame, space):
    pipeline = PreprocessingPipeline([Imputer(), OneHotEncoder(), OrdinalEncoder()])
    with pytest.raises(DataError, match="'income' holds inf in row 'w'"):
        pipeline.fit(frame.assign(income=np.inf), space)


def test_columns_without_any_value_are_refused(frame, space):
    pipeline = PreprocessingPipeline([Imputer(), OneHotEncoder(), OrdinalEncoder()])
    for name in ("income", "job", "school"):
        with pytest.raises(DataError, match=f"column '{name}' has no value in any row"):
            pipeline.fit(frame.assign(**{name: None}), space)


def test_empty_tables_are_refused(frame, space):
    with pytest.raises(DataError, match=r"shape \(0, 5\) has nothing to fit"):
        PreprocessingPipeline().fit(frame.iloc[:0], space)
    with pytest.raises(DataError, match="with 5 columns, got ndarray of shape"):
        PreprocessingPipeline().fit(np.zeros((3, 2)), space)


def test_a_failed_fit_leaves_nothing_behind(frame, space):
    pipeline = PreprocessingPipeline()
    with pytest.raises(DataError):
        pipeline.fit(frame.assign(income=np.nan), space)
    for use in (pipeline.transform, pipeline.inverse_transform):
        with pytest.raises(NotFittedError, match="call fit first"):
            use(frame)
    with pytest.raises(NotFittedError):
        pipeline.to_dict()


def test_bad_encoded_rows_are_refused(fitted):
    with pytest.raises(DataError, match=r"8 columns, got shape \(2, 3\)"):
        fitted.inverse_transform(np.zeros((2, 3)))
    x = np.zeros((3, 8))
    x[1, 0] = np.nan
    with pytest.raises(DataError, match="row 1 holds NaN"):
        fitted.inverse_transform(x)


def test_numbers_too_far_apart_are_refused():
    frame = pd.DataFrame({"v": [-1.7e308, 1.7e308]})
    with pytest.raises(DataError, match="'v' spans"):
        PreprocessingPipeline().fit(frame, infer_space(frame))


# -- steps -------------------------------------------------------------------------------------


def test_pipelines_are_checked(frame, space):
    with pytest.raises(ConfigError, match="order is imputer, encoders, scalers"):
        PreprocessingPipeline([MinMaxScaler(), OneHotEncoder()]).fit(frame, space)
    with pytest.raises(ConfigError, match="no step encodes the ordinal feature 'school'"):
        PreprocessingPipeline([OneHotEncoder()]).fit(frame, space)
    with pytest.raises(ConfigError, match="no step encodes the categorical feature 'job'"):
        PreprocessingPipeline([]).fit(frame, space)
    steps = [OneHotEncoder(), OrdinalEncoder(), MinMaxScaler(features=["job"])]
    with pytest.raises(ConfigError, match="MinMaxScaler: 'job' is categorical"):
        PreprocessingPipeline(steps).fit(frame, space)
    with pytest.raises(ConfigError, match="unknown feature 'agee'; did you mean 'age'"):
        PreprocessingPipeline([Imputer(features=["agee"])]).fit(frame, space)
    with pytest.raises(ConfigError, match="handle_unknown is 'skip'; use error or ignore"):
        PreprocessingPipeline([OneHotEncoder(handle_unknown="skip")]).fit(frame, space)


def test_too_many_categories_are_refused():
    labels = tuple(range(2000))
    wide = FeatureSpace((Feature(name="id", kind="categorical", categories=labels),))
    with pytest.raises(ConfigError, match=r"'id' has 2000 categories.*merge rare"):
        PreprocessingPipeline().fit(pd.DataFrame({"id": [1]}), wide)
    roomy = PreprocessingPipeline([OneHotEncoder(max_categories=2000)])
    assert roomy.fit(pd.DataFrame({"id": [1]}), wide).space_.width == 2000


def test_scalers_chain_and_take_columns_by_name(frame, space):
    steps = [
        OneHotEncoder(),
        OrdinalEncoder(),
        StandardScaler(),
        MinMaxScaler(features=["age"]),
        MinMaxScaler(features=["income", "school"]),
    ]
    pipeline = PreprocessingPipeline(steps)
    x = pipeline.fit_transform(frame, space)
    default = PreprocessingPipeline().fit(frame, space)
    assert np.allclose(x, default.transform(frame), atol=1e-6)
    for name in ("age", "income", "school"):
        one, two = pipeline.space_[name], default.space_[name]
        for attribute in ("lower", "upper", "anchor"):
            assert getattr(one, attribute) == pytest.approx(getattr(two, attribute), abs=1e-12)


def test_ordinals_can_be_one_hot_and_labels_ranked(frame, space):
    blocks = PreprocessingPipeline([OneHotEncoder(features=["job", "owner", "school"])])
    x = blocks.fit_transform(frame, space)
    assert blocks.space_["school"].one_hot
    pd.testing.assert_frame_equal(blocks.inverse_transform(x, index=frame.index), frame)
    ranks = PreprocessingPipeline([OrdinalEncoder()])
    z = ranks.fit_transform(frame, space)
    assert z.shape == (4, 5)
    assert z[:, 1].tolist() == [0, 2, 0, 1]
    assert ranks.space_["job"].kind == "ordinal"
    pd.testing.assert_frame_equal(ranks.inverse_transform(z, index=frame.index), frame)


def test_the_given_steps_stay_unfitted(frame, space):
    steps = [OneHotEncoder(), OrdinalEncoder(), MinMaxScaler()]
    pipeline = PreprocessingPipeline(steps)
    pipeline.fit(frame, space)
    assert not any(k.endswith("_") for s in steps for k in vars(s))
    with pytest.raises(NotFittedError, match="MinMaxScaler is not fitted"):
        steps[-1].to_dict()
    first = pipeline.transform(frame)
    pipeline.fit(frame.iloc[:1], space)
    assert not np.array_equal(pipeline.transform(frame), first)


def test_json_round_trip(frame, space, fitted):
    again = PreprocessingPipeline.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert again.space_ == fitted.space_
    assert again.raw_space_ == fitted.raw_space_
    x = fitted.transform(frame)
    assert np.array_equal(again.transform(frame), x)
    pd.testing.assert_frame_equal(again.inverse_transform(x, index=frame.index), frame)
    assert again.fit(frame, space).space_ == fitted.space_


def test_steps_have_names():
    names = "imputer min_max_scaler one_hot_encoder ordinal_encoder robust_scaler standard_scaler"
    assert [
        n for n in STEPS.names() if STEPS.get(n).__module__.startswith("cel.")
    ] == names.split()
    with pytest.raises(ConfigError, match="unknown preprocessing step 'min_max'; did you mean"):
        Step.from_dict({"step": "min_max", "params": {}, "state": {}})
    assert repr(OneHotEncoder(handle_unknown="ignore")).startswith("OneHotEncoder(handle_unknown=")


class SignedRoot(Step):
    """Square root that keeps the sign, as another package might add it."""

    name = "signed_root"

    def applies(self, feature):
        return feature.kind == "continuous"

    def encode_space(self, space):
        root = {n: self._root(np.array([space[n].lower, space[n].upper])) for n in self.features_}
        changes = {n: {"lower": float(r[0]), "upper": float(r[1])} for n, r in root.items()}
        return space.with_changes(**changes)

    def transform(self, columns):
        return columns | {n: self._root(columns[n]) for n in self.features_}

    def inverse_transform(self, columns):
        raw = {n: np.sign(columns[n]) * columns[n].astype(float) ** 2 for n in self.features_}
        return columns | raw

    def _root(self, x):
        return np.sign(x) * np.sqrt(np.abs(x))


def test_other_packages_can_add_steps():
    STEPS.add(SignedRoot.name, SignedRoot)
    frame = pd.DataFrame({"v": [-4.0, 0.0, 9.0]})
    pipeline = PreprocessingPipeline([SignedRoot()])
    x = pipeline.fit_transform(frame, infer_space(frame))
    assert x[:, 0].tolist() == [-2.0, 0.0, 3.0]
    again = PreprocessingPipeline.from_dict(pipeline.to_dict())
    pd.testing.assert_frame_equal(again.inverse_transform(x), frame)


# -- inferred spaces ---------------------------------------------------------------------------


def test_inferred_kinds():
    frame = pd.DataFrame(
        {
            "i": [3, 1],
            "f": [1.0, 2.0],
            "s": ["b", "a"],
            "b": [True, True],
            "c": pd.Categorical(["y", "y"], ["z", "y"]),
            "o": pd.Categorical(["lo", "hi"], ["lo", "hi"], ordered=True),
            "n": pd.array([1, None], dtype="Int64"),
            "m": pd.Series([1, "a"], dtype=object),
        }
    )
    space = infer_space(frame, directions={"i": "up"}, protected=["s"])
    kinds = "integer continuous categorical categorical categorical ordinal integer categorical"
    assert [f.kind for f in space] == kinds.split()
    assert (space["i"].lower, space["i"].upper, space["i"].direction) == (1.0, 3.0, "up")
    assert space["s"].categories == ("a", "b")
    assert space["s"].protected
    assert space["b"].categories == (False, True)
    assert space["c"].categories == ("z", "y")
    assert space["m"].categories == (1, "a")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame(), "no values"),
        (pd.DataFrame({"a": []}), "no values"),
        (pd.DataFrame({"a": [None, None]}), "column 'a' has no value in any row"),
        (pd.DataFrame({"a": [np.nan, np.nan]}), "column 'a' has no value in any row"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "column 'a' occurs twice"),
        (pd.DataFrame({0: [1]}), "column name 0 is no text"),
        (pd.DataFrame({"a": [1.0, np.inf]}), "'a' holds inf in row 1"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}), "'a' has dtype datetime64"),
        (
            pd.DataFrame({"a": [str(i) for i in range(100_000)]}),
            "'a' has 100000 categories, more than max_categories=1000; drop it",
        ),
        (np.zeros((2, 2)), "expected a DataFrame, got ndarray"),
    ],
)
def test_what_cannot_be_inferred(frame, message):
    with pytest.raises(DataError, match=message):
        infer_space(frame)


def test_named_columns_must_exist(frame):
    for option in ("immutable", "protected"):
        with pytest.raises(ConfigError, match="unknown column 'agee'; did you mean 'age'"):
            infer_space(frame, **{option: ["agee"]})


# -- cost --------------------------------------------------------------------------------------


def test_memory_stays_near_the_result():
    code = """
import tracemalloc
import numpy as np, pandas as pd
from cel.preprocessing import PreprocessingPipeline, infer_space
rng = np.random.default_rng(0)
n = 60_000
frame = pd.DataFrame(rng.normal(size=(n, 6))).add_prefix("n")
for j in range(4):
    frame[f"i{j}"] = rng.integers(9, size=n)
    frame[f"c{j}"] = pd.Categorical.from_codes(rng.integers(0, 6, n), list("abcdef"))
space = infer_space(frame)
tracemalloc.start()
x = PreprocessingPipeline().fit_transform(frame, space)
print(tracemalloc.get_traced_memory()[1] / x.nbytes)
import sys
assert "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 4
