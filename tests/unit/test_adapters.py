"""Models from outside predict through CEL what they predict on their own."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from cel.errors import ConfigError, DataError, UnsupportedError
from cel.models import fit_surrogate, wrap
from cel.models.classifiers import MLPClassifier
from cel.protocols import DifferentiablePredictor, Predictor, Task
from cel.space import FeatureSpace, Target


def table(n=160, seed=0, missing=False):
    """Return a raw table with integers, floats, text and categories, and an outcome."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.gamma(3.0, 900.0, n).round(2),
            "job": rng.choice(["clerk", "nurse", "pilot"], n),
            "town": pd.Categorical(rng.choice(["A", "B"], n), categories=["A", "B", "C"]),
        }
    )
    score = frame["age"] / 40 + frame["income"] / 3000 + (frame["job"] == "pilot")
    if missing:
        frame.loc[::7, "income"] = np.nan
        frame.loc[::11, "job"] = np.nan  # a None of an old pandas would come back as NaN
    return frame, np.where(score > score.median(), "good", "bad")


def columns():
    number = make_pipeline(SimpleImputer(), StandardScaler())
    text = make_pipeline(
        SimpleImputer(strategy="constant", fill_value="none"),
        OneHotEncoder(handle_unknown="ignore"),
    )
    return ColumnTransformer([("n", number, ["age", "income"]), ("t", text, ["job", "town"])])


def as_categories(frame):
    return frame.assign(job=frame["job"].astype("category"))


def agrees(wrapped, model, frame):
    """Check labels and probabilities on the raw table and on its encoded rows."""
    encoded = wrapped.pipeline_.transform(frame)
    decoded = wrapped.pipeline_.inverse_transform(encoded)
    pd.testing.assert_frame_equal(decoded, frame, rtol=1e-5)  # 32-bit floats in between
    for rows in (frame, encoded, torch.as_tensor(encoded)):  # cents come back as cents
        got = wrapped.predict_proba(rows)
        assert np.allclose(got, model.predict_proba(frame), atol=1e-6)
        assert np.array_equal(wrapped.predict(rows), np.ravel(model.predict(frame)))
    assert isinstance(wrapped, Predictor)
    assert not isinstance(wrapped, DifferentiablePredictor)
    assert wrapped.n_features_in_ == encoded.shape[1]
    assert wrapped.task is Task.CLASSIFICATION


@pytest.mark.parametrize("missing", [False, True])
def test_scikit_learn_pipelines_see_raw_tables(missing):
    frame, y = table(missing=missing)
    model = make_pipeline(columns(), RandomForestClassifier(10, random_state=0)).fit(frame, y)
    agrees(wrap(model, frame), model, frame)


def test_scikit_learn_boosting_sees_categories_and_gaps():
    frame, y = table(missing=True)
    frame = as_categories(frame)
    model = HistGradientBoostingClassifier(max_iter=10, categorical_features="from_dtype")
    agrees(wrap(model.fit(frame, y), frame), model, frame)


@pytest.mark.parametrize("missing", [False, True])
def test_xgboost(missing):
    xgboost = pytest.importorskip("xgboost")
    frame, y = table(missing=missing)
    frame, codes = as_categories(frame), (y == "good").astype(int)
    model = xgboost.XGBClassifier(n_estimators=5, enable_categorical=True, n_jobs=1)
    model.fit(frame, codes)
    agrees(wrap(model, frame), model, frame)
    target = Target(names=("y",), task=Task.CLASSIFICATION, classes=("bad", "good"))
    named = wrap(model, frame, target=target)
    assert np.array_equal(named.predict(frame), np.array(["bad", "good"])[model.predict(frame)])
    booster = wrap(model.get_booster(), frame, target=target)
    assert np.allclose(booster.predict_proba(frame), model.predict_proba(frame), atol=1e-6)


@pytest.mark.parametrize("missing", [False, True])
def test_lightgbm(missing):
    lightgbm = pytest.importorskip("lightgbm")
    frame, y = table(missing=missing)
    frame = as_categories(frame)
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(frame, y)
    agrees(wrap(model, frame), model, frame)
    booster = wrap(model.booster_, frame, classes=["bad", "good"])
    assert np.allclose(booster.predict_proba(frame), model.predict_proba(frame), atol=1e-6)


def test_catboost(tmp_path):
    catboost = pytest.importorskip("catboost")
    frame, y = table()
    options = {"iterations": 5, "verbose": False, "train_dir": str(tmp_path), "thread_count": 1}
    model = catboost.CatBoostClassifier(cat_features=["job", "town"], **options).fit(frame, y)
    agrees(wrap(model, frame), model, frame)
    plain = catboost.CatBoost({"loss_function": "Logloss", **options})
    plain.fit(catboost.Pool(frame, y == "good", cat_features=["job", "town"]))
    wrapped = wrap(plain, frame, classes=[False, True])
    want = plain.predict(frame, prediction_type="Probability")
    assert np.allclose(wrapped.predict_proba(wrapped.pipeline_.transform(frame)), want, atol=1e-6)


