"""Metrics where ranges are not 1, values are missing, or batches are cut: by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from cel.errors import ConfigError, UnsupportedError
from cel.metrics import METRICS
from cel.metrics._gower import codes, gower_matrix, scaled_numbers
from cel.metrics.evaluation import CHUNK_VALUES, chunks
from cel.metrics.outliers import _lof
from cel.metrics.robustness import _ask_again, _mean_of_known
from cel.protocols import Task
from cel.space import Feature, FeatureSpace

SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,), lower=0.0, upper=10.0),
        Feature(name="c", kind="categorical", columns=(1, 2, 3), categories=("u", "v", "w")),
        Feature(name="flat", columns=(4,), lower=2.0, upper=2.0),
        Feature(name="n", kind="integer", columns=(5,), lower=0.0, upper=4.0, step=1.0),
    )
)
A = np.array([[1.0, 1, 0, 0, 2.0, 1.0], [9.0, 0, 0, 0, 3.0, 4.0]])
B = np.array([[6.0, 0, 1, 0, 2.0, 1.0], [9.0, 0, 0, 0, 2.5, 0.0], [1.0, 1, 0, 0, 2.0, 1.0]])


def test_numbers_are_counted_in_ranges_and_constants_as_they_are():
    assert scaled_numbers(A, SPACE).tolist() == [[0.1, 2.0, 0.25], [0.9, 3.0, 1.0]]
    assert codes(A, SPACE).tolist() == [[0.0], [-1.0]]
    assert codes(B, SPACE).tolist() == [[1.0], [-1.0], [0.0]]
    assert codes(A, FeatureSpace.continuous(6)).shape == (2, 0)
    expected = [
        [(0.5 + 1 + 0 + 0) / 4, (0.8 + 1 + 0.5 + 0.25) / 4, 0.0],
        [(0.3 + 1 + 1 + 0.75) / 4, (0 + 0 + 0.5 + 1) / 4, (0.8 + 1 + 1 + 0.75) / 4],
    ]
    np.testing.assert_allclose(gower_matrix(A, B, SPACE), expected)
    only = FeatureSpace((Feature(name="c", kind="categorical", columns=(0, 1),
                                 categories=("u", "v")),))  # fmt: skip
    found = gower_matrix(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]]), only)
    assert found.tolist() == [[1.0, 0.0]]


def test_changed_columns_are_counted_in_ranges():
    cf = A.copy()
    cf[0, 0] += 5e-6  # less than a millionth of the range of 10
    cf[1, 5] += 1.0
    cf[1, 1] = 1.0
    ev = SimpleNamespace(space=SPACE, x=A, cf=cf)
    told = METRICS.get("sparsity_encoded").function(ev)
    assert told.tolist() == [0.0, 2 / 6]
    cf[0, 0] = A[0, 0] + 0.2
    cf[0, 4] = A[0, 4] + 0.2
    assert METRICS.get("sparsity_encoded").function(ev).tolist() == [2 / 6, 2 / 6]


def test_rows_are_cut_into_pieces_that_hold_so_many_values():
    assert chunks(5, CHUNK_VALUES // 2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert chunks(5, 0) == [slice(0, 5)]
    assert chunks(3, 2 * CHUNK_VALUES) == [slice(0, 1), slice(1, 2), slice(2, 3)]
    assert chunks(0, 3) == [slice(0, 0)]
    assert len(chunks(3 * CHUNK_VALUES, 1)) == 3


class Rows(SimpleNamespace):
    """Three rows."""

    def __len__(self):
        return 3


def neighbours(task):
    train = np.array([[0.0], [0.1], [0.3], [5.0], [5.2], [9.0]])
    ev = Rows(
        task=task, kind="found", x_train=train, y_train=np.array([0, 0, 0, 1, 1, 2]),
        cf=np.array([[0.2], [5.1], [9.0]]), target=np.array([0, 1, 2]),
        memo=lambda key, make: make(), shared=lambda name, make, key, **more: make(),
    )  # fmt: skip
    return ev


def test_outlier_factors_among_the_wanted_class():
    from sklearn.neighbors import LocalOutlierFactor

    ev = neighbours(Task.CLASSIFICATION)
    found = _lof(ev, 1, "target", True)
    for i, members in ((0, ev.x_train[:3]), (1, ev.x_train[3:5])):
        fitted = LocalOutlierFactor(n_neighbors=1, novelty=True).fit(members)
        assert found[i] == pytest.approx(-fitted.score_samples(ev.cf[i : i + 1])[0])
    assert np.isnan(found[2])  # a class of one row has no neighbours
    with pytest.raises(UnsupportedError, match="among='target' needs classes"):
        _lof(neighbours(Task.REGRESSION), 1, "target", True)
    with pytest.raises(ConfigError, match="among must be 'all' or 'target', got 'some'"):
        _lof(ev, 1, "some", True)
    with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
        _lof(ev, 0, "all", True)


def asked(task, target=None):
    """A method that answers the first and third perturbed row; the model says 1 above 0.5."""
    seen = []

    def explain(x, wanted):
        seen.append(wanted)
        return SimpleNamespace(found=np.array([True, False, True, True]), x_cfs=x + 1)

    ev = SimpleNamespace(
        task=task, target=np.array([0, 1]), positions=np.array([2, 0]),
        predict=lambda x: (x[:, 0] > 0.5).astype(int),
        result=SimpleNamespace(target=target, y_origs=np.array([1, 9, 0])),
        method=SimpleNamespace(explain=explain),
    )  # fmt: skip
    x = np.array([[0.1], [0.9], [0.7], [0.8]])
    return (*_ask_again(ev, x, 2), seen[0])


def test_answers_to_perturbed_rows_count_where_the_class_stayed():
    x, usable, wanted = asked(Task.CLASSIFICATION)
    assert x.tolist() == [[1.1], [1.9], [1.7], [1.8]]
    # rows are of class 0, 1, 0, 1; the second has no answer, the third has another class now
    assert usable.tolist() == [True, False, False, True]
    assert wanted.tolist() == [0, 1, 0, 1]
    labels = SimpleNamespace(decode=lambda t: np.array(["no", "yes"])[t])
    assert asked(Task.CLASSIFICATION, labels)[2].tolist() == ["no", "yes", "no", "yes"]
    _, usable, wanted = asked(Task.REGRESSION, labels)
    assert usable.tolist() == [True, False, True, True]
    assert wanted.tolist() == [0, 1, 0, 1]


def test_means_leave_out_what_is_unknown():
    values = np.array([[1.0, np.nan, np.nan], [3.0, 5.0, np.nan]])
    np.testing.assert_array_equal(_mean_of_known(values), [2.0, 5.0, np.nan])


def test_only_distances_in_deviations_need_training_rows():
    for number in ("l1", "l2", "mad"):
        for category in ("hamming", "jaccard"):
            needs = METRICS.get(f"{number}_{category}").needs
            assert set(needs) == ({"train"} if number == "mad" else set())


def test_margins_of_two_layers_over_all_small_changes_of_weights():
    """One hidden unit, relu(2x), margins (h, -h): by hand at x = 1 and every weight within 0.1."""
    import torch

    from cel.metrics.weight_changes import worst_margin

    layers = [
        (torch.tensor([[2.0]]), torch.tensor([0.0])),
        (torch.tensor([[1.0], [-1.0]]), torch.tensor([0.0, 0.0])),
    ]
    # hidden: 2 +- 0.1 (1 + 1); the margin 2 h: 4 - 2 * 0.2 - 2 * 0.1 (2 + 0.2 + 1)
    told = worst_margin(layers, torch.tensor([[1.0]]), torch.tensor([0]), 0.1)
    assert told.item() == pytest.approx(4 - 0.4 - 0.64)
    assert worst_margin(layers, torch.tensor([[1.0]]), torch.tensor([1]), 0.0).item() == -4.0
    # at x = 0.05 the hidden unit may vanish: 0.1 +- 0.105 is [0, 0.205]
    near = worst_margin(layers, torch.tensor([[0.05]]), torch.tensor([0]), 0.1)
    assert near.item() == pytest.approx(0.205 - 0.205 - 0.2 * 1.205, abs=1e-6)
    each = worst_margin(layers, torch.ones(2, 1), torch.tensor([0, 0]), torch.tensor([0.0, 0.1]))
    assert each.tolist() == pytest.approx([4.0, 2.96])


def test_missing_arrays_have_a_place_in_fingerprints():
    from cel.metrics.references import fingerprint

    one = np.zeros(2)
    told = [fingerprint(), fingerprint(None), fingerprint(None, one), fingerprint(one, None),
            fingerprint(one), fingerprint(one.astype(np.float32)), fingerprint(np.zeros((2, 1))),
            fingerprint(one, one)]  # fmt: skip
    assert len(set(told)) == len(told)


def test_numbers_of_neighbours_are_checked_and_edges_of_tolerances_count():
    from cel.metrics import Evaluation

    ev = neighbours(Task.CLASSIFICATION)
    for name in ("ynn", "discriminative_power", "connectedness"):
        with pytest.raises(ConfigError, match="k must be at least 1, got 0"):
            METRICS.get(name).function(ev, k=0)
    here = SimpleNamespace(task=Task.REGRESSION, tolerance=0.5)
    told = Evaluation.achieved(here, np.array([[1.5], [1.51], [0.5]]), np.array([[1.0]] * 3))
    assert told.tolist() == [True, False, True]


def test_values_that_tie_share_their_percentile():
    from cel.metrics.density import _rank

    known = np.array([1.0, 2.0, 2.0, 3.0])
    told = _rank(np.array([2.0, 0.0, 3.0, 9.0, np.nan]), known)
    np.testing.assert_array_equal(told, [2 / 4, 0.0, 3.5 / 4, 1.0, np.nan])
