"""The portfolio behind the door: who answers what, proofs, and what is left to later stages."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from torch import nn

import cel
from cel.cf_methods.ensembles import last_boxes
from cel.cf_methods.local_methods import CellSearch, cell_search
from cel.door.portfolio import Portfolio


@pytest.fixture(scope="module")
def grid():
    """Three whole numbers of few values: every row of the table can be asked about."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.integers(0, 6, (600, 3)), columns=list("abc"))
    score = frame.a * frame.b - 2 * (frame.c - 2) ** 2 + rng.normal(0, 2, 600)
    every = pd.DataFrame(itertools.product(range(6), repeat=3), columns=list("abc"))
    return frame, np.where(score > 8, "yes", "no"), every


def kept(row, every, fixed, up):
    """Return the rows that a row may become."""
    out = every
    for name in fixed:
        out = out[out[name] == row[name]]
    for name in up:
        out = out[out[name] >= row[name]]
    return out


@pytest.mark.parametrize("first", [0, 500])
@pytest.mark.parametrize("made", [RandomForestClassifier, HistGradientBoostingClassifier])
def test_trees_answer_or_prove_every_row(grid, made, first, monkeypatch):
    """Without first boxes, second walks and the boxes after them do the rest."""
    monkeypatch.setattr(last_boxes, "FIRST_NODES", first)
    frame, y, every = grid
    size = {"n_estimators": 15} if made is RandomForestClassifier else {"max_iter": 15}
    model = made(random_state=0, **size)
    model.fit(frame, y)
    rows = every[model.predict(every) == "no"].iloc[::3]
    result = cel.explain(model, rows, frame, target="yes", immutable=["a"], increasing=["b"])
    says = model.predict(every) == "yes"
    possible = np.array(
        [says[kept(row, every, ["a"], ["b"]).index].any() for _, row in rows.iterrows()]
    )
    assert (result.found == possible).all()
    assert ((result.status == "infeasible") == ~possible).all()
    assert (~possible).sum() >= 10
    assert (model.predict(result.to_frame()) == "yes").all()


def test_what_walks_do_not_find_boxes_do(grid, monkeypatch):
    """Without any walk the answers are those of the branch and bound, and proved."""
    frame, y, every = grid
    model = RandomForestClassifier(15, random_state=0).fit(frame, y)
    rows = every[model.predict(every) == "no"].iloc[::5]
    free = cel.explain(model, rows, frame, target="yes")

    def nowhere(bits, demand, moves, **settings):
        return cell_search.Incumbents.nothing(moves.home)

    monkeypatch.setattr(cell_search, "coordinate_search", nowhere)
    proved = cel.explain(model, rows, frame, target="yes")
    assert proved.found.all()
    assert (proved.proof == "optimal").all()

    def cost(result):
        away = result.to_frame().to_numpy(float) - rows.to_numpy(float)
        scale = (frame - frame.median()).abs().median().to_numpy()
        return (np.abs(away) / scale).sum(1) + 0.05 * (away != 0).sum(1)

    assert (cost(proved) <= cost(free) + 1e-6).all()


def test_a_search_that_is_cut_short_proves_nothing(grid, monkeypatch):
    frame, y, every = grid
    model = RandomForestClassifier(15, random_state=0).fit(frame, y)
    rows = every[model.predict(every) == "no"]
    rules = {"immutable": ["a"], "increasing": ["b"]}
    whole = cel.explain(model, rows, frame, target="yes", **rules)
    asked = []
    search = CellSearch._search

    def counted(self, view, group, table):
        asked.append(len(table))
        return search(self, view, group, table)

    monkeypatch.setattr(CellSearch, "_search", counted)
    monkeypatch.setattr(last_boxes.BoxSearch, "run", lambda self, expired: None)
    short = cel.explain(model, rows, frame, target="yes", **rules)
    assert sum(asked)  # second walks were tried
    assert not (short.found & (whole.status == "infeasible")).any()
    assert (whole.status == "infeasible").sum() > 50
    assert not (short.status == "infeasible").any()


def gate(count=5):
    """A module that says yes only if all columns are large together."""
    layer, last = nn.Linear(count, 1), nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.bias.fill_(-0.9 * count)
        last.weight.copy_(torch.tensor([[-40.0], [40.0]]))
        last.bias.copy_(torch.tensor([1.0, -1.0]))
    return nn.Sequential(layer, nn.ReLU(), last).eval()


def test_modules_whose_slope_is_flat_are_answered_by_later_stages():
    """Tangents see nothing at the rows; few changes and draws find the corner."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.random((400, 5)).round(3), columns=list("abcde"))
    frame.iloc[0] = 0.999
    explainer = cel.Explainer(gate(), frame, target=1, classes=[0, 1])
    method = explainer._method(explainer.model, 1)
    assert isinstance(method, Portfolio)
    assert [s.method for s in method.early()] == ["wachter"]
    assert [s.method for s in method.late()] == ["dice", "nice"]
    rows = frame[frame.sum(axis=1) < 2.5].head(6)
    result = explainer.explain(rows)
    assert result.found.all()
    assert (result.to_frame().sum(axis=1) > 4.5).all()
    limited = cel.explain(gate(), rows, frame, target=1, classes=[0, 1], max_changes=2)
    assert not limited.found.any()
    assert "few changes at a time, then dice, nice" in explainer.chosen


def test_few_changes_take_over_only_where_they_are_cheaper(grid):
    frame, y, every = grid
    model = RandomForestClassifier(15, random_state=0).fit(frame, y)
    rows = every[model.predict(every) == "no"].iloc[::7]
    dear = cel.explain(model, rows, frame, target="yes", weights={"a": 50.0})
    plain = cel.explain(model, rows, frame, target="yes")
    moved = [(r.to_frame().a != rows.a).mean() for r in (dear, plain)]
    assert moved[0] < moved[1]
    assert dear.found.all()
