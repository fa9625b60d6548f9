"""The feasible set around each row: box x simplices, grids and constraints between features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from cel.errors import ConfigError, DataError
from cel.space._arrays import array_in_array_out, to_tensor
from cel.space.feature_space import FeatureSpace
from cel.space.layout import TOLERANCE, Layout, by_feature
from cel.space.ranks import forbidden_ranks, snap_ranks
from cel.space.rules import Rules
from cel.space.simplex import project_simplex

__all__ = ["Region"]


@dataclass(frozen=True, eq=False)
class Region:
    """Where each row may go. The row itself is always inside.

    Bounds, directions and constraints that the row breaks already are widened just so far that
    the row fits: nobody is asked to repair what they did not choose.

    Attributes:
        space: the features.
        origin: (n, d) rows.
        lower: (n, d) smallest values.
        upper: (n, d) largest values.
        reachable: (n, d) bool, whether a one-hot column may be switched on.
        layout: column-wise tensors of the space.

    >>> space = FeatureSpace.continuous(2)
    >>> space.region(torch.tensor([[0.5, 0.5]])).project(torch.tensor([[2.0, 0.3]]))
    tensor([[1.0000, 0.3000]])
    """

    space: FeatureSpace
    origin: Tensor
    lower: Tensor
    upper: Tensor
    reachable: Tensor
    layout: Layout

    @classmethod
    def around(cls, space: FeatureSpace, origin: Any) -> Region:
        """Build the region of each row of `origin` (n, d); arrays and tensors are welcome."""
        x = to_tensor(origin)
        if x.ndim != 2 or x.shape[1] != space.width:
            raise DataError(f"expected rows of {space.width} columns, got shape {tuple(x.shape)}")
        for f in space.categorical_features:
            if not f.one_hot:
                raise ConfigError(
                    f"categorical feature {f.name!r} is not one-hot; a region needs encoded rows"
                )
        lay = Layout.of(space, x)
        lower = torch.minimum(lay.lower, x)
        upper = torch.maximum(lay.upper, x)
        lower = torch.where(lay.up | ~lay.mutable, x, lower)
        upper = torch.where(lay.down | ~lay.mutable, x, upper)
        reachable = (lay.reachable & lay.mutable) | (x > 0.5)
        return cls(space, x, lower, upper, reachable, lay)

    def __len__(self) -> int:
        return len(self.origin)

    @cached_property
    def _rules(self) -> Rules:
        return Rules(self.space, self.layout, self.origin)

    @cached_property
    def fixed(self) -> Tensor:
        """(n, d) bool, whether a column cannot move."""
        lay, can = self.layout, self.layout.switches
        fixed = (self.lower >= self.upper) | ~lay.numeric
        if can.blocks.numel():
            stuck = self._allowed.sum(-1) <= 1  # (n, h)
            fixed = torch.where(can.columns, stuck.index_select(1, can.block), fixed)
        return fixed

    @cached_property
    def _any_fixed(self) -> bool:
        return bool(self.fixed.any())

    @cached_property
    def any_category(self) -> bool:
        """Whether every row has a category in each block and may have any other one."""
        soft = ~self.layout.numeric
        if not bool(soft.any()):
            return True
        free = self.reachable[:, soft].all() & ~self.fixed[:, soft].any()
        return bool(free) and bool(self._present.any(-1).all())

    def freeze(self, features: Any) -> Region:
        """Fix features at the origin; `features` is a bool mask of shape (p,) or (n, p)."""
        mask = torch.as_tensor(features, dtype=torch.bool, device=self.origin.device)
        columns = mask.expand(len(self), len(self.space))[:, self.layout.owner]
        return replace(
            self,
            lower=torch.where(columns, self.origin, self.lower),
            upper=torch.where(columns, self.origin, self.upper),
            reachable=torch.where(columns, self.origin > 0.5, self.reachable),
        )

    def select(self, rows: Any) -> Region:
        """Return the region of some rows, given as indices or a mask; indices may repeat.

        What is known of these rows need not be worked out again.
        """
        names = ("origin", "lower", "upper", "reachable")
        out = replace(self, **{n: getattr(self, n)[rows] for n in names})
        known, own = self.__dict__, out.__dict__
        if "fixed" in known:
            own["fixed"] = self.fixed[rows]
        if known.get("_shut") is not None:
            own["_shut"] = known["_shut"][:, rows]
        return out

    @array_in_array_out
    def project(self, x: Any) -> Any:
        """Return the nearest point of box x simplices, shape (n, d).

        Blocks are independent, so projecting each one is the exact Euclidean projection. Grids and
        constraints between features are left to `snap`.
        """
        x = to_tensor(x, self.origin)
        lay = self.layout
        out = torch.minimum(torch.maximum(x, self.lower), self.upper)
        if lay.blocks.numel():
            out = torch.where(lay.numeric, out, self._simplices(x))
        return torch.where(self.fixed, self.origin, out) if self._any_fixed else out

    @array_in_array_out
    def snap(self, x: Any) -> Any:
        """Return a decodable point of the region near `x`: categories, grids, constraints kept."""
        x = to_tensor(x, self.origin)
        numbers = self._snap_numbers(x)
        if self.layout.blocks.numel():
            numbers = torch.where(self.layout.numeric, numbers, self._snap_categories(x))
        x = torch.where(self.fixed, self.origin, numbers) if self._any_fixed else numbers
        if self.space.constraints:
            x = self._rules.give_back(self._snap_relations(x))
        if self.space.limit is None:
            return x
        few = self._keep_largest(x, self.space.limit.most)
        return self._rules.give_back(few) if self.space.constraints else few

    @array_in_array_out
    def contains(self, x: Any) -> Any:
        """Tell for each row whether `x` (n, d) is decodable and feasible, shape (n,)."""
        x = to_tensor(x, self.origin)
        broken = torch.stack(list(self.violations(x).values())).sum(0)
        return (broken == 0) & x.isfinite().all(-1)

    @array_in_array_out
    def keeps_rules(self, x: Any) -> Any:
        """Tell for each row of `x` (n, d) whether constraints between features hold, (n,)."""
        x = to_tensor(x, self.origin)
        if not self.space.constraints:
            return torch.ones_like(x[:, 0], dtype=torch.bool)
        return ~self._rules.broken(x).any(-1)

    @array_in_array_out
    def violations(self, x: Any) -> Any:
        """Count the violations of each row by kind, each of shape (n,).

        The kinds are immutable, direction, bound, category, integer and relation, and changes
        where their number is limited.
        """
        x = to_tensor(x, self.origin)
        lay, tol = self.layout, self.layout.tolerance
        moved = (x - self.origin).abs() > tol
        free = moved & lay.numeric & lay.mutable
        wrong_way = free & torch.where(x < self.origin, lay.up, lay.down)
        outside = free & (
            (x < torch.minimum(lay.lower, self.origin) - tol)
            | (x > torch.maximum(lay.upper, self.origin) + tol)
        )
        # What leaves the box of this row for neither reason has been frozen.
        frozen = free & ((x < self.lower - tol) | (x > self.upper + tol)) & ~wrong_way & ~outside
        grid = self._nearest_grid(x)
        bad_blocks, frozen_blocks = self._broken_blocks(x)
        few = {}
        if self.space.limit is not None:
            few["changes"] = (self.changed_units(x) - self.space.limit.most).clamp(min=0)
        return few | {
            "immutable": self._count_features(frozen | (moved & ~lay.mutable)) + frozen_blocks,
            "direction": wrong_way.sum(-1),
            "bound": outside.sum(-1),
            "category": bad_blocks + (forbidden_ranks(lay, grid) & free).sum(-1),
            "integer": (((grid - x).abs() > tol) & free).sum(-1),
            "relation": self._rules.broken(x).sum(-1),
        }

    def _simplices(self, x: Tensor) -> Tensor:
        """(n, d) the projections of all blocks; columns that are in none mean nothing."""
        lay = self.layout
        parts = [
            project_simplex(_in_blocks(x, columns), open_).flatten(1)
            for (_, columns), open_ in zip(lay.by_width, self._open, strict=True)
        ]
        blocks = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return blocks.index_select(1, lay.place_by_width)

    # -- how many ----------------------------------------------------------------------------

    @array_in_array_out
    def changed_units(self, x: Any) -> Any:
        """Count what changed in each row of `x` (n, d), as the limit of changes counts, (n,)."""
        x = to_tensor(x, self.origin)
        return (self._unit_moves(x) > 0).sum(-1)

    def _unit_moves(self, x: Tensor) -> Tensor:
        """(n, u) how far each unit of change moved, in the coordinates of the space."""
        away = (x - self.origin).abs()
        away = torch.where(away > self.layout.tolerance, away, torch.zeros_like(away))
        units = torch.as_tensor(self.space.change_units, device=x.device)[self.layout.owner]
        out = torch.zeros(len(x), int(units.max()) + 1, dtype=x.dtype, device=x.device)
        return out.index_add_(1, units, away)

    def _keep_largest(self, x: Tensor, most: int) -> Tensor:
        """Give back all but the largest changes of each row."""
        moves = self._unit_moves(x)
        if moves.shape[1] <= most:
            return x
        kept = torch.zeros_like(moves, dtype=torch.bool)
        kept.scatter_(1, moves.topk(most, dim=1).indices, True)
        units = torch.as_tensor(self.space.change_units, device=x.device)[self.layout.owner]
        return torch.where(kept[:, units], x, self.origin)

    # -- numbers -----------------------------------------------------------------------------

    def _snap_relations(self, x: Tensor) -> Tensor:
        """Repair numbers in broken relations: nearest point, then rounding to the safe side."""
        at = self._rules.broken_relations(x).any(1).nonzero()[:, 0]
        if not len(at):
            return x
        if len(at) == len(x):
            return self._repaired(x, self._rules)
        x[at] = self.select(at)._repaired(x[at], self._rules.select(at))
        return x

    def _repaired(self, x: Tensor, rules: Rules) -> Tensor:
        lay = self.layout
        near = rules.pull(x, self.lower, self.upper)
        snapped = torch.where(lay.numeric, self._snap_numbers(near), x)
        safe = near + 0.499 * lay.step * rules.lean(snapped)
        return torch.where(lay.numeric, self._snap_numbers(safe), snapped)

    def _nearest_grid(self, x: Tensor) -> Tensor:
        lay = self.layout
        step = torch.where(lay.step > 0, lay.step, torch.ones_like(lay.step))
        return torch.where(lay.step > 0, lay.anchor + step * ((x - lay.anchor) / step).round(), x)

    def _snap_numbers(self, x: Tensor) -> Tensor:
        lay, tol = self.layout, self.layout.tolerance
        inside = torch.minimum(torch.maximum(x, self.lower), self.upper)
        if not lay.has_grid:
            return inside
        grid = self._nearest_grid(inside)
        # Rounding may leave the box by less than a step: take the grid point on the other side.
        grid = torch.where(grid > self.upper + tol, grid - lay.step, grid)
        grid = torch.where(grid < self.lower - tol, grid + lay.step, grid)
        outside = (grid > self.upper + tol) | (grid < self.lower - tol)
        home = outside | ((grid - self.origin).abs() <= tol) | (inside == self.origin)
        return snap_ranks(self, inside, torch.where((lay.step > 0) & home, self.origin, grid))

    # -- categories --------------------------------------------------------------------------

    def _to_columns(self, blocks: Tensor) -> Tensor:
        """(n, h, l) -> (n, d); columns that are in no block that may change mean nothing."""
        return blocks.flatten(1).index_select(1, self.layout.switches.place)

    @cached_property
    def _allowed(self) -> Tensor:
        """(n, h, l) bool, categories that may be switched on."""
        can = self.layout.switches
        return _in_blocks(self.reachable, can.blocks) & can.real

    @cached_property
    def _present(self) -> Tensor:
        """(n, h, l) bool, the categories of the origin."""
        can = self.layout.switches
        return (_in_blocks(self.origin, can.blocks) > 0.5) & can.real

    @cached_property
    def _open(self) -> list[Tensor]:
        """(n, h, l) bool: what is allowed in blocks, and their first column if nothing is.

        `fixed` closes that one again.
        """
        out = []
        for part, columns in self.layout.by_width:
            real = self.layout.real[part][:, : columns.shape[1]]
            allowed = _in_blocks(self.reachable, columns) & real
            allowed[..., 0] |= ~allowed.any(-1)
            out.append(allowed)
        return out

    def _snap_categories(self, x: Tensor) -> Tensor:
        if not self.layout.switches.blocks.numel():
            return x
        hard = self._largest(x)
        return self._chosen(x) if hard is None else hard

    @cached_property
    def _shut(self) -> Tensor | None:
        """(c, n) what is added to categories that may not be had; None if a row has none."""
        can = self.layout.switches
        if not bool(self._present.any(-1).all()):
            return None
        return -1e30 * (~self.reachable.index_select(1, can.which)).T.to(self.origin)

    def _largest(self, x: Tensor) -> Tensor | None:
        """Return `_chosen` by arithmetic alone; None where a block has no single largest value."""
        can, shut = self.layout.switches, self._shut
        if shut is None:
            return None
        value = x.index_select(1, can.which).T + shut
        top = value.index_select(0, can.rank.flatten()).reshape(*can.rank.shape, -1).amax(1)
        hard = (value - top.index_select(0, can.owner)).sign_().add_(1.0)
        if float(hard.sum()) != top.numel():  # not a number counts as a tie
            return None
        return self.origin.index_copy(1, can.which, hard.T)

    def _chosen(self, x: Tensor) -> Tensor:
        """Return rows (n, d) with the largest category of each block; ties go to the present."""
        can = self.layout.switches
        value, present = _in_blocks(x, can.blocks), self._present
        score = value.masked_fill(~self._allowed, torch.finfo(x.dtype).min)
        best, choice = score.max(-1, keepdim=True)
        stay = (present & (score >= best)).any(-1, keepdim=True)
        choice = torch.where(stay, present.to(torch.uint8).argmax(-1, keepdim=True), choice)
        hard = torch.zeros_like(value).scatter_(-1, choice, 1.0)
        unknown = ~present.any(-1)
        if bool(unknown.any()):
            unknown = unknown & (value.abs() * can.real < TOLERANCE).all(-1)
            hard = hard.masked_fill(unknown[..., None], 0.0)
        return torch.where(can.columns, self._to_columns(hard), self.origin)

    def _broken_blocks(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Count the mutable blocks of each row that are no reachable category, and frozen ones."""
        can = self.layout.switches
        if not can.blocks.numel():
            none = torch.zeros(len(x), dtype=torch.long, device=x.device)
            return none, none
        block, home = (_in_blocks(v, can.blocks) * can.real for v in (x, self.origin))
        changed = ((block - home).abs() > TOLERANCE).any(-1)
        soft = (torch.minimum(block.abs(), (block - 1).abs()) > TOLERANCE).any(-1)
        not_one = (block.sum(-1) - 1).abs() > TOLERANCE
        known = self.layout.reachable[can.blocks] | (home > 0.5)
        forbidden = ((block > 0.5) & ~known).any(-1)
        frozen = ((block > 0.5) & known & ~_in_blocks(self.reachable, can.blocks)).any(-1)
        bad = changed & (soft | not_one | forbidden)
        return bad.sum(-1), (changed & ~bad & frozen).sum(-1)

    def _count_features(self, columns: Tensor) -> Tensor:
        """(n, d) bool -> (n,) number of features with at least one true column."""
        return (by_feature(columns, self.layout.owner, len(self.space)) > 0).sum(-1)


def _in_blocks(x: Tensor, blocks: Tensor) -> Tensor:
    """(n, d) -> (n, h, l) for blocks (h, l) of columns."""
    return x.index_select(1, blocks.flatten()).reshape(-1, *blocks.shape)
