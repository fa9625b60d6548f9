"""What `paper` and `standard` are, and which stages each of their settings touches."""

import numpy as np
import pytest

from cel.benchmark import Store, Suite, collect, load_suite, make_plan, open_run, run
from cel.benchmark.printed_form import free_space, one_hot_card
from cel.benchmark.stages import Workbench, model_stages
from cel.datasets import FileDataset
from cel.datasets.cards import load_card
from cel.errors import ConfigError
from cel.models import MODELS

JUDGES = {"kernel": {"model": "kde"}, "mixture": {"model": "gmm"}, "again": {"model": "gmm"}}


def _keys(tiny, **changes):
    suite = load_suite(tiny | {"datasets": ["german_credit"], "folds": [0]} | changes)
    (block,) = make_plan(suite).blocks
    cell = block.cells[0]
    return {
        "split": block.split_key, "predictor": block.predictor_key, "density": block.density_key,
        "explain": cell.explain_key, "score": cell.score_key, "judges": dict(block.judge_keys),
    }  # fmt: skip


def test_each_setting_enters_the_right_keys_only(tiny):
    plain = _keys(tiny)

    def changed(**settings):
        other = _keys(tiny, **settings)
        return {stage for stage in plain if plain[stage] != other[stage]}

    everything = {"split", "predictor", "density", "explain", "score"}
    assert changed(constraints="none") == {"explain", "score"}
    assert changed(encoding="onehot") == everything
    assert changed(judges=JUDGES) == {"score", "judges"}
    one, two = _keys(tiny, judges=JUDGES), _keys(tiny, judges=JUDGES | {"kernel": {}})
    assert {n for n in JUDGES if one["judges"][n] != two["judges"][n]} == {"kernel"}
    assert len({*one["judges"].values(), one["density"]}) == 4, "equal settings, other seeds"


def test_settings_that_change_nothing_share_all_stages(tiny):
    """Moons has no ordered categories and no constraints."""

    def keys(**changes):
        return [c.score_key for c in make_plan(load_suite(tiny | changes)).cells]

    assert keys() == keys(datasets=["moons", "wine"], constraints="none", encoding="onehot")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"constraints": "some"}, "'card' or 'none'"), ({"encoding": "dummy"}, "'card' or 'onehot'")],
)
def test_unknown_choices_are_refused(tiny, change, said):
    with pytest.raises(ConfigError, match=said):
        load_suite(tiny | change)


def test_paper_is_the_printed_protocol():
    suite = load_suite("paper")
    assert (suite.target, suite.constraints, suite.encoding) == ("paper", "none", "onehot")
    assert suite.classifiers["mlp"]["preset"] == suite.density["preset"] == "paper"
    assert suite.regressors["mlp_regressor"]["preset"] == "paper"
    shape = {k: v for k, v in suite.density.items() if k != "preset"}
    assert shape == {"flow": "affine", "transforms": 8, "hidden": 16, "n_hidden": 4}
    assert suite.metric_params["prob_plausibility"] == {"quantile": 0.25}
    assert not suite.judges
    assert (len(suite.datasets), suite.folds) == (18, (0, 1, 2, 3, 4))


def test_standard_is_ours():
    suite = load_suite("standard")
    assert (suite.target, suite.constraints, suite.encoding) == ("card", "card", "card")
    assert len(suite.judges) >= 3
    families = {j.get("model", "the density's own family") for j in suite.judges.values()}
    assert len(families) == len(suite.judges)
    assert "the density's own family" in families, "a flow of another seed"
    assert {"density_spread", "coach_plausibility"} <= set(suite.extra_metrics)


def test_german_credit_has_the_printed_columns():
    card = one_hot_card(load_card("german_credit"))
    ordinal = [f for f in load_card("german_credit").features if f.kind == "ordinal"]
    assert ordinal
    widths = [len(f.categories) if f.is_label else 1 for f in card.features]
    dataset = FileDataset(config_path="german_credit")
    if dataset.find() is None:
        pytest.skip("the file of german_credit is not at hand")
    dataset.card = card
    space = dataset.split().space
    assert space.width == sum(widths) == 57
    numbers = [f for f in space if not f.is_categorical]
    assert len(numbers) / space.width == pytest.approx(0.123, abs=5e-4)


def test_free_spaces_forbid_nothing_and_keep_ranges():
    space = FileDataset(config_path="law").split().space if _has("law") else None
    if space is None:
        pytest.skip("the file of law is not at hand")
    free = free_space(space)
    assert any(not f.mutable for f in space)
    assert all(f.mutable and f.direction == "any" and f.allowed is None for f in free)
    assert not any(f.kind == "integer" for f in free)
    assert not free.constraints
    for before, after in zip(space, free, strict=True):
        assert (before.lower, before.upper) == (after.lower, after.upper)
        assert before.columns == after.columns


