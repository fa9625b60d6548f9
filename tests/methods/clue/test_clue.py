"""CLUE: entropies by hand, paths along the weights, two modes."""

import numpy as np
import torch

from cel.cf_methods.local_methods import CLUE
from cel.cf_methods.local_methods.clue import predictive_entropy
from cel.protocols import Task
from cel.space import FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel


class Identity:
    """A latent space that is the input space."""

    def encode(self, x):
        return x.clone()

    def decode(self, z, x, hard=False):
        return z


def test_entropies_by_hand(deviation):
    """Two members that disagree in one row: its uncertainty is epistemic."""
    a = torch.log(torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.8, 0.2]]))
    b = torch.log(torch.tensor([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]]))
    total, epistemic = predictive_entropy([a, b])
    h = lambda p: -(p * np.log(p) + (1 - p) * np.log(1 - p))  # noqa: E731
    exact = [h(0.5), h(0.5), h(0.8)], [h(0.5) - h(0.9), 0.0, 0.0]
    deviation.absolute(total, exact[0], oracle="by hand", limit=1e-6)
    deviation.absolute(epistemic, exact[1], oracle="by hand", limit=1e-6)
    _, alone = predictive_entropy([a])
    assert (alone == 0).all(), "one network knows nothing of its own ignorance"


def test_certainty_of_a_linear_model_lies_along_its_weights():
    """Entropy depends on |margin| only, so free codes move along +-w to the margin asked for."""
    w = np.array([3.0, -1.0, 0.5], np.float32)
    model = ToyModel(np.stack([0 * w, w]), np.zeros(2, np.float32), Task.CLASSIFICATION)
    rng = np.random.default_rng(0)
    train = rng.normal(size=(400, 3)).astype(np.float32)
    wide = {f"x{j}": {"lower": -9.0, "upper": 9.0} for j in range(3)}
    space = FeatureSpace.continuous(3).with_changes(**wide)
    method = CLUE(
        model, space=space, mode="uncertainty", autoencoder=Identity(), weight=0.01, steps=300,
        lr=0.02,
    ).fit(train)  # fmt: skip
    x = (0.05 * rng.normal(size=(20, 3))).astype(np.float32)
    result = method.explain(x)
    assert result.found.all()
    assert (result.y_cfs == result.y_origs).all()
    moved = result.x_cfs - result.x_origs
    # Adam moves all coordinates alike: signs are those of +-w, which is what certainty asks for.
    side = np.where(result.y_origs == 1, 1.0, -1.0)[:, None]
    assert (np.sign(moved) * np.sign(w) * side >= 0).mean() > 0.95
    margin = np.abs(result.x_cfs @ w)
    level = method.level_
    p = 1 / (1 + np.exp(-margin))
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p))
    assert (entropy <= level + 1e-5).all()
    assert (entropy > 0.5 * level).mean() > 0.8, "no farther than certainty asks for"


def test_a_large_distance_weight_stays_at_the_decoded_row():
    problem = PROBLEMS["binary_numeric"]()
    near = problem.fitted(CLUE, autoencoder=Identity(), weight=1e6, steps=30, lr=1e-4)
    assert not near.explain(problem.x, problem.target).found.any()


def test_the_target_mode_never_returns_another_class():
    problem = PROBLEMS["three_classes"]()
    result = problem.fitted(CLUE, autoencoder=Identity(), weight=0.1, steps=200).explain(
        problem.x, problem.target
    )
    assert result.found.mean() > 0.8
    assert (problem.model.predict(result.x_cfs[result.found]) == problem.target).all()


def test_members_of_an_ensemble_make_uncertainty_epistemic():
    problem = PROBLEMS["binary_numeric"]()
    method = problem.fitted(CLUE, mode="uncertainty", ensemble=[problem.model], level=1.0)
    assert abs(method.level_) < 1e-6, "equal members never disagree"
    result = method.explain(problem.x)
    assert result.logs["uncertainty"] == "epistemic"
