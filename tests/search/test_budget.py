"""Budgets against a clock that the test turns."""

import math

import pytest

from cel.errors import BudgetExceeded
from cel.search import Budget, budget


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    return now


def test_time_and_queries_end_a_search(clock):
    b = Budget(seconds=10, max_queries=5)
    assert (b.started, b.deadline, b.seconds, b.max_queries, b.queries) == (100, 110, 10, 5, 0)
    assert (b.strict, b.rate) == (False, None)
    b.spend(4)
    assert not b.expired
    b.spend(1)
    assert b.expired
    assert not b.late
    late = Budget(seconds=10)
    clock[0] = 109.9
    assert (late.late, late.expired) == (False, False)
    assert late.elapsed() == pytest.approx(9.9)
    clock[0] = 110.0
    assert (late.late, late.expired) == (True, True)


def test_nothing_is_limited_unless_asked(clock):
    b = Budget()
    clock[0] = 1e9
    b.spend(10**9)
    assert (b.seconds, b.deadline, b.max_queries) == (math.inf, math.inf, math.inf)
    assert not b.expired
    assert not Budget(strict=True).strict


def test_strict_limits_end_a_search_that_goes_on(clock):
    b, loose = Budget(seconds=10, strict=True), Budget(seconds=10)
    clock[0] = 111.0  # a tenth of the time is grace
    b.spend(1)
    clock[0] = 111.1
    loose.spend(1)
    with pytest.raises(BudgetExceeded, match="the 10 seconds are over"):
        b.spend(1)
    assert b.queries == 2


def test_time_is_set_aside_for_what_comes_after_at_most_half(clock):
    for seconds, deadline in ((3, 107), (5, 105), (8, 105)):
        b = Budget(seconds=10, strict=True)
        b.set_aside(seconds)
        assert b.deadline == deadline
    loose = Budget(seconds=10)
    loose.set_aside(3)
    assert loose.deadline == 110


def test_so_many_rows_at_once_that_one_call_takes_a_twentieth(clock):
    b = Budget(seconds=10, strict=True)
    assert b.rows_at_once(None) == 64
    assert b.rows_at_once(100.0) == 50.0
    assert b.rows_at_once(0.1) == 1.0
