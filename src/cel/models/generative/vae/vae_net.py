"""The module of `VAE`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from cel.models.generative.flows.flow import spread
from cel.models.generative.noise import normal_bank
from cel.models.layers import Network
from cel.preprocessing.blocks import Blocks
from cel.space import FeatureSpace

__all__ = ["VAENet"]

POOL = 1024  # immutable parts kept for sampling
LIMIT = 5.0  # of the log-variance of a code
DRAWN_AT_ONCE = 4096  # rows times draws in one product
JUDGED = 8  # draws by which epochs are compared
CLOSE = 1e-6  # logits that are no farther apart may have equal probabilities


class VAENet(nn.Module):
    """Encoder, decoder heads and the bound; rows (..., n, d)."""

    stackable = True
    fixed: Tensor
    numbers: Tensor
    choices: Tensor
    loc: Tensor
    scale: Tensor
    pool: Tensor
    bank: Tensor
    lower: Tensor
    upper: Tensor

    def __init__(
        self,
        space: FeatureSpace,
        *,
        n_context: int,
        latent: int,
        hidden: tuple[int, ...],
        beta: float,
        samples: int,
        noise: float,
        bounded: bool,
    ) -> None:
        super().__init__()
        self.latent, self.beta, self.noise, self.width = latent, beta, noise, space.width
        self._index(space)
        n_fixed, n_numbers = len(self.fixed), len(self.numbers)
        n_seen = n_fixed + n_context
        self.encoder = Network(space.width + n_context, hidden, 2 * latent)
        self.decoder = Network(latent + n_seen, hidden[::-1], n_numbers + len(self.choices))
        self.log_scale = nn.Parameter(torch.zeros(1, n_numbers))
        self.register_buffer("loc", torch.zeros(1, space.width))
        self.register_buffer("scale", torch.ones(1, space.width))
        self.register_buffer("pool", torch.zeros(POOL, n_fixed))
        self.register_buffer("bank", normal_bank(1, samples, latent).transpose(0, 1))
        for name, end in (("lower", -math.inf), ("upper", math.inf)):
            bound = torch.as_tensor(space.vector(name)).to(self.loc.dtype)
            bound = bound if bounded else torch.full_like(bound, end)
            self.register_buffer(name, bound[None, self.numbers])

    def _index(self, space: FeatureSpace) -> None:
        free = [f for f in space if f.mutable]
        blocks = [f.columns for f in free if f.one_hot]
        self.blocks = Blocks([len(b) for b in blocks])
        for name, columns in (
            ("fixed", sorted(c for f in space if not f.mutable for c in f.columns)),
            ("numbers", [f.columns[0] for f in free if not f.one_hot]),
            ("choices", [c for b in blocks for c in b]),
        ):
            self.register_buffer(name, torch.tensor(columns, dtype=torch.long))
        self._plain = self.numbers.tolist() == list(range(space.width))
        self._runs = _runs([t.tolist() for t in (self.numbers, self.choices, self.fixed)])

    @torch.no_grad()
    def start(self, x: Tensor) -> None:
        """Standardise by training rows (n, d) and keep immutable parts for sampling."""
        self.loc.copy_(x.mean(0, keepdim=True))
        self.scale.copy_(spread(x))
        chosen = torch.randint(len(x), (POOL,), device=x.device)
        self.pool.copy_(x[chosen][:, self.fixed])

    def objective(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return E_q[log p(x | z)] - beta KL(q || p), (..., n): what is learned and validated.

        The expectation is one random draw in training, and the mean of `JUDGED` kept draws
        otherwise, so that epochs are compared by the same numbers.
        """
        mean, log_var = self.encode(x, context)
        spread = (0.5 * log_var).exp()
        kl = 0.5 * (mean.square() + spread.square() - log_var).sum(-1) - 0.5 * self.latent
        if self.training:
            z = mean + spread * torch.randn_like(mean)
            return self._log_likelihood(x, z, x[..., self.fixed], context) - self.beta * kl
        mean, spread = mean.unsqueeze(-3), spread.unsqueeze(-3)
        draws = _pieces(self.bank[:JUDGED], x)
        terms = [self._log_likelihoods(x, mean + spread * e, context) for e in draws]
        return torch.cat(terms, -2).mean(-2) - self.beta * kl

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the importance-weighted bound on log p(x), (..., n), by all kept draws."""
        mean, log_var = self.encode(x, context)
        draws = _pieces(self.bank, x)
        terms = torch.cat([self._log_weights(e, x, mean, log_var, context) for e in draws], -2)
        return terms.movedim(-2, 0).logsumexp(0) - math.log(len(self.bank))

    def _log_weights(
        self, draws: Tensor, x: Tensor, mean: Tensor, log_var: Tensor, context: Tensor | None
    ) -> Tensor:
        """Return log p(x, z) - log q(z | x), (..., k, n), of some draws (k, 1, z)."""
        mean, log_var = mean.unsqueeze(-3), log_var.unsqueeze(-3)
        z = mean + (0.5 * log_var).exp() * draws
        log_ratio = 0.5 * (draws.square() + log_var - z.square()).sum(-1)
        return self._log_likelihoods(x, z, context) + log_ratio

    def _log_likelihoods(self, x: Tensor, z: Tensor, context: Tensor | None) -> Tensor:
        """Return log p(x | z), (..., k, n), of k codes (..., k, n, z) for each row."""
        count = z.shape[-3]
        x = _repeated(x, count)
        context = None if context is None else _repeated(context, count)
        found = self._log_likelihood(x, z.flatten(-3, -2), x[..., self.fixed], context)
        return found.view(z.shape[:-1])

    def encode(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance (..., n, z) of the code."""
        inputs = (x - self.loc) / self.scale
        if context is not None:
            inputs = torch.cat((inputs, context), -1)
        mean, raw = self.encoder(inputs).chunk(2, -1)
        return mean, LIMIT * torch.tanh(raw / LIMIT)

    def decode(
        self, z: Tensor, fixed: Tensor, context: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return means and spreads (..., n, k) of numbers, and logits (..., n, c) of blocks."""
        out, logits = self._decoded(z, fixed, context)
        mean = self._number_columns(self.loc) + self._number_columns(self.scale) * out
        return mean, self._widths().expand_as(mean), logits

    def _decoded(self, z: Tensor, fixed: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return means of standardised numbers (..., n, k), and logits (..., n, c) of blocks."""
        parts = [z] if context is None else [z, context]
        if len(self.fixed):
            seen = (fixed - self.loc[..., self.fixed]) / self.scale[..., self.fixed]
            parts.insert(1, seen)
        out = self.decoder(torch.cat(parts, -1) if len(parts) > 1 else z)
        if self._plain:
            return out, out[..., :0]
        count = len(self.numbers)
        return out[..., :count], out[..., count:]

    def _number_columns(self, x: Tensor) -> Tensor:
        """Return the columns (..., k) of numbers."""
        return x if self._plain else x[..., self.numbers]

    def _widths(self) -> Tensor:
        """Return the standard deviations (..., 1, k) of numbers given their code."""
        return self.noise + self._number_columns(self.scale) * self.log_scale.clamp(max=3.0).exp()

    def decode_row(
        self, z: Tensor, fixed: Tensor, context: Tensor | None, *, hard: bool
    ) -> Tensor:
        """Return whole rows (n, d) of the most likely values."""
        mean, _, logits = self.decode(z, fixed, context)
        return self._assemble(mean, self._categories(logits, hard=hard), fixed)

    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None, generator: torch.Generator) -> Tensor:
        """Draw (n, d) rows; immutable parts come from the training rows."""
        device = generator.device
        chosen = torch.randint(POOL, (n,), generator=generator, device=device)
        z = torch.randn((n, self.latent), generator=generator, device=device).to(self.loc)
        fixed = self.pool[chosen]
        mean, width, logits = self.decode(z, fixed, context)
        noise = torch.randn(mean.shape, generator=generator, device=device).to(mean)
        uniform = torch.rand(logits.shape, generator=generator, device=device).to(logits)
        gumbel = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-7)))
        blocks = self._categories(logits + gumbel, hard=True)
        return self._assemble(mean + width * noise, blocks, fixed)

    def _log_likelihood(
        self, x: Tensor, z: Tensor, fixed: Tensor, context: Tensor | None
    ) -> Tensor:
        out, logits = self._decoded(z, fixed, context)
        width, scale = self._widths(), self._number_columns(self.scale)
        own = (self._number_columns(x) - self._number_columns(self.loc)) / scale
        gap = (own - out) * (scale / width)
        total = -0.5 * gap.square().sum(-1) - (width.log() + 0.5 * math.log(2 * math.pi)).sum(-1)
        if not len(self.choices):
            return total
        log_p = self._padded(logits).log_softmax(-1)
        own = self.blocks.split(x[..., self.choices], fill=0.0)
        return total + (own * torch.where(self.blocks.real, log_p, 0.0)).sum((-2, -1))

    def _padded(self, logits: Tensor) -> Tensor:
        return self.blocks.split(logits, fill=torch.finfo(logits.dtype).min)

    def _categories(self, logits: Tensor, *, hard: bool) -> Tensor:
        """Return the block columns (..., c): one-hot, or probabilities."""
        if not len(self.choices):
            return logits
        if hard and (likeliest := self._likeliest(logits)) is not None:
            return likeliest
        p = self._padded(logits).softmax(-1)
        if hard:
            p = functional.one_hot(p.argmax(-1), p.shape[-1]).to(p)
        return self.blocks.flat(p)

    def _likeliest(self, logits: Tensor) -> Tensor | None:
        """Return one-hot blocks (n, c) without probabilities; None if some might be equal."""
        if logits.dim() != 2:
            return None
        value = logits.detach().T.clone(memory_format=torch.contiguous_format)
        for block in torch.split(value, list(self.blocks.sizes)):
            block.ge_(block.amax(0) - CLOSE)
        return value.T if bool((value.sum(0) == len(self.blocks)).all()) else None

    def _assemble(self, numbers: Tensor, blocks: Tensor, fixed: Tensor) -> Tensor:
        parts = numbers.clamp(self.lower, self.upper), blocks, fixed
        return torch.cat([parts[p][..., first:last] for p, first, last in self._runs], -1)


def _runs(parts: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return where rows come from, column by column: (part, first place, last place + 1).

    >>> _runs([[0, 3], [1, 2], []])
    [(0, 0, 1), (1, 0, 2), (0, 1, 2)]
    """
    source = {c: (p, i) for p, columns in enumerate(parts) for i, c in enumerate(columns)}
    runs: list[tuple[int, int, int]] = []
    for column in sorted(source):
        part, at = source[column]
        if runs and runs[-1][0] == part and runs[-1][2] == at:
            runs[-1] = part, runs[-1][1], at + 1
        else:
            runs.append((part, at, at + 1))
    return runs


def _pieces(bank: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    """Return the draws in parts that are decoded for all rows (..., n, d) at once."""
    return torch.split(bank, max(1, DRAWN_AT_ONCE // max(x.shape[-2], 1)))


def _repeated(rows: Tensor, count: int) -> Tensor:
    """Return rows (..., n, k) `count` times, one copy after the other, (..., count * n, k)."""
    return rows.unsqueeze(-3).expand(*rows.shape[:-2], count, -1, -1).flatten(-3, -2)
