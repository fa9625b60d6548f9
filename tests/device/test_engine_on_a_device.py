"""The engine explains on a device: which cells go there, how many at once, the same answers."""

import numpy as np
import pytest

from cel.benchmark import open_run, run
from cel.benchmark import placement as placed
from cel.benchmark.gpu_places import PLACES, gpu_place
from cel.benchmark.plan import make_plan
from cel.benchmark.spec import load_suite
from cel.benchmark.stages import Workbench
from cel.result import ExplanationResult
from cel.testing.elsewhere import second_device

FEW = {"epochs": 2}
SECONDS = {"adult": 10.0, "wine": 1.0}
SUITE = {
    "name": "tiny", "datasets": ["mixed"], "folds": [0], "max_rows": 5,
    "classifiers": {"mlp": FEW}, "density": FEW,
    "methods": {
        "cchvae": {"params": {"steps": 20, "samples": 20, "screened": False}},
        "ppcef": {"params": {"solver": "gradient", "steps": 5, "rounds": 1, "starts": 1}},
        "cadex": {},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run(SUITE, folder)
    return open_run(folder)


def answers(store, cell):
    return ExplanationResult.from_parquet(
        store.folder("explain", cell.explain_key) / "result.parquet"
    )


@pytest.mark.parametrize("busy", [False, True])
def test_a_cell_explained_elsewhere_has_the_same_answers(finished, busy, monkeypatch):
    """With a place free models move; without one the cell stays on the CPU."""
    store, plan = finished
    (block,) = plan.blocks
    if busy:
        monkeypatch.setattr("cel.benchmark.gpu_places.PLACES", 0)
    for cell in block.cells:
        before = answers(store, cell)
        _forget(store, cell)
        with second_device() as there:
            moved = Workbench(plan.suite, block, store, there, gpu=[cell.score_key])
            moved.explain(cell)
        after = answers(store, cell)
        assert np.array_equal(before.x_cfs, after.x_cfs, equal_nan=True)
        assert store.spec("explain", cell.explain_key).get("device") == (None if busy else there)


def _forget(store, cell):
    folder = store.folder("explain", cell.explain_key)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def test_places_are_few_and_come_back(tmp_path):
    def held(count):
        if not count:
            return []
        with gpu_place(tmp_path / "gpu", "cuda:0") as free:
            return [free, *held(count - 1)]

    assert held(PLACES + 1) == [True] * PLACES + [False]
    assert held(1) == [True]
    with gpu_place(tmp_path / "gpu", "cuda:1") as other:
        assert other


def test_only_measured_lines_with_long_searches_go_to_the_gpu(monkeypatch):
    suite = load_suite("paper").narrowed(datasets=["adult", "wine"], folds=[0])
    plan = make_plan(suite)
    monkeypatch.setattr(placed, "FASTER", {"ppcef": 10.0})
    monkeypatch.setattr(
        placed, "cell_seconds", lambda _, cells: {c.score_key: SECONDS[c.dataset] for c in cells}
    )
    chosen = placed.worth_a_gpu(plan)
    cells = [c for c in plan.cells if c.score_key in chosen]
    assert {(c.dataset, c.method.label) for c in cells} == {("adult", "ppcef")}
