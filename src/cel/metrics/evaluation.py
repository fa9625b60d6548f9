"""What a metric sees: the selected rows of a result and everything that is known about them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from cel.errors import CelError, MissingInputError, UnsupportedError
from cel.metrics.base import NEEDS, Rows
from cel.metrics.references import References
from cel.models.generative.levels import DensityLevels, log_density_of
from cel.protocols import AnyPredictor, LogDensity, Task, positions
from cel.result import EvaluationContext, ExplanationResult
from cel.space import FeatureSpace

__all__ = ["Evaluation", "chunks"]

T = TypeVar("T")
CHUNK_VALUES = 2**22  # entries of one matrix handed on at a time


def chunks(n: int, width: int) -> list[slice]:
    """Cut `n` rows of `width` values into pieces that fit in memory; at least one piece.

    >>> chunks(3, CHUNK_VALUES)
    [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    size = max(1, CHUNK_VALUES // max(width, 1))
    return [slice(i, min(i + size, n)) for i in range(0, max(n, 1), size)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Evaluation:
    """The selected rows of one result, with lazily computed and shared knowledge.

    Attributes:
        result: the whole result.
        context: model, density and reference rows.
        references: the store of fitted references.
        method: the fitted method, for metrics that ask it again, or None.
        labels: (m,) or (m, o) recorded outcomes of the training rows, for retraining, or None.
        kind: which rows are selected.
        positions: (s,) the selected rows.
    """

    result: ExplanationResult
    context: EvaluationContext = field(default_factory=EvaluationContext)
    references: References = field(default_factory=References)
    method: Any = None
    labels: np.ndarray | None = None
    kind: Rows = "cell"
    positions: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def of(self, kind: Rows) -> Evaluation:
        """Return the same evaluation with other rows selected."""
        masks = {
            "explained": self.result.explained,
            "candidates": self.result.has_candidate,
            "found": self.result.found,
            "cell": np.zeros(len(self.result), dtype=bool),
        }
        return replace(self, kind=kind, positions=np.flatnonzero(masks[kind]))

    def __len__(self) -> int:
        return len(self.positions)

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """Return what was computed for this result before, or compute it."""
        if key not in self._memo:
            self._memo[key] = build()
        found: T = self._memo[key]
        return found

    # -- the selected rows -------------------------------------------------------------------

    @property
    def space(self) -> FeatureSpace:
        """The encoded features."""
        return self.result.space

    @property
    def task(self) -> Task:
        """Classification or regression."""
        return self.result.task

    @property
    def x(self) -> np.ndarray:
        """(s, d) originals."""
        return np.asarray(self.result.x_origs[self.positions])

    @property
    def cf(self) -> np.ndarray:
        """(s, d) counterfactuals."""
        return np.asarray(self.result.x_cfs[self.positions])

    @property
    def target(self) -> np.ndarray:
        """(s,) wanted class positions, or (s, o) wanted values."""
        return np.asarray(self.result.y_cf_targets[self.positions])

    @property
    def predicted(self) -> np.ndarray:
        """Predictions for the counterfactuals, by the model if there is one."""
        return np.asarray(self.memo("predicted", self._predict_all)[self.positions])

    def _predict_all(self) -> np.ndarray:
        out = np.array(self.result.y_cfs)
        have = self.result.has_candidate
        if self.context.model is not None and have.any():
            said = self.answers_of_model()[3]
            regression = self.task is Task.REGRESSION
            out = out.astype(np.float64 if regression else np.int64)
            out[have] = said if regression else positions(self.context.model, said)
        return out

    def answers_of_model(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Ask the model about all rows and candidates at once.

        Returns:
            (rows that can be asked about, rows with a candidate, probabilities or values of the
            former, of the latter).
        """
        return self.memo("answers_of_model", self._ask)

    def _ask(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        r = self.result
        usable = np.flatnonzero(np.isfinite(r.x_origs).all(1))
        have = np.flatnonzero(r.has_candidate)
        ask = self.predict if self.task is Task.REGRESSION else self.probabilities
        if r.given is not None and getattr(self.model, "reads_tables", False):
            answers = r.given.written(r.x_cfs[have], have)
            said = [self._of_table(t) for t in (r.given.frame.iloc[usable], answers)]
            return usable, have, said[0], said[1]
        both = ask(np.concatenate([r.x_origs[usable], r.x_cfs[have]]))
        return usable, have, both[: len(usable)], both[len(usable) :]

    def _of_table(self, table: Any) -> np.ndarray:
        """Ask about rows as their owner shows them."""
        if self.task is Task.REGRESSION:
            values = np.asarray(self.model.predict(table), dtype=np.float64)
            return np.asarray(values.reshape(len(table), -1))
        return np.asarray(self.model.predict_proba(table))

    @property
    def tolerance(self) -> float:
        """Largest |prediction - target| of a regression answer, in units of the range."""
        return float(self.result.params.get("tolerance", 0.05))

    def achieved(self, outcome: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Tell for each row whether the outcome is the wanted one."""
        if self.task is Task.REGRESSION:
            return np.asarray(np.abs(outcome - target).max(-1) <= self.tolerance)
        return np.asarray(outcome == target)

    # -- what was given ----------------------------------------------------------------------

    def has(self, need: str) -> bool:
        """Tell whether an input is there (see `cel.metrics.base.NEEDS`)."""
        c, r = self.context, self.result
        known = {
            "model": c.model is not None,
            "density": c.density is not None or bool(c.judges),
            "coach": c.density is not None,
            "train": c.x_train is not None and len(c.x_train) > 0,
            "test": c.x_test is not None and len(c.x_test) > 0,
            "sets": r.x_sets is not None,
            "method": self.method is not None,
            "protected": any(f.protected for f in self.space),
            "units": r.cf_group_ids is not None or "units" in r.logs,
        }
        return known[need]

    def _require(self, need: str, value: T | None) -> T:
        if value is None:
            raise MissingInputError(f"needs {NEEDS[need]}")
        return value

    @property
    def model(self) -> Any:
        """The explained model."""
        return self._require("model", self.context.model)

    @property
    def x_train(self) -> np.ndarray:
        """(m, d) training rows."""
        return self._require("train", self.context.x_train)

    @property
    def y_train(self) -> np.ndarray:
        """(m,) or (m, o) what the model predicts for the training rows."""
        if self.context.y_train is not None:
            return self.context.y_train
        return self.shared("train_predictions", lambda: self.predict(self.x_train), model=True)

    @property
    def x_test(self) -> np.ndarray:
        """(t, d) held-out rows."""
        return self._require("test", self.context.x_test)

    @property
    def y_test(self) -> np.ndarray:
        """(t,) or (t, o) what the model predicts for the held-out rows."""
        if self.context.y_test is not None:
            return self.context.y_test
        return self.shared("test_predictions", lambda: self.predict(self.x_test), model=True)

    def shared(
        self,
        kind: str,
        build: Callable[[], T],
        key: tuple[Hashable, ...] = (),
        *,
        model: bool = False,
        density: bool = False,
    ) -> T:
        """Return a reference fitted on the reference rows, once for all methods.

        Args:
            kind: of reference.
            build: fits it.
            key: what tells it from others of its kind.
            model: whether it depends on the model, or on what it predicts for the rows.
            density: whether it depends on the density.
        """
        store = self.references
        rows = self.memo("rows", lambda: store.rows_of(self.context))
        used = [store.identity(self.context.model)] if model else []
        used += [store.identity(self.context.density)] if density else []
        return store.get(kind, (rows, *key, *used), build, of_rows=not used)

    # -- asking the models -------------------------------------------------------------------

    def predict(self, x: np.ndarray, model: AnyPredictor | None = None) -> np.ndarray:
        """Return class positions (n,) or values (n, o), in chunks."""
        asked = self.model if model is None else model
        parts = [self._predict(asked, x[part]) for part in chunks(len(x), x.shape[1])]
        return np.concatenate(parts)

    def _predict(self, model: AnyPredictor, x: np.ndarray) -> np.ndarray:
        rows = np.ascontiguousarray(x, dtype=np.float32)
        if self.task is Task.REGRESSION:
            return np.asarray(model.predict(rows), dtype=np.float64).reshape(len(rows), -1)
        return positions(model, self.probabilities(rows, model))

    def probabilities(self, x: np.ndarray, model: AnyPredictor | None = None) -> np.ndarray:
        """Return class probabilities (n, K)."""
        asked = self.model if model is None else model
        if not hasattr(asked, "predict_proba"):
            raise UnsupportedError(f"{type(asked).__name__} has no predict_proba")
        return np.asarray(asked.predict_proba(np.ascontiguousarray(x, dtype=np.float32)))

    @property
    def coach(self) -> LogDensity:
        """The density that methods may query."""
        return self._require("coach", self.context.density)

    def log_prob(
        self, x: np.ndarray, context: np.ndarray, density: LogDensity | None = None
    ) -> np.ndarray:
        """Return log p(x | context) of shape (n,), in chunks; by default under the coach."""
        asked = self.coach if density is None else density
        try:
            return log_density_of(asked, x, context)
        except CelError as problem:
            raise UnsupportedError(f"the density refused the rows: {problem}") from problem

    @property
    def levels(self) -> DensityLevels:
        """Log-densities of the training rows: those of the context, or of its training rows."""
        if self.context.levels is not None:
            levels: DensityLevels = self.context.levels
            return levels
        coach = self.coach
        try:
            return self.shared(
                "levels",
                lambda: DensityLevels.of(coach, self.x_train, self.y_train),
                model=True,
                density=True,
            )
        except CelError as problem:
            raise UnsupportedError(f"the density refused the rows: {problem}") from problem
