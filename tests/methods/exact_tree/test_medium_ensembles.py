"""Exact trees against SCIP on ensembles that are too large to enumerate."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier

from cel.cf_methods.local_methods import CellSearch, ExactTree
from cel.models import wrap
from cel.space import Feature, FeatureSpace
from cel.space.distances import mad_scale

MARGIN, BETA = 1e-4, 0.05
SPACE = FeatureSpace(
    (
        Feature(name="a", columns=(0,)),
        Feature(name="b", columns=(1,), direction="up"),
        Feature(name="c", columns=(2,)),
        Feature(name="d", columns=(3,), mutable=False),
        Feature(name="e", columns=(4,), weight=2.0),
        Feature(name="f", kind="categorical", columns=(5, 6, 7), categories=("u", "v", "w")),
    )
)
NUMBERS = range(5)


def case(make, seed=0, n=10):
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.random((500, 5)), np.eye(3)[rng.integers(0, 3, 500)]])
    x = x.astype(np.float32)
    score = x[:, 0] + x[:, 1] * x[:, 2] - x[:, 4] + 0.4 * x[:, 6] + 0.2 * rng.normal(size=500)
    model = make.fit(x, (score > np.quantile(score, 0.6)).astype(int))
    return model, x, x[model.predict(x) == 0][:n]


def thresholds(trees, column):
    """The 32-bit numbers up to which a column goes left, over all trees."""
    cut = np.concatenate([t.tree_.threshold[t.tree_.feature == column] for t in trees])
    low = cut.astype(np.float32)
    return np.unique(np.where(low > cut, np.nextafter(low, np.float32(-np.inf)), low))


def leaves(tree):
    """(node, {column: (above, most)}) of every leaf of a scikit-learn tree."""
    t, todo = tree.tree_, [(0, {})]
    while todo:
        node, box = todo.pop()
        if t.children_left[node] < 0:
            yield node, box
            continue
        j, cut = t.feature[node], t.threshold[node]
        low, high = box.get(j, (-np.inf, np.inf))
        todo.append((t.children_left[node], {**box, j: (low, min(high, cut))}))
        todo.append((t.children_right[node], {**box, j: (max(low, cut), high)}))


def choices(trees, x, scale):
    """For every feature its (values by column, price): one per cell that the row may go to."""
    out = []
    for j in NUMBERS:
        own = x[j]
        edges = thresholds(trees, j)
        cells = []
        for k in range(len(edges) + 1):
            low = np.nextafter(edges[k - 1], np.float32(np.inf)) if k else np.float32(-np.inf)
            high = edges[k] if k < len(edges) else np.float32(np.inf)
            value = np.clip(own, low, high)
            barred = (j == 1 and value < own) or (j == 3 and value != own)
            if not 0 <= value <= 1 or barred:
                continue
            far = abs(float(value) - float(own)) / scale[j] * (2.0 if j == 4 else 1.0)
            cells.append(({j: value}, far + BETA if value != own else 0.0))
        out.append(cells)
    now = int(x[5:8].argmax())
    out.append([(dict(zip(range(5, 8), row, strict=True)), 0.0 if k == now else 1.0 + BETA)
                for k, row in enumerate(np.eye(3))])  # fmt: skip
    return out


def by_scip(trees, gain, goal, x, scale):
    """The program of the publication: one cell per feature, one leaf per tree, one demand."""
    from pyscipopt import Model, quicksum

    model = Model()
    model.hideOutput()
    model.setParam("limits/time", 60)
    cells = choices(trees, x, scale)
    takes = [[model.addVar(vtype="B") for _ in part] for part in cells]
    for part in takes:
        model.addCons(quicksum(part) == 1)
    total = []
    for number, tree in enumerate(trees):
        own = []
        for node, box in leaves(tree):
            reach = model.addVar(lb=0.0, ub=1.0)
            own.append(reach)
            total.append(float(gain(number, node)) * reach)
            for j, (low, high) in box.items():
                feature = min(j, 5)
                inside = [
                    take
                    for take, (values, _) in zip(takes[feature], cells[feature], strict=True)
                    if low < values[j] <= high
                ]
                model.addCons(reach <= quicksum(inside))
        model.addCons(quicksum(own) == 1)
    model.addCons(quicksum(total) >= goal)
    prices = [
        price * take
        for part, own in zip(takes, cells, strict=True)
        for take, (_, price) in zip(part, own, strict=True)
    ]
    model.setObjective(quicksum(prices))
    model.optimize()
    return model.getStatus(), model.getObjVal() if model.getNSols() else np.inf


def forest():
    return RandomForestClassifier(20, max_leaf_nodes=8, random_state=0)


def boosting():
    return GradientBoostingClassifier(n_estimators=25, max_depth=3, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("make", [forest, boosting])
def test_costs_equal_scip(make, deviation):
    pytest.importorskip("pyscipopt", reason="the extra `exact` brings the oracle")
    model, train, x = case(make())
    trees = list(np.ravel(model.estimators_))
    scale = mad_scale(train, SPACE)
    if make is forest:
        factor = np.exp(MARGIN)  # p1 - e^MARGIN p0 >= 0

        def gain(number, node):
            value = trees[number].tree_.value[node][0]
            return (value[1] - factor * value[0]) / value.sum()

        goal = 0.0
    else:
        prior = np.log(model.init_.class_prior_[1] / model.init_.class_prior_[0])

        def gain(number, node):
            return model.learning_rate * trees[number].tree_.value[node][0][0]

        goal = MARGIN - prior
    wrapped = wrap(model, space=SPACE)
    solved = [by_scip(trees, gain, goal, row, scale) for row in x]
    ours, best = [], []
    for bounds in ("both", "boxes", "leaves"):
        result = ExactTree(wrapped, nodes=4000, bounds=bounds).fit(train).explain(x, 1)
        for i, (status, cost) in enumerate(solved):
            if result.status[i] == "infeasible":
                assert status == "infeasible", i
            elif result.proof[i] == "optimal" and status == "optimal":
                ours.append(result.bound[i])
                best.append(cost)
            elif np.isfinite(cost):
                assert result.bound[i] <= cost + 1e-4
    assert len(ours) >= 18
    deviation.absolute(ours, best, oracle="SCIP", limit=1e-4)


def test_the_scope_of_a_proof_names_space_and_trees():
    model, train, x = case(forest())
    first = ExactTree(wrap(model, space=SPACE), nodes=1).fit(train).explain(x[:2], 1)
    fast = CellSearch(wrap(model, space=SPACE)).fit(train).explain(x[:2], 1)
    scope = first.logs["proof_scope"]
    assert scope == fast.logs["proof_scope"]
    free = SPACE.with_changes(b={"direction": "any"})
    other = ExactTree(wrap(model, space=free), nodes=1).fit(train).explain(x[:2], 1)
    assert other.logs["proof_scope"]["trees"] == scope["trees"]
    assert other.logs["proof_scope"]["space"] != scope["space"]
    own = ExactTree(wrap(model, space=SPACE), space=free, nodes=1).fit(train).explain(x[:2], 1)
    assert own.logs["proof_scope"] == other.logs["proof_scope"]  # limits of the method count
    model.estimators_ = model.estimators_[:-1]
    model.n_estimators -= 1
    moved = ExactTree(wrap(model, space=SPACE), nodes=1).fit(train).explain(x[:2], 1)
    assert moved.logs["proof_scope"]["trees"] != scope["trees"]


def test_cells_declare_what_they_prove():
    """Rows that no leaf can help are infeasible; costs are never called the least."""
    model, train, x = case(forest())
    assert CellSearch.proves
    stuck = SPACE.with_changes(**{f.name: {"mutable": False} for f in SPACE if f.name != "c"})
    result = CellSearch(wrap(model, space=stuck)).fit(train).explain(x, 1)
    assert (result.status == "infeasible").any()
    exact = ExactTree(wrap(model, space=stuck)).fit(train).explain(x, 1)
    assert (exact.status[result.status == "infeasible"] == "infeasible").all()
    assert (result.proof == "none").all()
    assert np.isnan(result.bound).all()
