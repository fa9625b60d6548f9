"""Steps of the portfolio on answers made by hand: what is lost, taken over, joined."""

from types import SimpleNamespace

import numpy as np
import torch

from cel.cf_methods.query import Answer
from cel.door.portfolio import DEEP, Portfolio

NAN = float("nan")


def answer(**more):
    """Row 0 has an answer of cost 2, rows 1 and 2 have none; row 2 is proved to have none."""
    x = torch.tensor([[1.0, 1.0], [NAN, NAN], [NAN, NAN]])
    return Answer(x=x, infeasible=torch.tensor([False, False, True]), **more)


def test_proved_rows_are_not_lost():
    assert Portfolio._lost(answer()).tolist() == [1]
    assert Portfolio._lost(Answer(x=answer().x)).tolist() == [1, 2]


def test_what_later_stages_say_leaves_earlier_proofs():
    rest = Answer(x=torch.tensor([[NAN, NAN]]), row_logs={"source": ["dice"]})
    joined, source = Portfolio._joined(answer(), ["cells", None, None], torch.tensor([1]), rest)
    assert joined.infeasible.tolist() == [False, False, True]
    assert source == ["cells", "dice", None]
    proved = Answer(x=rest.x, infeasible=torch.tensor([True]))
    joined, _ = Portfolio._joined(answer(), [None] * 3, torch.tensor([1]), proved)
    assert joined.infeasible.tolist() == [False, True, True]


class Query:
    """Three rows; a cost is the sum of a point."""

    def __len__(self):
        return 3

    def rows(self):
        return torch.arange(3)


def taken(points, at):
    method = SimpleNamespace(_cost=lambda query: lambda x, rows: x.sum(1))
    given = answer(proof=np.array(["optimal", "none", "none"], dtype=object))
    told = Portfolio._taken(method, Query(), given, ["cells"] * 3, torch.tensor(points), at)
    return told


def test_only_cheaper_points_are_taken_over():
    got, source = taken([[2.0, 2.0], [3.0, 0.0], [1.0, 0.0]], torch.tensor([0, 1, 1]))
    assert got.x[:2].tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert source == ["cells", "few changes", "cells"]
    assert got.proof.tolist() == ["optimal", "none", "none"]
    got, _ = taken([[1.0, 0.5]], torch.tensor([0]))
    assert got.x[0].tolist() == [1.0, 0.5]
    assert got.proof[0] == "none"


def test_a_limit_of_changes_holds_in_the_deeper_search():
    def asked(limit):
        space = SimpleNamespace(limit=limit)
        query = SimpleNamespace(region=SimpleNamespace(space=space))
        return Portfolio._effort(SimpleNamespace(), query, deep=True)

    assert asked(None) == DEEP
    assert asked(SimpleNamespace(most=2)) == (2, DEEP[1])
