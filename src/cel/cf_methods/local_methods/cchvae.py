"""C-CHVAE: search the latent space of a conditional autoencoder, shell by shell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin, Options
from cel.cf_methods.query import MARGIN, Answer, Query, TrainRows
from cel.cf_methods.row_codes import RowCodes, codes_of
from cel.cf_methods.tangent.score_slopes import ScoreLayers
from cel.protocols import Need, Predictor, Task
from cel.search.margin_fit import MarginFit
from cel.search.margin_roof import MarginRoof
from cel.search.shells import grow_shells, shared_ways

__all__ = ["CCHVAE"]

_CHUNK = 2**21  # numbers drawn at a time
_CACHE = 2**18  # the same where all of them are decoded: they stay in the cache
_TALL = 2**13  # samples decoded at a time, at least: fewer do not pay for the call
_FIRST, _FEW = 32, 8  # samples of a shell asked as they come: of the first one, of later ones
_BEST, _MORE = 8, 16  # of the highest guesses; more of them, where the class is near
_NEAR = 32  # nearer ones, once one is valid
_BANK = 2**14  # directions that rows choose from
_AHEAD = 16  # shells judged together when few rows are left


class CCHVAE(LocalMixin, BaseCounterfactualMethod):
    """Decode latent codes around the row's own until one has the target class.

    Solves `min |dz|_p  s.t.  f(decode(z + dz, c)) = target` by sampling growing shells; in the
    first shell with a hit the one nearest to the row in L1 wins. c are the immutable columns: the
    decoder is conditioned on them and they are never perturbed. A search ends at the radius
    `|z| + 3 sqrt(q)`, beyond which the prior has practically no mass.

    `screened` scores of the samples of a shell only those that a linear fit of the margins seen so
    far does not rule out; published is to score them all.

    Changed from the original: one Gaussian latent variable with heads for numbers and labels
    instead of the mixture prior, `samples=300` per shell instead of 1000.

    Args:
        model: any classifier; only its predictions are used.
        samples: latent points per shell.
        screened: whether a linear fit says which samples are worth scoring.
        step: thickness of a shell.
        p: norm of the latent radius.
        max_shells: largest number of shells.
        latent: size of the latent space.
        hidden: widths of the hidden layers of encoder and decoder.
        steps: batches seen in training, at most.
        batch_size_vae: rows per training batch.
        lr: learning rate of the autoencoder.
        kl_weight: weight of the KL term; small, so that rows are encoded faithfully.
        autoencoder: a fitted object with `encode(x) -> z (n, q)` and `decode(z, x, hard=False) ->
            (n, d)`, such as `cel.models.generative.VAE`; by default one is trained in `fit`.
        **options: see `Options`.

    Reference: Pawelczyk, Broelemann and Kasneci, Learning model-agnostic counterfactual
    explanations for tabular data, WWW 2020.
    """

    name: ClassVar[str] = "cchvae"
    version: ClassVar[int] = 6
    needs: ClassVar[frozenset[Need]] = frozenset({Need.TRAIN_ROWS})
    reference: ClassVar[str] = "Pawelczyk et al., WWW 2020, arXiv:1910.09398"
    autoencoder_settings: ClassVar[Mapping[str, str]] = {
        "latent": "latent", "hidden": "hidden", "steps": "steps", "batch_size": "batch_size_vae",
        "lr": "lr", "beta": "kl_weight",
    }  # fmt: skip
    _copies: ClassVar[int] = 300
    _test_params: ClassVar[Mapping[str, Any]] = {"samples": 100, "steps": 50}

    def __init__(
        self,
        model: Predictor,
        *,
        samples: int = 300,
        screened: bool = True,
        step: float = 0.5,
        p: float = 2.0,
        max_shells: int = 500,
        latent: int = 8,
        hidden: tuple[int, ...] = (64, 32),
        steps: int = 1000,
        batch_size_vae: int = 256,
        lr: float = 3e-3,
        kl_weight: float = 0.1,
        autoencoder: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(model, **options)
        self.samples, self.step, self.p, self.max_shells = samples, step, p, max_shells
        self.screened = screened
        self.latent, self.hidden, self.steps, self.lr = latent, hidden, steps, lr
        self.batch_size_vae, self.kl_weight, self.autoencoder = (
            batch_size_vae,
            kl_weight,
            autoencoder,
        )

    def _fit(self, train: TrainRows) -> None:
        x = train.x.to(self._device())
        numeric = torch.as_tensor(self.space_.numeric_columns, device=x.device)
        spread = x[:, numeric].std(0, unbiased=False)
        self.unit_ = torch.ones_like(x[0])
        self.unit_[numeric] = torch.where(spread > 1e-6, spread, torch.ones_like(spread))
        self.codes_ = codes_of(
            self.autoencoder, x, self.space_, latent=self.latent, hidden=self.hidden,
            steps=self.steps, batch_size=self.batch_size_vae, lr=self.lr, beta=self.kl_weight,
            seed=self.random_state,
        )  # fmt: skip

    @torch.no_grad()
    def _explain(self, query: Query) -> Answer:
        stuck = query.region.fixed.all(1)
        codes = self.codes_
        if codes is None or bool(stuck.all()):
            return Answer(x=torch.full_like(query.x, torch.nan), infeasible=stuck)
        z = codes.encode(query.x)
        wide = max(z.shape[1], query.x.shape[1])
        limit = (z.norm(p=self.p, dim=1) + 3 * math.sqrt(z.shape[1])).clamp(
            max=self.max_shells * self.step
        )

        found = grow_shells(
            z,
            _Shells(query, codes, self.unit_, self._fit_of(z)).judge,
            like=query.x,
            rng=query.rng,
            step=self.step,
            samples=self.samples,
            limit=torch.where(stuck, torch.zeros_like(limit), limit),
            p=self.p,
            budget=query.budget,
            chunk=_CHUNK if self.screened else max(_CACHE, _TALL * wide),
            ways=shared_ways(max(_BANK, 4 * self.samples), z, self.p),
            ahead=1 if self.screened else _AHEAD,
        )
        return Answer(x=found.x, infeasible=stuck)

    def _fit_of(self, z: Tensor) -> MarginFit | None:
        return MarginFit(len(z), z.shape[1], z) if self.screened else None


class _Shells:
    """Samples of a shell, of which the model is asked about the promising ones.

    What was asked before tells, by a linear fit of the margin over codes, which samples of a shell
    may be valid: the highest guesses are asked, and some others, from which the fit learns; more
    of them where the best margin is as near to the class as guesses err. Once one is valid, the
    nearest ones are asked of which the guess does not rule out that they are. Where a shell has no
    more samples than would be asked anyway, all of them are.
    """

    def __init__(self, query: Query, codes: RowCodes, unit: Tensor, fit: MarginFit | None) -> None:
        self.query, self.codes, self.unit, self.fit = query, codes, unit, fit
        self.roof = _roof_of(query) if fit is None else None
        self.sharp = codes.picks_categories and _open_everywhere(query)

    def judge(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best samples (a, 1, d) as they will be seen, and costs (a, 1); inf: no."""
        if self.fit is None:
            return self._all(points, rows)
        a, s = points.shape[:2]
        shell = _Shell(self, points, rows)
        every = torch.arange(a, device=rows.device)
        if s <= _FEW + _BEST + _MORE:
            shell.ask(every, torch.arange(s).to(rows).expand(a, -1))
            return shell.best[:, None], shell.cost[:, None]
        known = bool((self.fit.gram[rows, 0, 0] > 0).all())
        first = min(s, _FEW if known else _FIRST)
        shell.ask(every, torch.arange(first).to(rows).expand(a, -1))
        error = shell.ask_highest(every, _BEST)
        near = (shell.margin.nan_to_num(-torch.inf).amax(1) >= -error).nonzero()[:, 0]
        if len(near):
            shell.ask_highest(near, _MORE)
        hit = shell.cost.isfinite().nonzero()[:, 0]
        if len(hit):
            self._ask_nearer(shell, hit, self.fit)
        return shell.best[:, None], shell.cost[:, None]

    def _all(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Judge every sample, and price those of rows that have a valid one."""
        seen = self.seen(points, rows)
        ok = self._valid(seen, rows)
        best, cost = self.query.x[rows], torch.full_like(seen[:, 0, 0], torch.inf)
        hit = ok.any(1).nonzero()[:, 0]
        if len(hit):
            price = self.cost(seen[hit], rows[hit]).masked_fill(~ok[hit], torch.inf)
            cost[hit], first = price.min(1)
            best[hit] = seen[hit, first]
        return best[:, None], cost[:, None]

    def _valid(self, seen: Tensor, rows: Tensor) -> Tensor:
        """Tell which points (a, s, d) have the wanted class; asked where bounds leave it open."""
        query, (a, s) = self.query, seen.shape[:2]
        if self.roof is None:
            wanted = query.target[rows.repeat_interleave(s)]
            return ~(query.model.margin(seen.flatten(0, 1), wanted) < MARGIN).reshape(a, s)
        maybe = self.roof.open(seen, query.target[rows], MARGIN)
        row, sample = maybe.nonzero(as_tuple=True)
        if len(row):
            margin = query.model.margin(seen[row, sample], query.target[rows[row]])
            maybe[row, sample] = ~(margin < MARGIN)
        return maybe

    def _ask_nearer(self, shell: _Shell, hit: Tensor, fit: MarginFit) -> None:
        """Ask about the nearest samples that a guess, erring as it did so far, admits."""
        points, rows, known = shell.points[hit], shell.rows[hit], shell.margin[hit]
        guess = fit.guess(points, rows)
        error = _rms(guess - known)[:, None]
        rough = self.cost(self.decode(points, rows), rows)
        rough = rough.masked_fill(~known.isnan() | (guess < -error), torch.inf)
        shell.ask(hit, rough.topk(min(rough.shape[1], _NEAR), dim=1, largest=False).indices)

    def seen(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the rows (b, c, d) that codes (b, c, q) stand for, as they will be seen."""
        region = self.query.region
        if self.sharp:
            low, high = (end[rows][:, None] for end in (region.lower, region.upper))
            return torch.clamp(self.decode(points, rows, hard=True), low, high)
        found = self.decode(points, rows)
        source = rows.repeat_interleave(points.shape[1])
        out: Tensor = region.select(source).snap(found.flatten(0, 1))
        return out.reshape(found.shape)

    def decode(self, points: Tensor, rows: Tensor, *, hard: bool = False) -> Tensor:
        """Return the rows (b, c, d) that codes (b, c, q) stand for."""
        flat = points.flatten(0, 1)
        out = self.codes.decode_all(flat) if hard else None
        if out is None:
            home = self.query.x[rows][:, None].expand(-1, points.shape[1], -1)
            out = self.codes.decode(flat, home.flatten(0, 1), hard=hard)
        return out.reshape(*points.shape[:2], out.shape[1])

    def cost(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the L1 distances (b, c) of points (b, c, d) to their rows, in units."""
        return ((x - self.query.x[rows][:, None]).abs() / self.unit).sum(-1)


def _roof_of(query: Query) -> MarginRoof | None:
    """Return bounds of the margins; none where a limit of questions makes each of them count."""
    if query.model.task is not Task.CLASSIFICATION or math.isfinite(query.budget.max_queries):
        return None
    known = ScoreLayers.of(query.model, query.x)
    return None if known is None else MarginRoof.of(known.layers)


def _open_everywhere(query: Query) -> bool:
    """Tell whether a row that was decoded need only be moved into its box."""
    region = query.region
    tied = region.layout.has_grid or region.space.constraints or region.space.limit is not None
    return not tied and region.any_category


class _Shell:
    """One shell of some rows: what was asked, and what came of it."""

    def __init__(self, shells: _Shells, points: Tensor, rows: Tensor) -> None:
        self.shells, self.points, self.rows = shells, points, rows
        self.best = shells.query.x[rows].clone()
        self.cost = torch.full_like(self.best[:, 0], torch.inf)
        self.margin = torch.full_like(points[..., 0], torch.nan)

    def ask(self, at: Tensor, which: Tensor) -> None:
        """Ask about samples (b, c) of some rows (b,) of the shell."""
        query, rows, here = self.shells.query, self.rows[at], (at[:, None], which)
        source, points = rows.repeat_interleave(which.shape[1]), self.points[here]
        seen = self.shells.seen(points, rows)
        margin = query.model.margin(seen.flatten(0, 1), query.target[source]).reshape(which.shape)
        cost = self.shells.cost(seen, rows).masked_fill(margin < MARGIN, torch.inf)
        price, first = cost.min(1)
        better = (price < self.cost[at]).nonzero()[:, 0]
        self.cost[at[better]] = price[better]
        self.best[at[better]] = seen[better, first[better]]
        self.margin[here] = margin
        assert self.shells.fit is not None
        self.shells.fit.learn(points, margin, rows)

    def ask_highest(self, at: Tensor, count: int) -> Tensor:
        """Ask about the samples of some rows (b,) whose guessed margins are the highest.

        Returns by how much guesses were off, (b,), in what is known of this shell now.
        """
        assert self.shells.fit is not None
        guess = self.shells.fit.guess(self.points[at], self.rows[at])
        new = guess.masked_fill(~self.margin[at].isnan(), -torch.inf)
        self.ask(at, new.topk(min(new.shape[1], count), dim=1).indices)
        return _rms(guess - self.margin[at])


def _rms(error: Tensor) -> Tensor:
    """Return root mean squares (b,) of what is known of (b, s)."""
    return error.square().nanmean(1).sqrt()
