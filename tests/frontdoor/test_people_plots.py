"""Plots say what the result says, and their labels do not lie on each other."""

import builtins

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="plots are an extra")

from tests.frontdoor.test_people import pipeline, table

import cel
from cel.errors import ConfigError, DataError, MissingDependencyError, MissingInputError
from cel.result import ExplanationResult


@pytest.fixture(scope="module")
def result():
    frame, y = table()
    model = pipeline(frame, y)
    rows = frame[model.predict(frame) == "refused"].head(12)
    return cel.explain(model, rows, train=frame, target="granted", n=5)


def texts(figure):
    from matplotlib.text import Text

    figure.draw_without_rendering()
    beyond = set()  # ticks outside the axes have labels that nobody draws
    for axis in (a for axes in figure.axes for a in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        for tick in axis.get_major_ticks():
            if not low <= tick.get_loc() <= high:
                beyond |= {tick.label1, tick.label2}
    shown = set(figure.findobj(Text)) - beyond
    return [t for t in shown if t.get_text().strip() and t.get_visible()]


@pytest.mark.parametrize("kind", ["changes", "position", "tradeoff"])
@pytest.mark.parametrize("one", [True, False])
def test_labels_do_not_overlap(result, kind, one):
    figure = result.plot(kind, row=result.source_ids[0] if one else None)
    shown = texts(figure)
    boxes = [t.get_window_extent().shrunk(0.9, 0.7) for t in shown]
    for i, a in enumerate(boxes):
        for j, b in enumerate(boxes[:i]):
            both = (shown[i].get_text(), shown[j].get_text())
            assert not (a.width and b.width and a.overlaps(b)), both


def test_the_bars_count_the_answers(result):
    axes = result.plot("changes").axes[0]
    often = result.changes().feature.value_counts()
    names = [t.get_text() for t in axes.get_yticklabels()]
    widths = [bar.get_width() for bar in axes.patches]
    assert dict(zip(names, widths, strict=True)) == pytest.approx(
        (100 * often / result.found.sum()).to_dict()
    )


def test_one_row_shows_its_own_values(result):
    label = result.source_ids[0]
    figure = result.plot("changes", row=label)
    told = " ".join(t.get_text() for t in texts(figure))
    for line in result.changes()[lambda c: c.row == label].itertuples():
        assert line.feature in told
    assert f"Row {label}" in told


def test_the_tradeoff_shows_every_answer(result):
    axes = result.plot("tradeoff").axes[0]
    points = np.concatenate([c.get_offsets() for c in axes.collections])
    assert len(points) == len(result.to_frame(sets=True))
    assert (points[:, 1] > 50).all()


def test_nonsense_is_refused(result):
    with pytest.raises(ConfigError, match="did you mean 'changes'"):
        result.plot("change")
    with pytest.raises(DataError, match="no row has the label 'nobody'"):
        result.plot(row="nobody")
    with pytest.raises(ConfigError, match="how many columns"):
        result.plot(most=0)
    stored = ExplanationResult.from_json(result.to_json())
    with pytest.raises(MissingInputError, match="background rows"):
        stored.plot("position")


def test_without_matplotlib_the_extra_is_named(result, monkeypatch):
    known = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return known(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingDependencyError, match=r"ce-library\[report\]"):
        result.plot()
