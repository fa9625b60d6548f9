"""The columns of a feature space as tensors, ready for batched work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.space.constraints import LinearRelation
from cel.space.feature_space import FeatureSpace

__all__ = ["TOLERANCE", "Layout", "Switches", "by_feature"]

NARROW = 16  # categories; sorting more than that takes another way
TOLERANCE = 1e-6  # of the size of a column


@dataclass(frozen=True)
class Switches:
    """One-hot blocks that may change at all; h blocks of at most l categories."""

    blocks: Tensor  # (h, l) columns of each block, padded with its first column
    real: Tensor  # (h, l) bool: not padding
    place: Tensor  # (d,) where a column is in the flat blocks, 0 for all others
    block: Tensor  # (d,) block of a column, 0 for all others
    columns: Tensor  # (d,) bool: columns of these blocks
    which: Tensor  # (c,) the same as numbers
    rank: Tensor  # (h, l) the columns of each block among these
    owner: Tensor  # (c,) block of each of them


@dataclass(frozen=True)
class Layout:
    """Column-wise tensors of a space; d columns, p features, g one-hot blocks of at most k."""

    owner: Tensor  # (d,) feature of each column
    numeric: Tensor  # (d,) bool
    lower: Tensor  # (d,)
    upper: Tensor  # (d,)
    up: Tensor  # (d,) bool: may only rise
    down: Tensor  # (d,) bool: may only fall
    mutable: Tensor  # (d,) bool
    step: Tensor  # (d,) grid width, 0 where there is none
    anchor: Tensor  # (d,)
    reachable: Tensor  # (d,) bool: category may be reached
    blocks: Tensor  # (g, k) columns of each one-hot block, padded with its first column
    real: Tensor  # (g, k) bool: not padding
    place: Tensor  # (d,) where a one-hot column is in the flat blocks, 0 for numbers
    relations: Tensor  # (r, d) coefficients
    bounds: Tensor  # (r,)
    tolerance: Tensor  # (d,) differences below this count as none
    ranks: tuple[tuple[int, Tensor], ...]  # (column, reachable values) of restricted ordinals

    @classmethod
    def of(cls, space: FeatureSpace, like: Tensor) -> Layout:
        """Build the tensors on the device and with the dtype of `like`."""
        real: dict[str, Any] = {"dtype": like.dtype, "device": like.device}
        flag: dict[str, Any] = {"dtype": torch.bool, "device": like.device}
        owner = torch.as_tensor(space.owner, device=like.device)
        numeric = torch.zeros(space.width, **flag)
        numeric[torch.as_tensor(space.numeric_columns, device=like.device)] = True
        reachable = torch.ones(space.width, **flag)
        for f in space.one_hot_features:
            reachable[list(f.columns)] = torch.tensor(f.allowed_mask, **flag)
        steps = [f.step or 0.0 for f in space]
        lower, upper = (torch.as_tensor(space.vector(a), **real) for a in ("lower", "upper"))
        blocks, padding = _blocks(space, like.device)
        relations, bounds = _relations(space, like)
        return cls(
            owner=owner,
            numeric=numeric,
            lower=torch.where(numeric, lower, torch.zeros_like(lower)),
            upper=torch.where(numeric, upper, torch.ones_like(upper)),
            up=torch.tensor([f.direction == "up" for f in space], **flag)[owner],
            down=torch.tensor([f.direction == "down" for f in space], **flag)[owner],
            mutable=torch.tensor([f.can_act for f in space], **flag)[owner],
            step=torch.tensor(steps, **real)[owner],
            anchor=torch.as_tensor(space.vector("anchor"), **real),
            reachable=reachable,
            blocks=blocks,
            real=padding,
            place=_place(space, like.device),
            relations=relations,
            bounds=bounds,
            tolerance=_tolerance(space, like),
            ranks=_ranks(space, like),
        )

    @cached_property
    def has_grid(self) -> bool:
        """Whether any number is rounded to something."""
        return bool((self.step > 0).any()) or bool(self.ranks)

    @cached_property
    def by_width(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """One-hot blocks of up to 16 categories, and wider ones: (numbers, (h, l) columns).

        Few values are sorted much faster, and are not padded to the width of the largest block.
        """
        size = self.real.sum(1)
        parts = [p.nonzero()[:, 0] for p in (size <= NARROW, size > NARROW)]
        return tuple((p, self.blocks[p][:, : int(size[p].max())]) for p in parts if len(p))

    @cached_property
    def place_by_width(self) -> Tensor:
        """(d,) where a one-hot column is in the flat blocks of `by_width`, 0 for numbers."""
        place, start = torch.zeros_like(self.place), 0
        for part, columns in self.by_width:
            at = torch.arange(columns.numel(), device=columns.device).reshape(columns.shape)
            real = self.real[part][:, : columns.shape[1]]
            place[columns[real]] = start + at[real]
            start += columns.numel()
        return place

    @cached_property
    def switches(self) -> Switches:
        """The blocks that may change: what is fixed for everybody costs nothing there."""
        which = self.mutable[self.blocks[:, 0]] if self.blocks.numel() else self.real.any(1)
        real = self.real[which]
        width = int(real.sum(1).max()) if len(real) else 0
        blocks, real = self.blocks[which][:, :width], real[:, :width]
        flat = torch.arange(blocks.numel(), device=blocks.device).reshape(blocks.shape)
        place = torch.zeros_like(self.place)
        place[blocks[real]] = flat[real]
        columns = torch.zeros_like(self.numeric)
        columns[blocks[real]] = True
        block = torch.where(columns, place // max(width, 1), 0)
        rank = (columns.cumsum(0) - 1)[blocks]
        return Switches(
            blocks=blocks, real=real, place=place, block=block, columns=columns,
            which=columns.nonzero()[:, 0], rank=rank, owner=block[columns],
        )  # fmt: skip


def _blocks(space: FeatureSpace, device: torch.device) -> tuple[Tensor, Tensor]:
    groups = [f.columns for f in space.one_hot_features]
    width = max((len(g) for g in groups), default=0)
    columns = [list(g) + [g[0]] * (width - len(g)) for g in groups]
    real = [[True] * len(g) + [False] * (width - len(g)) for g in groups]
    shape = (len(groups), width)
    return (
        torch.tensor(columns, dtype=torch.long, device=device).reshape(shape),
        torch.tensor(real, dtype=torch.bool, device=device).reshape(shape),
    )


def _place(space: FeatureSpace, device: torch.device) -> Tensor:
    width = max((len(f.columns) for f in space.one_hot_features), default=0)
    place = torch.zeros(space.width, dtype=torch.long)
    for i, f in enumerate(space.one_hot_features):
        place[list(f.columns)] = width * i + torch.arange(len(f.columns))
    return place.to(device)


def _relations(space: FeatureSpace, like: Tensor) -> tuple[Tensor, Tensor]:
    relations = [c for c in space.constraints if isinstance(c, LinearRelation)]
    matrix = torch.zeros(len(relations), space.width, dtype=like.dtype, device=like.device)
    for i, relation in enumerate(relations):
        for name, coefficient in relation.terms:
            matrix[i, space[name].columns[0]] += coefficient
    bounds = torch.tensor([r.bound for r in relations], dtype=like.dtype, device=like.device)
    return matrix, bounds


def _tolerance(space: FeatureSpace, like: Tensor) -> Tensor:
    """Return TOLERANCE of the size of each column, which is what 32-bit values can hold."""
    bounds = np.stack([space.vector("lower"), space.vector("upper")])
    size = np.abs(np.where(np.isfinite(bounds), bounds, 0.0)).max(0)
    return torch.as_tensor(TOLERANCE * np.maximum(size, 1.0), dtype=like.dtype, device=like.device)


def _ranks(space: FeatureSpace, like: Tensor) -> tuple[tuple[int, Tensor], ...]:
    out = []
    for f in space:
        if f.kind == "ordinal" and f.allowed is not None:
            ranks = [r for r, reachable in enumerate(f.allowed_mask) if reachable]
            values = [f.anchor + (f.step or 1.0) * r for r in ranks]
            out.append((f.columns[0], torch.tensor(values, dtype=like.dtype, device=like.device)))
    return tuple(out)


def by_feature(values: Tensor, owner: Tensor, count: int) -> Tensor:
    """Add values of columns up to values of features; flags count as 1.

    Args:
        values: (..., d) numbers or flags.
        owner: (d,) feature of each column.
        count: number p of features.

    >>> by_feature(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([0, 1, 1]), 2)
    tensor([[1., 6.]])
    """
    if not values.is_floating_point():
        values = values.to(torch.float32)
    out = torch.zeros(*values.shape[:-1], count, dtype=values.dtype, device=values.device)
    return out.index_add_(values.dim() - 1, owner, values)
