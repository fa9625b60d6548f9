"""Tree ensembles of scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np

from cel.errors import UnsupportedError
from cel.models.trees.forest import Forest, OneTree, join

__all__ = ["parse_sklearn"]

_SINGLE = ("DecisionTreeClassifier", "ExtraTreeClassifier", "DecisionTreeRegressor",
           "ExtraTreeRegressor")  # fmt: skip
_AVERAGED = ("RandomForestClassifier", "ExtraTreesClassifier", "RandomForestRegressor",
             "ExtraTreesRegressor")  # fmt: skip


def parse_sklearn(model: Any) -> Forest | None:
    """Return the trees of a scikit-learn ensemble, or None for another kind of model."""
    name = type(model).__name__
    if name in _SINGLE:
        return _averaged([model], name)
    if name in _AVERAGED:
        return _averaged(list(model.estimators_), name)
    if name in ("GradientBoostingClassifier", "GradientBoostingRegressor"):
        return _gradient_boosting(model)
    if name in ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"):
        return _histogram_boosting(model)
    if name == "AdaBoostClassifier":
        return _adaboost(model)
    if name == "AdaBoostRegressor":
        raise UnsupportedError(
            "AdaBoostRegressor predicts a weighted median, which is no sum of trees; use a method "
            "for black boxes"
        )
    return None


def _grown(tree: Any, value: np.ndarray) -> OneTree:
    inner = tree.children_left >= 0
    missing = getattr(tree, "missing_go_to_left", None)
    return OneTree(
        column=np.where(inner, tree.feature, -1),
        threshold=np.where(inner, tree.threshold, np.nan),
        left=np.asarray(tree.children_left),
        right=np.asarray(tree.children_right),
        value=np.where(inner[:, None], 0.0, value),
        missing_left=None if missing is None else np.asarray(missing, dtype=bool),
    )


def _averaged(members: list[Any], name: str) -> Forest:
    soft = name.endswith("Classifier")
    if getattr(members[0], "n_outputs_", 1) > 1:
        raise UnsupportedError(f"{name} with several outputs: its trees cannot be searched")
    trees = []
    for member in members:
        value = np.asarray(member.tree_.value[:, 0, :], dtype=np.float64)
        if soft:
            value = value / value.sum(1, keepdims=True)
        trees.append(_grown(member.tree_, value / len(members)))
    base = np.zeros(trees[0].value.shape[1])
    return join(trees, base=base, operator="le32", link="mean" if soft else "identity")


def _gradient_boosting(model: Any) -> Forest:
    name = type(model).__name__
    soft = name.endswith("Classifier")
    init = model.init_
    if init != "zero" and not type(init).__name__.startswith("Dummy"):
        raise UnsupportedError(
            f"{name} starts from a {type(init).__name__}, which is no constant; its scores are no "
            "sum of trees"
        )
    width = getattr(model, "n_features_in_", 1)
    start = np.asarray(model._raw_predict_init(np.zeros((1, width))), dtype=np.float64)[0]
    outputs = model.estimators_.shape[1]
    factor = 2.0 if getattr(model, "loss", "") == "exponential" else 1.0
    binary = soft and outputs == 1
    base = np.array([0.0, factor * start[0]]) if binary else start
    trees = []
    for stage in model.estimators_:
        for k, member in enumerate(stage):
            one = np.asarray(member.tree_.value[:, 0, 0]) * model.learning_rate * factor
            trees.append(_grown(member.tree_, _placed(one, 1 if binary else k, len(base))))
    return join(trees, base=base, operator="le32", link="softmax" if soft else "identity")


def _placed(values: np.ndarray, k: int, outputs: int) -> np.ndarray:
    """Return (N, outputs) with the values in column `k`."""
    out = np.zeros((len(values), outputs))
    out[:, k] = values
    return out


def _histogram_boosting(model: Any) -> Forest:
    soft = type(model).__name__.endswith("Classifier")
    loss = getattr(model, "loss", "")
    if not soft and loss not in ("squared_error", "absolute_error", "quantile"):
        raise UnsupportedError(
            f"HistGradientBoostingRegressor(loss={loss!r}) predicts through a logarithm, which is "
            "no sum of trees; use a method for black boxes"
        )
    start = np.atleast_1d(np.asarray(model._baseline_prediction, dtype=np.float64).ravel())
    binary = soft and len(start) == 1
    base = np.array([0.0, start[0]]) if binary else start
    trees = []
    for stage in model._predictors:
        for k, member in enumerate(stage):
            trees.append(_histogram_tree(member, 1 if binary else k, len(base)))
    return join(trees, base=base, operator="le", link="softmax" if soft else "identity")


def _histogram_tree(member: Any, k: int, outputs: int) -> OneTree:
    nodes = member.nodes
    inner = nodes["is_leaf"] == 0
    by_category = inner & (nodes["is_categorical"] != 0)
    subset = np.where(by_category, nodes["bitset_idx"].astype(np.int64), -1)
    subsets = tuple(_codes(words) for words in member.raw_left_cat_bitsets)
    return OneTree(
        column=np.where(inner, nodes["feature_idx"].astype(np.int64), -1),
        threshold=np.where(inner & ~by_category, nodes["num_threshold"], np.nan),
        left=np.where(inner, nodes["left"].astype(np.int64), -1),
        right=np.where(inner, nodes["right"].astype(np.int64), -1),
        value=_placed(np.where(inner, 0.0, nodes["value"]), k, outputs),
        subset=subset,
        subsets=subsets,
        missing_left=nodes["missing_go_to_left"].astype(bool),
    )


def _codes(words: np.ndarray) -> np.ndarray:
    """Return the positions of the bits that are set in 32-bit words."""
    bits = np.unpackbits(np.asarray(words, dtype="<u4").view(np.uint8), bitorder="little")
    return np.flatnonzero(bits)


def _adaboost(model: Any) -> Forest:
    member = model.estimators_[0]
    if type(member).__name__ not in _SINGLE:
        raise UnsupportedError(
            f"AdaBoostClassifier of {type(member).__name__}: only decision trees can be read"
        )
    k = len(model.classes_)
    weights = np.asarray(model.estimator_weights_, dtype=np.float64)[: len(model.estimators_)]
    total, trees = weights.sum(), []
    for one, weight in zip(model.estimators_, weights, strict=True):
        votes = np.asarray(one.tree_.value[:, 0, :]).argmax(1)
        mine = np.zeros((len(votes), k))
        own = np.searchsorted(model.classes_, one.classes_)
        mine[np.arange(len(votes)), own[votes]] = 1.0
        scores = np.where(mine > 0, weight, -weight / (k - 1)) / total / (k - 1)
        trees.append(_grown(one.tree_, scores))
    return join(trees, base=np.zeros(k), operator="le32", link="softmax")
