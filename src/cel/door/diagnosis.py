"""A no with reasons: what keeps rows from an answer, and which relaxation helps most."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cel.cf_methods.goals import Wish
from cel.door.aimed import AimedModel
from cel.door.merging import merged
from cel.door.portfolio import Portfolio
from cel.door.spaces import encoded_space, with_raw_rules
from cel.door.wanted import Aim, read_aims, regression_wish
from cel.preprocessing import Encoding, infer_space
from cel.protocols import Status, Task
from cel.result import ExplanationResult
from cel.space import Feature, FeatureSpace

if TYPE_CHECKING:
    from cel.door.explainer import Explainer

__all__ = ["Inquiry", "Relaxation", "relaxations"]

SHARE = 0.5  # of the time limit of the call that is asked about
SECONDS = 30.0  # without a limit
MOST = 24  # relaxations that are tried
COLUMNS = (
    "row", "status", "proved", "reason", "blocked_by", "relax", "how_far", "best_effort",
    "best_prediction",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Relaxation:
    """One constraint less.

    Attributes:
        words: the constraint, in words.
        columns: what it is about.
        space: raw features without it.
        max_changes: the limit of changes without it.
    """

    words: str
    columns: tuple[str, ...]
    space: FeatureSpace
    max_changes: int | None


def relaxations(
    space: FeatureSpace, own: FeatureSpace, max_changes: int | None, keep: set[str]
) -> Iterator[Relaxation]:
    """Yield what is left when one constraint is lifted.

    Args:
        space: raw features with their constraints.
        own: the same as they were observed.
        max_changes: limit of changes, or None.
        keep: columns whose constraints are no choice of the owner, such as dummies.
    """
    for f in space:
        if f.name in keep:
            continue
        for words, changes in _lifted(f, own[f.name]):
            made = space.with_changes(**{f.name: changes})
            yield Relaxation(words, (f.name,), made, max_changes)
    for rule in space.constraints:
        if not set(rule.features) <= keep:
            rest = tuple(r for r in space.constraints if r is not rule)
            yield Relaxation(
                str(rule), rule.features, replace(space, constraints=rest), max_changes
            )
    if max_changes is not None:
        yield Relaxation(f"at most {max_changes} columns change", (), space, None)


def _lifted(f: Feature, seen: Feature) -> Iterator[tuple[str, dict[str, Any]]]:
    if not f.mutable:
        yield f"{f.name} may not change", {"mutable": True}
        return
    if f.direction != "any":
        way = "rise" if f.direction == "up" else "fall"
        yield f"{f.name} may only {way}", {"direction": "any"}
    if f.hard:
        ends = {"lower": min(f.lower, seen.lower), "upper": max(f.upper, seen.upper)}
        yield f"{f.name} stays in {f.lower:,g} to {f.upper:,g}", ends | {"hard": False}
    if f.allowed is not None:
        yield f"{f.name} becomes only {', '.join(map(str, f.allowed))}", {"allowed": None}


@dataclass(frozen=True, eq=False)
class Inquiry:
    """Finds out why rows of a result have no answer.

    Attributes:
        explainer: who answered.
        wish: what rows should have become.
        time_limit: seconds of the call, or None.
    """

    explainer: Explainer
    wish: Any
    time_limit: float | None

    def __call__(self, result: ExplanationResult, rows: np.ndarray) -> pd.DataFrame:
        """Return one line for each of some rows (m,) without an answer."""
        table = pd.DataFrame({c: [None] * len(rows) for c in COLUMNS}, dtype=object)
        table["row"], table["status"] = result.source_ids[rows], result.status[rows]
        table["proved"] = result.status[rows] == Status.INFEASIBLE.value
        table["reason"] = [_reason(result, int(i)) for i in rows]
        asked = np.flatnonzero(result.status[rows] != Status.ERROR.value)
        if len(asked) and result.rows is not None:
            seconds = SECONDS if self.time_limit is None else SHARE * self.time_limit
            search = _SearchAgain(self.explainer, self.wish, result, rows[asked])
            for name, values in search.columns(seconds).items():
                table.loc[asked, name] = values
        return table


def _reason(result: ExplanationResult, row: int) -> str:
    if result.reasons is not None and result.reasons[row] is not None:
        return str(result.reasons[row])
    return {
        Status.INFEASIBLE.value: "it is proved that no allowed row is as wanted",
        Status.TIMEOUT.value: "the time was over before an answer was found",
        Status.INVALID.value: "what was found does not hold for the model",
    }.get(str(result.status[row]), "no allowed row that was tried is as wanted")


@dataclass(frozen=True, eq=False)
class _SearchAgain:
    """The rows of a call that have no answer, searched again with one constraint less."""

    explainer: Explainer
    wish: Any
    result: ExplanationResult
    rows: np.ndarray  # (m,) positions in the result

    @cached_property
    def frame(self) -> pd.DataFrame:
        assert self.result.rows is not None
        return self.result.rows.iloc[self.rows]

    def columns(self, seconds: float) -> dict[str, np.ndarray]:
        """Return what was found out, (m,) each."""
        options = list(self._options())[:MOST]
        each = seconds / (len(options) + 2)
        m = len(self.rows)
        out: dict[str, Any] = {}
        out["best_effort"], out["best_prediction"] = self._efforts(each)
        cost = np.full((m, max(len(options), 1)), math.inf)
        words = np.full(cost.shape, None, dtype=object)
        for j, option in enumerate(options):
            found = self._relaxed(np.arange(m), option, each)
            cost[found.found, j] = _cost(found)[found.found]
            words[:, j] = _how_far(found, option)
        helps, best = np.isfinite(cost), cost.argmin(1)
        names = np.array([o.words for o in options] or [""], dtype=object)
        out["blocked_by"] = np.array(["; ".join(names[h]) for h in helps], dtype=object)
        some = helps.any(1)
        out["relax"] = np.where(some, names[best], None)
        out["how_far"] = np.where(some, words[np.arange(m), best], None)
        left = np.flatnonzero(~some)
        out["blocked_by"][left] = self._without_any(left, options, each)
        return out

    def _without_any(
        self, left: np.ndarray, options: list[Relaxation], seconds: float
    ) -> np.ndarray:
        """Tell whether lifting all constraints at once helps rows that no single one helps."""
        out = np.full(len(left), "the model: there is no constraint to lift", dtype=object)
        if not len(left) or not options:
            return out
        raw, own = self.explainer.raw, self._observed
        assert raw is not None
        assert own is not None
        free = {f.name: _all_lifted(f, own[f.name]) for f in raw if f.name not in self._keep}
        rules = tuple(r for r in raw.constraints if set(r.features) <= self._keep)
        space = replace(raw.with_changes(**free), constraints=rules)
        found = self._relaxed(left, Relaxation("", (), space, None), seconds).found
        return np.where(found, "several constraints together", "the model, without any constraint")

    # -- what is lifted ----------------------------------------------------------------------

    @cached_property
    def _keep(self) -> set[str]:
        return {name for group in self.explainer.dummies for name in group}

    @cached_property
    def _observed(self) -> FeatureSpace | None:
        pipeline, table = Encoding.of(self.explainer.model).pipeline, self.explainer.background
        if pipeline is None or not isinstance(table, pd.DataFrame):
            return None
        return infer_space(table[list(pipeline.raw_space_.names)])

    def _options(self) -> Iterator[Relaxation]:
        raw, own = self.explainer.raw, self._observed
        if raw is not None and own is not None:
            most = self.explainer.restrictions.max_changes
            yield from relaxations(raw, own, most, self._keep)

    # -- searches ----------------------------------------------------------------------------

    def _relaxed(self, part: np.ndarray, option: Relaxation, seconds: float) -> ExplanationResult:
        """Search some of the rows, all together, with one constraint less."""
        known = with_raw_rules(self.explainer.model, option.space)
        space = encoded_space(known, option.space, option.max_changes)
        done = []
        for aim, at in self._by_aim(part):
            method = self._portfolio(known, aim, space, seconds)
            found = method.explain(self.frame.iloc[part[at]], self._target(aim, part[at]))
            done.append((at, found))
        return done[0][1] if len(done) == 1 else merged(done, len(part), self.frame.iloc[part])

    def _portfolio(
        self, known: Any, aim: Aim | None, space: FeatureSpace | None, seconds: float
    ) -> Portfolio:
        own = self.explainer.model
        model = known if aim is None else AimedModel(known, aim)
        fitted = self.explainer._method(own if aim is None else AimedModel(own, aim), 1)
        seed = getattr(fitted, "random_state", 0)
        made = Portfolio(model, space=space, dummies=self.explainer.dummies, random_state=seed)
        made.adopt_rows(fitted)
        pipeline = Encoding.of(model).pipeline
        made.encoding_ = replace(made.encoding_, pipeline=pipeline)
        made.time_limit, made.strict_time = seconds, True
        return made

    def _by_aim(self, part: np.ndarray) -> Iterator[tuple[Aim | None, np.ndarray]]:
        """Yield wishes and the positions in `part` that have them; None for plain classes."""
        explainer = self.explainer
        outcome = Encoding.of(explainer.model).target
        aims = None
        if explainer.task is Task.CLASSIFICATION and outcome is not None:
            hard = bool(getattr(explainer.model, "hard", False))
            least = getattr(explainer.model, "threshold", None)
            wishes = self._wishes(part)
            aims = read_aims(wishes, len(part), outcome, hard=hard, threshold=least)
        if aims is None:
            yield None, np.arange(len(part))
            return
        aims = aims * len(part) if len(aims) == 1 else aims
        codes, found = pd.factorize(np.array([str(a) for a in aims]))
        for k in range(len(found)):
            at = np.flatnonzero(codes == k)
            yield aims[at[0]], at

    def _wishes(self, part: np.ndarray) -> Any:
        """Return the wishes of some rows as they were given."""
        if not isinstance(self.wish, list | pd.Series | np.ndarray) or len(self.wish) == 1:
            return self.wish
        return [list(self.wish)[i] for i in self.rows[part]]

    def _target(self, aim: Aim | None, part: np.ndarray) -> Any:
        if aim is not None:
            return "wanted"
        wish = self._wishes(part)
        return Wish(regression_wish(wish)) if self.explainer.task is Task.REGRESSION else wish

    # -- the best that can be done -----------------------------------------------------------

    def _efforts(self, seconds: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the changes that come nearest, and what the model says of them, (m,) each."""
        m, explainer = len(self.rows), self.explainer
        words, said = np.full(m, None, dtype=object), np.full(m, np.nan)
        for aim, at in self._by_aim(np.arange(m)):
            method = self._portfolio(explainer.model, aim, explainer.space, seconds)
            frame = self.frame.iloc[at]
            tried = method.best_efforts(frame, self._target(aim, at))
            if tried is None or not len(tried.rows):
                continue
            answers, codes = tried.given.answers(tried.points, tried.rows)
            moved = tried.given.moved(codes, tried.rows)
            names = np.array(tried.given.raw.names, dtype=object)
            words[at[tried.rows]] = [
                _changes(frame.iloc[i], answers.iloc[k], names[moved[k]])
                for k, i in enumerate(tried.rows)
            ]
            said[at[tried.rows]] = self._said(answers, aim, at[tried.rows])
        return words, said

    def _said(self, answers: pd.DataFrame, aim: Aim | None, part: np.ndarray) -> np.ndarray:
        """Return the probability of what is wanted, or the predicted value, (m,)."""
        model = self.explainer.model
        if self.explainer.task is Task.REGRESSION:
            values = np.asarray(model.predict(answers)).reshape(len(answers), -1)
            if model.target_ is not None and model.target_.lower:
                values = model.target_.decode(values)
            return np.asarray(values[:, 0])
        proba = np.asarray(model.predict_proba(answers))
        if aim is not None:
            return np.asarray(proba[:, list(aim.classes)].sum(1))
        wanted = self.result.y_cf_targets[self.rows[part]]
        return np.asarray(proba[np.arange(len(answers)), wanted])


