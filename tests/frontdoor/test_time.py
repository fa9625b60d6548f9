"""Time limits hold for slow models; the clock is a fake that the model turns."""

import numpy as np
import pandas as pd
import pytest

import cel
from cel.search import budget


class Clock:
    """Time that passes only while a model works."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(budget.time, "monotonic", lambda: self.now)

    def slow(self, per_row, per_call):
        def ask(rows):
            self.now += per_call + per_row * len(rows)
            away = rows.a - rows.b + 0.3 * rows.c
            return 1 / (1 + np.exp(-4 * (away.to_numpy() - 0.6)))

        return ask


@pytest.mark.parametrize(("per_row", "per_call"), [(0.002, 0.0), (0.0, 0.2), (0.001, 0.1)])
@pytest.mark.parametrize("limit", [5.0, 20.0])
@pytest.mark.parametrize("method", ["auto", "dice"])
def test_time_limits_hold(monkeypatch, per_row, per_call, limit, method):
    frame = pd.DataFrame(np.random.default_rng(0).random((300, 3)), columns=list("abc"))
    clock = Clock(monkeypatch)
    ask = clock.slow(per_row, per_call)
    explainer = cel.Explainer(ask, frame, classes=["no", "yes"], target="yes", method=method)
    rows = frame[ask(frame) < 0.5].head(60)
    clock.now = 0.0
    result = explainer.explain(rows, time_limit=limit)
    assert clock.now <= 1.2 * limit
    assert set(result.status) <= {"found", "timeout", "invalid", "not_found"}
    if limit == 20.0 and method == "auto":
        assert result.found.any()


def test_what_was_found_in_time_is_kept(monkeypatch):
    frame = pd.DataFrame(np.random.default_rng(0).random((300, 3)), columns=list("abc"))
    clock = Clock(monkeypatch)
    ask = clock.slow(0.0, 0.05)
    explainer = cel.Explainer(ask, frame, classes=["no", "yes"], target="yes")
    rows = frame[ask(frame) < 0.5].head(10)
    free = explainer.explain(rows)
    held = explainer.explain(rows, time_limit=1e6)
    pd.testing.assert_frame_equal(free.to_frame(), held.to_frame())
