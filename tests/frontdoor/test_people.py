"""What a person is shown: sentences, tables, pages. Nothing hidden, nothing unescaped."""

import base64
import hashlib
import os
import re
import sys
import types
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import cel
from cel.display import Facts
from cel.display.person_page import person_page
from cel.errors import ConfigError
from cel.preprocessing import infer_space
from cel.result import ExplanationResult

EVIL = "<img src=x onerror=alert(1)>"


def table(n=300, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "income": rng.integers(10, 90, n) * 100,
            "debt": rng.gamma(2, 3, n).round(2),
            "age": rng.integers(20, 70, n),
            "job": rng.choice(["clerk", "nurse", "pilot"], n),
        },
        index=[f"p{i}" for i in range(n)],
    )
    score = frame.income / 2000 - frame.debt / 4 + (frame.job == "pilot")
    return frame, np.where(score > 1.4, "granted", "refused")


def pipeline(frame, y):
    numbers = ["income", "debt", "age"]
    columns = make_column_transformer((StandardScaler(), numbers), (OneHotEncoder(), ["job"]))
    return make_pipeline(columns, LogisticRegression(max_iter=500)).fit(frame, y)


@pytest.fixture(scope="module")
def case():
    frame, y = table()
    model = pipeline(frame, y)
    rows = frame[model.predict(frame) == "refused"].head(12)
    result = cel.explain(model, rows, train=frame, target="granted", immutable=["age"])
    return frame, model, rows, result


def gaps():
    frame, y = table()
    frame["age"] = frame["age"].astype(float)
    frame.loc[frame.index[::3], "income"] = np.nan
    frame["income"] = frame["income"].astype(float)
    numbers = frame.drop(columns="job")
    model = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(numbers, y)
    rows = numbers[(model.predict(numbers) == "refused") & numbers.income.isna()].head(20)
    return numbers, model, rows


# -- sentences -------------------------------------------------------------------------------


def test_one_sentence_per_row_says_every_change_with_her_own_values(case):
    _, _, rows, result = case
    told = result.sentences()
    assert told.index.equals(rows.index)
    changes = result.changes()
    for label, sentence in told.items():
        mine = changes[changes.row == label]
        assert sentence.startswith(f"Row {label}: change ")
        assert "the model then says granted instead of refused" in sentence
        for line in mine.itertuples():
            before, after = line[3], line[4]
            assert f"{line.feature} from {before} to {after}" in sentence.replace(".0 ", " ")
        assert sentence.count(" from ") == len(mine)


def test_the_probabilities_are_those_of_her_model(case):
    _, model, rows, result = case
    before, after = Facts.of(result).chances
    place = list(model.classes_).index("granted")
    np.testing.assert_allclose(before, model.predict_proba(rows)[:, place])
    np.testing.assert_allclose(after, model.predict_proba(result.to_frame())[:, place])
    assert (after > 0.5).all()
    assert (before < 0.5).all()


def test_a_filled_gap_is_said_to_have_been_missing():
    frame, model, rows = gaps()
    result = cel.explain(model, rows, train=frame, target="granted", immutable=["debt", "age"])
    told = result.sentences()[result.found]
    assert len(told)
    assert told.str.contains("income from missing to ").all()
    text = " ".join(result.sentences()) + result._repr_html_()
    assert not any(word in text.lower() for word in ("nan", "none", "<na>"))


def test_every_status_has_its_sentence(case):
    frame, model, rows, _ = case
    happy = frame[model.predict(frame) == "granted"].head(1)
    bad = rows.head(1).assign(income=np.nan)
    odd = pd.concat([happy, bad.set_axis(["broken"])])
    told = cel.explain(model, odd, train=frame, target="granted").sentences()
    assert told.iloc[0].endswith("the model says granted already, nothing has to change.")
    assert told["broken"].startswith("Row broken: the row could not be used: ")
    assert "no answer was found" in ended(case[3], "not_found")
    assert "no allowed change leads to granted: why" in ended(case[3], "infeasible", "why")
    assert "the time limit ended the search" in ended(case[3], "timeout")


def ended(result, status, reason=None):
    """Return the sentence of a row that ended without an answer."""
    one = result.select([0])
    none = np.full_like(one.x_cfs, np.nan)
    other = replace(
        one, status=np.array([status], dtype=object), x_cfs=none, y_cfs=np.array([-1]),
        reasons=np.array([reason], dtype=object), proof=None, bound=None,
    )  # fmt: skip
    return other.sentences().iloc[0]


def test_regression_sentences_are_in_her_units():
    frame, _ = table()
    numbers = frame[["income", "debt"]]
    model = LinearRegression().fit(numbers, 3 * frame.income - 10 * frame.debt)
    result = cel.explain(model, numbers.head(4), train=numbers, target="+10%")
    facts = Facts.of(result)
    assert result.found.all()
    for k in range(4):
        shown = float(facts.now[k])
        assert shown == pytest.approx(float(model.predict(numbers.head(4))[k]), rel=1e-4)
        assert float(facts.then[k]) == pytest.approx(
            float(model.predict(result.to_frame())[k]), rel=1e-4
        )


# -- how usual -------------------------------------------------------------------------------


