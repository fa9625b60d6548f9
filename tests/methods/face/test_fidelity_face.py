"""FACE: paths by hand and by Floyd-Warshall, feasible step by step."""

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import floyd_warshall

from cel.cf_methods.local_methods.face import FACE
from cel.protocols import Task
from cel.space import Feature, FeatureSpace
from cel.testing.problems import PROBLEMS, ToyModel


def model_of(*weights, bias):
    w = np.stack([np.zeros(len(weights)), weights]).astype(np.float32)
    return ToyModel(w, np.array([0, bias], dtype=np.float32), Task.CLASSIFICATION)


def rows(*values):
    return np.array(values, dtype=np.float32)


WIDE = {"graph": "epsilon", "price": "length", "quantile": 0.0}


def test_a_gap_wider_than_epsilon_stops_the_walk_and_a_bridge_opens_it(deviation):
    chain = rows([0.0], [0.1], [0.2], [0.6], [0.7])
    model, start = model_of(10, bias=-6.5), rows([0.02])
    method = FACE(model, space=FeatureSpace.continuous(1), epsilon=0.21, **WIDE)
    closed = method.fit(chain).explain(start, 1)
    assert closed.status.tolist() == ["not_found"]
    assert closed.logs["why"] == {"no way from the neighbours to a target": 1}
    bridged = method.fit(np.concatenate([chain, rows([0.4])])).explain(start, 1)
    path = np.array(bridged.logs["path"][0])[:, 0]
    assert np.isclose(path, 0.4).any()  # rows in between are on the way, or not: equal lengths
    deviation.absolute(path[-3:], [0.4, 0.6, 0.7], oracle="by hand", limit=1e-6)


def two_routes():
    """From (0, 0) to (1, 0): straight over one lonely row, or around over many near ones."""
    angle = np.linspace(np.pi, 0, 23)
    around = np.stack([0.5 + 0.5 * np.cos(angle), 0.5 * np.sin(angle)], 1)
    return np.concatenate([around, [[0.5, 0.0]]]).astype(np.float32)


def test_dense_routes_win_when_density_counts(deviation):
    """Of two routes, length alone takes the short sparse one, -log density the long dense one."""
    x, start = two_routes(), rows([0.0, 0.0])
    model = model_of(40, 0, bias=-39.8)  # only (1, 0) is a target
    space = FeatureSpace.continuous(2, -1, 2)
    settings = {"graph": "epsilon", "epsilon": 0.55, "quantile": 0.0, "space": space}

    def route(price):
        method = FACE(model, price=price, **settings).fit(x)
        return method, np.array(method.explain(start, 1).logs["path"][0])

    short, lonely = route("length")[1], rows([0.5, 0.0])
    length = np.linalg.norm(np.diff(np.concatenate([start, short]), axis=0), axis=1).sum()
    deviation.absolute(length, 1.0, oracle="straight line", limit=1e-6)
    method, dense = route("knn")
    assert not (np.abs(dense - lonely) < 1e-6).all(1).any()
    steps = np.linalg.norm(np.diff(np.concatenate([start, dense]), axis=0), axis=1)
    assert steps.max() < 0.2

    # the weights by hand: f = d log(length / shortest), floored
    edges = np.linalg.norm(x[:, None] - x[None], axis=-1)
    shortest = edges[edges > 0].min()
    price = [max(2 * np.log(s / shortest), 1e-6) * s for s in steps[steps > 0]]
    node = int(np.flatnonzero((x == dense[0]).all(1))[0])
    ours = float(method.reach_[1].cost[node])
    deviation.absolute(ours, sum(price[-(len(dense) - 1) :]), oracle="by hand", limit=1e-5)


@pytest.mark.parametrize("price", ["length", "knn"])
@pytest.mark.parametrize("graph", ["knn", "epsilon"])
def test_ways_equal_all_pairs_by_floyd_warshall(price, graph, deviation):
    rng = np.random.default_rng(0)
    x = rng.random((60, 3)).astype(np.float32)
    model = model_of(4, 3, -2, bias=-2.5)
    space = FeatureSpace.continuous(3).with_changes(x0={"direction": "up"})
    method = FACE(
        model, space=space, graph=graph, k=6, epsilon=0.45, price=price, quantile=0.2
    ).fit(x)
    nodes, dense = method.graph_.x.numpy(), method.graph_.matrix.toarray()
    every = floyd_warshall(np.where(dense > 0, dense, np.inf))
    targets = method._targets(1, method._loneliness(method.graph_.x)).numpy()
    best = every[:, targets].min(1)
    ours = method.reach_[1].cost.numpy()
    assert np.isfinite(best).sum() > 20
    assert np.array_equal(np.isfinite(ours), np.isfinite(best))
    known = np.isfinite(best)
    deviation.absolute(ours[known], best[known], oracle="Floyd-Warshall", limit=1e-9)
    ends = method.reach_[1].end.numpy()[known]
    cost = every[np.flatnonzero(known), ends]
    deviation.absolute(cost, best[known], oracle="Floyd-Warshall", limit=1e-9)

    edges = np.linalg.norm(nodes[:, None] - nodes[None], axis=-1)
    raised = nodes[None, :, 0] >= nodes[:, None, 0] - 1e-6
    if graph == "epsilon":
        expected = (edges <= 0.45) & raised & (edges > 0)
        deviation.rows((expected != (dense > 0)).sum(), oracle="brute force", unit="wrong edges")