def _all_lifted(f: Feature, seen: Feature) -> dict[str, Any]:
    out: dict[str, Any] = {"mutable": True, "direction": "any", "hard": False, "allowed": None}
    if f.kind in ("continuous", "integer"):
        out |= {"lower": min(f.lower, seen.lower), "upper": max(f.upper, seen.upper)}
    return out


def _cost(result: ExplanationResult) -> np.ndarray:
    """(n,) distances in encoded units plus one per changed column, for the choice of the best."""
    away = np.abs(result.x_cfs - result.x_origs)
    return np.asarray(np.nan_to_num(away).sum(1))


def _how_far(result: ExplanationResult, option: Relaxation) -> np.ndarray:
    """(n,) what answers make of the columns that a constraint was about, in words."""
    changes = result.changes()
    labels = pd.Index(list(result.source_ids), tupleize_cols=False)
    if not option.columns:
        count = changes.groupby("row", sort=False).size()
        words = count.map(lambda k: f"{k} columns change")
    else:
        mine = changes[changes["feature"].isin(option.columns)]
        text = mine["feature"] + " " + mine["from"].map(_shown) + " -> " + mine["to"].map(_shown)
        words = text.groupby(mine["row"], sort=False).agg(", ".join)
    told = dict(zip(words.index, words, strict=True))
    return np.array([told.get(label) for label in labels], dtype=object)


def _changes(before: pd.Series, after: pd.Series, names: np.ndarray) -> str:
    parts = [f"{n} {_shown(before[n])} -> {_shown(after[n])}" for n in names]
    return ", ".join(parts) or "no change brings it nearer"


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
