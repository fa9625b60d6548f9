"""People whose features cause each other by known linear equations: an oracle for recourse."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pandas as pd

__all__ = ["CausalPeople"]


class CausalPeople:
    """Age, education, income, savings, debt and a rating, and a loan.

        age        Normal(40, 10^2)                              immutable
        education  Normal(12, 2.5^2)                             may only rise
        income     0.3 education + 0.04 age + Normal(0, 0.8^2)
        savings    0.6 income + 0.03 age + Normal(0, 0.6^2)
        debt       -0.4 income + Normal(4, 0.7^2)                may only fall
        rating     0.5 savings - 0.6 debt + Normal(3, 0.4^2)     cannot be acted on

    The loan is granted with probability sigmoid(-7.2 + 0.6 income + 0.5 savings - 0.4 debt +
    1.1 rating). All equations are linear with additive noise, so that the effect of an action is
    a sum over the paths of the graph.

    >>> people = CausalPeople()
    >>> people.sample(3, seed=0).shape
    (3, 7)
    >>> people.total_effect("education", "rating")  # through income, savings and debt
    0.162
    """

    weights: ClassVar[dict[str, dict[str, float]]] = {
        "income": {"education": 0.3, "age": 0.04},
        "savings": {"income": 0.6, "age": 0.03},
        "debt": {"income": -0.4},
        "rating": {"savings": 0.5, "debt": -0.6},
    }
    loan: ClassVar[dict[str, float]] = {
        "income": 0.6,
        "savings": 0.5,
        "debt": -0.4,
        "rating": 1.1,
    }
    start: ClassVar[dict[str, tuple[float, float]]] = {
        "age": (40.0, 10.0),
        "education": (12.0, 2.5),
        "income": (0.0, 0.8),
        "savings": (0.0, 0.6),
        "debt": (4.0, 0.7),
        "rating": (3.0, 0.4),
    }
    bias: ClassVar[float] = -7.2

    def sample(self, n: int = 2000, seed: int = 42) -> pd.DataFrame:
        """Draw `n` people and their loans (column `loan`, 0 or 1)."""
        rng = np.random.default_rng(seed)
        frame: dict[str, np.ndarray] = {}
        for name, (mean, sd) in self.start.items():
            value = mean + sd * rng.standard_normal(n)
            for parent, weight in self.weights.get(name, {}).items():
                value = value + weight * frame[parent]
            frame[name] = value
        logit = self.bias + sum(w * frame[name] for name, w in self.loan.items())
        granted = rng.random(n) < 1 / (1 + np.exp(-np.asarray(logit)))
        return pd.DataFrame(frame).assign(loan=granted.astype(np.int64))

    def total_effect(self, cause: str, effect: str) -> float:
        """Return by how much `effect` rises when `cause` is set one unit higher."""
        if cause == effect:
            return 1.0
        above = self.weights.get(effect, {})
        total = sum(w * self.total_effect(cause, parent) for parent, w in above.items())
        return float(np.round(total, 12))
