"""A no with reasons: what blocks a row, what would help, and how near it came."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import cel
from cel.display.words import percent
from cel.result import ExplanationResult


@pytest.fixture(scope="module")
def loans():
    rng = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "income": rng.integers(10, 100, 300),
            "debt": rng.integers(0, 50, 300),
            "age": rng.integers(20, 70, 300),
        }
    )
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.05))
    return frame, model.fit(frame, frame.income - frame.debt > 30)


def test_the_constraint_that_blocks_is_named(loans):
    frame, model = loans
    rows = frame[~model.predict(frame) & (frame.income < 50) & (frame.debt > 25)].head(6)
    rules = {"immutable": ["debt", "age"], "ranges": {"income": (0, 50)}}
    result = cel.explain(model, rows, background=frame, target=True, **rules)
    assert not result.found.any()
    table = result.diagnosis()
    assert list(table.row) == list(rows.index)
    assert table.blocked_by.str.contains("income stays in 0 to 50").all()
    assert table.blocked_by.str.contains("debt may not change").any()
    assert not table.blocked_by.str.contains("age").any()
    helped = cel.explain(model, rows, background=frame, target=True, immutable=["debt", "age"])
    assert helped.found.all()
    for line in table.itertuples():
        assert line.relax.split()[0] in line.how_far
        assert line.best_prediction < 0.5
        assert "income" in line.best_effort
    assert (table.status == "infeasible").all() == table.proved.all()


def test_the_best_effort_is_an_allowed_row_and_its_probability_is_hers(loans):
    frame, model = loans
    rows = frame[~model.predict(frame) & (frame.income < 40) & (frame.debt > 25)].head(5)
    result = cel.explain(
        model,
        rows,
        background=frame,
        target=True,
        immutable=["debt", "age"],
        ranges={"income": (0, 45)},
    )
    table = result.diagnosis()
    p = model.predict_proba(rows.assign(income=45))[:, 1]
    assert np.allclose(table.best_prediction.astype(float), p, atol=0.02)
    assert (table.best_prediction.astype(float) >= model.predict_proba(rows)[:, 1]).all()


def test_too_few_changes_and_constraints_that_block_together(loans):
    frame, model = loans
    poor = frame[(frame.income < 20) & (frame.debt > 40)].head(3)
    few = cel.explain(model, poor, background=frame, target=True, max_changes=1,
                      ranges={"income": (0, 60)})  # fmt: skip
    told = few.diagnosis()
    assert told.blocked_by.str.contains("at most 1 columns change|income stays").all()
    far = float(
        model.predict_proba(pd.DataFrame({"income": [96], "debt": [4], "age": [45]}))[0, 1]
    )
    held = {"immutable": ["age"], "ranges": {"income": (0, 70), "debt": (20, 50)}}
    both = cel.explain(model, poor, background=frame, target={True: far}, **held).diagnosis()
    assert (both.blocked_by == "several constraints together").all()
    assert both.relax.isna().all()


def test_a_model_that_never_says_yes(loans):
    frame, _ = loans

    def ask(rows):
        return 0.3 + 0.1 * (rows["income"].to_numpy() > 50)

    with pytest.warns(UserWarning, match="none of the 300"):
        result = cel.explain(ask, frame.head(3), background=frame, classes=["no", "yes"],
                             target="yes", immutable=["age"])  # fmt: skip
    table = result.diagnosis()
    assert table.blocked_by.str.contains("the model").all()
    assert table.best_prediction.max() == pytest.approx(0.4)
    assert not table.proved.any()


def test_numbers_and_wishes_have_a_diagnosis_too(loans):
    frame, _ = loans
    model = LinearRegression().fit(frame, frame.income - frame.debt)
    rows = frame[frame.debt > 30].head(3)
    result = cel.explain(model, rows, background=frame, target=">= 90", immutable=["debt"])
    table = result.diagnosis()
    assert len(table) == 3
    assert (table.relax == "debt may not change").all()
    assert (table.best_prediction.astype(float) < 90).all()


def test_answered_rows_and_files(loans, tmp_path):
    frame, model = loans
    rows = frame[~model.predict(frame)].head(4)
    assert cel.explain(model, rows, background=frame, target=True).diagnosis().empty
    frozen = cel.explain(model, rows, background=frame, target=True, immutable=list(frame))
    frozen.to_parquet(tmp_path / "r.parquet")
    told = ExplanationResult.from_parquet(tmp_path / "r.parquet").diagnosis()
    assert list(told.status) == ["infeasible"] * 4
    assert told.proved.all()


def test_every_no_has_its_reason_on_the_page_and_in_the_terminal(loans, tmp_path, capsys):
    frame, model = loans
    rows = frame[~model.predict(frame) & (frame.income < 50) & (frame.debt > 25)].head(3)
    rules = {"immutable": ["debt", "age"], "ranges": {"income": (0, 50)}}
    result = cel.explain(model, rows, background=frame, target=True, **rules)
    assert "result.diagnosis()" in result._repr_html_()  # nothing is searched unasked
    assert "_diagnosis" not in vars(result)
    page = result.save_html(tmp_path / "page.html").read_text(encoding="utf8")
    result.show()
    said = capsys.readouterr().out
    for line in result.diagnosis().itertuples():
        reached = percent(line.best_prediction)
        for text in (page, said, result._repr_html_()):
            text = text.replace("-&gt;", "->")
            assert f"What keeps it from an answer: {line.blocked_by}." in text
            assert f"({line.relax}), there would be an answer: {line.how_far}." in text
            assert f"{line.best_effort} (probability of True: {reached})" in text


def test_rows_that_are_answered_are_searched_once(loans, tmp_path, monkeypatch):
    frame, model = loans
    rows = frame[~model.predict(frame)].head(3)
    result = cel.explain(model, rows, background=frame, target=True)
    assert result.found.all()
    result.show()
    result.save_html(tmp_path / "page.html")
    assert "_diagnosis" not in vars(result)


def test_only_the_rows_that_are_shown_are_looked_into(loans, tmp_path):
    frame, model = loans
    rows = frame[~model.predict(frame) & (frame.income < 50) & (frame.debt > 25)].head(6)
    rules = {"immutable": ["debt", "age"], "ranges": {"income": (0, 50)}}
    result = cel.explain(model, rows, background=frame, target=True, **rules)
    assert result.unanswered.all()
    asked: list[list[int]] = []

    def counted(of, which, inquiry=result.inquiry):
        asked.append(which.tolist())
        return inquiry(of, which)

    result = replace(result, inquiry=counted)
    result.show(2)
    assert asked == [[0, 1]]
    result.save_html(tmp_path / "page.html", most=4)
    assert asked == [[0, 1], [2, 3]]
    whole = result.diagnosis()
    assert asked == [[0, 1], [2, 3], [4, 5]]
    assert whole["row"].tolist() == list(rows.index)
    once = cel.explain(model, rows, background=frame, target=True, **rules).diagnosis()
    pd.testing.assert_frame_equal(whole, once)


def test_a_relation_that_blocks_is_named_and_lifted(loans):
    frame, model = loans
    near = (frame.income <= frame.debt + 10) & (frame.income > 20) & ~model.predict(frame)
    rows = frame[near].head(4)
    rules = {"immutable": ["debt", "age"], "relations": ["income <= debt + 10"]}
    result = cel.explain(model, rows, background=frame, target=True, **rules)
    assert not result.found.any()
    table = result.diagnosis()
    assert set(table.relax) == {"income <= debt + 10"}
    assert all("income" in told for told in table.how_far)


def test_every_row_is_looked_into_by_its_own_wish(loans):
    frame, _ = loans
    x = frame[["income", "debt"]]
    model = LinearRegression().fit(x, 10.0 * x.income)
    rows = x[x.income < 40].head(2)
    wishes = [cel.Target.at_least(500), cel.Target.at_least(800)]
    result = cel.explain(model, rows, x, target=wishes, ranges={"income": (0, 60)})
    assert result.found.tolist() == [True, False]
    (line,) = result.diagnosis().itertuples()
    assert line.relax == "income stays in 0 to 60"
    assert int(line.how_far.split("->")[1].split()[0].rstrip(",.")) >= 80
