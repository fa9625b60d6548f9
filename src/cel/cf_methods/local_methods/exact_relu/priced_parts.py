"""Parts of feasible sets, with prices: what a linear function reaches in them for a budget."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.local_methods.actionable.linear_recourse import Recourse
from cel.search.relu_bounds import SupportFunction
from cel.solvers.choice_programs import ChoicePrograms, ChoiceStates

__all__ = ["PricedSets"]

SPARE = 1e-9  # of a budget: raised by this, so that rounding takes nothing away
EQUAL = 1e-12


@dataclass(frozen=True, eq=False)
class PricedSets:
    """The feasible sets of n rows: offsets of numbers and options of labels, each with its price.

    Attributes:
        programs: intervals, prices, grids and relations of the rows.
        origin: (n, d) the rows.
        numbers: (q,) columns of the numbers.
        columns: columns of each label.
        change: for each label (n, k, c), what its options add to its columns.
    """

    programs: ChoicePrograms
    origin: Tensor
    numbers: Tensor
    columns: tuple[list[int], ...]
    change: tuple[Tensor, ...]

    @classmethod
    def of(cls, recourse: Recourse) -> PricedSets:
        """Read the sets of the rows of a recourse."""
        origin = recourse.region.origin.detach().double().cpu()
        columns = tuple(list(f.columns) for f in recourse.labels)
        change = tuple(
            torch.as_tensor(v) - origin[:, None, c]
            for v, c in zip(recourse.values, columns, strict=True)
        )
        numbers = torch.as_tensor(recourse.numbers)
        return cls(recourse.programs, origin, numbers, columns, change)

    def points(self, rows: np.ndarray, offset: np.ndarray, option: np.ndarray) -> Tensor:
        """Return the inputs (s, d) of offsets (s, q) and options (s, g), float64."""
        at = torch.as_tensor(rows)
        x = self.origin[at].clone()
        x[:, self.numbers] += torch.as_tensor(offset)
        for i, columns in enumerate(self.columns):
            x[:, columns] += self.change[i][at, torch.as_tensor(option[:, i])]
        return x

    def gains(self, slope: Tensor, rows: np.ndarray) -> np.ndarray:
        """Return what options bring to linear forms (s, m, d), shape (s, m, g, k)."""
        at = torch.as_tensor(rows)
        g, k = self.programs.price.shape[1:]
        out = np.zeros((*slope.shape[:2], g, k))
        for i, columns in enumerate(self.columns):
            brought = torch.einsum("smc,skc->smk", slope[..., columns], self.change[i][at])
            out[:, :, i, : brought.shape[2]] = brought.numpy()
        return out

    def support(self, parts: ChoiceStates, limit: np.ndarray) -> SupportFunction:
        """Return how large linear functions become in parts (s,) at a price of at most `limit`."""
        rows = torch.as_tensor(parts.row)
        lower, upper = torch.as_tensor(parts.lower), torch.as_tensor(parts.upper)
        base = torch.minimum(torch.maximum(torch.zeros_like(lower), lower), upper)
        slope = torch.as_tensor(self.programs.slope[parts.row])
        price = np.where(parts.allowed, self.programs.price[parts.row], np.inf)
        least = price.min(2, initial=np.inf)
        fixed = (slope * base.abs()).sum(1) + torch.as_tensor(least).sum(1)
        spare = torch.as_tensor(limit) - fixed
        spare = (spare + SPARE * (1 + spare.abs())).clamp(min=0.0).nan_to_num(nan=0.0)
        options = [self._option_prices(price[:, i], least[:, i]) for i in range(len(self.columns))]

        def largest(w: Tensor) -> Tensor:
            mine = w[..., self.numbers]
            value = (w * self.origin[rows][:, None]).sum(-1) + (mine * base[:, None]).sum(-1)
            end = torch.where(mine > 0, upper[:, None], lower[:, None])
            room = (end - base[:, None]).abs()
            gain, cost = [mine.abs() * room], [slope[:, None] * room]
            for i, columns in enumerate(self.columns):
                brought = torch.einsum("src,skc->srk", w[..., columns], self.change[i][rows])
                free, most, rate = _hull(brought, *options[i])
                value = value + free
                gain.append(most[..., None])
                cost.append((most / rate.clamp(min=1e-300))[..., None])
            return value + _filled(torch.cat(gain, -1), torch.cat(cost, -1), spare)

        return largest

    def _option_prices(self, price: np.ndarray, least: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return (s, k) what options cost beyond the cheapest one, and which are the cheapest."""
        extra = torch.as_tensor(price - np.where(np.isfinite(least), least, 0.0)[:, None])
        return extra, extra <= EQUAL


def _hull(brought: Tensor, extra: Tensor, cheap: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (s, r) what options bring for free, at most beyond that, and at most per price."""
    k = brought.shape[2]
    extra, cheap = extra[:, None, :k], cheap[:, None, :k]
    free = torch.where(cheap, brought, -torch.inf).amax(-1)
    free = torch.where(free.isinf(), brought.amin(-1), free)  # a part without options: any bound
    more = torch.where(extra.isfinite() & ~cheap, brought - free[..., None], 0.0).clamp(min=0)
    rate = torch.where(more > 0, more / extra.clamp(min=EQUAL), 0.0)
    return free, more.amax(-1), rate.amax(-1)


def _filled(gain: Tensor, cost: Tensor, spare: Tensor) -> Tensor:
    """Return the most (s, r) that shares of gains (s, r, c) bring at a cost of `spare` (s,)."""
    if bool(spare.isinf().all()):
        return gain.sum(-1)
    rate = torch.where(cost > 0, gain / cost.clamp(min=1e-300), torch.inf)
    order = torch.argsort(rate, dim=-1, descending=True)
    gain, cost = gain.gather(-1, order), cost.gather(-1, order)
    before = cost.cumsum(-1) - cost
    left = spare[:, None, None] - before
    share = torch.where(cost > 0, left / cost.clamp(min=1e-300), 1.0).clamp(0, 1)
    return (gain * share).sum(-1)
