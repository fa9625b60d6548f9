"""One threshold for the method that promises plausibility and for the metric that checks it."""

import ast
from pathlib import Path

import numpy as np
import pytest
import torch

import cel
from cel.benchmark import collect, make_plan, open_run, run
from cel.benchmark.shipped import shipped_table
from cel.benchmark.spec import Suite
from cel.benchmark.stages import Workbench
from cel.benchmark.store import Store
from cel.cf_methods import METHODS
from cel.metrics import MetricsOrchestrator
from cel.models.generative.levels import DensityLevels, log_density_of
from cel.result import EvaluationContext

CELL = ["dataset", "model", "method", "fold"]
SUITE = {
    "name": "tau", "datasets": ["moons"], "folds": [0, 1, 2, 3, 4],
    "classifiers": {"lr": {}}, "density": {"epochs": 10}, "max_rows": 12,
    "extra_metrics": [], "methods": {"ppcef": {}},
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("tau") / "r"
    run(SUITE, out)
    return out


def test_ppcef_is_plausible_under_its_own_threshold_on_every_fold(finished):
    scores = collect(*open_run(finished))
    found = scores[scores["metric"] == "rows_found"]["value"]
    kept = scores[scores["metric"] == "prob_plausibility"]["value"]
    assert len(kept) == 5
    assert (found > 0).all()
    assert kept.tolist() == [1.0] * 5


def test_method_metric_and_hand_agree_on_the_threshold(finished):
    """All training rows; the smallest value with half of the rows at or below it."""
    plan = make_plan(Suite.from_dict(SUITE))
    bench = Workbench(plan.suite, plan.blocks[0], Store(finished))
    split, model, density = bench.split, bench.predictor(), bench.density()
    x = np.concatenate([split.train.X, split.valid.X])
    y = model.predict_proba(x).argmax(1)
    with torch.no_grad():
        logp = density.log_prob(torch.as_tensor(x), torch.as_tensor(y)).double().numpy()
    by_hand = [np.sort(logp[y == k])[int(np.ceil(0.5 * (y == k).sum())) - 1] for k in (0, 1)]
    alone = METHODS.get("ppcef")(model, gen_model=density).fit(split)
    np.testing.assert_allclose(alone.threshold_.numpy(), by_hand, atol=1e-5)
    handed = bench.levels().thresholds(0.5, np.array([0, 1]))
    np.testing.assert_allclose(handed, by_hand, atol=1e-5)
    assert alone.explain(split.test.X, "opposite").context.levels is alone.levels_


class Counting:
    """A density that notes how many rows it was asked about."""

    def __init__(self, density):
        self.density, self.asked = density, []

    def log_prob(self, x, context):
        self.asked.append(len(x))
        return self.density.log_prob(x, context)


def test_no_metric_computes_a_threshold_again(finished):
    plan = make_plan(Suite.from_dict(SUITE))
    bench = Workbench(plan.suite, plan.blocks[0], Store(finished))
    known, spy = bench.context(), Counting(bench.density())
    method = METHODS.get("ppcef")(
        bench.predictor(), gen_model=bench.density(), levels=known.levels
    )
    result = method.fit(bench.split).explain(bench.split.test.X[:9], "opposite")
    fields = {n: getattr(known, n) for n in ("model", "levels", "x_train", "y_train")}
    judge = MetricsOrchestrator(metrics=["prob_plausibility"])
    assert judge.compute(result, EvaluationContext(density=spy, **fields)).score(
        "prob_plausibility"
    ).value == pytest.approx(1.0)
    assert spy.asked == [int(result.found.sum())]
    strict = DensityLevels(
        log_density=known.levels.log_density + 1e3, classes=known.levels.classes
    )
    other = EvaluationContext(density=spy, **fields | {"levels": strict})
    assert judge.compute(result, other)["prob_plausibility"] == 0.0


@pytest.mark.parametrize(
    ("suite", "metric"), [("paper", "prob_plausibility"), ("standard", "coach_plausibility")]
)
def test_ppcef_is_plausible_under_its_own_threshold_in_every_shipped_fold(suite, metric):
    scores = shipped_table(suite)
    mine = scores[scores["method"].isin(["ppcef", "ppcef_tangents"])]
    found = mine[(mine["metric"] == "rows_found") & (mine["value"] > 0)]
    kept = mine[mine["metric"] == metric].set_index(CELL)["value"]
    assert len(found) > 200
    assert kept.loc[list(found[CELL].itertuples(index=False, name=None))].tolist() == [1.0] * len(
        found
    )


def test_no_metric_has_a_quantile_of_densities_of_its_own():
    """Of all modules of metrics those about density know thresholds; they ask the levels."""
    root = Path(cel.__file__).parent / "metrics"
    asked = {
        "quantile",
        "percentile",
        "partition",
        "nanquantile",
        "nanpercentile",
        "DensityLevels",
    }
    using = {}
    for path in root.glob("*.py"):
        calls = [n.func for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        names = {getattr(f, "attr", getattr(f, "id", "")) for f in calls}
        if names & asked:
            using[path.stem] = names & asked
    assert using == {"bootstrap": {"quantile"}, "neighbours": {"quantile"}}
    text = (root / "density.py").read_text()
    assert text.count("levels.thresholds(") == text.count("levels.pooled(") == 1


def test_levels_by_hand():
    levels = DensityLevels(
        log_density=np.array([1.0, 2.0, 3.0, 4.0, -np.inf]), classes=np.array([0, 0, 0, 0, 1])
    )
    assert levels.thresholds(0.5, np.array([0, 1, 0])).tolist() == [2.0, -np.inf, 2.0]
    assert levels.pooled(0.5) == 2.0
    assert levels.spread == pytest.approx(np.std([1, 2, 3, 4], ddof=1))
    values = DensityLevels(log_density=np.array([3.0, 1.0, 2.0]))
    assert values.thresholds(1.0, np.zeros((2, 1))).tolist() == [3.0, 3.0]


def test_a_density_without_context_is_asked_without_it():
    class Blind:
        context_kind_ = "none"

        def log_prob(self, x, context):
            assert context is None
            return x.sum(1)

    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert log_density_of(Blind(), x, np.zeros(3, dtype=int)).tolist() == [1.0, 5.0, 9.0]
