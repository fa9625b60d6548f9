"""Best-first branch and bound over the activations of a ReLU network, many rows at a time.

A node is a part of a row's feasible set (intervals of numbers, options that are left) together
with the sides of some ReLUs. Bounds of all ReLUs over the part, no dearer than the best known
answer, decide most of the others. The outputs are then bounded from above by linear functions of
the input; with the sides that were chosen and the relations of the space these are the forms of a
program of choices, whose floor is the floor of the node. Nodes that a known answer undercuts are
dropped; others are split, at a choice that the relaxed solution makes in part only, or at the ReLU
that loosens the bound most. A node without open ReLUs and partial choices is solved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.local_methods.exact_relu.priced_parts import PricedSets
from cel.search.relu_bounds import (
    Layers,
    LinearForms,
    NeuronBounds,
    bound_neurons,
    forward,
    linear_forms,
)
from cel.solvers.choice_bounds import evaluate
from cel.solvers.choice_programs import (
    ChoicePrograms,
    ChoiceStates,
    broken_rule,
    meets,
    on_grid,
)
from cel.solvers.choices import split_parts

__all__ = ["ActivationProof", "ActivationSearch"]

SAFE = 1e-9  # floors this near to a known cost hold nothing cheaper
MET = 2e-7  # of 1 + |gap| that a solution may miss its demands by
CHUNK = 2**22  # numbers of one tensor


@dataclass(frozen=True, eq=False)
class ActivationProof:
    """What a search has found and proved about n rows.

    Attributes:
        offset: (n, q) offsets of the best answers.
        option: (n, g) their options.
        cost: (n,) their costs, infinite without one.
        bound: (n,) no answer costs less; infinite where there is none.
        nodes: (n,) nodes that were looked at.
        undecided: (n,) ReLUs that may be on either side at the start.
    """

    offset: np.ndarray
    option: np.ndarray
    cost: np.ndarray
    bound: np.ndarray
    nodes: np.ndarray
    undecided: np.ndarray


@dataclass(frozen=True, eq=False)
class _Nodes:
    """Open nodes: their parts, sides (s, h), bounds (s, h) of the ReLUs, and where to split."""

    parts: ChoiceStates
    sides: np.ndarray
    low: np.ndarray
    high: np.ndarray
    neuron: np.ndarray  # (s,) the ReLU to split at, -1: split a choice

    def __len__(self) -> int:
        return len(self.neuron)

    def pick(self, which: np.ndarray) -> _Nodes:
        rest = {f.name: getattr(self, f.name)[which] for f in fields(self) if f.name != "parts"}
        return _Nodes(parts=self.parts.pick(which), **rest)

    @staticmethod
    def join(nodes: list[_Nodes]) -> _Nodes:
        names = [f.name for f in fields(_Nodes) if f.name != "parts"]
        rest = {name: np.concatenate([getattr(n, name) for n in nodes]) for name in names}
        return _Nodes(parts=ChoiceStates.join([n.parts for n in nodes]), **rest)


class ActivationSearch:
    """Find the cheapest inputs whose outputs meet linear demands.

    Args:
        layers: the network.
        sets: the feasible sets of the rows.
        mix: (n, m, out) demands: `mix . outputs + shift >= 0`.
        shift: (n, m).
        nodes: most nodes per row.
        undecided: most ReLUs that may be open at the start; rows with more are bounded only.
        width: nodes of one row that are looked at together.
        expired: asked between rounds.
    """

    def __init__(
        self,
        layers: Layers,
        sets: PricedSets,
        mix: Tensor,
        shift: Tensor,
        *,
        nodes: int,
        undecided: int,
        width: int = 8,
        expired: Callable[[], bool] = lambda: False,
    ) -> None:
        self.layers, self.sets, self.mix, self.shift = layers, sets, mix, shift
        self.most, self.width, self.expired, self.open_most = nodes, width, expired, undecided
        p = self.programs = sets.programs
        n, q, g = len(p), p.w.shape[2], p.price.shape[1]
        self.hidden = sum(len(b) for _, b in layers[:-1])
        self.cost = np.full(n, np.inf)
        self.offset, self.option = np.zeros((n, q)), np.zeros((n, g), dtype=np.int64)
        self.unsure = np.full(n, np.inf)  # floors of nodes that cannot be split, yet are open
        self.nodes = np.zeros(n, dtype=np.int64)
        self.undecided = np.zeros(n, dtype=np.int64)
        self.capped = np.zeros(n, dtype=bool)

    # -- known answers -------------------------------------------------------------------------

    def limit(self) -> np.ndarray:
        """Return the floors (n,) at which nodes hold nothing cheaper."""
        return np.asarray(self.cost * (1 - SAFE) - SAFE)

    def offer(self, rows: np.ndarray, offset: np.ndarray, option: np.ndarray) -> np.ndarray:
        """Keep choices that are answers and cheaper than the known ones; tell (s,) which are."""
        x = self.sets.points(rows, offset, option)
        good = self._surplus(x, rows) >= 0
        good &= meets(self.programs, rows, offset, option)
        cost = np.where(good, self.programs.cost(rows, offset, option), np.inf)
        order = np.lexsort((cost, rows))
        first = np.ones(len(rows), dtype=bool)
        first[1:] = rows[order][1:] != rows[order][:-1]
        best = order[first]
        best = best[cost[best] < self.cost[rows[best]]]
        self.cost[rows[best]] = cost[best]
        self.offset[rows[best]], self.option[rows[best]] = offset[best], option[best]
        return good

    def _surplus(self, x: Tensor, rows: np.ndarray) -> np.ndarray:
        """Return (s,) by how much inputs (s, d) exceed their demands, rounding allowed for."""
        at = torch.as_tensor(rows)
        out = forward(self.layers, x)[-1]
        value = (self.mix[at] @ out[..., None])[..., 0] + self.shift[at]
        return np.asarray((value + MET * (1 + self.shift[at].abs())).amin(1).numpy())

    def begin_at(self, x: Tensor, offset: np.ndarray, option: np.ndarray) -> None:
        """Take known answers (n, d) and the best points of their linear regions as a start."""
        rows = np.flatnonzero(~np.isnan(offset).any(1))
        if not len(rows):
            return
        self.offer(rows, offset[rows], option[rows])
        before = forward(self.layers, x[torch.as_tensor(rows)].double())[:-1]
        nodes = self._roots(rows)
        if before:
            sides = torch.cat(before, 1).sign().numpy().astype(np.int8)
            nodes = replace(nodes, sides=np.where(sides == 0, 1, sides).astype(np.int8))
        own = np.zeros_like(nodes.parts.allowed)
        np.put_along_axis(own, option[rows][..., None], values=True, axis=2)
        parts = replace(nodes.parts, allowed=nodes.parts.allowed & own)
        self._looked_at(replace(nodes, parts=parts))

    # -- the search ----------------------------------------------------------------------------

    def run(self) -> ActivationProof:
        """Search until every row is settled, or a limit is reached."""
        queue = self._looked_at(self._roots(np.arange(len(self.cost))))
        open_ = (queue.low < 0) & (queue.high > 0) if self.hidden else np.zeros((len(queue), 1))
        self.undecided[queue.parts.row] = open_.sum(1)
        self.capped = self.undecided > self.open_most
        while len(queue) and not self.expired():
            queue = queue.pick(queue.parts.floor < self.limit()[queue.parts.row])
            taken = self._best(queue)
            if not len(taken):
                break
            rest = np.ones(len(queue), dtype=bool)
            rest[taken] = False
            children = self._children(queue.pick(taken))
            queue = _Nodes.join([queue.pick(rest), self._looked_at(children)])
        bound = np.minimum(self.limit(), self.unsure)
        np.minimum.at(bound, queue.parts.row, queue.parts.floor)
        bound = np.where(np.isinf(bound), np.inf, np.maximum(bound, 0.0))
        return ActivationProof(
            self.offset, self.option, self.cost, bound, self.nodes, self.undecided
        )

    def _roots(self, rows: np.ndarray) -> _Nodes:
        p, s = self.programs, len(rows)
        q, g = p.w.shape[2], p.price.shape[1]
        parts = ChoiceStates(
            row=rows, lower=p.lower[rows], upper=p.upper[rows],
            moving=np.zeros((s, q), dtype=bool), allowed=np.isfinite(p.price[rows]),
            floor=np.zeros(s), offset=np.zeros((s, q)), option=np.zeros((s, g), dtype=np.int64),
            whole=np.zeros(s, dtype=bool), split=np.full(s, -1), at=np.zeros(s),
        )  # fmt: skip
        return _Nodes(
            parts=parts, sides=np.zeros((s, self.hidden), dtype=np.int8),
            low=np.full((s, self.hidden), -np.inf), high=np.full((s, self.hidden), np.inf),
            neuron=np.full(s, -1),
        )  # fmt: skip

    def _best(self, queue: _Nodes) -> np.ndarray:
        """Return the nodes with the lowest floors of every row that may go on."""
        row = queue.parts.row
        going = ~self.capped[row] & (self.nodes[row] < self.most)
        order = np.lexsort((queue.parts.floor, row))
        order = order[going[order]]
        own = row[order]
        first = np.flatnonzero(np.diff(own, prepend=-1))
        rank = np.arange(len(own)) - np.repeat(first, np.diff(np.append(first, len(own))))
        return np.asarray(order[rank < self.width])

    def _children(self, nodes: _Nodes) -> _Nodes:
        """Split nodes at a ReLU, or at a choice; together the children miss nothing."""
        out = [nodes.pick(nodes.neuron < -1)]
        at = nodes.pick(nodes.neuron >= 0)
        for side in (1, -1) if len(at) else ():
            sides = at.sides.copy()
            sides[np.arange(len(at)), at.neuron] = side
            out.append(replace(at, sides=sides))
        rest = nodes.pick(nodes.neuron < 0)
        stuck = rest.parts.split < 0
        broken = broken_rule(self.programs, rest.parts.row, rest.parts.option) >= 0
        held = stuck & ~broken  # decided but for rounding: what they hold stays open
        np.minimum.at(self.unsure, rest.parts.row[held], rest.parts.floor[held])
        rest = rest.pick(~stuck)
        q = self.programs.w.shape[2]
        for which in (rest.parts.split < q, rest.parts.split >= q):
            some = rest.pick(which)
            for piece in split_parts(self.programs, some.parts):
                if len(piece):  # moving has no price of its own: there is no third piece
                    assert len(piece) == len(some)
                    out.append(replace(some, parts=piece))
        return _Nodes.join(out)

    # -- bounds --------------------------------------------------------------------------------

    def _looked_at(self, nodes: _Nodes) -> _Nodes:
        """Return the nodes that may hold something cheaper, with floors and places to split."""
        size = max((len(b) for _, b in self.layers), default=1)
        width = max(size, self.sets.origin.shape[1])
        step = max(1, CHUNK // (2 * size * width))
        parts = [
            self._look(nodes.pick(np.arange(i, min(i + step, len(nodes)))))
            for i in range(0, len(nodes), step)
        ]
        return _Nodes.join(parts) if parts else nodes

    def _look(self, nodes: _Nodes) -> _Nodes:
        np.add.at(self.nodes, nodes.parts.row, 1)
        wide = (nodes.parts.lower <= nodes.parts.upper).all(1)
        some = np.asarray(nodes.parts.allowed.any(2)).all(1)
        nodes = nodes.pick(np.asarray(wide & some))
        if not len(nodes):
            return nodes
        bounds = self._bounds(nodes)
        count = len(nodes)
        nodes = replace(nodes, low=_flat(bounds.low, count), high=_flat(bounds.high, count))
        rows = torch.as_tensor(nodes.parts.row)
        mixed = linear_forms(self.layers, len(self.layers) - 1, self.mix[rows], bounds, blame=True)
        program = self._program(nodes, mixed, bounds)
        here = np.arange(len(nodes))
        parts = evaluate(program, replace(nodes.parts, row=here))
        parts = replace(parts, row=nodes.parts.row)
        floor = np.where(bounds.empty.numpy(), np.inf, parts.floor)
        parts = replace(parts, floor=floor)
        done = self._try(parts)
        nodes = replace(nodes, parts=parts, neuron=self._worst(parts, mixed))
        going = ~done & (parts.floor < self.limit()[parts.row])
        return nodes.pick(going)

    def _bounds(self, nodes: _Nodes) -> NeuronBounds:
        limit = self.cost[nodes.parts.row]
        support = self.sets.support(nodes.parts, limit)
        widths = [len(b) for _, b in self.layers[:-1]]
        low, high = (torch.split(torch.as_tensor(v), widths, 1) for v in (nodes.low, nodes.high))
        known = NeuronBounds(tuple(low), tuple(high), torch.zeros(len(nodes), dtype=torch.bool))
        sides = torch.as_tensor(nodes.sides)
        return bound_neurons(self.layers, support, len(nodes), sides=sides, known=known)

    def _program(self, nodes: _Nodes, mixed: LinearForms, bounds: NeuronBounds) -> ChoicePrograms:
        """Return the programs of nodes: demands, sides that were chosen, relations."""
        p, row = self.programs, nodes.parts.row
        rows = torch.as_tensor(row)
        slopes, heights = [mixed.slope], [mixed.height + self.shift[rows]]
        for part in self._side_forms(nodes, bounds):
            slopes.append(part.slope)
            heights.append(part.height)
        slope, height = torch.cat(slopes, 1), torch.cat(heights, 1)
        at_home = (slope @ self.sets.origin[rows][..., None])[..., 0]
        gap = -(height + at_home).numpy()
        w = slope[..., self.sets.numbers].numpy()
        gain = self.sets.gains(slope, row)
        if p.gap.shape[1]:
            w, gap = np.concatenate([w, p.w[row]], 1), np.concatenate([gap, p.gap[row]], 1)
            gain = np.concatenate([gain, p.gain[row]], 1)
        names = ("lower", "upper", "slope", "charge", "phase", "price")
        rules = [(a, ia[row], b, ib[row]) for a, ia, b, ib in p.rules]
        own = {name: getattr(p, name)[row] for name in names}
        return replace(p, w=w, gap=gap, gain=gain, rules=rules, **own)

    def _side_forms(self, nodes: _Nodes, bounds: NeuronBounds) -> list[LinearForms]:
        """Return what the chosen sides demand of the input, layer by layer."""
        out, start = [], 0
        for number, (_, bias) in enumerate(self.layers[:-1]):
            sides = nodes.sides[:, start : start + len(bias)]
            start += len(bias)
            most = int((sides != 0).sum(1).max(initial=0))
            if not most:
                continue
            order = np.argsort(sides == 0, axis=1, kind="stable")[:, :most]
            chosen = np.take_along_axis(sides, order, 1).astype(np.float64)
            mix = torch.zeros(len(nodes), most, len(bias), dtype=torch.float64)
            mix.scatter_(2, torch.as_tensor(order)[..., None], torch.as_tensor(chosen)[..., None])
            forms = linear_forms(self.layers, number, mix, bounds)
            idle = torch.as_tensor(chosen == 0)  # nodes with fewer sides: a demand that holds
            out.append(replace(forms, height=torch.where(idle, 1.0, forms.height)))
        return out

    def _try(self, parts: ChoiceStates) -> np.ndarray:
        """Offer relaxed solutions; tell (s,) which of them are answers at the floor of theirs."""
        known = np.flatnonzero(np.isfinite(parts.floor))
        done = np.zeros(len(parts), dtype=bool)
        if len(known):
            some = parts.pick(known)
            offset = on_grid(self.programs, some.row, some.offset, some.lower, some.upper)
            good = self.offer(some.row, offset, some.option)
            done[known] = good & some.whole
        return done

    def _worst(self, parts: ChoiceStates, mixed: LinearForms) -> np.ndarray:
        """Return (s,) the ReLU that loosens the bounds most, -1 where a choice comes first.

        A grid value or an option that the relaxed solution takes in part is settled first: one
        option fewer tightens the bounds of all ReLUs.
        """
        if not self.hidden:
            return np.full(len(parts), -1)
        blame = torch.cat([b.amax(1) for b in mixed.blame], 1).numpy()
        grid = np.append(self.programs.step > 0, np.ones(parts.option.shape[1] + 1, dtype=bool))
        choice = ~parts.whole & (parts.split >= 0) & grid[parts.split]
        return np.where((blame.max(1) <= SAFE) | choice, -1, blame.argmax(1))


def _flat(bounds: tuple[Tensor, ...], count: int) -> np.ndarray:
    return torch.cat(bounds, 1).numpy() if bounds else np.zeros((count, 0))