def test_functions_of_tables():
    frame, _ = table()
    seen = []

    def ask(rows):
        seen.append(rows)
        return (rows["age"] > 40).to_numpy(float)

    wrapped = wrap(ask, frame, classes=["young", "old"])
    encoded = wrapped.pipeline_.transform(frame)
    assert np.array_equal(wrapped.predict(encoded), np.where(frame["age"] > 40, "old", "young"))
    pd.testing.assert_frame_equal(seen[-1], frame, rtol=1e-5)
    wrong = wrap(lambda rows: np.full((len(rows), 2), 3.0), frame, classes=[0, 1])
    with pytest.raises(DataError, match="output='logits'"):
        wrong.predict(encoded)
    logits = wrap(
        lambda rows: np.full((len(rows), 2), 3.0), frame, classes=[0, 1], output="logits"
    )
    assert np.allclose(logits.predict_proba(encoded), 0.5)
    short = wrap(lambda rows: np.ones((1, 2)) / 2, frame, classes=[0, 1])
    with pytest.raises(DataError, match="1 answers for 160 rows"):
        short.predict(encoded)
    three = wrap(lambda rows: np.ones((len(rows), 3)) / 3, frame, classes=[0, 1])
    with pytest.raises(DataError, match="3 columns for 2 classes"):
        three.predict(encoded)


def test_models_without_probabilities_give_hard_ones():
    frame, y = table()
    model = make_pipeline(columns(), LinearSVC()).fit(frame, y)
    wrapped = wrap(model, frame)
    assert wrapped.hard
    assert set(np.unique(wrapped.predict_proba(frame))) == {0.0, 1.0}
    assert np.array_equal(wrapped.predict(frame), model.predict(frame))
    with pytest.raises(UnsupportedError, match="no predict_proba"):
        wrap(model, frame, output="proba")
    odd = wrap(lambda rows: ["?"] * len(rows), frame, classes=["a", "b"], output="labels")
    with pytest.raises(DataError, match="unknown label"):
        odd.predict(frame)


def test_regressors_answer_in_units_of_the_training_range():
    frame, _ = table()
    outcome = frame["income"] * 2 + frame["age"]
    model = GradientBoostingRegressor(n_estimators=10).fit(frame[["age", "income"]], outcome)
    data = frame[["age", "income"]].assign(price=outcome)
    wrapped = wrap(model, data, target="price")
    assert wrapped.task is Task.REGRESSION
    want = model.predict(frame[["age", "income"]])
    scaled = (want - outcome.min()) / (outcome.max() - outcome.min())
    encoded = wrapped.pipeline_.transform(frame[["age", "income"]])
    assert np.allclose(wrapped.predict(encoded)[:, 0], scaled, atol=1e-6)
    plain = wrap(model, frame[["age", "income"]])
    assert np.allclose(plain.predict(encoded)[:, 0], want)
    with pytest.raises(UnsupportedError, match="no probabilities"):
        plain.predict_proba(encoded)


def test_classes_are_put_into_the_order_of_the_target():
    frame, y = table()
    model = make_pipeline(columns(), LogisticRegression()).fit(frame, y)
    target = Target(names=("y",), task=Task.CLASSIFICATION, classes=("good", "bad", "never"))
    wrapped = wrap(model, frame, target=target)
    p = wrapped.predict_proba(frame)
    assert np.allclose(p[:, [1, 0]], model.predict_proba(frame))
    assert (p[:, 2] == 0).all()
    assert np.array_equal(wrapped.predict(frame), model.predict(frame))
    other = Target(names=("y",), task=Task.CLASSIFICATION, classes=("x", "z"))
    with pytest.raises(ConfigError, match="'bad' is none of the target's"):
        wrap(model, frame, target=other)


def test_models_on_encoded_rows():
    X = np.random.default_rng(0).random((100, 3))
    model = LogisticRegression().fit(X, X[:, 0] > 0.5)
    wrapped = wrap(model, space=FeatureSpace.continuous(3))
    assert np.allclose(wrapped.predict_proba(X), model.predict_proba(X))
    with pytest.raises(DataError, match="fitted with 3 columns, got 2"):
        wrapped.predict(X[:, :2])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = wrap(LogisticRegression().fit(frame, X[:, 0] > 0.5), space=FeatureSpace.continuous(3))
    assert np.allclose(named.predict_proba(X), model.predict_proba(X))


