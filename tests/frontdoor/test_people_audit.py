"""Groups, everybody, and an audit: planted differences are found, counts are true."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from tests.frontdoor.test_people import EVIL, pipeline, table

import cel
from cel.errors import ConfigError


def unfair(n=600, seed=1):
    """Women are refused by the same rule but start much further from it."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    frame = pd.DataFrame(
        {
            "income": (rng.normal(50, 12, n) - 18 * (sex == "f")).round(1),
            "debt": rng.gamma(2, 3, n).round(1),
            "sex": sex,
            "age": rng.integers(20, 70, n),
        }
    )
    y = np.where(frame.income - frame.debt > 40, "yes", "no")
    return frame, LogisticRegression(max_iter=2000).fit(frame[["income", "debt"]], y)


@pytest.fixture(scope="module")
def audited():
    frame, model = unfair()
    return frame, model, cel.audit(model, frame, ["sex", "age"], target="yes")


def test_the_audit_counts_what_her_model_does(audited):
    frame, model, found = audited
    refused = model.predict(frame[["income", "debt"]]) == "no"
    lines = found.table.set_index(["feature", "group"])
    for sex in ("f", "m"):
        line = lines.loc[("sex", sex)]
        assert line.rows == (frame.sex == sex).sum()
        assert line.refused == (refused & (frame.sex == sex)).sum()
        mine = (found.result.found & (frame.sex == sex))[refused & (frame.sex == sex)]
        assert line.answered == pytest.approx(mine.mean())
    assert lines.loc["age"].rows.sum() == len(frame)


def test_a_planted_difference_is_found_and_its_interval_leaves_out_zero(audited):
    gaps = audited[2].gaps.set_index("feature")
    assert gaps.loc["sex", "cost_groups"] == "f over m"
    assert gaps.loc["sex", "cost_gap_low"] > 0
    assert gaps.loc["sex", "cost_gap"] > 5 * abs(gaps.loc["age", "cost_gap"])
    low, value, high = gaps.loc["sex", ["cost_gap_low", "cost_gap", "cost_gap_high"]]
    assert low < value < high


def test_intervals_hold_their_value_and_groups_that_differ_in_nothing_are_equal(audited):
    table = audited[2].table
    for name in ("answered", "cost"):
        assert (table[f"{name}_low"] <= table[name]).all()
        assert (table[name] <= table[f"{name}_high"]).all()
    gaps = audited[2].gaps.set_index("feature")
    assert gaps.loc["age", "cost_gap_low"] < 0.02


def test_the_audit_is_shown_and_written(audited, tmp_path, capsys):
    found = audited[2]
    found.show()
    said = capsys.readouterr().out
    assert "Recourse towards yes by group (600 rows)" in said
    assert "age: cut at its median" in said
    text = found.save_html(tmp_path / "audit.html").read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|<script|src=", text)


def test_protected_columns_do_not_change():
    frame, y = table()
    frame["sex"] = np.where(frame.age % 2 == 0, "f", "m")
    from sklearn.compose import make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    columns = make_column_transformer((OneHotEncoder(), ["job", "sex"]), remainder="passthrough")
    model = make_pipeline(columns, LogisticRegression(max_iter=3000)).fit(
        frame, np.where((y == "granted") & (frame.sex == "m"), "yes", "no")
    )
    found = cel.audit(model, frame, "sex", target="yes")
    assert "sex" not in set(found.result.changes().feature)
    free = cel.audit(model, frame, "sex", target="yes", freeze=False)
    assert "sex" in set(free.result.changes().feature)


def test_audits_refuse_what_makes_no_sense(audited):
    frame, model, _ = audited
    with pytest.raises(ConfigError, match="did you mean 'sex'"):
        cel.audit(model, frame, "sexx", target="yes")
    with pytest.raises(ConfigError, match="names no column"):
        cel.audit(model, frame, [], target="yes")
    many = frame.assign(name=[f"p{i}" for i in range(len(frame))])
    with pytest.raises(ConfigError, match="600 groups"):
        cel.audit(model, many, "name", target="yes")


def test_strangers_groups_are_text(audited):
    frame, model, _ = audited
    odd = frame.head(120).assign(sex=lambda f: f.sex + EVIL)
    assert "<img" not in cel.audit(model, odd, "sex", target="yes")._repr_html_()


# -- rules -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grouped():
    frame, y = table()
    model = pipeline(frame, y)
    rows = frame[model.predict(frame) == "refused"].head(60)
    return frame, model, rows


@pytest.mark.parametrize("method", [None, "glance", "tcrex", "ares", "globe_ce"])
def test_group_rules_are_numbered_from_one_and_mean_the_rows(grouped, method):
    frame, model, rows = grouped
    rules = cel.explain_group(
        model, rows, background=frame, target="granted", method=method, immutable=["age"]
    )
    assert list(rules.table.index) == list(range(1, len(rules) + 1))
    assert len(rules) >= 1
    assert rules.wanted == "granted"
    numbers = rules.rule
    assert numbers.index.equals(rows.index)
    assert rules.table.rows.to_dict() == {n: int((numbers == n).sum()) for n in rules.table.index}
    answers = rules.result.to_frame()
    assert (model.predict(answers) == "granted").all()
    assert (answers.age == rows.loc[answers.index].age).all()
    assert ("As asked" in rules.reason) is (method is not None)
    told = str(rules)
    assert "1. " in told
    assert "<img" not in rules._repr_html_()


def test_rules_for_everybody_and_for_numbers(grouped, tmp_path):
    frame, model, _ = grouped
    rules = cel.explain_global(model, background=frame, target="granted")
    assert rules.method == "globe_ce"
    assert "most columns are numbers" in rules.reason
    assert rules.result.explained.sum() == (model.predict(frame) == "refused").sum()
    assert "default-src 'none'" in rules.save_html(tmp_path / "r.html").read_text()
    numbers = frame[["income", "debt"]]
    value = LinearRegression().fit(numbers, 3 * frame.income - 10 * frame.debt)
    low = numbers[value.predict(numbers) < 15000].head(40)
    wish = {"background": numbers, "target": ">= 15000"}
    assert cel.explain_group(value, low, **wish).method == "tcrex"
    ways = cel.explain_global(value, rows=low, **wish)
    assert ways.method == "globe_ce"
    assert len(ways.result.to_frame()) > 20
    assert (value.predict(ways.result.to_frame()) >= 15000 - 1e-6).all()


def test_labels_choose_rules_over_labels():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({c: rng.choice(["a", "b", "c"], 200) for c in "pqr"})
    y = np.where((frame.p == "a") | (frame.q == "b"), "yes", "no")
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(frame, y)
    rules = cel.explain_global(model, background=frame, target="yes")
    assert rules.method == "ares"
    assert rules.table.what.str.contains(" = ").all()


def test_rules_refuse_methods_without_rules(grouped):
    frame, model, rows = grouped
    with pytest.raises(ConfigError, match="makes no rules"):
        cel.explain_group(model, rows, background=frame, target="granted", method="dice")
