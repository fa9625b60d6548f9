"""Boosters of LightGBM, XGBoost and CatBoost, read from the texts that they write themselves."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from cel.errors import UnsupportedError
from cel.models.trees.forest import Forest, Link, OneTree, join

__all__ = ["parse_catboost", "parse_lightgbm", "parse_xgboost"]

FLOAT32_SUMS = 5e-6  # XGBoost adds leaves in 32 bits


# -- LightGBM --------------------------------------------------------------------------------


def parse_lightgbm(model: Any) -> Forest:
    """Return the trees of a LightGBM booster or estimator."""
    booster = getattr(model, "booster_", model)
    head, *blocks = booster.model_to_string().split("\nTree=")
    about = dict(line.split("=", 1) for line in head.splitlines() if "=" in line)
    blocks = [b.split("\n\n", 1)[0] for b in blocks]
    outputs = int(about.get("num_tree_per_iteration", 1))
    objective = about.get("objective", "").split()
    link, factor = _lightgbm_link(objective, outputs)
    averaged = any(line.strip() == "average_output" for line in head.splitlines())
    rounds = max(len(blocks) // outputs, 1)
    factor = factor / rounds if averaged else factor
    binary = link == "softmax" and outputs == 1
    width = 2 if binary else outputs
    trees = [
        _lightgbm_tree(b, 1 if binary else i % outputs, width, factor)
        for i, b in enumerate(blocks)
    ]
    return join(trees, base=np.zeros(width), operator="le0", link=link)


def _lightgbm_link(objective: list[str], outputs: int) -> tuple[Link, float]:
    """Return what the sums are, and the factor that turns them into logits."""
    name = objective[0] if objective else ""
    options = dict(o.split(":", 1) for o in objective[1:] if ":" in o)
    if name in ("binary", "cross_entropy"):
        return "softmax", float(options.get("sigmoid", 1.0))
    if name == "multiclass":
        return "softmax", 1.0
    if name in ("regression", "regression_l1", "huber", "fair", "quantile", "mape") and not any(
        o == "sqrt" for o in objective[1:]
    ):
        return "identity", 1.0
    raise UnsupportedError(
        f"LightGBM objective {' '.join(objective)!r}: its predictions are no plain function of "
        "the sums of trees; use a method for black boxes"
    )


def _lightgbm_tree(text: str, k: int, outputs: int, factor: float) -> OneTree:
    lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if lines.get("is_linear", "0").strip() == "1":
        raise UnsupportedError("LightGBM with linear_tree=True: its leaves are no constants")

    def numbers(name: str, kind: Any) -> np.ndarray:
        return np.array(lines.get(name, "").split(), dtype=kind)

    leaves = numbers("leaf_value", np.float64)
    inner = len(leaves) - 1
    value = np.zeros((inner + len(leaves), outputs))
    value[inner:, k] = leaves * factor
    if inner == 0:
        none = np.array([-1])
        return OneTree(
            column=none, threshold=np.array([np.nan]), left=none, right=none, value=value,
            missing_left=np.zeros(1, dtype=bool),
        )  # fmt: skip
    decision = numbers("decision_type", np.int64)
    by_category = (decision & 1) == 1
    if ((decision >> 2) & 3 == 1).any():
        raise UnsupportedError(
            "LightGBM with zero_as_missing=True: zeros jump over thresholds; train without it"
        )
    threshold = numbers("threshold", np.float64)
    # a column that had no gaps in training takes them for zeros
    as_zero = ((decision >> 2) & 3 == 0) & ~by_category
    gap_left = np.where(as_zero, threshold >= 0, (decision & 2) == 2)
    pad = np.full(len(leaves), -1)
    children = [
        np.concatenate([_child(numbers(side, np.int64), inner), pad])
        for side in ("left_child", "right_child")
    ]
    return OneTree(
        column=np.concatenate([numbers("split_feature", np.int64), pad]),
        threshold=np.concatenate([np.where(by_category, np.nan, threshold), pad * np.nan]),
        left=children[0],
        right=children[1],
        value=value,
        subset=np.concatenate([np.where(by_category, threshold, -1).astype(np.int64), pad]),
        subsets=_lightgbm_subsets(numbers("cat_boundaries", np.int64), lines),
        missing_left=np.concatenate([gap_left, pad < -1]),
    )


def _child(child: np.ndarray, inner: int) -> np.ndarray:
    return np.where(child >= 0, child, inner + ~child)


def _lightgbm_subsets(ends: np.ndarray, lines: dict[str, str]) -> tuple[np.ndarray, ...]:
    if not len(ends):
        return ()
    words = np.array(lines["cat_threshold"].split(), dtype="<u4")
    return tuple(
        np.flatnonzero(np.unpackbits(words[a:b].view(np.uint8), bitorder="little"))
        for a, b in pairwise(ends.tolist())
    )


# -- XGBoost ---------------------------------------------------------------------------------


def parse_xgboost(model: Any) -> Forest:
    """Return the trees of an XGBoost booster or estimator."""
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    grown = learner["gradient_booster"]
    kind = grown["name"]
    weights = grown.get("weight_drop")
    if kind == "dart":
        grown = grown["gbtree"]
    elif kind != "gbtree":
        raise UnsupportedError(f"XGBoost booster {kind!r} has no trees; use a linear method")
    objective = learner["objective"]["name"]
    link = _xgboost_link(objective)
    classes = int(learner["learner_model_param"]["num_class"])
    outputs = max(classes, 1)
    binary = link == "softmax" and classes < 2
    width = 2 if binary else outputs
    documents = grown["model"]["trees"]
    info = grown["model"]["tree_info"]
    stop = _xgboost_rounds(model, booster, grown["model"], len(documents))
    trees = [
        _xgboost_tree(d, 1 if binary else int(k), width, 1.0 if weights is None else weights[i])
        for i, (d, k) in enumerate(zip(documents[:stop], info[:stop], strict=True))
    ]
    base = _xgboost_base(learner["learner_model_param"]["base_score"], objective, binary, width)
    return join(trees, base=base, operator="lt32", link=link, slack=FLOAT32_SUMS)


def _xgboost_link(objective: str) -> Link:
    if objective in ("binary:logistic", "multi:softprob", "multi:softmax"):
        return "softmax"
    if objective in ("reg:squarederror", "reg:absoluteerror", "reg:pseudohubererror",
                     "reg:quantileerror"):  # fmt: skip
        return "identity"
    raise UnsupportedError(
        f"XGBoost objective {objective!r}: its predictions are no plain function of the sums of "
        "trees; use a method for black boxes"
    )


def _xgboost_rounds(model: Any, booster: Any, grown: dict[str, Any], trees: int) -> int:
    """Estimators that stopped early predict with their best round."""
    best = getattr(booster, "best_iteration", None) if hasattr(model, "get_booster") else None
    stopped = getattr(model, "early_stopping_rounds", None)
    if best is None or stopped is None:
        return trees
    ends = grown.get("iteration_indptr")
    return int(ends[int(best) + 1]) if ends else trees


def _xgboost_base(text: str, objective: str, binary: bool, width: int) -> np.ndarray:
    given = np.atleast_1d(np.array(json.loads(text), dtype=np.float64))
    if objective == "binary:logistic":
        given = np.log(given / (1 - given))
    if binary:
        return np.array([0.0, given[0]])
    return np.array(np.broadcast_to(given, width))


def _xgboost_tree(d: dict[str, Any], k: int, outputs: int, weight: float) -> OneTree:
    if int(d["tree_param"].get("size_leaf_vector", 1) or 1) > 1:
        raise UnsupportedError("XGBoost with multi_strategy='multi_output_tree': not supported")
    left, right = np.array(d["left_children"]), np.array(d["right_children"])
    inner = left >= 0
    condition = np.array(d["split_conditions"], dtype=np.float64)
    by_category = inner & (np.array(d.get("split_type", [0] * len(left))) == 1)
    value = np.zeros((len(left), outputs))
    value[~inner, k] = condition[~inner] * weight
    column = np.where(inner, np.array(d["split_indices"]), -1)
    subset = np.full(len(left), -1)
    subsets: list[np.ndarray] = []
    for node, start, size in zip(
        d.get("categories_nodes", []), d.get("categories_segments", []),
        d.get("categories_sizes", []), strict=True,
    ):  # fmt: skip
        subset[node] = len(subsets)
        subsets.append(np.array(d["categories"][start : start + size], dtype=np.int64))
    # The codes that XGBoost lists go right: the children change places.
    swapped = subset >= 0
    return OneTree(
        column=column,
        threshold=np.where(inner & ~by_category, condition, np.nan),
        left=np.where(swapped, right, left),
        right=np.where(swapped, left, right),
        value=value,
        subset=subset,
        subsets=tuple(subsets),
        missing_left=np.array(d["default_left"], dtype=bool) ^ swapped,
    )


# -- CatBoost --------------------------------------------------------------------------------


def parse_catboost(model: Any) -> Forest:
    """Return the symmetric trees of a CatBoost model that splits numbers only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        document = json.loads(path.read_text())
    if "oblivious_trees" not in document:
        raise UnsupportedError(
            "CatBoost with a grow_policy other than SymmetricTree: its trees cannot be read"
        )
    scale, bias = document["scale_and_bias"]
    bias = np.atleast_1d(np.array(bias, dtype=np.float64))
    link, factor = _catboost_link(document)
    outputs = len(bias)
    binary = link == "softmax" and outputs == 1
    width = 2 if binary else outputs
    features = document["features_info"].get("float_features", [])
    trees = [
        _catboost_tree(t, features, outputs, width, binary, scale * factor)
        for t in document["oblivious_trees"]
    ]
    base = np.array([0.0, factor * bias[0]]) if binary else factor * bias
    return join(trees, base=base, operator="le32", link=link)


