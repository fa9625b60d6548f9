"""The portfolio: its plan fits the model, later stages never make an answer worse."""

import numpy as np
import pytest
import torch

from cel.cf_methods import METHODS
from cel.cf_methods.local_methods import Auto
from cel.cf_methods.local_methods.auto import PLANS, kind_of
from cel.cf_methods.view import ModelView
from cel.testing import BlackBox
from cel.testing.problems import PROBLEMS

KINDS = {
    "binary_numeric": "linear",
    "binary_curved": "differentiable",
    "trees_mixed": "trees",
    "black_box": "black_box",
    "regression": "linear",
    "trees_regression": "trees",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
def test_each_kind_of_model_gets_its_plan(name, kind):
    problem = PROBLEMS[name]()
    assert kind_of(ModelView(problem.model)) == kind
    method = problem.fitted(Auto)
    wanted = PLANS[kind, problem.task]
    assert [s.method for s in method.plan()] == [
        s.method for s in wanted if not s.wishes or "near" in s.wishes
    ]
    result = problem.explain(method, problem.x)
    assert result.found.any()
    told = np.array(result.logs["source"], dtype=object)
    assert set(told[result.found]) <= {s.method for s in wanted}
    assert all(s is None for s in told[~result.found])


def costs(method, result):
    moved = np.abs(result.x_cfs - result.x_origs)
    space = method.space_
    scale = method.scale_.numpy()
    numeric = np.isin(np.arange(space.width), space.numeric_columns)
    weight = np.where(numeric, 1 / scale, 0.5)
    touched = np.zeros((len(moved), len(space)))
    np.add.at(touched.T, space.owner, moved.T)
    total = (moved * weight).sum(1) + 0.05 * (touched > 0).sum(1)
    return np.where(result.found, total, np.inf)


@pytest.mark.parametrize("name", ["mixed", "trees_mixed", "black_box", "three_classes"])
def test_a_row_is_never_lost_to_a_later_stage(name):
    """What the first stage finds is found; asking more of every row never costs more."""
    problem = PROBLEMS[name]()
    auto = problem.fitted(Auto)
    result = problem.explain(auto, problem.x)
    stage = next(s for s in auto.plan() if s.method in METHODS)
    alone = problem.explain(problem.fitted(METHODS.get(stage.method), **stage.params), problem.x)
    assert (result.found | ~alone.found).all()
    assert (costs(auto, result) <= costs(auto, alone) + 1e-5).all()


def test_methods_that_refuse_are_named():
    problem = PROBLEMS["binary_numeric"]()
    hidden = Auto(BlackBox(problem.model), space=problem.space).fit(problem.x_train)
    result = hidden.explain(problem.x, problem.target)
    assert result.logs["kind"] == "black_box"
    assert result.found.all()
    told = {s.method for s in hidden.plan()}
    assert set(result.logs["passed_over"]) <= told


def test_answers_do_not_depend_on_company():
    problem = PROBLEMS["trees_mixed"]()
    method = problem.fitted(Auto)
    all_, one = problem.explain(method, problem.x), problem.explain(method, problem.x[3:4])
    np.testing.assert_array_equal(all_.x_cfs[3:4], one.x_cfs)


def test_a_proof_is_passed_on():
    problem = PROBLEMS["trees_mixed"]()
    method = problem.fitted(Auto, want="proof")
    result = problem.explain(method, problem.x)
    proved = np.isin(result.proof, ["optimal", "within_gap"])
    assert proved.any()
    assert np.isfinite(result.bound[proved]).all()
    near = problem.explain(problem.fitted(Auto), problem.x)
    assert (costs(method, result) <= costs(method, near) + 1e-5)[proved].all()


def test_no_time_is_an_honest_timeout():
    problem = PROBLEMS["binary_curved"]()
    result = problem.explain(problem.fitted(Auto, time_limit=0.0), problem.x)
    assert set(result.status) == {"timeout"}
    assert torch.isnan(torch.as_tensor(result.x_cfs)).all()