def test_in_a_complete_graph_the_answer_is_the_nearest_target(deviation):
    """All rows joined and length alone: by the triangle inequality the nearest target row."""
    problem = PROBLEMS["binary_numeric"]()
    x = problem.x_train
    method = problem.fitted(FACE, k=len(x) - 1, price="length", quantile=0.0)
    result = method.explain(problem.x, 1)
    targets = x[problem.model.predict(x) == 1]
    best = np.linalg.norm(problem.x[:, None] - targets[None], axis=-1).min(1)
    ours = np.linalg.norm(result.x_cfs - problem.x, axis=1)
    deviation.absolute(ours, best, oracle="nearest target", limit=1e-6)


def people():
    """Two groups of an immutable label, each with a chain of rows from class 0 to class 1."""
    line = np.linspace(0, 1, 21)
    parts = [
        np.column_stack([line, np.full(21, 0.3 * g), np.full(21, 1 - g), np.full(21, g)])
        for g in (0, 1)
    ]
    space = FeatureSpace(
        (
            Feature(name="a"),
            Feature(name="b", columns=(1,)),
            Feature(
                name="sex", kind="categorical", columns=(2, 3), categories=("F", "M"),
                mutable=False,
            ),
        )
    )  # fmt: skip
    return np.concatenate(parts).astype(np.float32), space


def test_paths_never_mix_an_immutable_label_and_both_groups_have_paths():
    x, space = people()
    method = FACE(model_of(10, 0, 0, 0, bias=-7), space=space, k=8, quantile=0.0).fit(x)
    start = np.concatenate([x[[0, 1]], x[[21, 22]]])
    result = method.explain(start, 1)
    assert result.found.all()
    for origin, path in zip(start, result.logs["path"], strict=True):
        assert (np.array(path)[:, 2:] == origin[2:]).all()
    matrix = method.graph_.matrix.tocoo()
    nodes = method.graph_.x.numpy()
    assert (nodes[matrix.row, 2] == nodes[matrix.col, 2]).all()
    assert set(nodes[matrix.row, 2]) == {0.0, 1.0}


def test_a_feature_that_may_only_rise_never_falls_along_a_path(deviation):
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(FACE).explain(problem.x, 1)
    assert result.found.sum() >= 4
    falls, lengths = 0.0, []
    for i in np.flatnonzero(result.found):
        path = np.concatenate([problem.x[i : i + 1], np.array(result.logs["path"][i])])
        falls = max(falls, float(-np.diff(path[:, 5]).min()), float(np.diff(path[:, 7]).max()))
        lengths.append(len(path) - 1)
    deviation(max(falls, 0.0), oracle="directions of the card", limit=1e-6, unit="wrong way")
    assert max(lengths) >= 2


def test_every_step_lies_in_the_region_of_the_one_before(deviation):
    """From the row to the answer, each point of a path is feasible for the one before."""
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(FACE, k=10).explain(problem.x, 1)
    wrong = 0
    for i in np.flatnonzero(result.found):
        path = np.concatenate([problem.x[i : i + 1], np.array(result.logs["path"][i])])
        path = torch.as_tensor(path, dtype=torch.float32)
        wrong += int((~problem.space.region(path[:-1]).contains(path[1:])).sum())
        assert np.allclose(path[-1], result.x_cfs[i], atol=1e-6)
    deviation.rows(wrong, oracle="Region.contains", unit="wrong steps")


def test_rows_without_an_answer_have_no_path():
    problem = PROBLEMS["mixed"]()
    result = problem.fitted(FACE, likeness=0.01).explain(problem.x, 1)
    assert not result.found.all()
    assert [p is not None for p in result.logs["path"]] == result.found.tolist()


def test_duplicates_give_no_free_ride_out_of_the_region():
    """Copies of a row lead nowhere that the row itself may not go."""
    x, space = people()
    many = np.concatenate([x, np.repeat(x[:1], 30, 0), np.repeat(x[21:22], 30, 0)])
    method = FACE(model_of(10, 0, 0, 0, bias=-7), space=space, k=8, quantile=0.0)
    plain, copied = method.fit(x).explain(x[:2], 1), method.fit(many).explain(x[:2], 1)
    assert np.array_equal(plain.x_cfs, copied.x_cfs)
    no_woman_arrives = np.concatenate([x[:10], np.repeat(x[:1], 30, 0), x[21:]])
    result = method.fit(no_woman_arrives).explain(x[[0, 1, 21, 22]], 1)
    assert result.status.tolist() == ["not_found", "not_found", "found", "found"]