def _catboost_link(document: dict[str, Any]) -> tuple[Link, float]:
    options = document["model_info"]["params"]["loss_function"]
    name = options["type"] if isinstance(options, dict) else str(options)
    if name in ("Logloss", "CrossEntropy", "MultiClass"):
        return "softmax", 1.0
    if name in ("RMSE", "MAE", "Quantile", "Huber", "LogCosh", "MAPE", "Expectile"):
        return "identity", 1.0
    raise UnsupportedError(
        f"CatBoost loss {name!r}: its predictions are no plain function of the sums of trees; "
        "use a method for black boxes"
    )


def _catboost_tree(
    tree: dict[str, Any],
    features: list[dict[str, Any]],
    outputs: int,
    width: int,
    binary: bool,
    scale: float,
) -> OneTree:
    """Write a symmetric tree as a full binary one: level i asks split depth - 1 - i."""
    splits = tree.get("splits") or []
    for s in splits:
        if s["split_type"] != "FloatFeature":
            raise UnsupportedError(
                f"CatBoost split {s['split_type']!r}: statistics of categories (CTR) cannot be "
                "searched; train on one-hot columns, or use a method for black boxes"
            )
    depth = len(splits)
    inner = 2**depth - 1
    at = np.arange(inner)
    level = np.floor(np.log2(at + 1)).astype(np.int64)
    asked = splits[::-1]
    of = [features[s["float_feature_index"]] for s in asked]
    column = np.array([f["flat_feature_index"] for f in of], dtype=np.int64)
    border = np.array([s["border"] for s in asked], dtype=np.float64)
    # only "AsTrue" puts gaps above every border; columns without gaps in training are "AsIs"
    gap_left = np.array([f.get("nan_value_treatment") != "AsTrue" for f in of], dtype=bool)
    leaves = np.array(tree["leaf_values"], dtype=np.float64).reshape(2**depth, outputs) * scale
    value = np.zeros((inner + 2**depth, width))
    value[inner:, 1 if binary else 0 : width] = leaves
    pad = np.full(2**depth, -1)
    return OneTree(
        column=np.concatenate([column[level], pad]),
        threshold=np.concatenate([border[level], pad * np.nan]),
        left=np.concatenate([2 * at + 1, pad]),
        right=np.concatenate([2 * at + 2, pad]),
        value=value,
        missing_left=np.concatenate([gap_left[level], pad < -1]),
    )
