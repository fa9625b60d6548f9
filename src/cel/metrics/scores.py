"""The scores of one result: values, values by row, reasons and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cel.errors import ConfigError
from cel.metrics.base import Score
from cel.metrics.bootstrap import bootstrap_interval
from cel.registry import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Scores"]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Scores(Mapping[str, float]):
    """A mapping from metric names to values that remembers where they come from.

    Attributes:
        scores: one `Score` per metric, in the order asked for.
        source_ids: (n,) labels of all rows.
        status: (n,) outcomes of all rows.
        method: the method that was scored.
    """

    scores: tuple[Score, ...]
    source_ids: np.ndarray
    status: np.ndarray
    method: str = ""

    def __getitem__(self, name: str) -> float:
        return self.score(name).value

    def __iter__(self) -> Iterator[str]:
        return (s.name for s in self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def score(self, name: str) -> Score:
        """Return everything about one metric, by its name or an alias."""
        for s in self.scores:
            if name == s.name or (name in (s.metric.name, *s.metric.aliases) and self._once(s)):
                return s
        hint = did_you_mean(name, [s.name for s in self.scores])
        raise KeyError(f"no score {name!r}; {hint}")

    def _once(self, score: Score) -> bool:
        return sum(s.metric is score.metric for s in self.scores) == 1

    @property
    def reasons(self) -> dict[str, str]:
        """Why a metric has no value, or what to know about it; only where there is a remark."""
        return {s.name: s.reason for s in self.scores if s.reason}

    def to_frame(self) -> pd.DataFrame:
        """Return one line per metric: value, direction, unit, rows, their number, remark."""
        import pandas as pd

        columns = ["value", "better", "unit", "rows", "n", "reason"]
        lines = [
            (s.value, s.metric.better, s.metric.unit, s.metric.rows, len(s.positions), s.reason)
            for s in self.scores
        ]
        names = pd.Index([s.name for s in self.scores], name="metric")
        return pd.DataFrame(lines, columns=columns, index=names)

    def per_row(self) -> pd.DataFrame:
        """Return one line per row of the result; NaN where a metric does not look at the row."""
        import pandas as pd

        columns: dict[str, np.ndarray] = {"status": self.status}
        for s in self.scores:
            if s.values is not None:
                column = np.full(len(self.status), np.nan)
                column[s.positions] = s.values
                columns[s.name] = column
        return pd.DataFrame(columns, index=pd.Index(self.source_ids, name="row"))

    def bootstrap(self, level: float = 0.95, n: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Return percentile intervals from drawing rows with replacement.

        Metrics with a single value for all rows have no interval (NaN).

        Args:
            level: share of repetitions inside the interval.
            n: number of repetitions.
            seed: seed of the draws, the same for every metric.
        """
        import pandas as pd

        if not 0 < level < 1 or n < 1:
            raise ConfigError(f"level must lie in (0, 1) and n be positive, got {level} and {n}")
        lines = [(s.value, *_interval(s, level, n, seed)) for s in self.scores]
        names = pd.Index([s.name for s in self.scores], name="metric")
        return pd.DataFrame(lines, columns=["value", "lower", "upper"], index=names)

    def __repr__(self) -> str:
        width = max((len(s.name) for s in self.scores), default=0)
        head = f"{self.method or 'result'} on {len(self.status)} rows"
        known = [s for s in self.scores if not np.isnan(s.value)]
        missing = [s for s in self.scores if np.isnan(s.value)]
        lines = [self._line(s, width) for s in known]
        lines += [f"  {s.name:<{width}}   not available: {s.reason}" for s in missing]
        return "\n".join([head, *lines])

    @staticmethod
    def _line(s: Score, width: int) -> str:
        rows = "" if s.metric.rows == "cell" else f"{len(s.positions)} {s.metric.rows}"
        notes = "; ".join(part for part in (s.metric.unit, rows, s.reason) if part)
        return f"  {s.name:<{width}} {s.metric.arrow} {s.value:<10.4g} {notes}".rstrip()

    def _repr_html_(self) -> str:
        return self.to_frame().to_html()


def _interval(score: Score, level: float, n: int, seed: int) -> tuple[float, float]:
    if score.values is None:
        return float("nan"), float("nan")
    aggregate = score.metric.aggregate
    return bootstrap_interval(score.values, level=level, n=n, seed=seed, aggregate=aggregate)
