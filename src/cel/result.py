"""What a method answers: one outcome per row, in encoded numbers and in original units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.display.for_people import ForPeople
from cel.errors import DataError
from cel.preprocessing import Encoding, GivenRows, companions
from cel.protocols import AnyPredictor, LogDensity, Proof, Status, Task
from cel.space import FeatureSpace, Target

if TYPE_CHECKING:
    import pandas as pd

    from cel.preprocessing import PreprocessingPipeline, Sheet

__all__ = ["EvaluationContext", "ExplanationResult"]


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationContext:
    """What metrics may look at besides the result itself; never stored.

    Attributes:
        model: the predictor that was explained.
        density: a density over encoded rows, or None.
        levels: log-densities of all training rows under `density`, from which thresholds follow
            (`cel.models.generative.levels.DensityLevels`), or None to compute them from `x_train`.
        judges: further densities by name, which no method has seen; if there are any, density
            scores are theirs.
        x_train: (m, d) encoded training rows, or None.
        y_train: (m,) or (m, o) what the model predicts for them, or None.
        x_test: (t, d) held-out rows, or None.
        y_test: what the model predicts for them, or None.
    """

    model: AnyPredictor | None = None
    density: LogDensity | None = None
    levels: Any = None
    judges: Mapping[str, LogDensity] = field(default_factory=dict)
    x_train: np.ndarray | None = None
    y_train: np.ndarray | None = None
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None

    @classmethod
    def of(
        cls, split: Any, model: AnyPredictor, density: LogDensity | None = None
    ) -> EvaluationContext:
        """Return the context of one fold: what was there before the test rows, and the test rows.

        Training and validation rows together are the reference. What the model predicts for them
        and for the held-out rows is asked for when a metric first needs it.
        """
        return cls(
            model=model,
            density=density,
            x_train=np.concatenate([split.train.X, split.valid.X]),
            x_test=split.test.X,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplanationResult(ForPeople):
    """Counterfactuals for n rows; every array has n entries and nothing is ever reordered.

    Attributes:
        x_origs: (n, d) encoded rows.
        x_cfs: (n, d) encoded counterfactuals, NaN where there is none.
        y_origs: (n,) predicted class positions, or (n, o) predicted values.
        y_cf_targets: (n,) wanted class positions, or (n, o) wanted values.
        y_cfs: predictions for the counterfactuals, -1 or NaN where there is none.
        status: (n,) `cel.protocols.Status` values.
        source_ids: (n,) labels of the rows, taken from the index of the frame that was given.
        space: the encoded features.
        pipeline: how to decode rows, or None for plain arrays.
        target: the outcome column, or None.
        sheet: what else the training table says: digits of numbers, columns that travel along.
        rows: the owner's rows as they were given, if they were a DataFrame.
        reasons: (n,) why a row ended as `error` or `infeasible`, None elsewhere; or None.
        x_sets: (n, k, d) several verified counterfactuals per row, NaN padded, or None.
        cf_group_ids: (n,) group, rule or direction that answered, -1 for none, or None.
        bound: (n,) proved lower bounds of the method's cost, NaN for none, or None.
        proof: (n,) `cel.protocols.Proof` values of the counterfactuals, or None. Bounds and proofs
            of rows that begin outside a hard range count from inside it, see `starts_outside`.
        seconds: wall-clock seconds by stage ("fit", "explain"), and CPU seconds of the process
            ("fit_cpu", "explain_cpu").
        method: registry name of the method.
        params: its settings.
        logs: anything worth telling, by topic.
        context: model, density and training rows for metrics; not stored.
        inquiry: what can find out why rows have no answer; not stored.
    """

    x_origs: np.ndarray
    x_cfs: np.ndarray
    y_origs: np.ndarray
    y_cf_targets: np.ndarray
    y_cfs: np.ndarray
    status: np.ndarray
    source_ids: np.ndarray
    space: FeatureSpace
    pipeline: PreprocessingPipeline | None = None
    target: Target | None = None
    sheet: Sheet | None = None
    rows: pd.DataFrame | None = None
    reasons: np.ndarray | None = None
    x_sets: np.ndarray | None = None
    cf_group_ids: np.ndarray | None = None
    bound: np.ndarray | None = None
    proof: np.ndarray | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    method: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    logs: Mapping[str, Any] = field(default_factory=dict)
    context: EvaluationContext | None = None
    inquiry: Callable[[ExplanationResult, np.ndarray], pd.DataFrame] | None = None

    def __post_init__(self) -> None:
        n = len(self.x_origs)
        for name in ("x_cfs", "y_origs", "y_cf_targets", "y_cfs", "status", "source_ids"):
            if len(getattr(self, name)) != n:
                raise DataError(f"{name} has {len(getattr(self, name))} rows, x_origs has {n}")
        self._check_proofs()
        if self.x_origs.shape != self.x_cfs.shape or self.x_origs.shape[1:] != (self.space.width,):
            raise DataError(
                f"rows have shape {self.x_origs.shape}, counterfactuals {self.x_cfs.shape}, "
                f"the space has {self.space.width} columns"
            )
        holds = ~np.isnan(self.x_cfs).any(1)
        if not np.array_equal(holds, self.has_candidate):
            row = int(np.flatnonzero(holds != self.has_candidate)[0])
            raise DataError(f"row {row} has status {self.status[row]!r} but its values disagree")

    def _check_proofs(self) -> None:
        for name in ("bound", "proof"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.x_origs):
                raise DataError(f"{name} has {len(values)} rows, x_origs has {len(self.x_origs)}")
        if self.proof is not None:
            wrong = (self.proof != Proof.NONE.value) & ~self.found
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise DataError(
                    f"row {row} has proof {self.proof[row]!r} but status {self.status[row]!r}"
                )

    def __len__(self) -> int:
        return len(self.x_origs)

    @property
    def task(self) -> Task:
        """Classification or regression."""
        return Task.REGRESSION if self.y_cf_targets.ndim == 2 else Task.CLASSIFICATION

    @property
    def found(self) -> np.ndarray:
        """(n,) bool: rows with a verified counterfactual."""
        return np.asarray(self.status == Status.FOUND.value)

    @property
    def has_candidate(self) -> np.ndarray:
        """(n,) bool: rows that hold a counterfactual, verified or not."""
        return np.asarray(self.found | (self.status == Status.INVALID.value))

    @property
    def explained(self) -> np.ndarray:
        """(n,) bool: rows that needed an explanation (not already in the target class)."""
        return np.asarray(self.status != Status.NOT_APPLICABLE.value)

    @property
    def unanswered(self) -> np.ndarray:
        """(n,) bool: rows that needed an answer and have none."""
        return np.asarray(~self.found & self.explained)

    @cached_property
    def starts_outside(self) -> np.ndarray:
        """(n,) bool: rows that begin outside a hard range and were searched.

        Their search begins at the nearest row inside. Costs, bounds and proofs count from there:
        what is proved to be cheapest is cheapest for somebody who is inside already. That no
        answer exists is proved for the row itself.
        """
        from cel.space.hard_ranges import outside_hard

        idle = np.isin(self.status, [Status.NOT_APPLICABLE.value, Status.ERROR.value])
        return np.asarray(outside_hard(self.x_origs, self.space).any(1) & ~idle)

    def counts(self) -> dict[str, int]:
        """Return how many rows ended in each status."""
        names, numbers = np.unique(self.status, return_counts=True)
        return {str(n): int(c) for n, c in zip(names, numbers, strict=True)}

    def proofs(self) -> dict[str, int]:
        """Return how much is known of the rows that needed an answer.

        "optimal" and "within_gap" count proved costs, "heuristic" counterfactuals without proof,
        "infeasible" rows for which it is proved that none exists.
        """
        proof = np.full(len(self), Proof.NONE.value) if self.proof is None else self.proof
        known = {p.value: int((proof == p.value).sum()) for p in Proof if p is not Proof.NONE}
        heuristic = int((self.found & (proof == Proof.NONE.value)).sum())
        impossible = int((self.status == Status.INFEASIBLE.value).sum())
        return known | {"heuristic": heuristic, "infeasible": impossible}

    def select(self, rows: Any) -> ExplanationResult:
        """Return some rows, given as positions or as a mask."""
        arrays = ("x_origs", "x_cfs", "y_origs", "y_cf_targets", "y_cfs", "status", "source_ids")
        optional = ("reasons", "x_sets", "cf_group_ids", "bound", "proof")
        changes = {n: getattr(self, n)[rows] for n in arrays}
        changes |= {n: getattr(self, n)[rows] for n in optional if getattr(self, n) is not None}
        if self.rows is not None:
            changes["rows"] = self.rows.iloc[np.arange(len(self))[rows]]
        return replace(self, **changes)

    def with_context(self, context: EvaluationContext) -> ExplanationResult:
        """Return the same result with another context."""
        return replace(self, context=context)

    # -- original units ----------------------------------------------------------------------

    @property
    def encoding(self) -> Encoding:
        """How rows become numbers and come back."""
        return Encoding(
            space=self.space, pipeline=self.pipeline, target=self.target, sheet=self.sheet
        )

    @cached_property
    def given(self) -> GivenRows | None:
        """The owner's rows beside their codes, or None for encoded rows."""
        if self.rows is None or self.pipeline is None:
            return None
        return replace(GivenRows.read(self.rows, self.encoding), x=self.x_origs)

    def decode(self, x: np.ndarray) -> pd.DataFrame:
        """Return encoded rows in original units; without a pipeline, columns get encoded names."""
        return self.encoding.decode(x)

    def originals(self) -> pd.DataFrame:
        """Return the explained rows in original units: the very rows if a table was given."""
        if self.rows is not None:
            return self.rows
        return self.decode(self.x_origs).set_axis(self.source_ids, axis=0)

    def to_frame(
        self, *, invalid: bool = False, sets: bool = False, proofs: bool = False
    ) -> pd.DataFrame:
        """Return the counterfactuals in original units, indexed like the rows they answer.

        What did not change is the owner's, bit for bit: columns that only travel along, index,
        order of columns and dtypes included.

        Args:
            invalid: also show candidates that failed verification, marked in `status`.
            sets: show all counterfactuals of a row, not only the first.
            proofs: add what is proved, in columns `proof` and `bound`; where rows begin outside a
                hard range, also `counted_from`: "the row", or "inside", see `starts_outside`.
        """
        if sets and self.x_sets is not None:
            return self._sets_frame()
        rows = np.flatnonzero(self.has_candidate if invalid else self.found)
        frame = self._answers(self.x_cfs[rows], rows)
        if proofs and self.proof is not None:
            frame = frame.assign(proof=self.proof[rows])
        if proofs and self.bound is not None:
            frame = frame.assign(bound=self.bound[rows])
        if proofs and self.proof is not None and self.starts_outside[rows].any():
            away = self.starts_outside[rows]
            frame = frame.assign(counted_from=np.where(away, "inside", "the row"))
        return frame.assign(status=self.status[rows]) if invalid else frame

    def _answers(self, x: np.ndarray, rows: np.ndarray) -> pd.DataFrame:
        """Return points (m, d) that answer rows (m,) as a table."""
        if self.given is not None:
            return self.given.written(x, rows)
        return self.decode(np.nan_to_num(x)).set_axis(self.source_ids[rows], axis=0)

    def _sets_frame(self) -> pd.DataFrame:
        assert self.x_sets is not None
        row, number = np.nonzero(~np.isnan(self.x_sets).any(-1))
        frame = self._answers(self.x_sets[row, number], row)
        frame.insert(0, "alternative", number)
        return frame

    def compared(
        self, x: np.ndarray, rows: np.ndarray
    ) -> tuple[pd.DataFrame, pd.DataFrame, list[str], np.ndarray]:
        """Return rows (m,) and points (m, d) in original units, and what differs.

        That is: the rows, the points, names of the p columns that may change, (m, p) bool which
        of them did.
        """
        after = self._answers(x, rows)
        if self.given is not None:
            names = list(self.given.raw.names)
            return self.given.frame.iloc[rows], after, names, self.given.moved(x, rows)
        before = self.decode(np.nan_to_num(self.x_origs[rows]))
        names, moved = self._moved_columns(before.columns, x, rows)
        return before.set_axis(after.index, axis=0), after, names, moved

    def _moved_columns(
        self, columns: pd.Index, x: np.ndarray, rows: np.ndarray
    ) -> tuple[list[str], np.ndarray]:
        """Return names of columns and (m, p) bool which changed, flags of gaps with their own."""
        from cel.space.distances import changed_features

        moved = changed_features(self.x_origs[rows], x, self.space)
        names = [n for n in self.space.names if n in columns]
        of = self.space.names.index
        parts = [[of(f) for f in companions(self.space, n)] for n in names]
        shape = (len(rows), len(names))
        return names, np.stack([moved[:, p].any(1) for p in parts], 1).reshape(shape)

    def diagnosis(self) -> pd.DataFrame:
        """Return one line per row without an answer: why, and what would help.

        For results of `cel.explain` and `Explainer` that are still at hand, each constraint is
        lifted in turn and the rows are searched again; results from files know only their status
        and their reasons. Columns: `row`, `status`, `proved` (whether it is proved that there is
        no answer), `reason`, `blocked_by`, `relax` (the constraint whose lifting helps most),
        `how_far`, `best_effort` and `best_prediction`.
        """
        return self._diagnosed(np.flatnonzero(self.unanswered))

    def _diagnosed(self, rows: np.ndarray) -> pd.DataFrame:
        """Return the lines of some rows (m,) without an answer; each is looked into once."""
        import pandas as pd

        from cel.result_io import reasons_table

        if self.inquiry is None:
            table = reasons_table(self).set_index(np.flatnonzero(self.unanswered))
            return table.loc[rows].reset_index(drop=True)
        new = np.setdiff1d(rows, [i for part in self._diagnosis for i in part.index])
        if len(new) or not self._diagnosis:
            self._diagnosis.append(self.inquiry(self, new).set_index(new))
        parts = [p for p in self._diagnosis if len(p)] or self._diagnosis[:1]
        return pd.concat(parts).loc[rows].reset_index(drop=True)

    @cached_property
    def _diagnosis(self) -> list[pd.DataFrame]:
        """What was found out by now, by positions of rows."""
        return []

    def __repr__(self) -> str:
        parts = ", ".join(f"{n} {s}" for s, n in self.counts().items())
        if self.proof is not None:
            known = {k: n for k, n in self.proofs().items() if n and k != "infeasible"}
            parts += "".join(f", {n} {k}" for k, n in known.items())
            moved = int(((self.proof != Proof.NONE.value) & self.starts_outside).sum())
            parts += f", {moved} proved from inside the ranges" if moved else ""
        return f"ExplanationResult({self.method or 'method'}: {len(self)} rows, {parts})"

    # -- files -------------------------------------------------------------------------------

    def to_parquet(self, path: str | Path) -> None:
        """Write the result to one parquet file, completely or not at all."""
        from cel.result_io import write_parquet

        write_parquet(self, Path(path))

    @classmethod
    def from_parquet(cls, path: str | Path) -> ExplanationResult:
        """Read a result written by `to_parquet`."""
        from cel.result_io import read_parquet

        return read_parquet(Path(path))

    def to_json(self) -> str:
        """Return the result as JSON text."""
        from cel.result_io import to_document

        return json.dumps(to_document(self))

    @classmethod
    def from_json(cls, text: str) -> ExplanationResult:
        """Read a result written by `to_json`."""
        from cel.result_io import from_text

        return from_text(text)
