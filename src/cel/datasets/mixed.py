"""A mixed-type dataset whose joint distribution is known exactly: an oracle for densities."""

from __future__ import annotations

from itertools import product
from math import comb
from typing import ClassVar

import numpy as np
import pandas as pd

from cel.errors import DataError

__all__ = ["MixedDistribution"]

Matrix = tuple[tuple[float, ...], ...]


class MixedDistribution:
    """People with a group, a job, an education, children, an income and savings, and a loan.

    The features are drawn one after the other, e being the rank of the education:

        group      b with probability 0.4, else a                    nominal, immutable
        job        P(job | group) from a table                       nominal
        education  P(education | job) from a table                   ordinal, may only rise
        children   Binomial(6, q[e]), q = (0.35, 0.30, 0.25, 0.20)   integer
        income     Normal(2 + 0.8 e + s[job], 0.8^2), s = (1, 0.5, -0.5)   continuous
        savings    Normal(0.5 income - 0.3 children, 0.6^2)          continuous

    and the loan is granted with probability

        P(y = 1 | x) = sigmoid(-3.6 + 0.5 e + 0.6 income + 0.8 savings - 0.4 children
                               + 0.5 [job = office])

    so that log p(x) is a sum of table entries and Gaussians, and log p(x | y) follows from Bayes'
    rule. P(y) sums over the 168 discrete states; within a state the logit is Gaussian, and the
    mean of its sigmoid is a one-dimensional Gauss-Hermite sum.

    >>> people = MixedDistribution()
    >>> rows = people.sample(3, seed=0)
    >>> people.log_density(rows).shape
    (3,)
    >>> float(np.exp(people.states()["log_prob"]).sum().round(12))
    1.0
    """

    groups: ClassVar[tuple[str, ...]] = ("a", "b")
    jobs: ClassVar[tuple[str, ...]] = ("office", "trade", "none")
    levels: ClassVar[tuple[str, ...]] = ("basic", "school", "degree", "doctorate")
    max_children: ClassVar[int] = 6
    discrete: ClassVar[tuple[str, ...]] = ("group", "job", "education", "children")
    continuous: ClassVar[tuple[str, ...]] = ("income", "savings")

    p_group: ClassVar[tuple[float, ...]] = (0.6, 0.4)
    p_job: ClassVar[Matrix] = ((0.5, 0.3, 0.2), (0.3, 0.4, 0.3))
    p_education: ClassVar[Matrix] = (
        (0.10, 0.30, 0.40, 0.20),
        (0.30, 0.50, 0.15, 0.05),
        (0.40, 0.40, 0.15, 0.05),
    )
    q_children: ClassVar[tuple[float, ...]] = (0.35, 0.30, 0.25, 0.20)
    job_income: ClassVar[tuple[float, ...]] = (1.0, 0.5, -0.5)
    sd_income: ClassVar[float] = 0.8
    sd_savings: ClassVar[float] = 0.6

    def sample(self, n: int = 2000, seed: int = 42) -> pd.DataFrame:
        """Draw `n` people and their loans (column `loan`, 0 or 1)."""
        rng = np.random.default_rng(seed)
        group = (rng.random(n) >= self.p_group[0]).astype(np.int64)
        job = _draw(rng, np.array(self.p_job)[group])
        education = _draw(rng, np.array(self.p_education)[job])
        children = rng.binomial(self.max_children, np.array(self.q_children)[education])
        income = self._mean_income(job, education) + self.sd_income * rng.standard_normal(n)
        savings = 0.5 * income - 0.3 * children + self.sd_savings * rng.standard_normal(n)
        logit = self._logit(job, education, children, income, savings)
        return pd.DataFrame(
            {
                "group": np.array(self.groups, dtype=object)[group],
                "job": np.array(self.jobs, dtype=object)[job],
                "education": np.array(self.levels, dtype=object)[education],
                "children": children,
                "income": income,
                "savings": savings,
                "loan": (rng.random(n) < _sigmoid(logit)).astype(np.int64),
            }
        )

    def log_density(self, frame: pd.DataFrame, y: np.ndarray | int | None = None) -> np.ndarray:
        """Return log p(x), or log p(x | y) for class positions `y`, shape (n,).

        The density is with respect to counting measure on the four discrete features and Lebesgue
        measure on income and savings in their raw units. Values that cannot occur have -inf.
        """
        job, education, children = self._codes(frame)
        income, savings = (frame[c].to_numpy(np.float64) for c in self.continuous)
        log_p = self.log_state(frame)
        log_p += _log_normal(income, self._mean_income(job, education), self.sd_income)
        log_p += _log_normal(savings, 0.5 * income - 0.3 * children, self.sd_savings)
        if y is None:
            return log_p
        sign = np.where(np.asarray(y) == 1, 1.0, -1.0)
        logit = self._logit(job, education, children, income, savings)
        prior = self.class_prior()[np.asarray(y, dtype=np.int64)]
        return np.asarray(log_p - np.logaddexp(0.0, -sign * logit) - np.log(prior))

    def log_state(self, frame: pd.DataFrame) -> np.ndarray:
        """Return log P(group, job, education, children), shape (n,)."""
        job, education, children = self._codes(frame)
        group = _positions(frame["group"], self.groups)
        inside = (children >= 0) & (children <= self.max_children)
        inside &= children == np.rint(children)
        count = np.where(inside, children, 0).astype(np.int64)
        ways = np.array([comb(self.max_children, k) for k in range(self.max_children + 1)])
        q = np.array(self.q_children)[education]
        p = np.array(self.p_group)[group] * np.array(self.p_job)[group, job]
        p = p * np.array(self.p_education)[job, education] * ways[count]
        log_p = np.log(p) + count * np.log(q) + (self.max_children - count) * np.log1p(-q)
        return np.where(inside, log_p, -np.inf)

    def states(self) -> pd.DataFrame:
        """Return all 168 discrete states with their log-probabilities (column `log_prob`)."""
        values = product(self.groups, self.jobs, self.levels, range(self.max_children + 1))
        frame = pd.DataFrame(list(values), columns=list(self.discrete))
        return frame.assign(log_prob=self.log_state(frame))

    def probability(self, frame: pd.DataFrame) -> np.ndarray:
        """Return P(y = 1 | x), shape (n,)."""
        income, savings = (frame[c].to_numpy(np.float64) for c in self.continuous)
        return _sigmoid(self._logit(*self._codes(frame), income, savings))

    def class_prior(self) -> np.ndarray:
        """Return (P(y = 0), P(y = 1))."""
        states = self.states()
        job, education, children = self._codes(states)
        income = self._mean_income(job, education)
        mean = self._logit(job, education, children, income, 0.5 * income - 0.3 * children)
        # The logit moves by 0.6 + 0.8 * 0.5 per unit of income and by 0.8 per unit of savings.
        sd = np.hypot(1.0 * self.sd_income, 0.8 * self.sd_savings)
        node, weight = np.polynomial.hermite_e.hermegauss(64)
        granted = _sigmoid(mean[:, None] + sd * node) @ (weight / weight.sum())
        p = float(np.exp(states["log_prob"].to_numpy()) @ granted)
        return np.array([1.0 - p, p])

    def _codes(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        job = _positions(frame["job"], self.jobs)
        education = _positions(frame["education"], self.levels)
        return job, education, frame["children"].to_numpy()

    def _mean_income(self, job: np.ndarray, education: np.ndarray) -> np.ndarray:
        return np.asarray(2.0 + 0.8 * education + np.array(self.job_income)[job])

    def _logit(
        self,
        job: np.ndarray,
        education: np.ndarray,
        children: np.ndarray,
        income: np.ndarray,
        savings: np.ndarray,
    ) -> np.ndarray:
        worth = 0.6 * income + 0.8 * savings - 0.4 * children
        return np.asarray(-3.6 + 0.5 * education + worth + 0.5 * (job == 0))


def _draw(rng: np.random.Generator, p: np.ndarray) -> np.ndarray:
    """Draw one position per row of probabilities (n, k)."""
    u = rng.random(len(p))[:, None]
    return np.asarray(np.minimum((u >= p.cumsum(axis=1)).sum(axis=1), p.shape[1] - 1))


def _positions(values: pd.Series, labels: tuple[str, ...]) -> np.ndarray:
    codes = pd.Index(labels).get_indexer(pd.Index(values.astype(object)))
    if (codes < 0).any():
        bad = values.iloc[int((codes < 0).argmax())]
        raise DataError(f"column {values.name!r} holds {bad!r}; known: {', '.join(labels)}")
    return codes


def _log_normal(x: np.ndarray, mean: np.ndarray, sd: float) -> np.ndarray:
    return np.asarray(-0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi))


def _sigmoid(t: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0.0, -t)))
