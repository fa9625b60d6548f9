"""Projection and snapping on random spaces, against a QP solver and by their own rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cel.space import Feature, FeatureSpace, Implication, LinearRelation, Region

SETTINGS = settings(max_examples=60, deadline=None)
KINDS = ("continuous", "integer", "ordinal", "categorical")


@st.composite
def feature(draw, position, column):
    kind = draw(st.sampled_from(KINDS))
    common = {"name": f"f{position}", "kind": kind, "mutable": draw(st.integers(0, 4)) > 0}
    if kind == "categorical":
        size = draw(st.integers(1, 4))
        labels = tuple("abcd"[:size])
        allowed = draw(st.none() | st.sets(st.sampled_from(labels)).map(tuple))
        columns = tuple(range(column, column + size))
        return Feature(columns=columns, categories=labels, allowed=allowed, **common)
    common |= {"columns": (column,), "direction": draw(st.sampled_from(["any", "up", "down"]))}
    if kind == "ordinal":
        labels, scale = tuple("vwxyz"), draw(st.sampled_from([1.0, 0.25, 3.0]))
        shift = draw(st.sampled_from([0.0, -0.7, 20.0]))
        allowed = draw(st.none() | st.sets(st.sampled_from(labels)).map(tuple))
        bounds = {"lower": shift, "upper": shift + 4 * scale, "step": scale, "anchor": shift}
        return Feature(categories=labels, allowed=allowed, **bounds, **common)
    lower = draw(st.floats(-50, 50))
    width = draw(st.sampled_from([0.0, 0.3, 1.0, 40.0]))
    step = draw(st.sampled_from([0.07, 0.5, 1.0])) if kind == "integer" else None
    return Feature(lower=lower, upper=lower + width, step=step, **common)


@st.composite
def constraints(draw, features):
    numbers = [f for f in features if not f.is_categorical]
    labels = [f for f in features if f.categories]
    found = []
    if len(numbers) > 1 and draw(st.booleans()):
        first, second = numbers[0], numbers[-1]
        found.append(LinearRelation.of({first.name: 1, second.name: -1}, draw(st.floats(-1, 1))))
        middle = sum(0.5 * f.lower + 0.5 * f.upper for f in numbers)
        found.append(LinearRelation.of({f.name: 1.0 for f in numbers}, middle))
    if len(labels) > 1 and draw(st.booleans()):
        first, second = labels[0], labels[-1]
        found.append(
            Implication(first.name, first.categories[:1], second.name, second.categories[:2])
        )
        found.append(
            Implication(second.name, second.categories[:1], first.name, first.categories[-1:])
        )
    return tuple(found)


@st.composite
def spaces(draw, constrained=True):
    features, column = [], 0
    for position in range(draw(st.integers(1, 5))):
        features.append(draw(feature(position, column)))
        column += len(features[-1].columns)
    rules = draw(constraints(features)) if constrained else ()
    return FeatureSpace(tuple(features), rules)


def origins(space, rng, n=8):
    """Rows as data are: on the grid, one category each, some of them beyond the bounds."""
    x = np.zeros((n, space.width))
    for f in space:
        if f.is_categorical:
            x[np.arange(n), rng.choice(f.columns, size=n)] = 1.0
            x[0, list(f.columns)] = 0.0 if rng.random() < 0.2 else x[0, list(f.columns)]
            continue
        spread = max(f.upper - f.lower, 1.0)
        values = f.lower + spread * rng.uniform(-0.5, 1.5, size=n)
        if f.kind == "ordinal":
            values = f.anchor + f.step * rng.integers(0, 5, size=n)
        elif f.step is not None and rng.random() < 0.7:
            values = f.anchor + f.step * np.rint((values - f.anchor) / f.step)
        x[:, f.columns[0]] = values
    return x


def candidates(space, origin, rng):
    unit = np.maximum(space.vector("upper") - space.vector("lower"), 1.0)
    return origin + unit * rng.normal(scale=1.0, size=origin.shape)


def case(space, seed, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    origin = origins(space, rng)
    x = candidates(space, origin, rng)
    region = Region.around(space, torch.as_tensor(origin, dtype=dtype))
    return region, torch.as_tensor(x, dtype=dtype), rng


SEEDS = st.integers(0, 2**32 - 1)


@SETTINGS
@given(spaces(), SEEDS)
def test_origin_is_always_contained(space, seed):
    region, _, _ = case(space, seed)
    assert region.contains(region.origin).all()
    assert region.contains(region.snap(region.origin)).all()


@SETTINGS
@given(spaces(), SEEDS, st.sampled_from([torch.float64, torch.float32]))
def test_snap_is_contained(space, seed, dtype):
    region, x, rng = case(space, seed, dtype)
    snapped = region.snap(x)
    broken = {k: v.tolist() for k, v in region.violations(snapped).items() if v.any()}
    assert region.contains(snapped).all(), broken
    frozen = region.freeze(rng.random((len(x), len(space))) < 0.5)
    assert frozen.contains(frozen.snap(x)).all()
    assert region.contains(frozen.snap(x)).all()


@SETTINGS
@given(spaces(), SEEDS, st.sampled_from([torch.float64, torch.float32]))
def test_snap_leaves_what_is_contained(space, seed, dtype):
    region, x, _ = case(space, seed, dtype)
    snapped = region.snap(x)
    assert torch.allclose(region.snap(snapped), snapped, atol=0, rtol=1e-6)


@SETTINGS
@given(spaces(), SEEDS)
def test_immutable_columns_are_equal_bit_for_bit(space, seed):
    region, x, _ = case(space, seed)
    still = ~torch.as_tensor(space.mutable_mask)[region.layout.owner]
    for moved in (region.project(x), region.snap(x)):
        assert torch.equal(moved[:, still], region.origin[:, still])


@SETTINGS
@given(spaces(), SEEDS)
def test_projection_is_idempotent(space, seed):
    region, x, _ = case(space, seed)
    once = region.project(x)
    assert torch.allclose(region.project(once), once, atol=1e-12, rtol=0)


@SETTINGS
@given(spaces(), SEEDS)
def test_projection_is_non_expansive(space, seed):
    region, x, rng = case(space, seed)
    y = x + torch.as_tensor(rng.normal(size=x.shape))
    before, after = (x - y).norm(dim=1), (region.project(x) - region.project(y)).norm(dim=1)
    assert (after <= before + 1e-9).all()


@SETTINGS
@given(spaces(constrained=False), SEEDS)
def test_snapped_rows_project_to_themselves(space, seed):
    region, x, _ = case(space, seed)
    known = torch.stack(
        [region.origin[:, list(f.columns)].sum(1) == 1 for f in space.categorical_features]
        or [torch.ones(len(x), dtype=torch.bool)]
    ).all(0)
    snapped = region.snap(x)[known]
    inside = region.select(known)
    assert torch.allclose(inside.project(snapped), snapped, atol=1e-6, rtol=1e-6)


@settings(max_examples=12, deadline=None)
@given(spaces(constrained=False), SEEDS)
def test_projection_equals_a_qp_solver(space, seed):
    cvxpy = pytest.importorskip("cvxpy")
    region, x, _ = case(space, seed)
    got = region.project(x).numpy()
    for i in (1, 2):
        z = cvxpy.Variable(space.width)
        rules = []
        for f in space:
            columns, home = list(f.columns), region.origin[i].numpy()
            if not f.is_categorical:
                rules += [z[columns] >= region.lower[i, columns].numpy()]
                rules += [z[columns] <= region.upper[i, columns].numpy()]
                continue
            closed = [c for c in columns if not region.reachable[i, c]]
            rules += [z[columns] >= 0, cvxpy.sum(z[columns]) == 1]
            rules += [z[closed] == 0] if closed else []
            assert home[columns].sum() == 1
        problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(z - x[i].numpy())), rules)
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
        assert np.allclose(z.value, got[i], atol=1e-4 * max(1.0, float(x[i].abs().max())))


@SETTINGS
@given(spaces(), SEEDS)
def test_arrays_and_tensors_agree(space, seed):
    region, x, _ = case(space, seed)
    from_arrays = space.region(region.origin.numpy())
    for name in ("project", "snap", "contains"):
        given_array = getattr(from_arrays, name)(x.numpy())
        assert isinstance(given_array, np.ndarray)
        assert np.array_equal(given_array, getattr(region, name)(x).numpy())
    counts = region.violations(x)
    for kind, number in from_arrays.violations(x.numpy()).items():
        assert np.array_equal(number, counts[kind].numpy())


@SETTINGS
@given(spaces(), SEEDS)
def test_selected_rows_behave_as_in_the_whole(space, seed):
    region, x, rng = case(space, seed)
    rows = torch.as_tensor(rng.integers(0, len(x), size=12))
    part = region.select(rows)
    assert torch.equal(part.snap(x[rows]), region.snap(x)[rows])
    assert torch.equal(part.project(x[rows]), region.project(x)[rows])
