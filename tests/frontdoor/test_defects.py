"""What once went wrong at the door, each with its neighbours."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import cel
from cel.cf_methods import METHODS
from cel.errors import ConfigError
from cel.models.classifiers import LogisticRegression as OwnRegression

RNG = np.random.default_rng(0)


def plain_table(n=300):
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n)})
    return frame, np.digitize(frame.a + frame.b, [-0.5, 0.5])


LABELS = {
    "from one": [1, 2, 3],
    "shuffled": [2, 0, 1],
    "negative": [-1, 0, 1],
    "far": [10, 20, 30],
    "text": ["low", "mid", "high"],
    "digits as text": ["1", "2", "3"],
    "floats": [1.0, 2.0, 5.0],
    "numpy": list(np.array([1, 2, 3], dtype=np.int8)),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.parametrize("kind", ["wrapped", "cel on frames", "cel on arrays"])
def test_targets_are_labels_before_they_are_positions(name, kind):
    frame, codes = plain_table()
    labels = np.array(LABELS[name])
    y = labels[codes]
    if kind == "wrapped":
        model = LogisticRegression().fit(frame, y)
        rows, train = frame, frame
    else:
        rows = train = frame if kind == "cel on frames" else frame.to_numpy(np.float32)
        model = OwnRegression().fit(train, y)
    predicted = np.asarray(model.predict(rows))
    for wish in labels[[0, 2]]:
        start = np.flatnonzero(predicted != wish)[:2]
        few = rows.iloc[start] if kind != "cel on arrays" else rows[start]
        result = cel.explain(model, few, train=train, target=wish, random_state=0)
        assert result.found.all()
        answer = result.to_frame() if kind != "cel on arrays" else result.x_cfs
        assert (np.asarray(model.predict(answer)) == wish).all()
        each = cel.explain(model, few, train=train, target=[wish] * len(few))
        assert np.array_equal(each.y_cf_targets, result.y_cf_targets)


@pytest.mark.parametrize("labels", [[False, True], [np.False_, np.True_], [1, 2], [0, 1]])
def test_two_labels_of_any_kind(labels):
    frame, codes = plain_table()
    model = LogisticRegression().fit(frame, np.array(labels)[(codes > 1).astype(int)])
    for wish in labels:
        rows = frame[model.predict(frame) != wish].head(3)
        result = cel.explain(model, rows, train=frame, target=wish)
        assert result.found.all()
        assert (model.predict(result.to_frame()) == wish).all()


def test_a_number_that_is_no_label_is_refused():
    frame, codes = plain_table()
    model = LogisticRegression().fit(frame, np.array([1, 2, 3])[codes])
    with pytest.raises(ConfigError, match=r"unknown target class 0; the classes are \[1, 2, 3\]"):
        cel.explain(model, frame.head(3), train=frame, target=0)


@pytest.mark.parametrize("method", ["wachter", "wachter_exact", "elastic_net"])
def test_modules_over_several_categories(method):
    train = pd.DataFrame(
        {
            "a": RNG.random(60),
            "c": RNG.choice(["x", "y"], 60),
            "d": RNG.choice(["u", "v"], 60),
        }
    )
    net = torch.nn.Linear(5, 2)
    with torch.no_grad():
        net.weight[:] = torch.tensor([[0.0] * 5, [0.5, 0.0, 3.0, 0.0, 0.1]])
        net.bias[:] = torch.tensor([0.0, -2.0])
    model = cel.wrap(net, train, task="classification", classes=["no", "yes"])
    rows = train[model.predict(train) == "no"].head(2)
    result = cel.explain(model, rows, train=train, target="yes", method=method)
    assert result.found.all()
    assert (model.predict(result.to_frame()) == "yes").all()
    assert model.logits(torch.zeros(0, 5)).shape == (0, 2)


def with_gaps(kind):
    frame = pd.DataFrame({"a": RNG.random(120), "b": RNG.random(120)})
    if kind == "Int64":
        frame["a"] = (frame.a * 50).round().astype("Int64")
    frame.loc[::5, "a"] = pd.NA if kind == "Int64" else np.nan
    return frame


def gap_model(frame):
    scale = 50.0 if str(frame.a.dtype) == "Int64" else 1.0

    def ask(rows):
        a = rows["a"].astype("float64").fillna(0.0).to_numpy() / scale
        return (a + rows["b"].to_numpy() > 1.0).astype(float)

    return cel.wrap(ask, frame, classes=[0, 1])


@pytest.mark.parametrize("method", ["dice", "ares_oracle", "tcrex", "globe_ce", "glance", "sace"])
@pytest.mark.parametrize("kind", ["float64", "Int64"])
def test_an_immutable_gap_stays_a_gap(method, kind):
    frame = with_gaps(kind)
    model = gap_model(frame)
    rows = frame[frame.a.isna() & (frame.b < 0.9)].head(6)
    result = cel.explain(model, rows, train=frame, target=1, immutable=("a",), method=method)
    assert result.to_frame()["a"].isna().all()


@pytest.mark.parametrize("method", ["ares", "globe_ce", "glance", "tcrex"])
@pytest.mark.parametrize("kind", ["float64", "Int64"])
def test_rules_about_columns_with_gaps_name_values(method, kind):
    frame = with_gaps(kind)  # the first training row has a gap
    model = gap_model(frame)
    fitted = METHODS.get(method)(model).fit(frame)
    said = str(fitted.explanation(1))
    assert "None" not in said
    assert "__missing" not in said


def test_a_dataset_is_enough_to_wrap_a_model():
    dataset = cel.load_dataset("mixed")
    split = dataset.split()
    net = torch.nn.Linear(split.space.width, 2)
    model = cel.wrap(net, dataset, classes=list(split.target.classes))
    assert model.space_ == split.space
    assert model.target_ == split.target


def test_dates_as_index_can_be_written(tmp_path):
    frame, codes = plain_table()
    model = LogisticRegression().fit(frame, codes > 1)
    rows = frame[~model.predict(frame)].head(3)
    rows.index = pd.date_range("2020-01-01", periods=3, tz="Europe/Warsaw")
    result = cel.explain(model, rows, train=frame, target=True)
    assert "2020-01-01" in result.to_json()
    result.to_parquet(tmp_path / "r.parquet")
