"""Proofs: who may claim one, and when it is dropped."""

import numpy as np
import pytest
import torch

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin
from cel.cf_methods.local_methods import Actionable
from cel.cf_methods.query import Answer, proof_of
from cel.protocols import Need
from cel.testing import PROBLEMS, TREE_PROBLEMS, NotAsked
from cel.testing.planted import contradiction, planted_answers, unanswerable


class Jump(LocalMixin, BaseCounterfactualMethod):
    """Goes to a fixed corner and claims whatever `says` lists."""

    def __init__(self, model, *, says="nothing", **options):
        super().__init__(model, **options)
        self.says = says

    def _explain(self, query):
        x = query.x + 0.3 if self.says == "off grid" else torch.ones_like(query.x)
        x, ok = x, query.accept(x, query.rows())[1]
        if self.says == "impossible":
            return Answer(x=torch.full_like(x, torch.nan), infeasible=torch.ones_like(ok))
        if self.says == "nothing":
            return Answer(x=x)
        bound = torch.ones(len(x))
        return Answer(x=x, bound=bound, proof=proof_of(bound, bound))


class Prover(Jump):
    proves = True


@pytest.mark.parametrize(
    ("cls", "says", "complaint"),
    [
        (Jump, "impossible", "planted answer"),
        (Prover, "impossible", "planted answer"),
        (Jump, "optimal", "does not declare"),
        (Prover, "nothing", "gives no proof"),
    ],
)
def test_the_drill_catches_false_claims(cls, says, complaint):
    class Claims(cls):
        _test_params = {"says": says}  # noqa: RUF012

    with pytest.raises(AssertionError, match=complaint):
        contradiction(Claims, PROBLEMS["binary_numeric"]())


def test_planted_answers_are_answers():
    for make in (PROBLEMS | TREE_PROBLEMS).values():
        p = make()
        planted = planted_answers(p)
        known = ~np.isnan(planted).any(1)
        assert known.mean() >= 0.5, p.name
        assert p.space.region(p.x[known]).contains(planted[known]).all()
        if p.target is not None:
            assert (p.outcome(planted[known]) == p.target).all()


def test_a_proof_is_dropped_when_snapping_moved_the_answer():
    p = PROBLEMS["mixed"]()
    kept = Prover(p.model, space=p.space, says="optimal").explain(p.x, 1)
    moved = Prover(p.model, space=p.space, says="off grid").explain(p.x, 1)
    assert (moved.proof == "none").all()
    assert (kept.proof[~kept.found] == "none").all()
    flat = PROBLEMS["binary_numeric"]()
    proved = Prover(flat.model, space=flat.space, says="optimal").explain(flat.x, 1)
    assert proved.found.any()
    assert (proved.proof[proved.found] == "optimal").all()


def test_words_of_a_proof():
    cost = torch.tensor([1.0, 1.0 + 5e-7, 1.01, 1.2, torch.nan, 1.0])
    bound = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, torch.nan])
    words = proof_of(cost, bound, gap=0.05).tolist()
    assert words == ["optimal", "optimal", "within_gap", "none", "none", "none"]


class HiddenProver(Jump):
    """Says `infeasible` only where little may change, and declares nothing."""

    def _explain(self, query):
        small = (query.region.upper - query.region.lower).amax(1) < 0.9
        x = torch.where(small[:, None], torch.nan, torch.ones_like(query.x))
        return Answer(x=x, infeasible=small)


class DemandsMore(HiddenProver):
    infeasible_means = "no allowed row is a corner"


class LowBound(Prover):
    """Claims that every row costs 1 where much is allowed, and half of it where little is."""

    def _explain(self, query):
        small = (query.region.upper - query.region.lower).amax(1) < 0.9
        x = query.region.upper.clamp(0, 1) * torch.tensor([1.0, 1.0, 0.0]) + torch.tensor(
            [0.0, 0.0, 1.0]
        ) * query.region.lower.clamp(0, 1)
        bound = torch.where(small, 0.5, 1.0)
        return Answer(x=x, bound=bound, proof=proof_of(bound, bound))


def test_methods_that_prove_without_saying_so_are_drilled():
    flat = PROBLEMS["binary_numeric"]()
    with pytest.raises(AssertionError, match="planted answer"):
        contradiction(HiddenProver, flat)


def test_bounds_are_held_against_optima_of_smaller_regions():
    with pytest.raises(AssertionError, match=r"at least 1, but 0\.5 in a part"):
        contradiction(LowBound, PROBLEMS["binary_numeric"]())


def test_provers_must_recognise_rows_that_may_not_move():
    class Silent(Prover):
        needs = frozenset({Need.LINEAR_MODEL})

    p = PROBLEMS["binary_numeric"]()
    with pytest.raises(AssertionError, match="not 'infeasible'"):
        unanswerable(Silent, p)
    with pytest.raises(NotAsked, match="proves nothing"):
        unanswerable(Jump, p)
    with pytest.raises(NotAsked, match="need not read"):
        unanswerable(Prover, p)
    unanswerable(Actionable, p)


def test_what_infeasible_means_is_said():
    p = PROBLEMS["binary_numeric"]()
    space = p.space.with_changes(**{f.name: {"upper": 0.5, "lower": 0.4} for f in p.space})
    x = np.full((1, 3), 0.45, dtype=np.float32)
    told = DemandsMore(p.model, space=space).explain(x, 1)
    assert told.status.tolist() == ["infeasible"]
    assert told.reasons.tolist() == ["no allowed row is a corner"]
    assert "no allowed row is a corner" in told.sentences().iloc[0]
    assert HiddenProver(p.model, space=space).explain(x, 1).reasons is None
