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
from cel.protocols import Need, Predictor
from cel.search.margin_fit import MarginFit
from cel.search.shells import grow_shells

__all__ = ["CCHVAE"]

_CHUNK = 2**19  # numbers drawn at a time
_FIRST, _FEW = 32, 8  # samples of a shell asked as they come: of the first one, of later ones
_BEST, _NEAR = 24, 32  # of the highest guesses; nearer ones, once one is valid


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
        steps: batches seen in training.
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
    version: ClassVar[int] = 4
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
            chunk=_CHUNK,
        )
        return Answer(x=found.x, infeasible=stuck)

    def _fit_of(self, z: Tensor) -> MarginFit | None:
        return MarginFit(len(z), z.shape[1], z) if self.screened else None


class _Shells:
    """Samples of a shell, of which the model is asked about the promising ones.

    What was asked before tells, by a linear fit of the margin over codes, which samples of a shell
    may be valid: the highest guesses are asked, and some others, from which the fit learns. Once
    one is valid, the nearest ones are asked of which the guess does not rule out that they are.
    """

    def __init__(self, query: Query, codes: RowCodes, unit: Tensor, fit: MarginFit | None) -> None:
        self.query, self.codes, self.unit, self.fit = query, codes, unit, fit

    def judge(self, points: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return samples (a, s, d) as they will be seen, and their costs (a, s); inf: no."""
        a, s = points.shape[:2]
        shell = _Shell(self, points, rows)
        every = torch.arange(a, device=rows.device)
        if self.fit is None:
            shell.ask(every, torch.arange(s).to(rows).expand(a, -1))
            return shell.seen, shell.cost
        known = bool((self.fit.gram[rows, 0, 0] > 0).all())
        first = min(s, _FEW if known else _FIRST)
        shell.ask(every, torch.arange(first).to(rows).expand(a, -1))
        if first < s:
            guess = self.fit.guess(points, rows).masked_fill(~shell.margin.isnan(), -torch.inf)
            shell.ask(every, guess.topk(min(s - first, _BEST), dim=1).indices)
        hit = shell.cost.isfinite().any(1).nonzero()[:, 0]
        if len(hit) and first + _BEST < s:
            self._ask_nearer(shell, hit, self.fit)
        return shell.seen, shell.cost

    def _ask_nearer(self, shell: _Shell, hit: Tensor, fit: MarginFit) -> None:
        """Ask about the nearest samples that a guess, erring as it did so far, admits."""
        points, rows, known = shell.points[hit], shell.rows[hit], shell.margin[hit]
        guess = fit.guess(points, rows)
        error = (guess - known).square().nanmean(1, keepdim=True).sqrt()
        rough = self.cost(self.decode(points, rows), rows)
        rough = rough.masked_fill(~known.isnan() | (guess < -error), torch.inf)
        shell.ask(hit, rough.topk(min(rough.shape[1], _NEAR), dim=1, largest=False).indices)

    def decode(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return the rows (b, c, d) that codes (b, c, q) stand for."""
        home = self.query.x[rows][:, None].expand(-1, points.shape[1], -1)
        out = self.codes.decode(points.flatten(0, 1), home.flatten(0, 1))
        return out.reshape(home.shape)

    def cost(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return the L1 distances (b, c) of points (b, c, d) to their rows, in units."""
        return ((x - self.query.x[rows][:, None]).abs() / self.unit).sum(-1)


class _Shell:
    """One shell of some rows: what was asked, and what came of it."""

    def __init__(self, shells: _Shells, points: Tensor, rows: Tensor) -> None:
        self.shells, self.points, self.rows = shells, points, rows
        self.seen = shells.query.x.new_zeros(*points.shape[:2], shells.query.x.shape[1])
        self.cost = torch.full_like(self.seen[..., 0], torch.inf)
        self.margin = torch.full_like(self.cost, torch.nan)

    def ask(self, at: Tensor, which: Tensor) -> None:
        """Ask about samples (b, c) of some rows (b,) of the shell."""
        query, rows, here = self.shells.query, self.rows[at], (at[:, None], which)
        source, points = rows.repeat_interleave(which.shape[1]), self.points[here]
        decoded = self.shells.decode(points, rows)
        seen = query.region.select(source).snap(decoded.flatten(0, 1))
        margin = query.model.margin(seen, query.target[source]).reshape(which.shape)
        self.seen[here] = seen.reshape(decoded.shape)
        cost = self.shells.cost(self.seen[here], rows)
        self.cost[here] = cost.masked_fill(margin < MARGIN, torch.inf)
        self.margin[here] = margin
        if self.shells.fit is not None:
            self.shells.fit.learn(points, margin, rows)
