"""Every pipeline gives back what it was given: labels exactly, numbers to 1e-6 of their range."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cel.preprocessing import (
    Imputer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PreprocessingPipeline,
    RobustScaler,
    StandardScaler,
    infer_space,
)
from cel.space import FeatureSpace, Implication, LinearRelation

SCALERS = (StandardScaler, MinMaxScaler, RobustScaler)
ENCODERS = ((OneHotEncoder,), (OrdinalEncoder,), (OneHotEncoder, OrdinalEncoder))


def _name(scaler, encoders, imputed):
    return "-".join([*(["imputer"] if imputed else []), *(e.name for e in encoders), scaler.name])


CASES = [
    pytest.param(scaler, encoders, imputed, id=_name(scaler, encoders, imputed))
    for scaler, encoders, imputed in itertools.product(SCALERS, ENCODERS, (False, True))
]
TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
SETTINGS = settings(max_examples=15, deadline=None)


def numbers(draw, n, low, high):
    return draw(st.lists(st.floats(low, high), min_size=n, max_size=n))


@st.composite
def columns(draw, n, ranks):
    """One column of n values, of any dtype that a table may have; `ranks` are ordered labels."""
    kinds = ("float64", "float32", "int64", "int8", "bool", "str", "object", "category")
    kind = draw(st.sampled_from([*kinds, "ranks"] if ranks else kinds))
    if kind == "float64":
        size = draw(st.sampled_from([1e-6, 1.0, 3e6, 1e12]))
        offset = draw(st.sampled_from([0.0, -1.0, 1e3]))
        return pd.Series(np.array(numbers(draw, n, -1, 1)) * size + offset * size)
    if kind == "float32":
        return pd.Series(np.array(numbers(draw, n, -1e4, 1e4), dtype=np.float32))
    if kind in ("int64", "int8"):
        limit = 100_000 if kind == "int64" else 127
        values = draw(st.lists(st.integers(-limit, limit), min_size=n, max_size=n))
        return pd.Series(values, dtype=kind)
    if kind == "bool":
        return pd.Series(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=bool)
    labels = draw(st.lists(TEXT, min_size=1, max_size=5, unique=True))
    if kind == "object" and draw(st.booleans()):
        labels = [*labels, 7, 2.5, False]
    chosen = draw(st.lists(st.sampled_from(labels), min_size=n, max_size=n))
    if kind in ("category", "ranks"):
        dtype = pd.CategoricalDtype(labels, ordered=kind == "ranks")
        return pd.Series(chosen, dtype=dtype)
    return pd.Series(chosen, dtype=kind)


@st.composite
def tables(draw, ranks=True):
    n, p = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    frame = pd.DataFrame({f"c{i}": draw(columns(n, ranks)) for i in range(p)})
    frame.index = draw(st.sampled_from([pd.RangeIndex(n), pd.Index(range(10, 10 + n))]))
    return frame


def with_gaps(frame, draw):
    """Take away some values, but never a whole column, and only where the dtype allows it."""
    out = frame.copy()
    for name in frame:
        dtype = frame[name].dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "iub":
            continue
        gaps = np.array(draw(st.lists(st.booleans(), min_size=len(frame), max_size=len(frame))))
        gaps[draw(st.integers(0, len(frame) - 1))] = False
        out[name] = frame[name].mask(gaps)
    return out


def build(scaler, encoders, imputed):
    return PreprocessingPipeline(
        [*([Imputer()] if imputed else []), *(e() for e in encoders), scaler()]
    )


def assert_same(frame, back):
    assert list(back.columns) == list(frame.columns)
    assert back.index.equals(frame.index)
    for name in frame:
        was, now = frame[name], back[name]
        assert now.dtype == was.dtype, name
        assert (now.isna() == was.isna()).all(), name
        if now.dtype.kind != "f":
            assert now.dropna().tolist() == was.dropna().tolist(), name
            continue
        near = max(1e-6 * (was.max() - was.min()), 1e-300)  # less than that counts as constant
        assert np.allclose(now, was, rtol=0, atol=near, equal_nan=True), name


@pytest.mark.parametrize(("scaler", "encoders", "imputed"), CASES)
@SETTINGS
@given(st.data())
def test_round_trip(scaler, encoders, imputed, data):
    frame = data.draw(tables(ranks=OrdinalEncoder in encoders))
    if imputed:
        frame = with_gaps(frame, data.draw)
    pipeline = build(scaler, encoders, imputed)
    x = pipeline.fit_transform(frame, infer_space(frame))
    assert x.dtype == np.float32
    assert x.shape == (len(frame), pipeline.space_.width)
    assert np.isfinite(x).all()
    assert np.array_equal(pipeline.transform(frame), x)
    assert_same(frame, pipeline.inverse_transform(x, index=frame.index))
    again = PreprocessingPipeline.from_dict(json.loads(json.dumps(pipeline.to_dict())))
    assert again.space_ == pipeline.space_
    assert np.array_equal(again.transform(frame), x)
    assert_same(frame, again.inverse_transform(x, index=frame.index))


@pytest.mark.parametrize("scaler", SCALERS)
@SETTINGS
@given(tables())
def test_encoded_rows_lie_in_the_encoded_space(scaler, frame):
    pipeline = build(scaler, (OneHotEncoder, OrdinalEncoder), False)
    x = pipeline.fit_transform(frame, infer_space(frame))
    size = np.maximum(np.abs(x).max(initial=1.0), 1.0)
    assert (x >= pipeline.space_.vector("lower") - 1e-6 * size).all()
    assert (x <= pipeline.space_.vector("upper") + 1e-6 * size).all()
    region = pipeline.space_.region(x[:1].repeat(len(x), 0))
    assert not region.violations(x)["integer"].any()
    assert not region.violations(x)["category"].any()


@pytest.mark.parametrize("scaler", SCALERS)
@SETTINGS
@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=3, max_size=20),
    st.integers(-200, 200),
)
def test_constraints_mean_the_same_in_encoded_coordinates(scaler, pairs, bound):
    frame = pd.DataFrame(pairs, columns=["a", "b"])
    frame["job"] = pd.Categorical(np.where(frame["a"] % 2, "x", "y"), ["x", "y"])
    frame["sex"] = pd.Categorical(np.where(frame["b"] % 3, "f", "m"), ["f", "m"])
    rules = (
        LinearRelation.of({"a": 2.0, "b": -1.0}, bound + 0.5),
        Implication("job", ("x",), "sex", ("f",)),
    )
    free = infer_space(frame)
    pipeline = build(scaler, (OneHotEncoder,), False)
    x = pipeline.fit_transform(frame, FeatureSpace(free.features, rules))
    good = (2 * frame["a"] - frame["b"] <= bound) & ((frame["job"] == "y") | (frame["sex"] == "f"))
    if not good.any():
        return
    home = x[good.to_numpy()][:1].repeat(len(x), 0)
    assert (pipeline.space_.region(home).contains(x) == good.to_numpy()).all()


REAL = (
    "adult/adult_raw.csv.gz",
    "audit/audit.csv",
    "german_credit/german_credit.csv",
    "give_me_some_credit/give_me_some_credit.csv.gz",
    "heloc/heloc.csv.gz",
    "law/law.csv.gz",
)


@pytest.mark.data
@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize("scaler", SCALERS)
def test_round_trip_of_real_tables(name, scaler):
    folders = [Path(p) for p in os.environ.get("CEL_DATA", "").split(os.pathsep) if p]
    path = next((f / name for f in folders if (f / name).is_file()), None)
    if path is None:
        pytest.skip(f"CEL_DATA holds no {name}")
    frame = pd.read_csv(path, nrows=20_000)
    pipeline = build(scaler, (OneHotEncoder, OrdinalEncoder), True)
    x = pipeline.fit_transform(frame, infer_space(frame))
    assert_same(frame, pipeline.inverse_transform(x, index=frame.index))
