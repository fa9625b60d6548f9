"""How often a model is asked about rows in one cell of the benchmark."""

from pathlib import Path

import pytest

from cel.benchmark.plan import make_plan
from cel.benchmark.spec import load_suite
from cel.benchmark.stages import Workbench
from cel.benchmark.store import Store
from cel.models.mixins import ClassifierPytorchMixin, RegressionPytorchMixin

MOST = 8


@pytest.mark.parametrize("method", ["wachter", "dice_closest", "tcrex", "nearest"])
@pytest.mark.parametrize("dataset", ["moons", "synthetic"])
def test_a_cell_asks_the_model_a_few_times(method, dataset, tmp_path: Path, monkeypatch):
    calls = []
    for mixin, name in (
        (ClassifierPytorchMixin, "predict_proba"),
        (RegressionPytorchMixin, "predict"),
    ):
        ask = getattr(mixin, name)
        monkeypatch.setattr(
            mixin, name, lambda self, X, ask=ask: (calls.append(len(X)), ask(self, X))[1]
        )
    suite = load_suite("smoke")
    found = [
        (block, cell)
        for block in make_plan(suite).blocks
        for cell in block.cells
        if block.dataset == dataset and cell.method.label == method
    ]
    if not found:
        pytest.skip(f"{method} is not run on {dataset}")
    block, cell = found[0]
    bench = Workbench(suite, block, Store(tmp_path / "run"))
    bench.predictor()
    calls.clear()
    bench.explain(cell)
    bench.score(cell)
    assert 0 < len(calls) <= MOST
