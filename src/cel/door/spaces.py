"""Raw features in the coordinates of a model, with what the front door adds to them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import pandas as pd

from cel.models import WrappedModel
from cel.preprocessing import Encoding, companions, infer_space
from cel.space import ChangeLimit, FeatureSpace

__all__ = ["encoded_space", "raw_space", "seen_levels", "with_raw_rules"]


def raw_space(
    encoding: Encoding, space: FeatureSpace | None, table: Any, *, hard: bool
) -> FeatureSpace:
    """Return the raw features to be restricted: those given, or those that the model knows."""
    if encoding.pipeline is None:
        assert encoding.space is not None
        return space or encoding.space
    if space is None:
        return encoding.pipeline.raw_space_
    space = _in_order(space, encoding)
    return _held(space, table) if hard else space


def seen_levels(space: FeatureSpace, table: Any) -> FeatureSpace:
    """Return raw features whose labels go only where some background row has been."""
    if not isinstance(table, pd.DataFrame):
        return space
    features = []
    for f in space:
        dtype = table[f.name].dtype if f.name in table.columns else None
        if f.allowed is None and isinstance(dtype, pd.CategoricalDtype):
            present = set(table[f.name].dropna().unique().tolist())
            if present < set(f.categories):
                kept = tuple(c for c in f.categories if c in present)
                f = replace(f, allowed=kept)  # noqa: PLW2901
        features.append(f)
    return replace(space, features=tuple(features))


def encoded_space(
    known: Any, raw: FeatureSpace | None, max_changes: int | None
) -> FeatureSpace | None:
    """Return raw features in encoded coordinates, with a limit of changes."""
    encoding = Encoding.of(known)
    if raw is None or encoding.space is None:
        return encoding.space
    space = raw
    if encoding.pipeline is not None:
        space = encoding.pipeline.encode_space(raw)
        frozen = [f for r in raw if not r.mutable for f in companions(space, r.name)]
        space = space.with_changes(**{name: {"mutable": False} for name in frozen})
    if max_changes is None:
        return space
    return replace(space, limit=ChangeLimit(max_changes, _units(space, raw)))


def _units(space: FeatureSpace, raw: FeatureSpace) -> tuple[int, ...]:
    """Return the column of each encoded feature: a number and the flag of its gaps are one."""
    owner = {f: i for i, name in enumerate(raw.names) for f in companions(space, name)}
    return tuple(owner[name] for name in space.names)


def with_raw_rules(known: Any, raw: FeatureSpace) -> Any:
    """Return a model whose tables are held to the relations of other raw features."""
    if not isinstance(known, WrappedModel) or known.pipeline_ is None:
        return known
    pipeline = copy(known.pipeline_)
    pipeline.raw_space_ = replace(pipeline.raw_space_, constraints=raw.constraints)
    out = copy(known)
    out.encoding_ = replace(known.encoding_, pipeline=pipeline)
    out._decode = out._decoded
    return out


def _in_order(space: FeatureSpace, encoding: Encoding) -> FeatureSpace:
    """Return the raw features with the grids of their columns' digits."""
    assert encoding.pipeline is not None
    own = encoding.pipeline.raw_space_
    features = []
    for f in own:
        new = space[f.name]
        if new.kind == "continuous" and new.step is None:
            new = replace(new, step=f.step, anchor=f.anchor)
        features.append(new.at(f.columns))
    return FeatureSpace(tuple(features), space.constraints)


def _held(space: FeatureSpace, train: Any) -> FeatureSpace:
    """Make the ranges hard that are declared, not only observed."""
    if not isinstance(train, pd.DataFrame):
        return space
    present = [n for n in space.names if n in train.columns]
    observed = infer_space(train[present]) if present else space
    features = []
    for f in space:
        if f.name in present and f.kind in ("continuous", "integer"):
            seen = observed[f.name]
            f = replace(f, hard=f.hard or (f.lower, f.upper) != (seen.lower, seen.upper))  # noqa: PLW2901
        features.append(f)
    return FeatureSpace(tuple(features), space.constraints)
