"""Codes of rows for latent methods: one autoencoder, conditional on what cannot change.

It depends on the training rows and on its settings, not on the model that is explained. A method
that says in `autoencoder_settings` which of its parameters hold them, and that has a parameter
`autoencoder` for a fitted one, shares it in benchmarks with all cells that want the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cel.cf_methods.query import Query
from cel.space import FeatureSpace

if TYPE_CHECKING:
    from cel.models.generative import VAE
    from cel.models.generative.vae.decoder_slopes import DecoderSlopes

__all__ = ["VAE_SETTINGS", "RowCodes", "codes_of", "fit_codes", "half_width", "unfitted_vae"]

VAE_SETTINGS: Mapping[str, str] = {
    "latent": "latent", "hidden": "hidden", "steps": "vae_steps", "batch_size": "vae_batch",
    "lr": "vae_lr", "beta": "kl_weight",
}  # fmt: skip
"""Settings of `unfitted_vae`, and how methods name the parameters that hold them."""

LOOK = 10  # batches between two looks at the validation rows, at least
PATIENCE = 4  # parts of the training: one of them without improvement ends it


class RowCodes:
    """Encoder and decoder of rows; immutable columns are conditions, never outputs.

    Args:
        vae: a fitted `cel.models.generative.VAE`, or anything with `encode(x) -> (n, q)` and
            `decode(z, x, hard=...) -> (n, d)`.
    """

    def __init__(self, vae: Any) -> None:
        self.vae = vae

    @property
    def picks_categories(self) -> bool:
        """Whether a hard decoding takes the likeliest category, as snapping a soft one does."""
        from cel.models.generative import VAE

        return isinstance(self.vae, VAE)

    def decode_all(self, z: Tensor) -> Tensor | None:
        """Return the rows (n, d) of codes (n, q) with one-hot blocks; None if a column is kept."""
        if not self.picks_categories or len(self.vae.immutable_columns_):
            return None
        out: Tensor = self.vae.decode(z, hard=True)
        return out

    def encode(self, x: Tensor) -> Tensor:
        """Return the codes (n, q) of rows (n, d)."""
        z: Tensor = self.vae.encode(x)
        return z

    def decode(self, z: Tensor, x: Tensor, *, hard: bool = False) -> Tensor:
        """Return the rows (n, d) of codes (n, q); what cannot change is taken from x (n, d)."""
        out: Tensor = self.vae.decode(z, x, hard=hard)
        return out

    def slopes(self, dtype: torch.dtype) -> DecoderSlopes | None:
        """Return the decoder with its gradients for codes of a dtype; None for unknown ones."""
        from cel.models.generative import VAE

        return self.vae.slopes(dtype) if isinstance(self.vae, VAE) else None

    def decode_for(self, query: Query, z: Tensor, rows: Tensor, *, hard: bool = False) -> Tensor:
        """Return rows for codes of some rows of a query, with all fixed columns put back."""
        x = query.x[rows]
        return torch.where(query.region.fixed[rows], x, self.decode(z, x, hard=hard))


def fit_codes(
    x: Tensor,
    space: FeatureSpace,
    *,
    latent: int,
    hidden: tuple[int, ...],
    steps: int,
    batch_size: int,
    lr: float,
    beta: float,
    seed: int,
) -> RowCodes | None:
    """Train the autoencoder of the library on rows (m, d); None if no column may change.

    Args:
        x: encoded training rows.
        space: says which columns cannot change.
        latent: size of a code.
        hidden: widths of the hidden layers.
        steps: batches seen in training, at most.
        batch_size: rows per batch.
        lr: learning rate.
        beta: weight of the KL term.
        seed: of weights, batches and draws.
    """
    if not bool(space.mutable_mask.any()):
        return None
    vae = unfitted_vae(
        x, latent=latent, hidden=hidden, steps=steps, batch_size=batch_size, lr=lr, beta=beta,
        seed=seed, device=str(x.device),
    )  # fmt: skip
    return RowCodes(vae.fit(x.detach().cpu(), space=space))


def unfitted_vae(
    x: Tensor,
    *,
    latent: int | None,
    hidden: Sequence[int],
    steps: int,
    batch_size: int,
    lr: float,
    beta: float,
    seed: int,
    device: str,
) -> VAE:
    """Return the autoencoder that `fit_codes` trains on rows (m, d); arguments are the same.

    Small tables are passed over several times between two looks at their validation rows. Training
    ends after `steps` batches, or when these rows gained nothing from a quarter of that.
    Without a size of codes it has that of `half_width`.
    """
    from cel.models.generative import VAE
    from cel.models.inputs import validation_cut

    learned, _ = validation_cut(len(x), None, seed)
    batches = max(1, math.ceil(len(learned) / batch_size))  # of a pass
    passes = math.ceil(min(LOOK, steps) / batches)
    epochs = math.ceil(steps / (passes * batches))
    return VAE(
        latent=latent or half_width(x),
        hidden=tuple(hidden),
        beta=beta,
        epochs=epochs,
        patience=max(PATIENCE - 1, math.ceil(epochs / PATIENCE)),
        passes=passes,
        batch_size=batch_size,
        lr=lr,
        random_state=seed,
        device=device,
    )


def codes_of(autoencoder: Any, x: Tensor, space: FeatureSpace, **settings: Any) -> RowCodes | None:
    """Return the codes of an autoencoder that was given, or of one trained by `fit_codes`."""
    if autoencoder is not None:
        return RowCodes(autoencoder)
    return fit_codes(x, space, **settings)


def half_width(x: Tensor) -> int:
    """Return a size of codes that cannot hold whole rows (n, d): half of d, from 1 to 8."""
    return min(8, max(1, x.shape[1] // 2))
