"""Densities that judge how plausible a row is."""

from __future__ import annotations

from cel.models.generative.defaults import default_density
from cel.models.generative.flows.dequantized import DequantizedFlow
from cel.models.generative.flows.flow_models import (
    NICE,
    MaskedAutoregressiveFlow,
    NeuralSplineFlow,
    RealNVP,
)
from cel.models.generative.kernels.kde import KDE
from cel.models.generative.mixed.mixed_density import MixedDensity
from cel.models.generative.mixtures.gmm import GMM
from cel.models.generative.vae.vae_density import VAE

__all__ = [
    "GMM",
    "KDE",
    "NICE",
    "VAE",
    "DequantizedFlow",
    "MaskedAutoregressiveFlow",
    "MixedDensity",
    "NeuralSplineFlow",
    "RealNVP",
    "default_density",
]
