"""Datasets that need no file: generated ones, and those that scikit-learn carries."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from cel.datasets.causal_people import CausalPeople
from cel.datasets.mixed import MixedDistribution
from cel.errors import ConfigError
from cel.registry import Registry, did_you_mean

__all__ = ["GENERATORS", "generate"]

GENERATORS: Registry[Callable[..., pd.DataFrame]] = Registry("generator")


def generate(name: str, options: Mapping[str, Any]) -> pd.DataFrame:
    """Return the rows of a generator, features and target, for options that it knows.

    >>> generate("moons", {"n": 4}).shape
    (4, 3)
    """
    generator = GENERATORS.get(name)
    known = list(inspect.signature(generator).parameters)
    for option in options:
        if option not in known:
            raise ConfigError(
                f"unknown option {option!r} of {name}; {did_you_mean(option, known)}"
            )
    return generator(**options)


def moons(n: int = 1024, noise: float = 0.1, seed: int = 42) -> pd.DataFrame:
    """Two interleaving half circles."""
    from sklearn.datasets import make_moons

    x, y = make_moons(n_samples=n, noise=noise, random_state=seed)
    return _frame(x, y)


def blobs(n: int = 1500, spread: float = 1.5, seed: int = 42) -> pd.DataFrame:
    """Three Gaussian clouds in the plane."""
    from sklearn.datasets import make_blobs

    x, y = make_blobs(n_samples=n, centers=3, n_features=2, cluster_std=spread, random_state=seed)
    return _frame(x, y)


def synthetic(n: int = 1000, noise: float = 0.1, seed: int = 32) -> pd.DataFrame:
    """A plane over two Gaussian inputs, with a little noise."""
    from sklearn.datasets import make_regression

    x, y = make_regression(n_samples=n, n_features=2, noise=noise, random_state=seed)
    return _frame(x, y)


def digits() -> pd.DataFrame:
    """8 x 8 images of handwritten digits, 0 to 16 per pixel."""
    from sklearn.datasets import load_digits

    data = load_digits()
    frame = pd.DataFrame(data.data, columns=list(data.feature_names))
    return frame.assign(digit=data.target)


def wine() -> pd.DataFrame:
    """Chemical analyses of wines from three cultivars."""
    from sklearn.datasets import load_wine

    data = load_wine()
    return pd.DataFrame(data.data, columns=list(data.feature_names)).assign(cultivar=data.target)


def diabetes() -> pd.DataFrame:
    """Ten measurements of patients, standardised, and the progression of their disease."""
    from sklearn.datasets import load_diabetes

    data = load_diabetes()
    frame = pd.DataFrame(data.data, columns=list(data.feature_names))
    return frame.assign(progression=data.target)


def mixed(n: int = 2000, seed: int = 42) -> pd.DataFrame:
    """Rows of `MixedDistribution`, whose density is known."""
    return MixedDistribution().sample(n, seed)


def causal_people(n: int = 2000, seed: int = 42) -> pd.DataFrame:
    """Rows of `CausalPeople`, whose causes are known."""
    return CausalPeople().sample(n, seed)


def _frame(x: np.ndarray, y: np.ndarray) -> pd.DataFrame:
    frame = pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])
    return frame.assign(y=y)


for _generator in (moons, blobs, synthetic, digits, wine, diabetes, mixed, causal_people):
    GENERATORS.add(_generator.__name__, _generator)
