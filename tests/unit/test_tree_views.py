"""Trees from outside: scored as their own library does, to the last threshold, or refused."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cel.cf_methods.view import ModelView
from cel.errors import UnsupportedError
from cel.models import wrap
from cel.models.adapters.frames import through_matrix
from cel.models.trees.axes import _from_order, _to_order
from cel.models.trees.tree_view import agrees, probe_rows
from cel.space import FeatureSpace

catboost = pytest.importorskip("catboost")
lightgbm = pytest.importorskip("lightgbm")
xgboost = pytest.importorskip("xgboost")

N = 400
QUIET = {"verbose": -1, "n_jobs": 1, "n_estimators": 12, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "income": np.round(rng.gamma(2.0, 900.0, N), 2),
            "age": rng.integers(18, 80, N),
            "job": pd.Categorical(rng.choice(["office", "farm", "sea", "none"], N)),
            "rate": rng.random(N).astype(np.float32),
        }
    )
    score = frame["income"] / 900 - frame["age"] / 30 + (frame["job"] == "sea") * 2 + frame["rate"]
    return frame, score.to_numpy()


def labels(score, k=2):
    return np.digitize(score, np.quantile(score, np.arange(1, k) / k))


def encoded(table, k=2):
    """The same rows as a plain matrix with a space, for models over encoded rows."""
    frame, score = table
    wrapped = wrap(DecisionTreeClassifier().fit([[0], [1]], [0, 1]), frame)
    return wrapped.pipeline_.transform(frame), labels(score, k), wrapped.space_


CLASSIFIERS = {
    "forest": lambda: RandomForestClassifier(12, max_depth=5, random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(12, max_depth=5, random_state=0),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=12, random_state=0),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=12, random_state=0),
    "adaboost": lambda: AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=8),
    "lightgbm": lambda: lightgbm.LGBMClassifier(**QUIET),
    "lightgbm rf": lambda: lightgbm.LGBMClassifier(
        **QUIET, boosting_type="rf", bagging_freq=1, bagging_fraction=0.7
    ),
    "xgboost": lambda: xgboost.XGBClassifier(n_estimators=12, max_depth=4, n_jobs=1),
    "xgboost dart": lambda: xgboost.XGBClassifier(
        n_estimators=12, booster="dart", rate_drop=0.3, n_jobs=1
    ),
    "catboost": lambda: catboost.CatBoostClassifier(
        iterations=12, depth=4, verbose=0, thread_count=1, allow_writing_files=False
    ),
}
REGRESSORS = {
    "forest": lambda: RandomForestRegressor(12, max_depth=5, random_state=0),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=12, random_state=0),
    "histograms": lambda: HistGradientBoostingRegressor(max_iter=12, random_state=0),
    "lightgbm": lambda: lightgbm.LGBMRegressor(**QUIET),
    "xgboost": lambda: xgboost.XGBRegressor(n_estimators=12, max_depth=4, n_jobs=1),
    "catboost": lambda: catboost.CatBoostRegressor(
        iterations=12, depth=4, verbose=0, thread_count=1, allow_writing_files=False
    ),
}


def check(wrapped, x):
    """The trees score as the model does, on real rows and one step beside every edge."""
    view = wrapped.trees_()
    assert agrees(view, wrapped, x).all()
    edges = beside_edges(view, x[0])
    assert len(edges) > 10
    assert agrees(view, wrapped, edges).all()
    # each edge matters: some pair of neighbours has another score
    before, after = view.sums(edges[0::2]), view.sums(edges[1::2])
    assert (before != after).any(1).mean() > 0.02
    return view


def beside_edges(view, row):
    """Two rows for every edge of a continuous feature: on it, and one float32 above it."""
    rows = []
    for a, f in enumerate(view.axes.space):
        if f.is_discrete:
            continue
        for edge in view.axes.edges[a]:
            for value in (edge, np.nextafter(edge, np.float32(np.inf))):
                x = row.copy()
                x[f.columns[0]] = value
                rows.append(x)
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_over_encoded_rows(table, name, classes):
    x, y, space = encoded(table, classes)
    check(wrap(CLASSIFIERS[name]().fit(x, y), space=space), x)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors_over_encoded_rows(table, name):
    x, _, space = encoded(table)
    check(wrap(REGRESSORS[name]().fit(x, table[1]), space=space, task="regression"), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: lightgbm.LGBMClassifier(**QUIET, min_child_samples=5, cat_smooth=1),
        lambda: HistGradientBoostingClassifier(max_iter=12, categorical_features="from_dtype"),
        lambda: xgboost.XGBClassifier(n_estimators=12, enable_categorical=True, n_jobs=1),
    ],
)
def test_native_categories_of_raw_tables(table, make):
    frame, score = table
    wrapped = wrap(make().fit(frame, labels(score)), frame)
    view = check(wrapped, wrapped.pipeline_.transform(frame))
    assert view.boxes.masked[view.axes.space.names.index("job")]


@pytest.mark.parametrize(
    "steps",
    [
        ColumnTransformer(
            [("job", OneHotEncoder(), ["job"]), ("n", StandardScaler(), ["income", "age"])],
            remainder="passthrough",
        ),
        ColumnTransformer(
            [
                ("job", OrdinalEncoder(), ["job"]),
                ("n", make_pipeline(MinMaxScaler(), StandardScaler()), ["age", "rate", "income"]),
            ]
        ),
    ],
)
def test_pipelines_are_followed_column_by_column(table, steps):
    frame, score = table
    model = make_pipeline(steps, RandomForestClassifier(10, max_depth=5, random_state=0))
    wrapped = wrap(model.fit(frame, labels(score)), frame)
    check(wrapped, wrapped.pipeline_.transform(frame))


def test_refusals_name_their_reason(table):
    x, y, space = encoded(table)
    frame, score = table

    def refused(model, match, **known):
        with pytest.raises(UnsupportedError, match=match):
            wrap(model, **(known or {"space": space})).trees_()

    mixed = make_pipeline(StandardScaler(), PCA(2), RandomForestClassifier(3)).fit(x, y)
    refused(mixed, r"step 'pca' \(PCA\) may mix columns")
    refused(LogisticRegression().fit(x, y), "LogisticRegression is no tree ensemble")
    refused(AdaBoostRegressor(n_estimators=2).fit(x, score), "weighted median")
    ctr = catboost.CatBoostClassifier(
        iterations=3, verbose=0, cat_features=["job"], thread_count=1, allow_writing_files=False
    )
    refused(ctr.fit(frame, labels(score)), r"OnlineCtr.*\(CTR\) cannot be searched", data=frame)
    ova = lightgbm.LGBMClassifier(**QUIET, objective="multiclassova")
    refused(ova.fit(x, labels(score, 3)), "multiclassova")
    linear = xgboost.XGBClassifier(booster="gblinear", n_estimators=2, n_jobs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused(linear.fit(x, y), "gblinear")
    with pytest.raises(UnsupportedError, match="labels only"):
        wrap(RandomForestClassifier(2).fit(x, y), space=space, output="labels").trees_()


def test_trees_that_do_not_score_like_the_model_are_refused(table):
    x, y, space = encoded(table)
    model = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(x, y)

    class Shifted(type(model)):
        def predict_proba(self, rows):
            p = super().predict_proba(rows)
            return np.where(rows[:, :1] > 0.2, p, p[:, ::-1])

    Shifted.__name__, Shifted.__module__ = type(model).__name__, type(model).__module__
    model.__class__ = Shifted
    with pytest.raises(UnsupportedError, match="differently from the model"):
        wrap(model, space=space).trees_()


def test_models_without_trees_say_so():
    class Plain:
        task = "classification"

    assert ModelView(Plain()).trees() is None


def test_float32_orders_are_neighbours():
    values = np.array([-1e30, -1.0, -1e-40, -0.0, 0.0, 1e-40, 0.1, 3.4e38], dtype=np.float32)
    order = _to_order(values)
    assert (np.diff(order) >= 0).all()
    np.testing.assert_array_equal(_from_order(order), values)
    above = np.nextafter(values[:-1], np.float32(np.inf))
    np.testing.assert_array_equal(_to_order(above)[4:] - order[4:-1], 1)
    np.testing.assert_array_equal(_to_order(above)[:2] - order[:2], 1)


def test_a_continuous_feature_split_by_category_is_refused(table):
    x, y, _ = encoded(table)
    codes = np.column_stack([x[:, 0], labels(x[:, 1], 4)]).astype(np.float32)
    model = lightgbm.LGBMClassifier(**QUIET, min_child_samples=5)
    model.fit(codes, y, categorical_feature=[1])
    wrapped = wrap(model, space=FeatureSpace.continuous(2, 0.0, 3.0))
    with pytest.raises(UnsupportedError, match="declare it categorical"):
        wrapped.trees_()


def test_probe_rows_are_decodable(table):
    x, y, space = encoded(table)
    view = wrap(RandomForestClassifier(3, random_state=0).fit(x, y), space=space).trees_()
    rows = probe_rows(view)
    region = space.region(rows)
    assert (region.snap(rows) == rows).all()


def test_lightgbm_is_asked_with_a_matrix_when_the_answers_are_the_same_bits(table):
    frame, score = table
    model = lightgbm.LGBMClassifier(**QUIET, min_child_samples=5).fit(frame, labels(score))
    wrapped, asked = wrap(model, frame), []
    x = wrapped.pipeline_.transform(frame)
    long = model.predict_proba(wrapped._rows(x))
    original = model.predict_proba
    model.predict_proba = lambda rows: asked.append(len(rows)) or original(rows)
    wrapped._call.ask = through_matrix(model, model.predict_proba)
    for _ in range(3):
        np.testing.assert_array_equal(wrapped.predict_proba(x), long)
    assert asked == [N]  # the first call compares, the others go the short way
    swapped = frame.assign(
        job=frame["job"].cat.reorder_categories(["none", "sea", "farm", "office"])
    )
    np.testing.assert_array_equal(wrapped._call(swapped), long)


def test_a_model_that_wants_tables_gets_them(table):
    frame, score = table
    model = lightgbm.LGBMClassifier(**QUIET).fit(frame, labels(score))
    ask = through_matrix(model, lambda rows: model.predict_proba(rows) + 1e-9)
    first, second = ask(frame), ask(frame)
    np.testing.assert_array_equal(first, second)
