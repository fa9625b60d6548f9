"""SACE: good pairs and their reuse, checked by hand and by brute force."""

from itertools import product

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.sace import SACE, CaseBase, find_pairs
from cel.protocols import Status, Task
from cel.space import Feature, FeatureSpace
from cel.space.distances import changed_features
from cel.testing.problems import PROBLEMS, ToyModel

NATIVE, ADAPTED, FALLBACK = 0, 1, 2


def line(*weights, bias):
    """Return the model of class 1 where weights . x + bias > 0."""
    w = np.stack([np.zeros(len(weights)), weights]).astype(np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)


def fitted(model, rows, space=None, **changes):
    rows = np.asarray(rows, dtype=np.float32)
    return SACE(model, space=space or FeatureSpace.continuous(rows.shape[1]), **changes).fit(rows)


def grid_rows(n=150, d=5, seed=0):
    """Return rows on a coarse grid, which holds many good pairs."""
    return (np.random.default_rng(seed).integers(0, 5, (n, d)) / 4).astype(np.float32)


def grid_problem():
    rows = grid_rows()
    model = line(3, -2, 2, 1, -1, bias=-1.6)
    queries = rows[model.predict(rows) == 0][:15]
    return model, rows[15:], queries


def brute_pairs(rows, labels, space, scale, *, tolerance, differences):
    """Return {(i, j)} of good pairs from class 0 to class 1, feature by feature."""
    good = set()
    for i, j in product(range(len(rows)), repeat=2):
        if (labels[i], labels[j]) != (0, 1):
            continue
        count, allowed = 0, True
        for f in space:
            columns = list(f.columns)
            if f.is_categorical:
                differs = rows[i, columns].argmax() != rows[j, columns].argmax()
            else:
                differs = abs(rows[i, columns[0]] - rows[j, columns[0]]) / scale[columns[0]]
                differs = differs > tolerance
            count += int(differs)
            allowed &= f.mutable or not differs
        if allowed and 0 < count <= differences:
            good.add((tuple(rows[i].tolist()), tuple(rows[j].tolist())))
    return good


@pytest.mark.parametrize(("tolerance", "differences"), [(0.2, 2), (0.01, 2), (0.6, 1)])
def test_good_pairs_equal_brute_force_on_mixed_rows(tolerance, differences, deviation):
    problem = PROBLEMS["mixed"]()
    rows, labels = problem.x_train[:90], problem.model.predict(problem.x_train[:90])
    rows[:, 6] = np.round(rows[:, 6])  # the immutable feature agrees in half of the pairs
    rows[:, [0, 7]] = np.round(rows[:, [0, 7]] * 3) / 3
    base = CaseBase.of(
        torch.as_tensor(rows), torch.as_tensor(labels), problem.space, limit=1000, seed=0
    )
    pairs = find_pairs(
        base, 0, 1, differences=differences, tolerance=tolerance, partners=len(rows)
    )
    found = {
        (tuple(base.x[case].tolist()), tuple(base.x[other].tolist()))
        for case, others in zip(pairs.cases, pairs.partners, strict=True)
        for other in others[others >= 0]
    }
    expected = brute_pairs(
        rows, labels, problem.space, rows.std(0), tolerance=tolerance, differences=differences
    )
    deviation.rows(len(found ^ expected), oracle="brute force, all pairs", unit="wrong pairs")
    assert len(expected) > 3


def test_a_case_of_a_good_pair_gets_exactly_its_partner(deviation):
    """A row that is the case of a good pair gets exactly its partner."""
    rows = [[0.2, 0.3, 0.4], [0.9, 0.1, 0.1], [0.2, 0.9, 0.4], [0.6, 1.0, 0.9]]
    model = line(0, 4, 0, bias=-2)
    result = fitted(model, rows).explain(np.array(rows[:1], dtype=np.float32), target=1)
    assert result.cf_group_ids.tolist() == [NATIVE]
    deviation.absolute(result.x_cfs[0], np.float32(rows[2]), oracle="by hand", limit=0)


def test_every_case_with_exact_matches_gets_a_partner_of_its_own(deviation):
    model, rows, _ = grid_problem()
    labels = model.predict(rows)
    method = fitted(model, rows)
    scale, space = rows.std(0), FeatureSpace.continuous(rows.shape[1])
    good = brute_pairs(rows, labels, space, scale, tolerance=0.2, differences=2)
    cases = np.unique(np.array([a for a, _ in good], dtype=np.float32), axis=0)
    result = method.explain(cases, target=1)
    assert len(cases) >= 20
    assert (result.cf_group_ids == NATIVE).all()
    pairs = zip(map(tuple, cases.tolist()), map(tuple, result.x_cfs.tolist()), strict=True)
    deviation.rows([p not in good for p in pairs], oracle="brute force, all pairs")


def test_the_nearest_partner_is_taken(deviation):
    rows = [[0.2, 0.2], [0.2, 0.95], [0.2, 0.7], [0.9, 0.2]]
    result = fitted(line(0, 4, bias=-2), rows).explain(
        np.array([[0.2, 0.2]], dtype=np.float32), target=1
    )
    deviation.absolute(result.x_cfs[0], np.float32([0.2, 0.7]), oracle="by hand", limit=0)


def test_match_features_come_from_the_row_and_difference_features_from_the_partner(deviation):
    """Match features come from the row, difference features from the partner of its case."""
    rows = [[0.2, 0.3, 0.4], [0.9, 0.1, 0.1], [0.2, 0.9, 0.4], [0.6, 1.0, 0.9]]
    query = np.array([[0.25, 0.1, 0.5]], dtype=np.float32)
    result = fitted(line(0, 4, 0, bias=-2), rows).explain(query, target=1)
    deviation.absolute(result.x_cfs[0], np.float32([0.25, 0.9, 0.5]), oracle="by hand", limit=0)


