"""Adam's walk of CADEX: numbers slide, categories are switched, the last step is remembered."""

from __future__ import annotations

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.search.steppers import Adam, State
from cel.space.layout import Layout

__all__ = ["Walk"]


class Walk:
    """A stepper that keeps rows in their boxes and switches categories.

    Args:
        query: rows and their regions; closed features are frozen there.
        lr: step size of Adam.
        tau: how far another category must rise before it is taken.

    Attributes:
        before: (n, d) the last point of each row before it was accepted.
    """

    def __init__(self, query: Query, *, lr: float, tau: float) -> None:
        self.query, self.adam, self.tau = query, Adam(lr), tau
        self.before = query.x.clone()
        self.done = torch.zeros(len(query), dtype=torch.bool, device=query.x.device)

    def accept(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Test points and remember which rows are done."""
        seen, ok = self.query.accept(x, rows)
        self.done[rows[ok]] = True
        return seen, ok

    def start(self, x: Tensor) -> State:
        """Return a fresh state: Adam's, the categories that are on, and those that were left."""
        state = self.adam.start(x)
        state.tensors["on"] = x > 0.5
        state.tensors["left"] = torch.zeros_like(x, dtype=torch.bool)
        return state

    def step(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Return the rows after one step."""
        walking = ~self.done[rows]
        self.before[rows[walking]] = x[walking]
        region = self.query.region
        fixed = region.fixed[rows]
        grad = torch.where(fixed, torch.zeros_like(grad), grad)
        moved = self.adam.step(state, x, grad, rows)
        moved = torch.minimum(torch.maximum(moved, region.lower[rows]), region.upper[rows])
        moved = torch.where(fixed, self.query.x[rows], moved)
        return self._switch(state, moved, grad, rows) if region.layout.blocks.numel() else moved

    def _switch(self, state: State, x: Tensor, grad: Tensor, rows: Tensor) -> Tensor:
        """Take the most helpful category of those that rose above tau; its block starts afresh.

        It must help more than the present one: outside of the simplex a category can rise although
        the one that is on is better.
        """
        region, s = self.query.region, state.tensors
        lay = region.layout
        open_ = region.reachable[rows] & ~s["on"] & ~s["left"] & ~region.fixed[rows]
        blocked = torch.full_like(x, torch.inf)
        slope = torch.where(open_ & (x > self.tau), grad, blocked)[:, lay.blocks]
        slope = torch.where(lay.real, slope, torch.full_like(slope, torch.inf))
        present = torch.where(s["on"], grad, blocked)[:, lay.blocks].amin(-1)
        lowest, best = slope.min(-1)  # (a, g)
        switch = lowest < present
        new = torch.nn.functional.one_hot(best, lay.blocks.shape[1]).bool() & switch[..., None]
        on, block = _columns(new, x, lay), _columns(switch[..., None].expand_as(new), x, lay)
        s["left"] = s["left"] | (s["on"] & block)
        s["on"] = torch.where(block, on, s["on"])
        for name in ("m", "v"):
            s[name] = torch.where(block, torch.zeros_like(x), s[name])
        return torch.where(block, on.to(x.dtype), x)


def _columns(blocks: Tensor, like: Tensor, lay: Layout) -> Tensor:
    """(a, g, k) bool -> (a, d) bool."""
    out = torch.zeros_like(like, dtype=torch.bool)
    out[:, lay.blocks[lay.real]] = blocks[:, lay.real]
    return out
