"""Normalising flows over encoded rows: MAF, RealNVP, NICE and neural splines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from torch import Tensor, nn

from cel.models.base import GenerativePytorchMixin, TrainOptions
from cel.models.generative.flows.bijections import Affine, Bijection, Shift, Spline
from cel.models.generative.flows.flow import Flow
from cel.models.generative.flows.masked import autoregressive_degrees, coupling_degrees
from cel.models.generative.flows.once import log_density_once
from cel.parameters import check_positive, check_shares

__all__ = ["NICE", "FlowOptions", "MaskedAutoregressiveFlow", "NeuralSplineFlow", "RealNVP"]


class FlowOptions(TrainOptions, total=False):
    """Settings that all flows share, with the same defaults; see `_FlowEstimator`."""

    noise: float
    tail: float


class _ShapeOptions(FlowOptions, total=False):
    transforms: int
    hidden: int
    n_hidden: int


class _FlowEstimator(GenerativePytorchMixin):
    """Settings that all flows share; see `cel.models.generative.flows.flow.Flow`.

    Args:
        transforms: number of transforms.
        hidden: width of the hidden layers.
        n_hidden: hidden layers per transform.
        noise: standard deviation, in encoded units, of the normal noise added to training rows.
            What is estimated is the density of the smoothed rows, which atoms cannot make
            infinite: at most -log(noise sqrt(2 pi)) per column.
        tail: share of heavy tails in each latent coordinate; bounds log-densities from below.
        options: settings of the training, see `PytorchBase`.
    """

    def __init__(
        self,
        *,
        transforms: int = 8,
        hidden: int = 64,
        n_hidden: int = 2,
        noise: float = 0.02,
        tail: float = 1e-3,
        **options: Unpack[TrainOptions],
    ) -> None:
        super().__init__(**options)
        self.transforms, self.hidden, self.n_hidden = transforms, hidden, n_hidden
        self.noise, self.tail = noise, tail

    def _flow(
        self,
        n_in: int,
        n_context: int,
        bijection: Bijection,
        *,
        coupling: bool = False,
        diagonal: bool = False,
    ) -> Flow:
        check_positive(self, "transforms", "hidden", "n_hidden")
        check_shares(self, ("tail",))
        degrees = coupling_degrees if coupling else autoregressive_degrees
        return Flow(
            degrees(self.transforms, n_in),
            bijection,
            n_context=n_context,
            hidden=self.hidden,
            n_hidden=self.n_hidden,
            coupling=coupling,
            diagonal=diagonal,
            noise=self.noise,
            tail=self.tail,
        )

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        assert isinstance(module, Flow)
        module.standardise(tables[0], tables[1] if self.context_kind_ == "value" else None)


class MaskedAutoregressiveFlow(_FlowEstimator):
    """Masked autoregressive flow (Papamakarios, Pavlakou and Murray, 2017).

    In each transform z_i = (u_i - m_i) exp(-a_i), where m_i and a_i depend on u_1..u_{i-1} and
    the context; the order of the columns is reversed from one transform to the next, and
    log p(x | c) = log q(z) - sum a. Log-scales are bounded: |a| < `limit` per transform.

    >>> import torch
    >>> rows = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    >>> flow = MaskedAutoregressiveFlow(transforms=2, epochs=5).fit(rows)
    >>> flow.log_prob(rows).shape, flow.sample(3).shape
    (torch.Size([200]), torch.Size([3, 2]))
    """

    name = "maf"

    def __init__(
        self,
        *,
        transforms: int = 8,
        hidden: int = 16,
        n_hidden: int = 4,
        limit: float = 2.0,
        **options: Unpack[FlowOptions],
    ) -> None:
        super().__init__(transforms=transforms, hidden=hidden, n_hidden=n_hidden, **options)
        self.limit = limit

    def _build(self, n_in: int, n_out: int) -> Flow:
        return self._flow(n_in, n_out, Affine(self.limit))

    def log_prob_once(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return `log_prob`, differentiable once only: about twice as fast with its gradient."""
        x = self._input(x)
        encoded = self.encode_context(context, len(x), x.dtype)
        module = self.frozen(x.dtype)
        assert isinstance(module, Flow)
        return log_density_once(module, x, None if encoded is None else encoded.to(x.device))


class RealNVP(_FlowEstimator):
    """Affine coupling flow (Dinh, Sohl-Dickstein and Bengio, 2017).

    Every other column is mapped by z_b = (x_b - m(x_a, c)) exp(-a(x_a, c)); the rest x_a stays,
    and the roles change from one transform to the next. Sampling costs one pass per transform.
    """

    name = "realnvp"

    def __init__(self, *, limit: float = 2.0, **options: Unpack[_ShapeOptions]) -> None:
        super().__init__(**options)
        self.limit = limit

    def _build(self, n_in: int, n_out: int) -> Flow:
        return self._flow(n_in, n_out, Affine(self.limit), coupling=True)


class NICE(_FlowEstimator):
    """Additive coupling flow with one scale per column (Dinh, Krueger and Bengio, 2015).

    z_b = x_b - m(x_a, c) in each transform, then z = s * z: log p(x | c) = log q(z) + sum log s.
    """

    name = "nice"

    def _build(self, n_in: int, n_out: int) -> Flow:
        return self._flow(n_in, n_out, Shift(), coupling=True, diagonal=True)


class NeuralSplineFlow(_FlowEstimator):
    """Autoregressive flow of rational-quadratic splines (Durkan et al., 2019).

    Each standardised column goes through a monotone spline with `bins` pieces inside
    (-`bound`, `bound`) and stays as it is outside, where the latent law's tails take over.
    """

    name = "nsf"
    _test_params: ClassVar[Mapping[str, Any]] = {"noise": 0.0}

    def __init__(
        self,
        *,
        transforms: int = 3,
        hidden: int = 32,
        n_hidden: int = 2,
        bins: int = 8,
        bound: float = 5.0,
        **options: Unpack[FlowOptions],
    ) -> None:
        super().__init__(transforms=transforms, hidden=hidden, n_hidden=n_hidden, **options)
        self.bins, self.bound = bins, bound

    def _build(self, n_in: int, n_out: int) -> Flow:
        check_positive(self, "bins", "bound")
        return self._flow(n_in, n_out, Spline(self.bins, self.bound))