def test_a_pair_that_fails_is_adapted_with_values_of_other_target_rows(deviation):
    """A pair that fails is adapted with the value of another target row that flips the class."""
    model = line(2, 4, bias=-3)
    rows = [[0.6, 0.4], [0.1, 0.1], [0.6, 0.6], [1.0, 1.0]]
    assert model.predict(np.float32(rows)).tolist() == [0, 0, 1, 1]
    query = np.array([[0.3, 0.35]], dtype=np.float32)
    assert model.predict(np.float32([[0.3, 0.6]])).tolist() == [0]
    result = fitted(model, rows, differences=1, fallback=None).explain(query, target=1)
    assert result.cf_group_ids.tolist() == [ADAPTED]
    deviation.absolute(result.x_cfs[0], np.float32([0.3, 1.0]), oracle="by hand", limit=0)


def test_without_pairs_there_is_no_answer_or_the_nearest_unlike_neighbour(deviation):
    rng = np.random.default_rng(1)
    rows = rng.random((60, 6)).astype(np.float32)
    model = line(3, -2, 2, 1, -1, 2, bias=-2.4)
    labels = model.predict(rows)
    query = rows[labels == 0][:8]
    plain = fitted(model, rows, differences=1, match_tolerance=0.01, fallback=None)
    assert (plain.explain(query, target=1).status == Status.NOT_FOUND.value).all()
    result = fitted(model, rows, differences=1, match_tolerance=0.01).explain(query, target=1)
    assert (result.cf_group_ids == FALLBACK).all()
    pool, scale = rows[labels == 1], rows.std(0)
    gap = np.linalg.norm((query[:, None] - pool) / scale, axis=-1)
    exact = pool[gap.argmin(1)]
    deviation.absolute(result.x_cfs, exact, oracle="nearest neighbour by brute force", limit=0)


def test_changed_values_occur_in_rows_of_the_target_class(deviation):
    model, rows, queries = grid_problem()
    queries = queries + np.float32(0.013)  # no value of a row is one of the training data
    result = fitted(model, rows, fallback=None).explain(queries, target=1)
    found = result.found
    assert found.sum() >= 10
    pool = rows[model.predict(rows) == 1]
    moved = changed_features(result.x_origs[found], result.x_cfs[found], result.space)
    for values, changed in zip(result.x_cfs[found], moved, strict=True):
        whole = (pool[:, changed] == values[changed]).all(1)
        assert changed.any()
        deviation.rows(not whole.any(), oracle="rows of the class")  # all of them in one row


def test_pairs_change_no_more_features_than_they_differ_in(deviation):
    model, rows, queries = grid_problem()
    for most in (1, 2, 3):
        result = fitted(model, rows, differences=most).explain(queries, target=1)
        reused = np.isin(result.cf_group_ids, (NATIVE, ADAPTED)) & result.found
        assert reused.sum() >= 5
        moved = changed_features(result.x_origs, result.x_cfs, result.space)
        assert moved[reused].sum(1).max() == most
        deviation.rows(moved[reused].sum(1) > most, oracle="differences allowed")


def test_pairs_that_change_an_immutable_feature_are_left_out(deviation):
    space = FeatureSpace(
        tuple(Feature(name=f"x{j}", columns=(j,), mutable=j != 1) for j in range(3))
    )
    rows = [[0.2, 0.3, 0.4], [0.2, 0.9, 0.4], [0.9, 0.3, 0.4]]
    model = line(4, 4, 0, bias=-4)
    result = fitted(model, rows, space=space).explain(np.float32(rows[:1]), target=1)
    deviation.absolute(result.x_cfs[0], np.float32(rows[2]), oracle="by hand", limit=0)


def test_the_order_of_training_rows_does_not_matter(deviation):
    model, rows, queries = grid_problem()
    first = fitted(model, rows).explain(queries, target=1)
    for seed in range(3):
        mixed = np.random.default_rng(seed).permutation(rows)
        again = fitted(model, mixed).explain(queries, target=1)
        np.testing.assert_array_equal(first.x_cfs, again.x_cfs)
        gap = (first.x_cfs - again.x_cfs)[first.found]
        deviation.absolute(gap, 0, oracle="another order", limit=0)


def test_distinct_rows_get_distinct_answers_unlike_in_published_comparisons(deviation):
    """Distinct rows get distinct answers, where the published code gives all of them one."""
    rng = np.random.default_rng(2)
    rows = rng.random((120, 3)).astype(np.float32)
    model = line(4, 3, -2, bias=-2.5)
    queries = rows[model.predict(rows) == 0][:15]
    ours = fitted(model, rows[20:]).explain(queries, target=1)
    assert ours.found.all()
    repeated = len(queries) - len(np.unique(ours.x_cfs, axis=0))
    deviation.rows(repeated, oracle="distinct rows", unit="repeated answers")
    theirs = fitted(model, rows[20:], variant="scamander").explain(queries, target=1)
    first = rows[20:][model.predict(rows[20:]) == 1][0]
    np.testing.assert_array_equal(theirs.x_cfs, np.tile(first, (len(queries), 1)))


def test_three_classes_get_the_class_they_ask_for(deviation):
    problem = PROBLEMS["three_classes"]()
    method = problem.fitted(SACE)
    for target in range(3):
        rows = problem.x_train[problem.model.predict(problem.x_train) != target][:12]
        result = method.explain(rows, target=target)
        assert result.found.all()
        deviation.rows(problem.model.predict(result.x_cfs) != target, oracle="class asked for")
