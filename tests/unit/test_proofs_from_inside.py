"""Rows that begin outside a hard range: what their proofs count from, and where that is said."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier

from cel import ExplanationResult
from cel.cf_methods.local_methods import Actionable, ExactTree
from cel.cf_methods.starts_inside import starts_inside
from cel.display.notebook import notebook_html
from cel.display.person_page import person_page
from cel.display.terminal import terminal_text
from cel.models import wrap
from cel.space import Feature, FeatureSpace
from cel.space.hard_ranges import moved_inside, outside_hard
from cel.testing import PROBLEMS


@pytest.fixture(scope="module")
def proved():
    """The mixed problem; incomes below a half begin outside."""
    p = PROBLEMS["mixed"]()
    space = p.space.with_changes(income={"lower": 0.5, "hard": True})
    result = Actionable(p.model, space=space).fit(p.x_train).explain(p.x, 1)
    away = p.x[:, 0] < 0.5
    assert 0 < away.sum() < len(away)
    return p, space, result, away


def test_rows_that_begin_outside_are_marked(proved, tmp_path):
    p, _, result, away = proved
    np.testing.assert_array_equal(result.starts_outside, away)
    frame = result.to_frame(proofs=True)
    told = np.where(away[result.found], "inside", "the row")
    assert frame["counted_from"].tolist() == told.tolist()
    known = int((away & (result.proof != "none")).sum())
    assert known >= 2
    assert f"{known} proved from inside the ranges" in repr(result)
    result.to_parquet(tmp_path / "r.parquet")
    for copy in (
        ExplanationResult.from_parquet(tmp_path / "r.parquet"),
        ExplanationResult.from_json(result.to_json()),
    ):
        np.testing.assert_array_equal(copy.starts_outside, away)
    free = Actionable(p.model, space=p.space).fit(p.x_train).explain(p.x, 1)
    assert not free.starts_outside.any()
    assert "counted_from" not in free.to_frame(proofs=True)
    assert "inside" not in repr(free)


def test_rows_that_were_not_searched_are_not_marked(proved):
    p, space, _, _ = proved
    done = p.x_train[(p.model.predict(p.x_train) == 1) & (p.x_train[:, 0] < 0.5)][:2]
    broken = np.full((1, 8), np.nan, dtype=np.float32)
    rows = np.concatenate([done, broken])
    result = Actionable(p.model, space=space).fit(p.x_train).explain(rows, 1)
    assert set(result.status) == {"not_applicable", "error"}
    assert not result.starts_outside.any()


def test_bounds_and_proofs_are_those_of_the_row_inside(proved):
    p, space, result, _ = proved
    inside = moved_inside(p.x, space, outside_hard(p.x, space))
    by_hand = Actionable(p.model, space=space).fit(p.x_train).explain(inside, 1)
    both = result.found & by_hand.found
    assert (both & result.starts_outside).sum() >= 2
    np.testing.assert_array_equal(result.bound[both], by_hand.bound[both])
    np.testing.assert_array_equal(result.x_cfs[both], by_hand.x_cfs[both])


def table(n=300):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"hours": rng.integers(20, 90, n), "pay": rng.random(n).round(2)})
    return frame, (frame["pay"] - frame["hours"] / 60 > -0.35).astype(int).to_numpy()


def test_people_are_told_from_where_costs_count():
    frame, y = table()
    raw = FeatureSpace(
        (
            Feature(name="hours", kind="integer", lower=10, upper=60, step=1, hard=True),
            Feature(name="pay", columns=(1,), lower=0, upper=1),
        )
    )
    trees = GradientBoostingClassifier(n_estimators=8, max_depth=2, random_state=0)
    model = wrap(trees.fit(frame, y), frame, space=raw)
    rows = frame[(frame["hours"] > 70) & (y == 0)].head(2)
    rows = pd.concat([rows, frame[(frame["hours"] < 55) & (y == 0)].head(1)])
    result = ExactTree(model).fit(frame).explain(rows, 1)
    assert (result.proof == "optimal").all()
    assert result.starts_outside.tolist() == [True, True, False]
    note = "proved to be the least one from where the search began: hours at 60."
    for shown in (terminal_text(result), notebook_html(result), person_page(result)):
        assert shown.count(note) == 2
    plain = ExactTree(model, nodes=1, gap=0.0, starts=1, steps=1).fit(frame)
    loose = plain.explain(rows, 1)
    unproved = (loose.proof == "none") & loose.found
    shown = terminal_text(loose)
    assert shown.count("where the search began") == 2 - int(unproved[:2].sum())


def test_which_rows_may_get_inside():
    """Directions and frozen features bar the way; the ends are those that a grid has."""
    ends = {"lower": 0.25, "upper": 0.75, "hard": True}
    space = FeatureSpace(
        (
            Feature(name="up", direction="up", **ends),
            Feature(name="down", columns=(1,), direction="down", **ends),
            Feature(name="fixed", columns=(2,), mutable=False, **ends),
            Feature(name="whole", kind="integer", columns=(3,), step=0.2, direction="up", **ends),
        )
    )
    middle = [0.5, 0.5, 0.5, 0.4]
    rows = np.array([middle] * 8, dtype=np.float32)
    rows[1, 0], rows[2, 0] = 0.1, 0.9
    rows[3, 1], rows[4, 1] = 0.1, 0.9
    rows[5, 2] = 0.9
    rows[6, 3], rows[7, 3] = 0.3, 0.7  # between the range and the ends of its grid
    reasons = np.full(8, None, dtype=object)
    starts = starts_inside(rows, space, np.zeros(8, dtype=bool), reasons)
    assert starts.stuck.tolist() == [False, False, True, True, False, True, False, True]
    assert starts.moved.tolist() == [False, True, False, False, True, False, True, False]
    np.testing.assert_allclose(starts.x[[1, 4, 6], [0, 1, 3]], [0.25, 0.75, 0.4], atol=1e-6)
    told = [r is not None for r in reasons]
    assert told == starts.stuck.tolist()
    skipped = starts_inside(rows, space, np.ones(8, dtype=bool), None)
    assert not skipped.stuck.any()
    np.testing.assert_array_equal(skipped.x, rows)
