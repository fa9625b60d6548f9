"""How hard it is to change a feature, from comparisons of pairs (Bradley and Terry, 1952)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cel.errors import ConfigError
from cel.registry import did_you_mean
from cel.space import FeatureSpace

__all__ = ["bradley_terry", "feature_costs"]


def bradley_terry(wins: np.ndarray, *, prior: float = 0.1, steps: int = 1000) -> np.ndarray:
    """Return strengths (p,) of mean 1 such that P(i beats j) = s_i / (s_i + s_j).

    Maximum likelihood by Hunter's (2004) MM iteration, with `prior` wins of everybody against an
    opponent of strength 1, so that the answer exists for any comparisons.

    Args:
        wins: (p, p) how often i was judged harder to change than j.
        prior: imaginary comparisons, each way.
        steps: iterations.

    >>> bradley_terry(np.array([[0.0, 30.0], [10.0, 0.0]]), prior=1e-6).round(2)
    array([1.5, 0.5])
    """
    games = wins + wins.T
    strength = np.ones(len(wins))
    for _ in range(steps):
        rate = (games / (strength[:, None] + strength)).sum(1) + 2 * prior / (strength + 1)
        new = (wins.sum(1) + prior) / rate
        if np.abs(new - strength).max() < 1e-12:
            break
        strength = new
    return np.asarray(strength / strength.mean())


def feature_costs(
    space: FeatureSpace,
    costs: Mapping[str, float] | None,
    comparisons: Sequence[tuple[str, str]] | None,
) -> np.ndarray:
    """Return the cost (p,) of touching each feature, 0 where nothing was said.

    Args:
        space: the features.
        costs: cost by feature name.
        comparisons: pairs (harder feature, easier feature), turned into costs of mean 1.
    """
    names = {n: i for i, n in enumerate(space.names)}
    out = np.zeros(len(space))
    if comparisons:
        wins = np.zeros((len(space), len(space)))
        for harder, easier in comparisons:
            wins[_position(harder, names), _position(easier, names)] += 1
        out = bradley_terry(wins)
    for name, cost in (costs or {}).items():
        out[_position(name, names)] = float(cost)
    return out


def _position(name: str, names: Mapping[str, int]) -> int:
    if name not in names:
        raise ConfigError(f"no feature {name!r} to put a cost on; {did_you_mean(name, names)}")
    return names[name]
