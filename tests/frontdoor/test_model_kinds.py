"""Every kind of model through the same door: her rows, her model, her answers."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.svm import SVC

import cel
from cel.errors import UnsupportedError
from cel.models import wrap
from cel.protocols import Task

WORDS = ["job", "home"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    n = 300
    frame = pd.DataFrame(
        {
            "income": rng.integers(10, 99, n),
            "savings": rng.gamma(2, 20, n).round(2),
            "job": rng.choice(["clerk", "nurse", "pilot"], n),
            "home": rng.choice(["own", "rent"], n),
        }
    )
    frame.loc[::7, "savings"] = np.nan
    score = frame.income + frame.savings.fillna(20) + 20 * (frame.job == "pilot")
    return frame, np.where(score > 110, "good", "bad")


def columns(frame):
    return frame.astype(dict.fromkeys(WORDS, "category"))


def coder():
    words = (OneHotEncoder(handle_unknown="ignore"), WORDS)
    return make_column_transformer(words, (SimpleImputer(), ["income", "savings"]))


def sklearn(model):
    return lambda frame, y: (make_pipeline(coder(), model).fit(frame, y), frame)


def hist(frame, y):
    table = columns(frame)
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype")
    return model.fit(table, y), table


def xgboost(frame, y):
    xgb = pytest.importorskip("xgboost", reason="needs xgboost")
    table = columns(frame)
    model = xgb.XGBClassifier(n_estimators=15, enable_categorical=True, n_jobs=1)
    return model.fit(table, (y == "good").astype(int)), table


def lightgbm(frame, y):
    lgb = pytest.importorskip("lightgbm", reason="needs lightgbm")
    table = columns(frame)
    return lgb.LGBMClassifier(n_estimators=15, n_jobs=1, verbose=-1).fit(table, y), table


def catboost(frame, y):
    cat = pytest.importorskip("catboost", reason="needs catboost")
    model = cat.CatBoostClassifier(
        iterations=15, cat_features=WORDS, verbose=0, thread_count=1, allow_writing_files=False
    )
    return model.fit(frame, y), frame


def function(frame, y):
    model = make_pipeline(coder(), LogisticRegression(max_iter=500)).fit(frame, y)
    return (lambda rows: model.predict_proba(rows)[:, 1]), frame


KINDS = {
    "pipeline": sklearn(LogisticRegression(max_iter=500)),
    "forest": sklearn(RandomForestClassifier(20, random_state=0)),
    "labels only": sklearn(SVC()),
    "hist": hist,
    "xgboost": xgboost,
    "lightgbm": lightgbm,
    "catboost": catboost,
    "function": function,
}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_hold_for_her_model(table, kind):
    model, frame = KINDS[kind](*table)
    wish = 1 if kind == "xgboost" else "good"

    def good(rows):
        if kind == "function":
            return model(rows) >= 0.5
        return np.asarray(model.predict(rows)).ravel() == wish

    rows = frame[~good(frame)].head(12)
    told = {"classes": ["bad", "good"]} if kind == "function" else {}
    result = cel.explain(
        model, rows, frame, target=wish, immutable=["home"], increasing=["income"], **told
    )
    assert result.found.sum() >= 11
    answers = result.to_frame()
    assert good(answers).all()
    before = rows.loc[answers.index]
    assert (answers.home == before.home).all()
    assert (answers.income >= before.income).all()
    assert answers.dtypes.equals(rows.dtypes)


def along(frame):
    """The table as it often comes: with a date before its columns, and a name behind them."""
    days = pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(len(frame)), "D")
    wide = frame.assign(name=[f"p{i}" for i in range(len(frame))])
    wide.insert(0, "since", days)
    return wide


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=500),
        RandomForestClassifier(20, random_state=0),
        HistGradientBoostingClassifier(max_iter=20),
        SVC(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_pipelines_are_fitted_on_tables_with_columns_that_travel_along(table, model):
    frame, y = table
    wide = along(frame)
    pipe = make_pipeline(coder(), model).fit(wide, y)
    rows = wide[pipe.predict(wide) == "bad"].head(12)
    result = cel.explain(pipe, rows, wide, target="good", immutable=["home"])
    answers = result.to_frame()
    assert result.found.sum() >= 11
    assert (pipe.predict(answers) == "good").all()
    assert (answers.since == rows.loc[answers.index, "since"]).all()
    assert (answers.name == rows.loc[answers.index, "name"]).all()


@pytest.mark.parametrize("model", [RandomForestClassifier, HistGradientBoostingClassifier])
def test_trees_behind_a_pipeline_are_read_where_columns_travel_along(table, model):
    frame, y = table
    wide = along(frame)
    wrapped = wrap(make_pipeline(coder(), model(random_state=0)).fit(wide, y), wide)
    assert wrapped.trees_() is not None  # they are checked against the model, or refused


def test_trees_that_split_on_what_travels_along_are_no_trees_of_features(table):
    frame, y = table
    wide = along(frame).assign(since=lambda t: t.since.astype("datetime64[us]"))
    days = FunctionTransformer(None)  # hands on what it gets
    coded = make_column_transformer(
        (OneHotEncoder(), WORDS), (OrdinalEncoder(), ["since"]), (days, ["income"])
    )
    pipe = make_pipeline(coded, RandomForestClassifier(10, random_state=0)).fit(wide, y)
    with pytest.raises(UnsupportedError, match="'since', which is no feature"):
        wrap(pipe, wide).trees_()
    rows = wide[pipe.predict(wide) == "bad"].head(6)
    result = cel.explain(pipe, rows, wide, target="good")
    assert (pipe.predict(result.to_frame()) == "good").all()
    assert result.found.any()


def test_a_table_with_other_columns_than_the_preprocessing_was_fitted_on_is_no_tree(table):
    frame, y = table
    pipe = make_pipeline(coder(), RandomForestClassifier(5, random_state=0)).fit(frame, y)
    wrapped = wrap(pipe, frame)
    pipe[0].feature_names_in_ = np.array(["since", *pipe[0].feature_names_in_], dtype=object)
    with pytest.raises(UnsupportedError, match="fitted on 5 columns; the model is given 4"):
        wrapped.trees_()


def test_a_torch_module_on_measurements():
    data = load_breast_cancer(as_frame=True)
    frame = data.data.iloc[:, :6]
    scale = torch.tensor(frame.std().to_numpy(), dtype=torch.float32)
    centre = torch.tensor(frame.mean().to_numpy(), dtype=torch.float32)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.body = torch.nn.Sequential(
                torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
            )

        def forward(self, x):
            return self.body((x - centre) / scale)

    net = Net()
    x, y = (
        torch.tensor(frame.to_numpy(), dtype=torch.float32),
        torch.tensor(data.target.to_numpy()),
    )
    step = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(60):
        step.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        step.step()

    def said(rows):
        return net(torch.tensor(rows.to_numpy(), dtype=torch.float32)).argmax(1).numpy()

    rows = frame[said(frame) == 0].head(15)
    result = cel.explain(net, rows, frame, classes=["malignant", "benign"], target="benign")
    assert result.found.all()
    assert (said(result.to_frame()) == 1).all()


def regressors():
    yield "forest", lambda: RandomForestRegressor(15, random_state=0)
    yield (
        "catboost",
        lambda: pytest.importorskip("catboost", reason="needs catboost").CatBoostRegressor(
            iterations=15, verbose=0, thread_count=1, allow_writing_files=False
        ),
    )
    yield (
        "xgboost",
        lambda: pytest.importorskip("xgboost", reason="needs xgboost").XGBRegressor(
            n_estimators=15, n_jobs=1
        ),
    )
    yield (
        "lightgbm",
        lambda: pytest.importorskip("lightgbm", reason="needs lightgbm").LGBMRegressor(
            n_estimators=15, n_jobs=1, verbose=-1
        ),
    )


@pytest.mark.parametrize(
    ("kind", "made"), list(regressors()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_regressors_are_known_as_such(table, kind, made):
    frame = table[0][["income", "savings"]].fillna(20.0)
    model = made().fit(frame, frame.income * 2 + frame.savings)
    assert cel.wrap(model, frame).task is Task.REGRESSION
    rows = frame[model.predict(frame) < 120].head(5)
    result = cel.explain(model, rows, frame, target=">= 150")
    assert result.found.all()
    assert (model.predict(result.to_frame()) >= 150).all()
