"""SACE: the case base."""

import numpy as np
import pytest
import torch

from cel.cf_methods.local_methods.sace import SACE, CaseBase
from cel.errors import ConfigError
from cel.space.distances import hamming
from cel.testing.problems import PROBLEMS


def base_of(rows, problem, limit):
    labels = torch.as_tensor(problem.model.predict(rows))
    return CaseBase.of(torch.as_tensor(rows), labels, problem.space, limit=limit, seed=0)


def test_a_subsample_does_not_depend_on_the_order_or_on_repetition():
    problem = PROBLEMS["mixed"]()
    rows = problem.x_train
    first = base_of(rows, problem, 50)
    mixed = np.random.default_rng(0).permutation(np.concatenate([rows, rows[:40]]))
    again = base_of(mixed, problem, 50)
    assert len(first.x) == 50
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.y, again.y)


def test_distances_weigh_numbers_and_labels_by_their_share(deviation):
    problem = PROBLEMS["mixed"]()
    rows = problem.x_train[:30]
    base = base_of(rows, problem, 1000)
    a, b = torch.as_tensor(rows[:6]), torch.as_tensor(rows[6:12])
    ours = base.distance(base.encode(a), base.encode(b))
    numeric = problem.space.numeric_columns
    scale = rows.std(0)
    for i in range(6):
        for j in range(6):
            gap = ((a[i] - b[j]).numpy() / scale)[numeric]
            labels = hamming(a[i : i + 1].numpy(), b[j : j + 1].numpy(), problem.space)[0]
            expected = 5 / 6 * np.sqrt((gap**2).mean()) + 1 / 6 * labels
            deviation.relative(float(ours[i, j]), expected, oracle="plain loops", limit=2e-6)


def test_the_way_of_each_answer_is_told():
    """Each answer tells whether it is native, adapted or a fallback."""
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(SACE).explain(problem.x, target=1)
    assert result.found.all()
    assert set(result.cf_group_ids) <= {0, 1, 2}
    assert "fallback" in result.logs["how"][2]


def test_wrong_settings_are_named():
    problem = PROBLEMS["mixed"]()
    with pytest.raises(ConfigError, match="'nearest'"):
        problem.fitted(SACE, fallback="nearest")
    with pytest.raises(ConfigError, match="'other'"):
        problem.fitted(SACE, variant="other")
