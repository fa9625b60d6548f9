"""Splits on small tables: who goes where, what is refused, and what a part holds."""

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

from cel.datasets import Table
from cel.datasets.order import content_order
from cel.datasets.splits import cut, make_split, within_range
from cel.errors import ConfigError, DataError
from cel.preprocessing import PreprocessingPipeline, StandardScaler
from cel.protocols import Task
from cel.space import Feature, FeatureSpace, Target

SPACE = FeatureSpace((Feature(name="x", columns=(0,), lower=-np.inf, upper=np.inf),))


def table(y, classes="ab", x=None):
    """A table of one number; `classes` is empty for a regression."""
    y = np.asarray(y)
    values = np.random.default_rng(0).permutation(len(y)) * 1.0 if x is None else x
    if classes:
        target = Target(names=("y",), task=Task.CLASSIFICATION, classes=tuple(classes))
    else:
        target, y = Target(names=("y",), task=Task.REGRESSION), y.reshape(-1, 1).astype(float)
    frame = pd.DataFrame({"x": values}, index=pd.Index(np.arange(len(y)) + 100, name="row"))
    return Table(name="small", frame=frame, y=y, space=SPACE, target=target)


@pytest.mark.parametrize("classes", ["ab", ""])
def test_folds_are_those_of_the_library_in_content_order(classes):
    given = table(np.arange(60) % 2, classes)
    order = content_order(given.frame, given.y)
    kind = StratifiedKFold if classes else KFold
    outer = kind(3, shuffle=True, random_state=5).split(order, given.y[order])
    for found, (rest, test) in zip(cut(given, 3, 5), outer, strict=True):
        strata = given.y[order[rest]] if classes else None
        fit, valid = train_test_split(order[rest], test_size=0.15, random_state=5, stratify=strata)
        for ours, theirs in zip(found, (fit, valid, order[test]), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert (len(fit), len(valid), len(test)) == (34, 6, 20)


@pytest.mark.parametrize(
    ("n", "least"),
    [(2, 5), (3, 4), (4, 4), (5, 5), (6, 6)],
)
def test_a_class_needs_so_many_rows(n, least):
    enough = table([0] * least + [1] * 60)
    for fit, _, test in cut(enough, n, 0):
        assert len(np.unique(enough.y[fit])) == len(np.unique(enough.y[test])) == 2
    with pytest.raises(DataError, match=rf"class 'a' has {least - 1} rows, at least {least} are"):
        next(cut(table([0] * (least - 1) + [1] * 60), n, 0))
    with pytest.raises(DataError, match=rf"class 'b' has {least - 1} rows"):
        next(cut(table([1] * (least - 1) + [0] * 60), n, 0))


def test_classes_without_rows_do_not_count():
    parts = list(cut(table([0, 2] * 20, "abc"), 2, 0))
    assert len(parts) == 2
    with pytest.raises(DataError, match=r"class 'c' has 4 rows"):
        next(cut(table([0] * 40 + [2] * 4, "abc"), 2, 0))


def test_numbers_need_only_the_rows_of_the_parts():
    assert len(list(cut(table(np.arange(14), ""), 2, 0))) == 2
    with pytest.raises(DataError, match=r"it has 4 rows, at least 5 are needed"):
        next(cut(table(np.arange(4), ""), 2, 0))
    with pytest.raises(DataError, match=r"has 13 rows, too few .* its 1 classes .* of 2 folds"):
        next(cut(table(np.arange(13), ""), 2, 0))


@pytest.mark.parametrize(("n", "rows"), [(2, 40), (3, 30), (5, 25)])
def test_validation_rows_must_hold_every_class(n, rows):
    """0.15 of (n - 1) / n of the rows are for validation; three classes need three of them."""
    assert len(list(cut(table(np.arange(rows) % 3, "abc"), n, 0))) == n
    few = int(20 * n / (n - 1)) - 1
    with pytest.raises(DataError, match=rf"has {few} rows, too few .* its 3 classes .* {n} folds"):
        next(cut(table(np.arange(few) % 3, "abc"), n, 0))


def test_one_fold_is_refused():
    assert len(list(cut(table([0, 1] * 20), 2, 0))) == 2
    with pytest.raises(ConfigError, match=r"folds\(n=1\): two or more"):
        next(cut(table([0, 1] * 20), 1, 0))


def test_a_split_of_numbers_by_hand():
    given = table([10, 20, 30, 40, 90], "", x=np.array([0.0, 2.0, 4.0, 1.0, 8.0]))
    parts = np.array([0, 1]), np.array([2]), np.array([3, 4])
    split = make_split(given, parts, 3)
    assert (split.name, split.fold, split.raw_space) == ("small", 3, SPACE)
    assert (split.space["x"].lower, split.space["x"].upper) == (0.0, 1.0)
    assert (split.target.lower, split.target.upper) == ((10.0,), (30.0,))  # of fit and validation
    for part, x, y, index in (
        (split.train, [0.0, 0.5], [0.0, 0.5], [100, 101]),
        (split.valid, [1.0], [1.0], [102]),
        (split.test, [0.25, 2.0], [1.5, 4.0], [103, 104]),
    ):
        assert part.X.ravel().tolist() == x
        assert part.y.ravel().tolist() == y
        assert part.index.tolist() == index
        assert part.frame.index.tolist() == index
        assert (part.X.dtype, part.y.dtype, part.index.dtype) == ("float32", "float32", "int64")
        assert len(part) == len(x)


def test_a_split_keeps_classes_and_fits_steps_of_ones_own():
    given = table([0, 1, 0, 1], x=np.array([0.0, 2.0, 4.0, 100.0]))
    own = PreprocessingPipeline([StandardScaler()])
    parts = np.array([0, 1]), np.array([2]), np.array([3])
    split = make_split(given, parts, 0, own)
    assert split.target is given.target
    assert split.train.y.tolist() == [0, 1]
    assert split.train.y.dtype == np.int64
    spread = np.std([0.0, 2.0, 4.0])
    np.testing.assert_allclose(split.test.X, [[98 / spread]], rtol=1e-6)
    assert make_split(given, parts, 0).test.X.item() == 25.0  # without steps: to [0, 1]


def test_bounds_of_one_value_close_too():
    frame = pd.DataFrame({"x": [2.0, 2.0]})
    (closed,) = within_range(SPACE, frame)
    assert (closed.lower, closed.upper) == (2.0, 2.0)
    space = FeatureSpace((Feature(name="x", columns=(0,), lower=2.0, upper=3.0),))
    (touching,) = within_range(space, pd.DataFrame({"x": [1.0, 2.0]}))
    assert (touching.lower, touching.upper) == (2.0, 2.0)  # card and rows share one value
    (kept,) = within_range(space, pd.DataFrame({"x": [4.0, 5.0]}))
    assert (kept.lower, kept.upper) == (2.0, 3.0)


def test_loaders_are_in_order_in_batches_of_256_unless_asked():
    split = make_split(
        table(np.arange(700) % 2), (np.arange(600), np.arange(600, 650), np.arange(650, 700)), 0
    )
    sizes = [len(x) for x, _ in split.loader("train")]
    assert sizes == [256, 256, 88]
    np.testing.assert_array_equal(
        np.concatenate([x.numpy() for x, _ in split.loader("train")]), split.train.X
    )
    one, same = (next(iter(split.loader("train", shuffle=True)))[0] for _ in range(2))
    zero = next(iter(split.loader("train", shuffle=True, seed=0)))[0]
    other = next(iter(split.loader("train", shuffle=True, seed=1)))[0]
    assert one.tolist() == same.tolist() == zero.tolist() != other.tolist()
