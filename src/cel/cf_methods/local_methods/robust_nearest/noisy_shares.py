"""How stable a class is around a point: noisy copies, no more of them than the decision needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.search.gradient import RowFunction
from cel.solvers import row_jacobian

__all__ = ["stability"]

VALUES = 2**22  # numbers of noisy copies that exist at a time
STAGES = (100, 400)  # copies after which clear points are settled
CLEAR = 6.0  # standard errors from the threshold
SPREAD = 0.1  # least standard deviation of a copy's share, where copies agree by chance


def stability(
    query: Query, sigma: float, draws: int, clear_of: float | None = None
) -> RowFunction:
    """Return the mean over noisy copies x_i of a point x' of `p(x_i) - |p(x') - p(x_i)|`.

    p is the probability of the wanted class; numbers get Gaussian noise, categories none. The
    noise of a row is always the same, so that one point has one answer. With `clear_of`, points
    that lie six standard errors from that threshold get an estimate of the mean: from some of
    their copies, and a first-order guess of the others where the model has slopes.
    """
    copies = _Copies(query, sigma, draws)

    @torch.no_grad()
    def score(x: Tensor, rows: Tensor) -> Tensor:
        if not len(x):
            return x.new_zeros(0)
        size = max(1, VALUES // max(x.shape[1] * draws, 1))
        parts = torch.split(torch.arange(len(x), device=x.device), size)
        if clear_of is None or draws <= STAGES[0]:
            return torch.cat([copies.mean(x[at], rows[at]) for at in parts])
        return torch.cat([copies.until_clear(x[at], rows[at], clear_of) for at in parts])

    return score


@dataclass(frozen=True)
class _Copies:
    """Noisy copies of points of a query, `draws` for each."""

    query: Query
    sigma: float
    draws: int

    def mean(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the mean share (a,) of all copies of points (a, d)."""
        noise, which = self._noise(x, rows)
        here = self._probability(x, rows)
        return self._shares(x, rows, noise[which], here).mean(1)

    def until_clear(self, x: Tensor, rows: Tensor, threshold: float) -> Tensor:
        """Return mean shares (a,), of fewer copies where they are clear of the threshold.

        Slopes tell what each copy's share would be if log-odds were linear, for nearly nothing.
        Only the rest has to be asked for, and the mean of the rest is known much sooner.
        """
        noise, which = self._noise(x, rows)
        here = self._probability(x, rows)
        guess = self._guess(x, rows, noise, which, here)
        rest, mean = torch.zeros_like(guess), guess.mean(1)
        todo, seen = torch.arange(len(x), device=x.device), 0
        for count in (*(s for s in STAGES if s < self.draws), self.draws):
            new = slice(seen, count)
            shares = self._shares(x[todo], rows[todo], noise[which[todo], new], here[todo])
            rest[todo, new] = shares - guess[todo, new]
            known = rest[todo, :count]
            found = guess[todo].mean(1) + known.mean(1)
            mean[todo] = found
            spread = known.std(1, unbiased=False).clamp(min=SPREAD)
            error = spread * math.sqrt((1 - count / self.draws) / count)
            todo, seen = todo[(found - threshold).abs() < CLEAR * error], count
            if not len(todo):
                break
        return mean

    def _noise(self, x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the noise (r, draws, d) of the rows that occur, and whose is whose (a,)."""
        own, which = torch.unique(rows, return_inverse=True)
        normal = self.query.rng.select(own).normal(self.draws, x.shape[1]).to(x)
        return normal * self.query.region.layout.numeric, which

    def _shares(self, x: Tensor, rows: Tensor, noise: Tensor, here: Tensor) -> Tensor:
        """Return (a, m) the shares of copies of points (a, d) with noise (a, m, d)."""
        copies = (x[:, None] + self.sigma * noise).flatten(0, 1)
        there = self._probability(copies, rows.repeat_interleave(noise.shape[1]))
        return _share(there.reshape(len(x), -1), here)

    def _guess(
        self, x: Tensor, rows: Tensor, noise: Tensor, which: Tensor, here: Tensor
    ) -> Tensor:
        """Return (a, draws) the shares that follow from slopes at x, 0 without slopes."""
        if not self.query.model.differentiable:
            return x.new_zeros(len(x), self.draws)
        with torch.enable_grad():
            odds, slope = row_jacobian(self._log_odds, x.detach(), rows)
        lean = (noise[which] @ slope[:, 0, :, None])[..., 0]
        return _share((odds + self.sigma * lean).sigmoid(), here)

    def _log_odds(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return (a, 1) log-odds of the wanted class."""
        scores, target = self.query.model.logits(x), self.query.target[rows][:, None]
        others = scores.scatter(1, target, -torch.inf).logsumexp(1, keepdim=True)
        return scores.gather(1, target) - others

    def _probability(self, x: Tensor, rows: Tensor) -> Tensor:
        scores = self.query.model.scores(x)
        log: Tensor = scores.gather(1, self.query.target[rows][:, None])[:, 0]
        return (log - scores.logsumexp(1)).clamp(max=0.0).exp()


def _share(there: Tensor, here: Tensor) -> Tensor:
    """Return (a, m) `p(x_i) - |p(x') - p(x_i)|`."""
    return there - (here[:, None] - there).abs()
