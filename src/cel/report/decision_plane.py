"""What a model decides over a plane, for datasets with two numeric features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cel.benchmark import Block, Store
from cel.errors import CelError
from cel.protocols import Task
from cel.result import ExplanationResult

__all__ = ["decision_map"]

CELLS = 64  # along each axis
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def decision_map(
    store: Store, block: Block, results: Mapping[str, ExplanationResult]
) -> dict[str, Any] | None:
    """Return the predicted class over a grid around the rows and their counterfactuals.

    None unless the space is two numbers, the task classification, and the model can be read.

    Returns:
        `x` and `y` as [low, high] in original units, `classes`, and `cells`: one character per
        cell, row by row from low to high y.
    """
    first = next(iter(results.values()))
    space, target = first.space, first.target
    flat = space.width == 2 and all(len(f.columns) == 1 and not f.categories for f in space)
    if not flat or block.task is not Task.CLASSIFICATION or target is None:
        return None
    path = store.folder("predictor", block.predictor_key) / "model.safetensors"
    if not path.exists():
        return None
    from cel.models import load_model

    try:
        model: Any = load_model(path)
    except (CelError, OSError, ValueError, KeyError):
        return None  # the picture is left out; `cel run` repairs the file
    points = np.concatenate([np.concatenate([r.x_origs, r.x_cfs]) for r in results.values()])
    points = points[~np.isnan(points).any(1)]
    low, high = points.min(0), points.max(0)
    pad = 0.06 * np.maximum(high - low, 1e-6)
    axes = [np.linspace(a, b, CELLS) for a, b in zip(low - pad, high + pad, strict=True)]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2).astype(np.float32)
    classes = np.asarray(model.predict_proba(grid)).argmax(1)
    ends = first.decode(grid[[0, -1]]).to_numpy(dtype=float)
    labels = [str(v) for v in target.decode(np.arange(classes.max() + 1))]
    return {
        "x": [float(f"{v:.5g}") for v in ends[:, 0]],
        "y": [float(f"{v:.5g}") for v in ends[:, 1]],
        "size": CELLS,
        "classes": labels,
        "cells": "".join(DIGITS[min(c, len(DIGITS) - 1)] for c in classes),
    }
