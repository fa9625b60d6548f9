"""Random tables, constraints and models: no crash, no altered cell, no broken promise.

More of them: CEL_FRONTDOOR_EXAMPLES=20000 pytest tests/frontdoor/test_random_tables.py
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import cel
from cel.preprocessing import carried_columns, infer_space
from cel.space import LinearRelation

N = 48
EXAMPLES = int(os.environ.get("CEL_FRONTDOOR_EXAMPLES", "20"))


def _gaps(values, rng, share=0.15):
    values = values.copy()
    values[rng.random(len(values)) < share] = None if values.dtype == object else np.nan
    return values


NUMBERS = {
    "float": lambda r: r.normal(size=N),
    "cents": lambda r: r.gamma(2, 5000, N).round(2),
    "tiny": lambda r: r.random(N) * 1e-6,
    "huge": lambda r: r.random(N) * 1e12,
    "float with gaps": lambda r: _gaps(r.normal(50, 9, N), r),
    "whole floats": lambda r: r.integers(0, 9, N).astype(float),
    "float32": lambda r: r.random(N).astype(np.float32),
    "int": lambda r: r.integers(0, 60, N),
    "int8": lambda r: r.integers(-9, 9, N).astype(np.int8),
    "large int": lambda r: r.integers(10**9, 10**11, N),
    "Int64": lambda r: pd.array(_gaps(r.integers(0, 9, N).astype(object), r), dtype="Int64"),
    "pyarrow int": lambda r: pd.array(r.integers(0, 99, N), dtype="int64[pyarrow]"),
    "constant": lambda r: np.full(N, 7.5),
}
LABELS = {
    "text": lambda r: r.choice(["a", "b", "c"], N),
    "text with gaps": lambda r: _gaps(r.choice(["a", "b"], N).astype(object), r),
    "category": lambda r: pd.Categorical(r.choice(list("xyz"), N), list("wxyz")),
    "ordered": lambda r: pd.Categorical(r.choice(list("SML"), N), list("SML"), ordered=True),
    "bool": lambda r: r.random(N) < 0.5,
    "pyarrow text": lambda r: pd.array(r.choice(["u", "v"], N), dtype="string[pyarrow]"),
}
TRAVEL = {
    "date": lambda r: pd.date_range("2020-01-01", periods=N, tz="UTC"),
    "name": lambda r: np.array([f"n{i}" for i in range(N)], dtype=object),
    "decimal": lambda r: np.array([Decimal(i) / 3 for i in range(N)], dtype=object),
}
KINDS = NUMBERS | LABELS | TRAVEL
WISHES = {
    "ints": (1, 2),
    "text": ("no", "yes"),
    "bools": (False, True),
    "floats": (-1.0, 1.0),
    "positions turned round": (1, 0),
}


class Scored:
    """A model of the owner: a weighted sum over columns, with a threshold that a row meets."""

    def __init__(self, frame, rng, labels, soft):
        self.labels, self.soft = labels, soft
        weights = rng.normal(size=frame.shape[1])
        self.weight = {c: float(w) for c, w in zip(frame, weights, strict=True)}
        self.parts = {c: self._learn(frame[c], rng) for c in frame}
        self.edge = float(np.sort(self.score(frame))[int(0.6 * len(frame))])

    @staticmethod
    def _learn(values, rng):
        if pd.api.types.is_bool_dtype(values.dtype):
            return None
        if pd.api.types.is_numeric_dtype(values.dtype):
            numbers = values.to_numpy(dtype=float, na_value=np.nan)
            return float(np.nanmean(numbers)), float(np.nanstd(numbers)) or 1.0
        return None

    def score(self, frame):
        total = np.zeros(len(frame))
        for c, known in self.parts.items():
            if known is not None:
                numbers = frame[c].to_numpy(dtype=float, na_value=np.nan)
                part = np.nan_to_num((numbers - known[0]) / known[1], nan=0.7)
            else:
                text = frame[c].astype(object).map(str)
                part = text.map(lambda v: (sum(map(ord, v)) % 7) / 3 - 1).to_numpy(dtype=float)
            total += self.weight[c] * part
        return total

    drawn = ""

    def __repr__(self):
        return f"Scored({self.drawn})"

    def __call__(self, frame):
        away = self.score(frame) - self.edge
        if self.soft:
            return 1 / (1 + np.exp(-np.clip(away, -30, 30)))
        return (away >= 0).astype(float)

    def predict(self, frame):
        return np.array(self.labels, dtype=object)[(self(frame) >= 0.5).astype(int)]


@dataclass(frozen=True)
class Case:
    frame: pd.DataFrame
    model: Scored
    rows: pd.DataFrame
    target: Any
    immutable: tuple[str, ...]
    space: Any
    directions: dict[str, str]
    ranges: dict[str, tuple[float, float]]
    relation: LinearRelation | None
    method: str


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=2, max_size=6))
    if not any(k in NUMBERS or k in LABELS for k in kinds):
        kinds.append("float")
    frame = pd.DataFrame({f"c{i} {k}": KINDS[k](rng) for i, k in enumerate(kinds)})
    frame.index = draw(
        st.sampled_from(
            [
                pd.RangeIndex(N, name="nr"),
                pd.Index([f"id{i}" for i in range(N)]),
                pd.MultiIndex.from_arrays([range(N), ["x"] * N], names=["i", "k"]),
                pd.date_range("2021-05-01", periods=N, freq="D", name="day"),
            ]
        )
    )
    labels = WISHES[draw(st.sampled_from(sorted(WISHES)))]
    model = Scored(frame, rng, labels, draw(st.booleans()))
    features = [c for c in frame if c not in carried_columns(frame)]
    numbers = [c for c in features if infer_space(frame[[c]])[c].kind in ("continuous", "integer")]
    immutable = tuple(draw(st.lists(st.sampled_from(features), max_size=2, unique=True)))
    directions = {c: draw(st.sampled_from(["up", "down"])) for c in numbers if draw(_rarely())}
    ranges = {}
    for c in numbers:
        values = np.sort(frame[c].to_numpy(dtype=float, na_value=np.nan))
        values = values[~np.isnan(values)]
        if draw(_rarely()) and values[0] < values[-1]:
            low = float(values[len(values) // 5])
            ranges[c] = (low, max(float(values[-3]), low))
    relation = None
    if len(numbers) >= 2 and draw(_rarely()):
        relation = LinearRelation.of({numbers[0]: 1.0, numbers[1]: -1.0}, float(rng.normal()))
    space = None
    if directions or ranges or relation:
        constraints = () if relation is None else (relation,)
        space = infer_space(frame[features], directions=directions, constraints=constraints)
        space = space.with_changes(**{c: {"lower": a, "upper": b} for c, (a, b) in ranges.items()})
    order = list(draw(st.permutations(list(frame.columns))))
    rows = frame[model.predict(frame) == labels[0]].iloc[: draw(st.integers(0, 8))][order]
    method = draw(st.sampled_from(["dice"] * 5 + ["sace", "globe_ce", "glance"]))
    return Case(
        frame, model, rows, labels[1], immutable, space, directions, ranges, relation, method
    )


def _rarely():
    return st.integers(0, 3).map(lambda v: v == 0)


def explain(case):
    options = {"total_CFs": 4, "samples": 60} if case.method == "dice" else {}
    return cel.explain(
        case.model,
        case.rows,
        train=case.frame,
        classes=list(case.model.labels),
        target=case.target,
        immutable=case.immutable,
        space=case.space,
        method=case.method,
        **options,
    )


def check(case, result):
    """Assert everything that an owner may rely on."""
    found = np.flatnonzero(result.found)
    answers, before = result.to_frame(), case.rows.iloc[found]
    assert "error" not in result.counts(), result.reasons
    assert list(answers.columns) == list(case.rows.columns)
    assert answers.dtypes.to_dict() == case.rows.dtypes.to_dict()
    assert answers.index.equals(before.index)
    assert answers.index.names == before.index.names
    if len(found):
        assert (case.model.predict(answers) == case.target).all()
    changes = result.changes()
    told = set(zip(map(str, changes["row"]), changes["feature"], strict=True))
    for c in answers:
        moved = ~_same(before[c], answers[c])
        assert {(str(i), c) for i in before.index[moved]} == {t for t in told if t[1] == c}
        if c in case.immutable:
            assert not moved.any()
    for c, way in case.directions.items():
        old, new = _numbers(before[c]), _numbers(answers[c])
        known = ~np.isnan(old) & ~np.isnan(new)
        assert ((new >= old) if way == "up" else (new <= old))[known].all()
    for c, (low, high) in case.ranges.items():
        new = _numbers(answers[c])
        slack = 1e-9 * max(abs(low), abs(high), 1)
        inside = (new >= low - slack) & (new <= high + slack)
        assert (inside | np.isnan(new)).all(), (c, new[~inside], low, high)
    if case.relation is not None:
        new, old = (_left(case.relation, f) for f in (answers, before))
        bound = np.fmax(case.relation.bound, np.nan_to_num(old, nan=case.relation.bound))
        slack = 1e-6 * np.fmax(np.abs(new), 1)
        assert (np.isnan(new) | (new <= bound + slack)).all()


def _numbers(values):
    return values.to_numpy(dtype=float, na_value=np.nan)


def _left(relation, frame):
    return sum(c * _numbers(frame[n]) for n, c in relation.terms)


def _same(a, b):
    a, b = a.astype(object).to_numpy(), b.astype(object).to_numpy()
    return np.array(
        [
            (pd.isna(x) and pd.isna(y))
            if pd.isna(x) or pd.isna(y)
            else (type(x) is type(y) and x == y)
            for x, y in zip(a, b, strict=True)
        ],
        dtype=bool,
    )


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="CEL_FRONTDOOR_EXAMPLES" not in os.environ,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(cases())
def test_answers_keep_every_promise(case):
    check(case, explain(case))


# -- the call: cheap examples, many of them ----------------------------------------------------

CALLS = int(os.environ.get("CEL_FRONTDOOR_EXAMPLES", "25"))
CHEAP = ["float", "cents", "int", "Int64", "float with gaps", "large int", "text", "bool"]
CHEAP += ["ordered"]


@st.composite
def calls(draw):
    """Draw a small table, keywords, a wish and a method that costs little."""
    start = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(start)
    kinds = draw(st.lists(st.sampled_from(CHEAP), min_size=2, max_size=4))
    frame = pd.DataFrame({f"c{i} {k}": KINDS[k](rng) for i, k in enumerate(kinds)}).head(24)
    labels = WISHES[draw(st.sampled_from(sorted(WISHES)))]
    model = Scored(frame, rng, labels, soft=True)
    model.drawn = f"seed {start}, {kinds}, {labels}"
    space = infer_space(frame)
    numbers = [f.name for f in space if f.kind in ("continuous", "integer")]
    words = [f.name for f in space if f.kind == "categorical"]
    rules = {"immutable": draw(st.lists(st.sampled_from(list(frame)), max_size=1))}
    for name in numbers:
        kind = draw(st.sampled_from(["", "", "increasing", "decreasing", "ranges"]))
        if kind == "ranges":
            known = np.sort(_numbers(frame[name])[~np.isnan(_numbers(frame[name]))])
            rules.setdefault("ranges", {})[name] = (float(known[3]), float(known[-3]))
        elif kind:
            rules.setdefault(kind, []).append(name)
    for name in words:
        if draw(_rarely()):
            rules.setdefault("allowed", {})[name] = [space[name].categories[-1]]
    if len(numbers) > 1 and draw(_rarely()):
        rules["relations"] = [f"`{numbers[0]}` <= `{numbers[1]}` + {abs(rng.normal()):.2f}"]
    if draw(st.booleans()):
        rules["max_changes"] = draw(st.integers(1, 2))
    if draw(_rarely()):
        rules["weights"] = {next(iter(frame)): 7.0}
    wish = draw(st.sampled_from(["plain", "sure", "set", "each"]))
    sure = draw(st.sampled_from([0.4, 0.7]))
    method = draw(st.sampled_from(["nearest", "nearest", "nearest", "nice"]))
    rows = frame[model(frame) < 0.4].head(draw(st.integers(1, 4)))
    return frame, model, rows, rules, wish, sure, method


def wished(wish, sure, model, rows):
    """Return the target, and the probability that answers must have at least."""
    yes = model.labels[1]
    return {
        "plain": (yes, 0.5),
        "sure": ({yes: sure}, sure),
        "set": ({yes}, 0.5),
        "each": ([cel.Target.probability(yes, sure)] * len(rows), sure),
    }[wish]


def keeps(rules, before, after):
    for name in rules["immutable"]:
        assert _same(before[name], after[name]).all()
    for kind, sign in (("increasing", 1), ("decreasing", -1)):
        for name in rules.get(kind, []):
            step = sign * (_numbers(after[name]) - _numbers(before[name]))
            assert (np.isnan(step) | (step >= 0)).all()
    for name, (low, high) in rules.get("ranges", {}).items():
        new = _numbers(after[name])
        slack = 1e-9 * max(abs(low), abs(high), 1)
        assert (np.isnan(new) | ((new >= low - slack) & (new <= high + slack))).all()
    for name, labels in rules.get("allowed", {}).items():
        assert (_same(before[name], after[name]) | after[name].isin(labels).to_numpy()).all()
    for text in rules.get("relations", []):
        left, right, room = re.fullmatch(r"`(.+)` <= `(.+)` \+ (.+)", text).groups()
        new, old = (_numbers(f[left]) - _numbers(f[right]) - float(room) for f in (after, before))
        slack = 1e-6 * np.fmax(np.abs(_numbers(after[left])), 1)
        assert (np.isnan(new) | (new <= np.fmax(np.nan_to_num(old), 0.0) + slack)).all()
    if "max_changes" in rules:
        moved = np.stack([~_same(before[c], after[c]) for c in after], 1).sum(1)
        assert (moved <= rules["max_changes"]).all()


def check_call(case, **more):
    frame, model, rows, rules, wish, sure, method = case
    if not len(rows):
        return
    target, least = wished(wish, sure, model, rows)
    try:
        explainer = cel.Explainer(
            model.__call__,
            frame,
            classes=list(model.labels),
            target=target,
            method=method,
            **rules,
        )
    except cel.CelError as error:
        if "contradict" in str(error) or "no background row" in str(error):
            return
        raise
    result = explainer.explain(rows, **more)
    assert "error" not in result.counts(), result.reasons
    answers = result.to_frame()
    before = rows.loc[answers.index]
    assert answers.dtypes.to_dict() == rows.dtypes.to_dict()
    keeps(rules, before, answers)
    if len(answers):
        assert (model(answers) >= least).all()
    told = set(zip(map(str, result.changes()["row"]), result.changes()["feature"], strict=True))
    moved = {(str(i), c) for c in answers for i in before.index[~_same(before[c], answers[c])]}
    assert moved == told


def test_what_is_judged_is_what_comes_back():
    """Digits of huge numbers and a relation: writing an answer a second time made it another."""
    rng = np.random.default_rng(4)
    kinds = ["bool", "large int", "Int64", "ordered"]
    frame = pd.DataFrame({f"c{i} {k}": KINDS[k](rng) for i, k in enumerate(kinds)}).head(24)
    model = Scored(frame, rng, (False, True), soft=True)
    rules = {"immutable": ["c0 bool"], "relations": ["`c1 large int` <= `c2 Int64` + 1.28"]}
    rows = frame[model(frame) < 0.4].head(4)
    check_call((frame, model, rows, rules, "plain", 0.4, "nearest"))


UNSEEN = pytest.mark.filterwarnings("ignore:the model predicts")  # small tables may lack a class


def _many(number):
    return settings(
        max_examples=number,
        deadline=None,
        derandomize="CEL_FRONTDOOR_EXAMPLES" not in os.environ,
        suppress_health_check=list(HealthCheck),
        database=None,
    )


@UNSEEN
@_many(CALLS)
@given(calls())
def test_the_call_keeps_every_promise(case):
    check_call(case)


def _hundred(number):
    """A test of a hundred examples of its own, the same in every run."""

    @UNSEEN
    @seed(number)
    @settings(
        max_examples=100, deadline=None, derandomize=False, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(calls())
    def test(case):
        check_call(case)

    return test


for _number in range(10):  # a thousand in every run, in parts that workers share
    globals()[f"test_a_hundred_calls_keep_every_promise_{_number}"] = _hundred(_number)


@UNSEEN
@pytest.mark.slow
@_many(50)
@given(calls(), st.integers(1, 3))
def test_the_portfolio_keeps_every_promise(case, n):
    check_call((*case[:-1], "auto"), n=n)