def test_missing_columns_are_named():
    frame, y = table()
    model = make_pipeline(columns(), LogisticRegression()).fit(frame, y)
    with pytest.raises(DataError, match="'income'"):
        wrap(model, frame).predict(frame.drop(columns="income"))


class Net(torch.nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.layer = torch.nn.Linear(3, n_out)
        self.drop = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.layer(x))


def test_torch_modules_keep_their_gradients():
    net = Net(3).train()
    wrapped = wrap(net, space=FeatureSpace.continuous(3), classes=["a", "b", "c"])
    x = torch.rand(6, 3, requires_grad=True)
    wrapped.logits(x).sum().backward()
    assert x.grad is not None
    assert net.training
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    want = torch.softmax(net.layer(x), 1).detach().numpy()
    assert np.allclose(wrapped.predict_proba(x.detach()), want, atol=1e-6)
    assert wrapped.logits(x.double()).dtype == torch.float64
    assert isinstance(wrapped, DifferentiablePredictor)
    with torch.no_grad():
        net.layer.bias += 1.0
    assert torch.allclose(wrapped.logits(x), net.layer(x))
    with pytest.raises(DataError, match="expected"):
        wrapped.logits(torch.zeros(1, 2))


def test_torch_modules_with_one_output():
    x = torch.rand(5, 3)
    net = Net(1).eval()
    p = torch.sigmoid(net(x)).detach().numpy()[:, 0]
    by_logit = wrap(net, space=FeatureSpace.continuous(3), classes=[0, 1])
    assert np.allclose(by_logit.predict_proba(x)[:, 1], p, atol=1e-6)
    by_share = wrap(torch.nn.Sequential(net, torch.nn.Sigmoid()), classes=[0, 1], output="proba")
    assert np.allclose(by_share.predict_proba(x)[:, 1], p, atol=1e-6)
    values = wrap(net, task="regression")
    assert np.allclose(values.predict(x), net(x).detach().numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "options", "error", "message"),
    [
        (3, {"classes": [0, 1]}, UnsupportedError, "cannot wrap a int"),
        (Net(2), {}, ConfigError, "does not tell what it predicts"),
        (Net(2), {"task": "classification"}, ConfigError, "names no classes"),
        (Net(2), {"task": "ranking"}, ConfigError, "unknown task 'ranking'"),
        (lambda rows: rows, {"output": "probs"}, ConfigError, "unknown output 'probs'"),
        (lambda rows: rows, {"target": "y"}, ConfigError, "give the DataFrame"),
        (lambda rows: rows, {"data": 5}, UnsupportedError, "feature space from int"),
        (MLPClassifier(), {}, UnsupportedError, "CEL model already"),
    ],
)
def test_what_cannot_be_wrapped(model, options, error, message):
    with pytest.raises(error, match=message):
        wrap(model, **options)


def test_target_columns_are_checked():
    frame, y = table()
    frame["y"] = y
    with pytest.raises(ConfigError, match="did you mean 'y'"):
        wrap(lambda rows: rows, frame, target="yy")
    frame.loc[0, "y"] = None
    with pytest.raises(DataError, match="1 missing"):
        wrap(lambda rows: rows, frame, target="y")


def test_surrogates_imitate_but_never_answer():
    frame, y = table(400)
    model = make_pipeline(columns(), RandomForestClassifier(20, random_state=0)).fit(frame, y)
    assert is_classifier(model)
    real = wrap(model, frame)
    surrogate = fit_surrogate(real, frame, hidden=(32,), lr=0.01, epochs=100)
    assert surrogate.real is real
    assert surrogate.fidelity_ > 0.8
    x = torch.as_tensor(real.pipeline_.transform(frame)).requires_grad_()
    surrogate.logits(x).sum().backward()
    assert x.grad is not None
    assert np.array_equal(surrogate.predict(x.detach()), real.predict(frame))
    assert np.array_equal(surrogate.predict_proba(frame), real.predict_proba(frame))
    assert isinstance(surrogate, DifferentiablePredictor)
    again = fit_surrogate(real, frame, hidden=(32,), lr=0.01, epochs=100)
    assert torch.equal(again.logits(x), surrogate.logits(x))
    with pytest.raises(ConfigError, match="crossovers"):
        fit_surrogate(real, frame, crossovers=-1)


def test_surrogates_of_regressors():
    X = np.random.default_rng(0).random((300, 2))
    model = GradientBoostingRegressor(n_estimators=50).fit(X, X.sum(1))
    surrogate = fit_surrogate(wrap(model, space=FeatureSpace.continuous(2)), X, hidden=(32,))
    assert surrogate.fidelity_ > 0.9
    assert surrogate.task is Task.REGRESSION
    assert surrogate.logits(torch.rand(3, 2)).shape == (3, 1)
