"""A density for rows of categories and numbers, without dequantization."""

from __future__ import annotations

from typing import Literal, Unpack

from torch import Tensor, nn

from cel.errors import ConfigError, MissingInputError
from cel.models.base import GenerativePytorchMixin, TrainOptions
from cel.models.generative.flows.bijections import Affine, Bijection, Spline
from cel.models.generative.flows.flow import Flow
from cel.models.generative.flows.masked import autoregressive_degrees
from cel.models.generative.mixed.categorical import CategoricalNet
from cel.models.generative.mixed.columns import Choices
from cel.models.generative.mixed.mixed_net import MixedNet
from cel.models.training.schedule import FLOW_PRESETS, Schedule
from cel.parameters import check_positive, check_shares
from cel.registry import did_you_mean

__all__ = ["MixedDensity"]

# Categories invite overfitting: smaller steps and decay give mixed tables a better held-out score.
PRESETS = {
    "paper": FLOW_PRESETS["paper"].override(weight_decay=1.0),
    "default": Schedule(
        epochs=100,
        patience=20,
        batch_size=512,
        min_batches=8,
        lr=2e-3,
        clip=5.0,
        decay="cosine",
        weight_decay=1.0,
    ),
}


class MixedDensity(GenerativePytorchMixin):
    """log p(x | y) = sum_g log P(c_g | c_1..c_{g-1}, y) + log p(v | c, y), both parts exact.

    The choices c (one-hot blocks, and grids with few points) have an autoregressive softmax law,
    the other numbers v a flow that sees y and c. The density is taken with respect to counting
    measure on one-hot blocks and Lebesgue measure on numbers; the probability of a grid point is
    spread evenly over its cell, that is divided by the step, as uniform dequantization does.
    Between grid points, and inside the simplex of a block, log p is interpolated linearly in the
    choice, so that gradients exist everywhere and the corners are exact.

    Args:
        flow: "spline" or "affine" transforms for the numbers.
        transforms: number of transforms.
        hidden: width of the hidden layers of both parts.
        n_hidden: hidden layers.
        max_levels: grids with at most so many points are choices; finer ones are numbers.
        noise: standard deviation, in encoded units, of the noise added to numbers in training.
        tail: share of heavy tails in the latent law of the numbers.
        floor: share of the uniform law in each factor of the choices.
        dropout: share of choices that a training step hides, against overfitting.
        options: settings of the training, see `PytorchBase`.
    """

    name = "mixed_density"
    presets = PRESETS

    def __init__(
        self,
        *,
        flow: Literal["spline", "affine"] = "spline",
        transforms: int = 2,
        hidden: int = 64,
        n_hidden: int = 2,
        max_levels: int = 20,
        noise: float = 0.02,
        tail: float = 1e-3,
        floor: float = 1e-3,
        dropout: float = 0.1,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.flow, self.transforms, self.hidden, self.n_hidden = flow, transforms, hidden, n_hidden
        self.max_levels, self.noise, self.tail = max_levels, noise, tail
        self.floor, self.dropout = floor, dropout

    def _build(self, n_in: int, n_out: int) -> MixedNet:
        if self.space_ is None:
            raise MissingInputError(
                "MixedDensity must know which columns are categories; pass space=..."
            )
        kinds: dict[str, Bijection] = {"spline": Spline(), "affine": Affine()}
        if self.flow not in kinds:
            raise ConfigError(f"unknown flow {self.flow!r}; {did_you_mean(self.flow, kinds)}")
        sizes = ("transforms", "hidden", "n_hidden")
        check_positive(self, *sizes)
        check_shares(self, ("tail", "floor", "dropout"))
        choices = Choices(self.space_, self.max_levels)
        seen = n_out + sum(choices.sizes)
        law = self._law(choices, n_out) if choices.sizes else None
        count = len(choices.rest)
        flow = self._numbers(count, seen, kinds[self.flow]) if count else None
        return MixedNet(choices, law, flow, n_context=n_out, dropout=self.dropout)

    def _law(self, choices: Choices, n_context: int) -> CategoricalNet:
        return CategoricalNet(
            choices.sizes,
            n_context=n_context,
            hidden=self.hidden,
            n_hidden=self.n_hidden,
            floor=self.floor,
            dropout=self.dropout,
        )

    def _numbers(self, count: int, n_context: int, bijection: Bijection) -> Flow:
        return Flow(
            autoregressive_degrees(self.transforms, count),
            bijection,
            n_context=n_context,
            hidden=self.hidden,
            n_hidden=self.n_hidden,
            noise=self.noise,
            tail=self.tail,
        )

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        assert isinstance(module, MixedNet)
        module.start(tables[0], tables[1] if self.context_kind_ == "value" else None)
