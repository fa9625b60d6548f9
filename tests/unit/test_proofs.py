"""Proofs: who may claim one, and when it is dropped."""

import numpy as np
import pytest
import torch

from cel.cf_methods.base import BaseCounterfactualMethod, LocalMixin
from cel.cf_methods.query import Answer, proof_of
from cel.testing import PROBLEMS
from cel.testing.planted import contradiction, planted_answers


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
    for make in PROBLEMS.values():
        p = make()
        planted = planted_answers(p)
        known = ~np.isnan(planted).any(1)
        assert known.mean() >= 0.5, p.name
        assert p.space.region(p.x[known]).contains(planted[known]).all()
        if p.target is not None:
            assert (p.model.predict(planted[known]) == p.target).all()


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