def test_how_usual_new_values_are_is_counted_in_the_background(case):
    frame, _, _, result = case
    facts = Facts.of(result)
    assert facts.moved.any()
    for k, j in zip(*np.nonzero(facts.moved), strict=True):
        name, new = facts.names[j], facts.after[facts.names[j]].iloc[k]
        if name == "job":
            expected = (frame.job == new).mean()
        else:
            expected = ((frame[name] < new).mean() + (frame[name] <= new).mean()) / 2
        assert facts.usual[k, j] == pytest.approx(expected, abs=1e-9)
        words = "have it" if name == "job" else "are lower"
        assert facts.usual_text(k, j) == f"{expected * 100:.0f} % {words}"
    assert np.isnan(facts.usual[~facts.moved]).all()


def test_a_stored_result_is_shown_without_what_needs_the_model(case):
    result = ExplanationResult.from_json(case[3].to_json())
    assert "probability" not in " ".join(result.sentences())
    assert "are lower" not in result._repr_html_()
    assert "<td>before</td>" in result._repr_html_()


# -- terminal and notebook -------------------------------------------------------------------


def test_show_prints_before_and_after(case, capsys):
    case[3].show(rows=2)
    text = capsys.readouterr().out
    assert text.count("refused -> granted") == 2
    assert "before" in text
    assert "... and 10 more rows" in text
    first = case[3].changes().iloc[0]
    assert any(line.split()[0] == first.feature for line in text.splitlines() if line.strip())


@pytest.mark.parametrize("rows", [0, -1, 2.5, "3", True])
def test_show_refuses_nonsense(case, rows):
    with pytest.raises(ConfigError, match="say how many"):
        case[3].show(rows=rows)


def test_show_displays_in_a_notebook(case, monkeypatch, capsys):
    shown = []
    module = types.ModuleType("IPython")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    module.display = types.ModuleType("IPython.display")
    module.display.display = lambda data, raw: shown.append(data)
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", module.display)
    case[3].show()
    assert "cel-new" in shown[0]["text/html"]
    assert capsys.readouterr().out == ""


def test_the_notebook_marks_exactly_the_changed_cells(case):
    text = case[3]._repr_html_()
    assert text.count('class="cel-new"') == len(
        case[3].changes()[lambda c: c.row.isin(case[2].index[:10])]
    )


def test_strangers_text_is_text_everywhere():
    frame, y = table()
    frame = frame.rename(columns={"job": f"job{EVIL}"}).set_axis(
        [f"{EVIL}{i}" for i in range(len(frame))], axis=0
    )
    frame[f"job{EVIL}"] = frame[f"job{EVIL}"].replace("pilot", f"pilot{EVIL}\x1b[2J")
    y = np.where(y == "granted", f"yes{EVIL}", "no")
    columns = make_column_transformer(
        (OneHotEncoder(), [f"job{EVIL}"]), remainder=StandardScaler()
    )
    model = make_pipeline(columns, LogisticRegression()).fit(frame, y)
    rows = frame[model.predict(frame) == "no"].head(5)
    space = infer_space(frame)
    fixed = [n for n in space.names if not n.startswith("job")]
    result = cel.explain(model, rows, train=frame, immutable=fixed[:1])
    assert "<img" not in result._repr_html_()
    assert "&lt;img" in result._repr_html_()
    from cel.display.terminal import terminal_text

    assert "\x1b" not in terminal_text(result)
    page = person_page(result)
    assert "<img" not in page
    assert "&lt;img" in page
    assert "\x1b" not in page


# -- pages -----------------------------------------------------------------------------------


def test_a_page_asks_nobody_for_anything(case, tmp_path):
    path = case[3].save_html(tmp_path / "people.html")
    text = path.read_text(encoding="utf8")
    assert "default-src 'none'" in text
    assert not re.search(r"https?://|<script|<link|src=|@import|url\(|style=", text)
    style = re.search(r"<style>(.*?)</style>", text, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src-elem 'sha256-{digest}'" in text
    assert "prefers-color-scheme: dark" in style
    assert os.listdir(tmp_path) == ["people.html"]


def test_a_page_has_a_card_per_person_and_counts_the_rest(case):
    result = case[3]
    text = person_page(result, most=5)
    assert text.count('class="card"') == 5
    assert "7 more rows are counted above" in text
    changes = result.changes()
    often = changes.feature.value_counts()
    assert f"<td>{often.index[0]}</td><td>{often.iloc[0]}</td>" in text
    assert text.count('<td class="new">') == changes.row.isin(case[2].index[:5]).sum()


def test_a_page_of_one_person_and_of_a_stored_result(case):
    one = person_page(case[3].select([0]))
    assert "What changes most often" not in one
    assert 'class="strip"' in one
    stored = person_page(ExplanationResult.from_json(case[3].to_json()))
    assert 'class="strip"' not in stored
    assert "What changes most often" in stored


@pytest.mark.parametrize("most", [0, "many", 1.5])
def test_a_page_refuses_nonsense(case, tmp_path, most):
    with pytest.raises(ConfigError, match="how many people"):
        case[3].save_html(tmp_path / "x.html", most=most)
    assert not os.listdir(tmp_path)
