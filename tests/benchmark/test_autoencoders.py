"""The autoencoder of latent methods: one per fold and settings, for all lines and models."""

import json

import numpy as np
import pytest
import torch

from cel.benchmark import open_run, run
from cel.benchmark.estimate import estimate
from cel.benchmark.keys import seed_of
from cel.benchmark.plan import MethodFacts, make_plan, method_facts
from cel.benchmark.score_tables import cell_table
from cel.benchmark.shelf import AUTOENCODER
from cel.benchmark.spec import load_suite
from cel.benchmark.stages import Workbench
from cel.cf_methods import METHODS
from cel.cf_methods.row_codes import fit_codes
from cel.models import load_model
from cel.result import ExplanationResult

FEW = {"vae_steps": 20, "steps": 10}
METHODS_OF = {
    "codes": {"method": "clue", "params": FEW},
    "more": {"method": "revise", "params": FEW},
    "shells": {"method": "cchvae", "params": {"steps": 20, "samples": 20, "screened": False}},
}
PLAIN = {"plain": {"method": "wachter"}}


@pytest.fixture
def latent(tiny):
    """Two blocks that differ in the model; two lines want the same autoencoder, one another."""
    models = {"lr": {}, "mlp": {"epochs": 2}}
    return tiny | {
        "datasets": ["mixed"], "folds": [0], "classifiers": models, "methods": METHODS_OF,
    }  # fmt: skip


def events_of(folder, kind):
    lines = [json.loads(t) for t in (folder / "log.jsonl").read_text().splitlines()]
    return [e for e in lines if e["event"] == kind]


def state(model):
    return {k: v.numpy().tobytes() for k, v in model.module_.state_dict().items()}


