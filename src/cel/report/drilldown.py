"""Single rows: what each method changed for the same person, in original units."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cel.benchmark import Block, Plan, Store
from cel.benchmark.ranking import short
from cel.errors import CelError
from cel.protocols import Task
from cel.result import ExplanationResult
from cel.space.distances import changed_features

__all__ = ["Sample", "encode_samples", "stored_results", "take_sample"]

ROWS = 25  # per cell
CHANGES = 40  # shown per row; pixels of an image can all change


@dataclass(frozen=True)
class Sample:
    """The first explained rows of every method on one (dataset, model)."""

    dataset: str
    model: str
    fold: int
    results: Mapping[str, ExplanationResult] = field(default_factory=dict)
    boundary: dict[str, Any] | None = None

    def with_boundary(self, boundary: dict[str, Any] | None) -> Sample:
        """Return the sample with a map of the model's decisions."""
        return replace(self, boundary=boundary)

    def with_results(self, other: Sample) -> Sample:
        """Return the sample with the methods of another run of the same rows besides."""
        return replace(self, results={**other.results, **self.results})


def stored_results(
    store: Store, plan: Plan
) -> Iterator[tuple[Block, dict[str, ExplanationResult]]]:
    """Give each block with the stored results of its methods; unreadable ones are left out."""
    for block in plan.blocks:
        found = {}
        for cell in block.cells:
            path = store.folder("explain", cell.explain_key) / "result.parquet"
            if not store.sound("explain", cell.explain_key):
                continue
            try:
                found[cell.method.label] = ExplanationResult.from_parquet(path)
            except (CelError, OSError, ValueError, KeyError):
                continue  # scores stand on their own; `cel run` repairs the file
        yield block, found


def take_sample(
    block: Block, results: Mapping[str, ExplanationResult], limit: int = ROWS
) -> Sample:
    """Keep the first `limit` explained rows of each method."""
    kept = {m: r.select(np.flatnonzero(r.explained)[:limit]) for m, r in results.items()}
    return Sample(block.dataset, block.model, block.fold, kept)


def encode_samples(samples: list[Sample], *, budget: int = 5_000_000) -> list[dict[str, Any]]:
    """Return the samples as JSON values of at most about `budget` characters.

    When all rows do not fit, every cell shows fewer.
    """
    limit = ROWS
    while True:
        out = [_encode(s, limit) for s in samples]
        size = len(json.dumps(out))
        if size <= budget or limit == 1:
            return out
        limit = max(1, min(limit - 1, int(limit * budget / size)))


def _encode(sample: Sample, limit: int) -> dict[str, Any]:
    """Return originals once, and per method what became of them.

    `rows` are positions in `ids`; a change is [position of the feature, new value].
    """
    place: dict[Any, int] = {}
    originals: list[list[Any]] = []
    methods, features = {}, list[str]()
    for label, whole in sample.results.items():
        result = whole.select(slice(0, limit))
        keys = result.source_ids.tolist()
        new = [i for i, key in enumerate(keys) if key not in place]
        if new or not features:  # most methods are asked about the same rows
            before = result.decode(result.x_origs[new])
            features = [str(c) for c in before.columns]
            for i, line in zip(new, _values(before), strict=True):
                if keys[i] not in place:
                    place[keys[i]] = len(originals)
                    originals.append(line)
        changes, hidden = _changes(result, features)
        methods[label] = {
            "rows": [place[k] for k in keys],
            "status": [str(s) for s in result.status],
            "before": _outcomes(result, result.y_origs),
            "target": _outcomes(result, result.y_cf_targets),
            "after": _outcomes(result, result.y_cfs),
            "changes": changes,
            "hidden": hidden,
        }
    return {
        "dataset": sample.dataset, "model": sample.model, "fold": sample.fold,
        "features": features, "ids": [str(k) for k in place], "originals": originals,
        "methods": methods,
        **({"boundary": sample.boundary} if sample.boundary else {}),
    }  # fmt: skip


def _changes(
    result: ExplanationResult, features: list[str]
) -> tuple[list[list[list[Any]]], list[int]]:
    """Per row the changed features with their new values, and how many are not shown."""
    rows = np.flatnonzero(result.has_candidate)
    out: list[list[list[Any]]] = [[] for _ in range(len(result))]
    hidden = [0] * len(result)
    if not len(rows):
        return out, hidden
    after = _values(result.decode(result.x_cfs[rows]))
    moved = changed_features(result.x_origs[rows], result.x_cfs[rows], result.space)
    column = {name: i for i, name in enumerate(features)}
    names = [column.get(n, -1) for n in result.space.names]
    for i, feature in zip(*np.nonzero(moved), strict=True):
        row, place = int(rows[i]), names[feature]
        if place >= 0 and len(out[row]) < CHANGES:
            out[row].append([place, after[i][place]])
        else:
            hidden[row] += 1
    return out, hidden


def _values(frame: pd.DataFrame) -> list[list[Any]]:
    """Rows of a table as JSON values; numbers get five digits."""
    columns = [_column(frame[c]) for c in frame.columns]
    return [list(line) for line in zip(*columns, strict=True)]


def _column(values: pd.Series) -> list[Any]:
    if pd.api.types.is_bool_dtype(values) or not pd.api.types.is_numeric_dtype(values):
        return [None if pd.isna(v) else str(v) for v in values]
    if pd.api.types.is_integer_dtype(values):
        return [int(v) for v in values]
    return [short(v) for v in values.to_numpy(dtype=float)]


def _outcomes(result: ExplanationResult, y: np.ndarray) -> list[str]:
    """Labels, or numbers in original units; "" where there is none."""
    target = result.target
    if result.task is Task.CLASSIFICATION:
        known = np.asarray(y) >= 0
        labels = np.asarray(y).astype(object)
        if target is not None:
            labels = target.decode(np.where(known, y, 0))
        return [str(v) if k else "" for v, k in zip(labels, known, strict=True)]
    values = np.asarray(y, dtype=float).reshape(len(y), -1)
    values = values if target is None else target.decode(values)
    return [", ".join(f"{v:.4g}" for v in line if np.isfinite(v)) for line in values]