def _has(name):
    return FileDataset(config_path=name).find() is not None


@pytest.mark.slow
def test_a_run_without_constraints_changes_immutable_features(tmp_path):
    suite = {
        "name": "free", "datasets": ["mixed"], "folds": [0], "classifiers": {"lr": {}},
        "density": {"model": "gmm"}, "max_rows": 25, "extra_metrics": [],
        "methods": {"dice": {}},
    }  # fmt: skip
    moved = {}
    for constraints in ("card", "none"):
        folder = tmp_path / constraints
        run(suite | {"constraints": constraints}, folder)
        store, plan = open_run(folder)
        (cell,) = plan.cells
        from cel.result import ExplanationResult

        path = store.folder("explain", cell.explain_key) / "result.parquet"
        result = ExplanationResult.from_parquet(path)
        frozen = [f for f in load_card("mixed").features if not f.mutable]
        names = {f.name for f in frozen}
        assert names
        moved[constraints] = int(result.changes()["feature"].isin(names).sum())
        scores = collect(store, plan)
        assert scores.loc[scores["metric"] == "violations", "value"].tolist() == [0.0]
    assert moved["card"] == 0
    assert moved["none"] > 0


# -- judges ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_judges_score_and_no_method_sees_them(tmp_path):
    suite = {
        "name": "judged", "datasets": ["wine"], "folds": [0], "classifiers": {"lr": {}},
        "density": {"model": "gmm"}, "judges": JUDGES, "max_rows": 12,
        "extra_metrics": ["density_spread", "coach_plausibility", "coach_percentile"],
        "methods": {"ppcef": {}},
    }  # fmt: skip
    run(suite, tmp_path / "r")
    store, plan = open_run(tmp_path / "r")
    assert len(store.keys("judge")) == 3
    assert model_stages(plan.suite)[2:] == ["judge.kernel", "judge.mixture", "judge.again"]
    bench = Workbench(plan.suite, plan.blocks[0], store)
    context = bench.context()
    assert list(context.judges) == list(JUDGES)
    assert not any(d is context.density for d in context.judges.values())
    scores = collect(store, plan).set_index("metric")["value"]
    by_hand = _percentiles_by_hand(bench, store, plan)
    assert scores["density_percentile"] == pytest.approx(by_hand.mean())
    assert scores["density_spread"] == pytest.approx(by_hand.std(0, ddof=1).mean())
    assert scores["prob_plausibility"] == pytest.approx((by_hand >= 0.5).mean())
    assert scores["coach_plausibility"] == 1.0
    assert scores["density_percentile"] != scores["coach_percentile"]


def _percentiles_by_hand(bench, store, plan):
    import torch

    from cel.result import ExplanationResult

    (cell,) = plan.cells
    path = store.folder("explain", cell.explain_key) / "result.parquet"
    result = ExplanationResult.from_parquet(path)
    found, test = result.found, bench.split.test.X
    goal = int(result.y_cf_targets[0])
    real = test[bench.predictor().predict_proba(test).argmax(1) == goal]
    lines = []
    for judge in bench.judges().values():
        ask = lambda x, d=judge: d.log_prob(  # noqa: E731
            torch.as_tensor(x), torch.full((len(x),), goal)
        ).detach().numpy().astype(float)  # fmt: skip
        known, mine = ask(real), ask(result.x_cfs[found])
        below = (known[None] < mine[:, None]).mean(1)
        lines.append(below + 0.5 * (known[None] == mine[:, None]).mean(1))
    return np.array(lines)


@pytest.mark.slow
def test_stacked_training_fits_judges_too(tmp_path):
    suite = Suite.from_dict(
        {"name": "stack", "datasets": ["moons"], "folds": [0, 1], "classifiers": {"lr": {}},
         "density": {"epochs": 2}, "judges": {"flow": {"epochs": 2}}, "max_rows": 5,
         "extra_metrics": [], "methods": {"sace_nearest": {}}}
    )  # fmt: skip
    events = []
    done = run(suite, tmp_path / "r", stack=True, watch=events.append)
    assert done.done == 2
    assert len([e for e in events if e["event"] == "stacked"]) == 3
    store = Store(tmp_path / "r")
    assert len(store.keys("judge")) == len(store.keys("density")) == 2
    assert "maf" in MODELS.names()
