"""Densities that judge how plausible a row is."""

from __future__ import annotations

from cel.models.generative.defaults import default_density
from cel.models.generative.dequantized import DequantizedFlow
from cel.models.generative.flows import NICE, MaskedAutoregressiveFlow, NeuralSplineFlow, RealNVP
from cel.models.generative.gmm import GMM
from cel.models.generative.kde import KDE
from cel.models.generative.mixed import MixedDensity
from cel.models.generative.vae import VAE

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