@pytest.mark.parametrize("constraints", ["card", pytest.param("none", marks=pytest.mark.slow)])
def test_what_is_shared_is_what_a_method_fits_alone(latent, tmp_path, constraints):
    """The same seed gives the same bytes: of the weights, and of what the method answers."""
    run(latent | {"constraints": constraints}, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    for block in plan.blocks:
        bench = Workbench(plan.suite, block, store)
        x = torch.as_tensor(bench.split.train.X)
        for cell in block.cells:
            key = cell.autoencoder_key
            settings = dict(block.autoencoders[key])
            settings["latent"] = settings["latent"] or min(8, x.shape[1] // 2)
            own = fit_codes(x, bench.space, **settings, seed=seed_of(key, "fit"))
            kept = load_model(store.folder("autoencoder", key) / "model.safetensors")
            assert state(kept) == state(own.vae)
            seed = seed_of(cell.explain_key, "explain")
            method = METHODS.get(cell.method.method)(
                bench.predictor(), random_state=seed, autoencoder=own.vae, space=bench.space,
                **cell.method.params,
            ).fit(bench.split)  # fmt: skip
            goal, rows = bench._asked(None)
            label = bench.split.target.classes[goal]
            by_hand = method.explain(bench.split.test.X[rows], label)
            stored = ExplanationResult.from_parquet(
                store.folder("explain", cell.explain_key) / "result.parquet"
            )
            np.testing.assert_array_equal(by_hand.x_cfs, stored.x_cfs)


def test_a_method_alone_fits_the_same_as_given_its_autoencoder():
    """`fit` without a benchmark: seed, rows, space and settings are those of the stage."""
    from cel.testing.problems import PROBLEMS

    problem = next(iter(PROBLEMS.values()))()
    for name in ("clue", "revise", "cchvae"):
        cls = METHODS.get(name)
        alone = problem.build(cls, random_state=5, **cls._test_params)
        alone.fit(problem.x_train)
        facts = method_facts(name).autoencoder_of(cls._test_params)
        facts["latent"] = facts["latent"] or min(8, alone.train_.x.shape[1] // 2)
        own = fit_codes(alone.train_.x, alone.space_, **facts, seed=5)
        assert state(alone.codes_.vae) == state(own.vae)


def test_one_autoencoder_serves_all_lines_and_models(latent, tmp_path):
    summary = run(latent, tmp_path / "r", shelf=tmp_path / "shelf")
    assert (summary.done, summary.total) == (6, 6)
    store, plan = open_run(tmp_path / "r")
    first, second = plan.blocks
    assert first.autoencoders == second.autoencoders
    assert set(store.keys("autoencoder")) == set(first.autoencoders)
    assert len(first.autoencoders) == 2  # C-CHVAE wants codes of another size
    by_label = {c.method.label: c.autoencoder_key for c in plan.cells}
    assert by_label["codes"] == by_label["more"] != by_label["shells"]
    again = run(latent, tmp_path / "again", shelf=tmp_path / "shelf")
    assert again.complete
    told = [e for e in events_of(tmp_path / "again", "stage") if e["stage"] == "autoencoder"]
    assert [e["borrowed"] for e in told] == [True, True, False, False]
    scores = [(tmp_path / name / "scores.parquet").read_bytes() for name in ("r", "again")]
    assert scores[0] == scores[1]
    _check_times(store, plan)
    _check_estimate(latent, store, plan)


def _check_times(store, plan):
    """Learning is part of the time of every cell that shares it."""
    for cell in plan.cells:
        spent = json.loads(
            (store.folder("autoencoder", cell.autoencoder_key) / "time.json").read_text()
        )
        times = json.loads((store.folder("score", cell.score_key) / "times.json").read_text())
        assert spent["cpu_seconds"] > 0
        assert times["time_fit_s"] > spent["seconds"] > 0


def _check_estimate(latent, store, plan):
    """It is counted once for all models, and not at all where the store has it."""
    cost = estimate(plan, None).stages["autoencoder"]
    one = make_plan(load_suite(latent | {"classifiers": {"lr": {}}}))
    assert 0 < cost == pytest.approx(estimate(one, None).stages["autoencoder"])
    for cell in plan.cells:
        (store.folder("score", cell.score_key) / "status.json").unlink()
    assert estimate(plan, store).stages["autoencoder"] == 0


def test_an_autoencoder_that_fails_takes_its_own_cells_along(latent, tmp_path):
    bad = {"codes": {"method": "clue", "params": FEW | {"vae_lr": 1e30}}}
    summary = run(latent | {"methods": bad | PLAIN}, tmp_path / "r")
    assert (summary.done, summary.failed) == (2, 2)
    table = cell_table(*open_run(tmp_path / "r")).set_index("method")
    assert table.loc["codes", "reason"].str.contains("loss was not finite").all()
    assert (table.loc["plain", "state"] == "done").all()


@pytest.mark.slow
def test_it_is_trained_for_open_cells_only(latent, tmp_path):
    """A run that lacks scores of other lines, or scores alone, trains none."""
    run(latent | {"methods": METHODS_OF | PLAIN}, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    for key in store.keys("autoencoder"):
        for path in store.folder("autoencoder", key).iterdir():
            path.unlink()
        store.folder("autoencoder", key).rmdir()
    for cell in plan.cells:  # answers stay, scores are lost
        for path in store.folder("score", cell.score_key).iterdir():
            path.unlink()
    assert run(latent | {"methods": METHODS_OF | PLAIN}, tmp_path / "r").ran == len(plan.cells)
    assert store.keys("autoencoder") == []


@pytest.mark.slow
def test_folds_are_trained_as_one_stack(latent, tmp_path):
    events = []
    suite = latent | {"folds": [0, 1, 2]}
    assert run(suite, tmp_path / "r", stack=True, watch=events.append).complete
    told = [e["label"] for e in events if e["event"] == "stacked"]
    assert told[-1] == "mixed: 6 of autoencoder"  # two settings, three folds, not once per model
    store, _ = open_run(tmp_path / "r")
    assert len(store.keys("autoencoder")) == 6
    assert events_of(tmp_path / "r", "stack_failed") == []


def test_facts_survive_the_way_to_a_worker():
    for name in ("clue", "cchvae", "wachter"):
        facts = method_facts(name)
        assert MethodFacts.from_dict(json.loads(json.dumps(facts.to_dict()))) == facts
    assert method_facts("wachter").autoencoder_of({}) is None
    assert method_facts("clue").autoencoder_of({"autoencoder": None}) is None
    stage = AUTOENCODER + "k"
    assert stage.partition(".")[0] == "autoencoder"
