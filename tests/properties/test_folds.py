"""Folds: a partition of the rows, the same for any order of them, and blind to test rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cel.datasets import DatasetBase, Table, load_dataset
from cel.datasets.order import balanced_sample, content_order, random_sample
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, Target

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(eq=False)
class Frame(DatasetBase):
    given: Table

    def load(self) -> Table:
        return self.given


@st.composite
def tables(draw) -> Table:
    n = draw(st.integers(60, 120))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    classes = draw(st.sampled_from([0, 2, 3]))  # 0: regression
    coarse = draw(st.booleans())  # coarse numbers make duplicate rows
    numbers = rng.normal(size=n).round(0 if coarse else 9)
    labels = rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {
            "x": numbers,
            "k": rng.integers(0, 5, n),
            "c": pd.Categorical.from_codes(labels, categories=["u", "v", "w"]),
        },
        index=pd.Index(np.arange(n), name="row"),
    )
    space = FeatureSpace(
        (
            Feature(name="x", columns=(0,), lower=-np.inf, upper=np.inf),
            Feature(name="k", kind="integer", columns=(1,), lower=0, upper=4, step=1),
            Feature(name="c", kind="categorical", columns=(2,), categories=("u", "v", "w")),
        )
    )
    if classes:
        y = rng.permutation(np.arange(n) % classes)
        names = tuple("abc"[:classes])
        target = Target(names=("y",), task=Task.CLASSIFICATION, classes=names)
    else:
        y = rng.normal(size=(n, 2))
        target = Target(names=("y", "z"), task=Task.REGRESSION)
    return Table(name="random", frame=frame, y=y, space=space, target=target)


def shuffled(table: Table, seed: int) -> Table:
    order = np.random.default_rng(seed).permutation(len(table))
    moved = table.take(order)
    return replace(moved, frame=moved.frame.set_axis(pd.RangeIndex(len(table), name="row")))


@FEW
@given(table=tables(), n=st.integers(2, 6), seed=st.integers(0, 1000))
def test_test_parts_partition_the_rows(table, n, seed):
    splits = list(Frame(table).folds(n, seed))
    tests = np.concatenate([s.test.index for s in splits])
    assert sorted(tests.tolist()) == list(range(len(table)))
    for split in splits:
        parts = [split.train.index, split.valid.index, split.test.index]
        assert sorted(np.concatenate(parts).tolist()) == list(range(len(table)))
        for part in ("train", "valid"):
            loader = split.loader(part, batch_size=16, shuffle=True)
            assert not set(loader.dataset.rows.index) & set(split.test.index)
            rows = np.concatenate([x.numpy() for x, _ in loader])
            np.testing.assert_array_equal(
                rows[np.lexsort(rows.T)],
                loader.dataset.rows.X[np.lexsort(loader.dataset.rows.X.T)],
            )


@FEW
@given(table=tables(), n=st.integers(2, 5), seed=st.integers(0, 1000), move=st.integers(0, 99))
def test_folds_do_not_depend_on_row_order(table, n, seed, move):
    again = Frame(shuffled(table, move)).folds(n, seed)
    for a, b in zip(Frame(table).folds(n, seed), again, strict=True):
        for part in ("train", "valid", "test"):
            first, second = getattr(a, part), getattr(b, part)
            np.testing.assert_array_equal(first.X, second.X)
            np.testing.assert_array_equal(first.y, second.y)
            pd.testing.assert_frame_equal(
                first.frame.reset_index(drop=True), second.frame.reset_index(drop=True)
            )


@FEW
@given(table=tables(), seed=st.integers(0, 1000))
def test_nothing_learns_from_test_rows(table, seed):
    for split in Frame(table).folds(3, seed):
        noisy = table.frame.copy()
        noisy.loc[split.test.index, "x"] *= 1000.0
        rows = np.concatenate([split.train.index, split.valid.index])
        training = table.frame.loc[rows, "x"]
        column = split.space["x"].columns[0]
        encoded = np.concatenate([split.train.X, split.valid.X])[:, column]
        assert (encoded.min(), encoded.max()) == (0.0, 1.0 if np.ptp(training) else 0.0)
        refitted = type(split.pipeline)().fit(noisy.loc[rows], table.space)
        np.testing.assert_array_equal(
            refitted.transform(split.train.frame), split.pipeline.transform(split.train.frame)
        )
        if table.target.task is Task.REGRESSION:
            y = table.y[rows]
            assert split.target.lower == tuple(y.min(0))
            assert split.target.upper == tuple(y.max(0))


@FEW
@given(table=tables(), seed=st.integers(0, 1000), move=st.integers(0, 99))
def test_samples_do_not_depend_on_row_order(table, seed, move):
    other = shuffled(table, move)

    def content(t: Table, rows: np.ndarray) -> list[tuple]:
        frame = t.take(rows).frame.astype({"c": object})
        return sorted(
            map(tuple, frame.assign(y=t.y[rows].reshape(len(rows), -1)[:, 0]).to_numpy())
        )

    for choose in (lambda t: random_sample(t.frame, t.y, 20, seed), _balanced(table, seed)):
        assert content(table, choose(table)) == content(other, choose(other))
    order = content_order(table.frame, table.y)
    assert sorted(order.tolist()) == list(range(len(table)))


def _balanced(table: Table, seed: int):
    if table.target.task is Task.REGRESSION:
        return lambda t: random_sample(t.frame, t.y, 7, seed)
    return lambda t: balanced_sample(t.frame, t.y, seed)


@pytest.mark.parametrize("name", ["mixed", "wine", "diabetes"])
def test_seeds_change_the_folds_and_repeat_them(name):
    dataset = load_dataset(name)
    first, again, other = (dataset.fold(0, seed=s) for s in (42, 42, 43))
    np.testing.assert_array_equal(first.train.index, again.train.index)
    np.testing.assert_array_equal(dataset.split().test.index, first.test.index)
    assert set(first.test.index) != set(other.test.index)


@pytest.mark.parametrize("name", ["blobs", "mixed", "digits"])
def test_classes_are_stratified(name):
    dataset = load_dataset(name)
    share = np.bincount(dataset.table.y) / len(dataset)
    for split in dataset.folds():
        for part in (split.train, split.valid, split.test):
            counts = np.bincount(part.y, minlength=len(share))
            assert (np.abs(counts - share * len(part)) <= 2).all()


def test_bounds_close_at_the_rows_inside_what_the_card_allows():
    from cel.datasets.splits import within_range

    space = FeatureSpace(
        [
            Feature(name="x", columns=(0,), lower=-np.inf, upper=0.8),
            Feature(name="k", kind="integer", columns=(1,), lower=3, upper=9, step=1),
            Feature(name="code", columns=(2,), lower=0.0, upper=1.0),
        ]
    )
    rows = pd.DataFrame({"x": [0.2, 0.9], "k": [1, 5], "code": [-7.0, -7.0]})
    found = {f.name: (f.lower, f.upper) for f in within_range(space, rows)}
    assert found == {"x": (0.2, 0.8), "k": (3, 5), "code": (0.0, 1.0)}  # codes alone: the card's
