"""Group-wise PPCEF against closed forms: two blobs, one Gaussian, PPCEF itself."""

import numpy as np
import pytest
import torch

from cel.cf_methods.group_methods import GroupPPCEF
from cel.cf_methods.group_methods.group_ppcef.shift_objective import entropy, sparsemax
from cel.cf_methods.local_methods import PPCEF
from cel.errors import ConfigError
from cel.objectives import density_shortfall, hinge, probability_margin
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import PROBLEMS, GaussianDensity, ToyModel

PLAIN = {"steps": 300, "random_state": 3}


class Band:
    """Class 1 where |x0| < 1: from the left one goes right, from the right one goes left."""

    task, n_outputs_, classes_ = Task.CLASSIFICATION, 2, np.arange(2)

    def logits(self, x):
        score = 2 * (1 - x[:, 0].square())
        return torch.stack([torch.zeros_like(score), score], 1)

    def predict_proba(self, X):
        return torch.softmax(self.logits(torch.as_tensor(np.asarray(X))), 1).numpy()

    def predict(self, X):
        return self.predict_proba(X).argmax(1)


def band_rows(n=180, seed=0):
    rng = np.random.default_rng(seed)
    centre = np.repeat([[-3.0, 0.0], [3.0, 0.0], [0.0, 0.0]], n // 3, 0)
    rows = (centre + rng.normal(size=centre.shape) * [0.2, 0.4]).astype(np.float32)
    return rows, rows[Band().predict(rows) == 0]


BAND_SPACE = FeatureSpace.continuous(2, -5.0, 5.0)
BAND_DENSITY = GaussianDensity(torch.zeros(2, 2), scale=0.5)


def banded(groups, **settings):
    rows, outside = band_rows()
    made = GroupPPCEF(
        Band(), gen_model=BAND_DENSITY, space=BAND_SPACE, groups=groups, **(PLAIN | settings)
    ).fit(rows)
    return made, made.explain(outside, 1)


def linear_case(n=300, seed=1):
    rng = np.random.default_rng(seed)
    w = np.array([2.0, 1.0, -1.0], dtype=np.float32)
    rows = rng.normal(size=(n, 3)).astype(np.float32) * 0.5 - 0.3 * w
    model = ToyModel(
        np.stack([np.zeros(3), w]).astype(np.float32), np.zeros(2, np.float32), Task.CLASSIFICATION
    )
    centres = torch.as_tensor(np.stack([-0.3 * w, 0.3 * w]).astype(np.float32))
    rows = np.concatenate([rows, rows + 0.6 * w]).astype(np.float32)
    return model, GaussianDensity(centres, 0.6), rows, w


# -- (a), (b): groups and who belongs to them ------------------------------------------------


def test_one_shift_serves_one_of_two_opposite_blobs_and_two_serve_both(deviation):
    _, half = banded(1)
    two, both = banded(2)
    oracle = "half of the rows, and all of them"
    deviation.absolute(half.found.mean(), 0.5, oracle=oracle, limit=0.1, unit="coverage")
    deviation.absolute(both.found.mean(), 1.0, oracle=oracle, limit=0.02, unit="coverage")
    ways = np.sign(two.explanation(1).state.directions.shift[:, 0].numpy())
    assert sorted(ways) == [-1, 1]
    assert len(set(both.cf_group_ids[both.found])) == 2


def test_shares_are_points_of_a_simplex_and_end_at_its_corners():
    made, _ = banded(2)
    explanation = made.explanation(1)
    share = explanation.state.fitted.share
    assert torch.allclose(share.sum(1), torch.ones(len(share)), atol=1e-5)
    assert (share >= 0).all()
    assert (share.amax(1) >= 0.99).double().mean() >= 0.95
    assert explanation.logs["one_shift"] >= 0.95
    mixed, _ = banded(2, weights=(1, 100, 10, 0, 0, 0), steps=5)  # nothing asks for corners yet
    assert mixed.explanation(1).logs["one_shift"] < 0.95


def test_sparsemax_is_the_nearest_point_of_the_simplex(deviation):
    scores = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    grid = torch.linspace(0, 1, 101)
    a, b = torch.meshgrid(grid, grid, indexing="ij")
    keep = a + b <= 1
    points = torch.stack([a[keep], b[keep], 1 - a[keep] - b[keep]], 1)
    best = points[torch.cdist(scores, points).argmin(1)]
    told = {"oracle": "grid search, steps of 0.01", "limit": 0.011}
    deviation.absolute(sparsemax(scores), best, **told)
    assert entropy(torch.tensor([0.5, 0.25, 0.25])) == pytest.approx(1.0397207)


# -- (c): as many shifts as rows are PPCEF ---------------------------------------------------


def test_a_shift_for_each_row_reaches_the_objective_of_ppcef(deviation):
    model, density, rows, _ = linear_case()
    space = FeatureSpace.continuous(3, -4.0, 4.0)
    x = rows[model.predict(rows) == 0][:20]
    ours = GroupPPCEF(
        model, gen_model=density, space=space, level="local", distance="l2",
        weights=(1, 100, 100, 0, 0, 0), quantile=0.5, steps=600, lr=0.01, patience=200,
    ).fit(rows).explain(x, 1)  # fmt: skip
    settings = {"quantile": 0.5, "alpha": 100.0, "steps": 600, "lr": 0.01, "solver": "gradient"}
    paper = PPCEF(model, gen_model=density, space=space, **settings).fit(rows)
    theirs = paper.explain(x, 1)
    assert ours.found.all()
    assert theirs.found.all()
    level = paper.threshold_[1]

    def objective(result):
        z = torch.as_tensor(result.x_cfs)
        target = torch.ones(len(z), dtype=torch.long)
        margin = probability_margin(model.logits(z), target)
        short = density_shortfall(density.log_prob(z, target), level)
        far = (z - torch.as_tensor(result.x_origs)).norm(dim=1)
        return (far + 100 * (hinge(margin, 0.02) + short)).mean()

    told = {"oracle": "descent of PPCEF", "limit": 0.05, "unit": "relative objective"}
    deviation.relative(float(objective(ours)), float(objective(theirs)), **told)


# -- (d): the direction ----------------------------------------------------------------------


def test_the_one_shift_of_a_linear_model_points_where_the_best_ways_point(deviation):
    model, density, rows, w = linear_case()
    space = FeatureSpace.continuous(3, -4.0, 4.0)
    made = GroupPPCEF(
        model, gen_model=density, space=space, level="global", distance="l2",
        weights=(1, 100, 0, 0, 0, 0), steps=1500, patience=300,
    ).fit(rows)  # fmt: skip
    shift = made.explanation(1).state.directions.shift[0].numpy()
    angle = np.degrees(np.arccos(shift @ w / np.linalg.norm(shift) / np.linalg.norm(w)))
    deviation(angle, oracle="normal of the half-space", limit=5.0, unit="degrees")


# -- (e), (f): rows that were not fitted, and their order ------------------------------------


def test_rows_that_were_not_fitted_tell_how_the_shifts_carry():
    made, _ = banded(2)
    logs = made.explanation(1).logs
    assert logs["fitted_validity"] >= 0.98
    assert logs["held_out_validity"] >= 0.95
    fitted = made.explanation(1).state.fitted
    assert len(fitted.share) == round(0.8 * logs["rows_used"])


def test_the_order_of_the_training_rows_does_not_matter(deviation):
    rows, outside = band_rows()
    answers = [
        GroupPPCEF(Band(), gen_model=BAND_DENSITY, space=BAND_SPACE, groups=2, **PLAIN)
        .fit(some)
        .explain(outside, 1)
        .x_cfs
        for some in (rows, rows[::-1].copy())
    ]
    assert np.array_equal(*map(np.isnan, answers))
    one, other = map(np.nan_to_num, answers)
    deviation.absolute(one, other, oracle="reversed rows", limit=1e-4)


# -- promises --------------------------------------------------------------------------------


def test_a_plausible_answer_is_preferred_to_a_cheaper_one():
    made, result = banded(2)
    level = float(made.threshold_[1])

    def plausible(x):
        logp = BAND_DENSITY.log_prob(torch.as_tensor(x), torch.ones(1).long())
        return (logp.numpy() >= level - 1e-4).mean()

    middle = result.x_origs * np.float32([0, 1])  # the best that a way along x0 can do
    short = GroupPPCEF(
        Band(), gen_model=BAND_DENSITY, space=BAND_SPACE, groups=2, quantile=0.0, **PLAIN
    ).fit(band_rows()[0]).explain(band_rows()[1], 1)  # fmt: skip
    far, near = (np.abs(r.x_cfs - r.x_origs).sum(1)[r.found].mean() for r in (result, short))
    assert plausible(result.x_cfs[result.found]) >= plausible(middle) - 0.05
    assert plausible(middle) > 0.6
    assert far > near


def test_a_shift_without_magnitudes_is_one_action_for_all():
    _, result = banded(2, magnitudes=False)
    moved = (result.x_cfs - result.x_origs)[result.found]
    unit = result.cf_group_ids[result.found]
    for one in set(unit):
        assert np.allclose(moved[unit == one], moved[unit == one][0], atol=1e-5)
    assert result.found.mean() > 0.5


def test_features_that_cannot_move_have_no_part_in_a_shift():
    model, density, rows, _ = linear_case()
    space = FeatureSpace(
        (
            Feature(name="a", columns=(0,), lower=-4, upper=4, mutable=False),
            Feature(name="b", columns=(1,), lower=-4, upper=4, direction="up"),
            Feature(name="c", columns=(2,), lower=-4, upper=4, direction="up"),
        )
    )
    made = GroupPPCEF(model, gen_model=density, space=space, groups=3, steps=50).fit(rows)
    shift = made.explanation(1).state.directions.shift
    assert (shift[:, 0] == 0).all()
    assert (shift >= 0).all()
    assert (shift[:, 1] > 0).any()


@pytest.mark.parametrize("level", ["global", "local"])
def test_the_other_levels_keep_the_constraints_of_the_mixed_problem(level):
    p = PROBLEMS["mixed"]()
    result = p.explain(p.fitted(GroupPPCEF, level=level))
    assert result.found.mean() >= 0.25
    rows = np.flatnonzero(result.found)
    assert p.space.region(p.x[rows]).contains(result.x_cfs[rows]).all()


def test_settings_that_make_no_sense_are_refused():
    rows, _ = band_rows()

    def made(**settings):
        return GroupPPCEF(Band(), gen_model=BAND_DENSITY, space=BAND_SPACE, **settings)

    with pytest.raises(ConfigError, match="six numbers"):
        made(weights=(1, 2, 3)).fit(rows)
    with pytest.raises(ConfigError, match="in any case"):
        made(level="local", fit_split="test").fit(rows)
    with pytest.raises(ConfigError, match="one shift per row"):
        made(level="local").fit(rows).explanation(1)
