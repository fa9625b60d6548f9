"""A variational autoencoder of what can change, given what cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from cel.errors import DataError
from cel.models.base import GenerativePytorchMixin, TrainOptions
from cel.models.generative.vae.decoder_slopes import DecoderSlopes
from cel.models.generative.vae.vae_net import VAENet
from cel.models.inputs import FitRows
from cel.models.training.schedule import FLOW_PRESETS, Schedule
from cel.parameters import check_positive
from cel.space import FeatureSpace

__all__ = ["VAE"]

PRESETS = {
    "paper": FLOW_PRESETS["paper"].override(batch_size=128, lr=1e-3),
    "default": Schedule(epochs=200, patience=20, batch_size=128, lr=2e-3, clip=5.0),
}


class VAE(GenerativePytorchMixin):
    """Latent codes z of the mutable columns x_m, conditional on the immutable columns x_c.

    Encoder q(z | x_m, x_c) and prior N(0, I) are normal; the decoder p(x_m | z, x_c) has a
    normal head for numbers and a softmax head for each one-hot block (after Nazabal et al., 2020;
    Pawelczyk et al., 2020). Training maximises E_q[log p(x_m | z, x_c)] - beta KL(q || p)
    and keeps the epoch where validation rows have the most of the same. `log_prob` is the
    importance-weighted bound on log p(x_m | x_c) (Burda et al., 2016) with the same draws for
    every row. Which columns cannot change is read from the feature space.

    Args:
        latent: dimension of z.
        hidden: widths of the encoder's layers; the decoder has them in reverse.
        beta: weight of the KL term; small values keep more of a row in its code.
        samples: draws of `log_prob`.
        noise: smallest standard deviation of a number given its code, in encoded units.
        conditional: whether targets are part of the condition, too. Counterfactual search needs
            codes that do not know the class, so the default is no.
        passes: times that an epoch sees every row: more than once makes epochs of small tables
            longer, and looks at the validation rows rarer.
        options: settings of the training, see `PytorchBase`.

    >>> rows = torch.rand(64, 3, generator=torch.Generator().manual_seed(0))
    >>> vae = VAE(latent=2, hidden=(8,), epochs=2).fit(rows)
    >>> vae.decode(vae.encode(rows)).shape
    torch.Size([64, 3])
    """

    name = "vae"
    presets = PRESETS
    _test_params: ClassVar[Mapping[str, Any]] = {"conditional": True}

    def __init__(
        self,
        *,
        latent: int = 8,
        hidden: tuple[int, ...] = (64, 32),
        beta: float = 0.3,
        samples: int = 32,
        noise: float = 0.02,
        conditional: bool = False,
        passes: int = 1,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.latent, self.hidden, self.beta, self.samples = latent, hidden, beta, samples
        self.noise, self.conditional, self.passes = noise, conditional, passes

    def schedule(self) -> Schedule:
        """Return the preset with the settings of this model."""
        return super().schedule().override(passes=self.passes)

    def _learn_target(self, rows: FitRows) -> None:
        super()._learn_target(rows)
        if not self.conditional:
            self.n_outputs_ = self.n_context_ = 0
            self.context_kind_ = "none"

    def _build(self, n_in: int, n_out: int) -> VAENet:
        check_positive(self, "latent", "samples", "noise")
        space = self.space_ if self.space_ is not None else FeatureSpace.continuous(n_in)
        return VAENet(
            space,
            n_context=n_out,
            latent=self.latent,
            hidden=self.hidden,
            beta=self.beta,
            samples=self.samples,
            noise=self.noise,
            bounded=self.space_ is not None,
        )

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        assert isinstance(module, VAENet)
        module.start(tables[0])

    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        assert isinstance(module, VAENet)
        return -module.objective(*batch)

    def encode(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return the mean (n, z) of q(z | x)."""
        x = self._input(x)
        mean, _ = self._net(x.dtype).encode(x, self.encode_context(context, len(x), x.dtype))
        return mean

    def decode(
        self,
        z: Tensor,
        x_c: Tensor | None = None,
        context: Tensor | None = None,
        *,
        hard: bool = True,
    ) -> Tensor:
        """Return rows (n, d): the mean of numbers, the likeliest category, and `x_c` put back.

        Args:
            z: (n, z) codes.
            x_c: (n, c) immutable columns in order, or whole rows (n, d) to take them from.
            context: classes or values, if the model is conditional.
            hard: whether blocks are one-hot; otherwise they hold probabilities.
        """
        self.check_fitted()
        net = self._net(z.dtype)
        fixed = self._fixed(net, z, x_c)
        return net.decode_row(z, fixed, self.encode_context(context, len(z), z.dtype), hard=hard)

    def slopes(self, dtype: torch.dtype) -> DecoderSlopes | None:
        """Return the decoder with its gradients, for codes of a dtype; None with a context."""
        self.check_fitted()
        net = self._net(dtype)
        return DecoderSlopes(net) if DecoderSlopes.can_read(net) else None

    @property
    def immutable_columns_(self) -> Tensor:
        """Columns of x_c."""
        return self._net(torch.float32).fixed

    def _net(self, dtype: torch.dtype) -> VAENet:
        net = self.frozen(dtype)
        assert isinstance(net, VAENet)
        return net

    def _fixed(self, net: VAENet, z: Tensor, x_c: Tensor | None) -> Tensor:
        count = len(net.fixed)
        if x_c is None:
            x_c = z.new_zeros(len(z), 0)
        if x_c.shape[1] == self.n_features_in_:
            x_c = x_c[:, net.fixed]
        if x_c.shape != (len(z), count):
            raise DataError(
                f"x_c has shape {tuple(x_c.shape)}, wanted ({len(z)}, {count}): the columns that "
                "cannot change"
            )
        return x_c
