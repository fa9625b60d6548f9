"""Every field of a suite changes exactly the keys of what depends on it."""

from dataclasses import fields, replace

import pytest

from cel.benchmark import load_suite, make_plan, plan, printed_form
from cel.benchmark.keys import canonical, key_of, seed_of
from cel.benchmark.plan import STAGE_VERSION, MethodFacts, method_facts
from cel.benchmark.spec import Limits, MethodSpec, Suite
from cel.datasets import cards
from cel.errors import ConfigError
from cel.protocols import Scope, Task

EXPLAIN = {"explain dense", "explain near", "explain rules", "explain codes"}
SCORE = {"score dense", "score near", "score rules", "score codes"}
DENSITY = {"density", "explain dense"} | SCORE
JUDGES = {"judge kernel"} | SCORE
CODES = {"autoencoder", "explain codes", "score codes"}
ALL = {"split", "predictor"} | DENSITY | EXPLAIN | JUDGES | CODES
NOTHING = set()

SUITE = {
    "name": "keys",
    "datasets": ["moons"],
    "folds": [0, 1],
    "classifiers": {"lr": {"lr": 0.1}},
    "density": {"model": "gmm"},
    "judges": {"kernel": {"model": "kde"}},
    "max_rows": 6,
    "metrics": "default.yaml",
    "extra_metrics": ["ynn"],
    "metric_params": {"ynn": {"k": 5}},
    "methods": {
        "dense": {"method": "ppcef"},
        "near": {"method": "wachter", "params": {"distance": "l2"}},
        "rules": {"method": "ares"},
        "codes": {"method": "clue", "params": {"vae_steps": 20}},
    },
}

# field -> (changes, keys that change with any of them)
TABLE = {
    "name": ([{"name": "other"}], NOTHING),
    "datasets": ([{"datasets": ["wine", "moons"]}], NOTHING),
    "folds": ([{"folds": [0]}, {"folds": [0, 4]}], NOTHING),
    "n_folds": ([{"n_folds": 6}], ALL),
    "seed": ([{"seed": 43}], ALL),
    "binary": ([{"binary": False}], ALL),
    "classifiers": ([{"classifiers": {"lr": {"lr": 0.2}}}, {"classifiers": {"lr": {}}}],
                    ALL - {"split", "autoencoder"}),
    "regressors": ([{"regressors": {"mlp_regressor": {"lr": 0.2}}}], NOTHING),
    "density": ([{"density": {"model": "kde"}}, {"density": {"model": "gmm", "components": 3}}],
                DENSITY),
    "judges": ([{"judges": {"kernel": {"model": "kde", "max_rows": 9}}}], JUDGES),
    "constraints": ([{"constraints": "none"}], NOTHING),  # moons has none: see below
    "encoding": ([{"encoding": "onehot"}], NOTHING),  # nor ordered categories
    "max_rows": ([{"max_rows": 7}, {"max_rows": None}], EXPLAIN | SCORE),
    "target": ([{"target": "paper"}], EXPLAIN | SCORE),
    "metrics": ([{"metrics": "validity"}], SCORE),
    "extra_metrics": ([{"extra_metrics": []}, {"extra_metrics": ["ynn", "redundancy"]}], SCORE),
    "metric_params": ([{"metric_params": {}}, {"metric_params": {"ynn": {"k": 6}}}], SCORE),
    "limits.time_s": ([{"limits": {"time_s": 7}}], EXPLAIN | SCORE),
    "limits.grace_s": ([{"limits": {"grace_s": 7}}], NOTHING),
    "limits.memory_mb": ([{"limits": {"memory_mb": 7}}], NOTHING),
    "limits.train_s": ([{"limits": {"train_s": 7}}], NOTHING),
    "methods.label": ([{"methods": {"dense": {"method": "ppcef"}, "near": SUITE["methods"]["near"],
                                    "rules": {"method": "ares"}, "more": {"method": "dice"},
                                    "codes": SUITE["methods"]["codes"]}}],
                      NOTHING),
    "methods.method": ([{"methods": SUITE["methods"] | {
                            "near": {"method": "cem", "params": {"distance": "l2"}}}}],
                       {"explain near", "score near"}),
    "methods.autoencoder": ([{"methods": SUITE["methods"] | {"codes": {"method": "clue"}}},
                             {"methods": SUITE["methods"] | {"codes": {
                                 "method": "clue", "params": {"vae_steps": 20, "latent": 2}}}}],
                            CODES),
    "methods.params": ([{"methods": SUITE["methods"] | {"near": {"method": "wachter"}}},
                        {"methods": SUITE["methods"] | {
                            "near": {"method": "wachter", "params": {"distance": "l1_mad"}}}}],
                       {"explain near", "score near"}),
}  # fmt: skip


def keys(suite, known=None, dataset="moons"):
    """Return the keys of a dataset, fold 0, by what they name."""
    (block,) = [b for b in make_plan(suite, known).blocks if (b.dataset, b.fold) == (dataset, 0)]
    named = {"split": block.split_key, "predictor": block.predictor_key}
    named["density"] = block.density_key
    named |= {f"judge {label}": key for label, key in block.judge_keys.items()}
    named |= dict(zip(["autoencoder"], block.autoencoders, strict=False))
    for cell in block.cells:
        if cell.method.label in SUITE["methods"]:
            named[f"explain {cell.method.label}"] = cell.explain_key
            named[f"score {cell.method.label}"] = cell.score_key
    return named


def changed(before, after):
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


BEFORE = keys(load_suite(SUITE))


def test_every_key_names_one_thing():
    assert BEFORE.keys() == ALL
    assert len(set(BEFORE.values())) == len(BEFORE)


@pytest.mark.parametrize("field", TABLE)
def test_a_field_changes_exactly_these_keys(field):
    changes, wanted = TABLE[field]
    for change in changes:
        assert changed(BEFORE, keys(load_suite(SUITE | change))) == wanted, change


def test_the_table_has_every_field():
    told = {name.partition(".")[0] for name in TABLE}
    assert told == {f.name for f in fields(Suite)}
    for group, cls in (("limits", Limits), ("methods", MethodSpec)):
        inner = {n.partition(".")[2] for n in TABLE if n.startswith(f"{group}.")}
        assert inner - {"autoencoder"} == {f.name for f in fields(cls)}


def test_folds_have_keys_of_their_own():
    blocks = make_plan(load_suite(SUITE)).blocks
    assert len({b.split_key for b in blocks}) == len(blocks) == 2


@pytest.mark.parametrize(
    ("fact", "value", "wanted"),
    [
        ("version", 99, {"explain near", "score near"}),
        ("needs_density", True, {"explain near", "score near"}),
        ("scope", Scope.GLOBAL, NOTHING),  # counts where the target depends on it: below
        ("tasks", frozenset(Task), NOTHING),
        ("autoencoder", {}, {"explain codes", "score codes"}),
    ],
)
def test_what_a_method_declares_changes_its_own_keys(fact, value, wanted):
    name = "clue" if fact == "autoencoder" else "wachter"
    facts = {name: replace(method_facts(name), **{fact: value})}
    after = keys(load_suite(SUITE), facts)
    assert changed(BEFORE, {"autoencoder": BEFORE["autoencoder"], **after}) == wanted
    assert {f.name for f in fields(facts[name])} == {
        "version", "needs_density", "scope", "tasks", "autoencoder",
    }  # fmt: skip


def test_the_scope_decides_the_class_of_the_printed_tables():
    suite = load_suite(SUITE | {"target": "paper"})
    facts = {"wachter": replace(method_facts("wachter"), scope=Scope.GLOBAL)}
    assert changed(keys(suite), keys(suite, facts)) == {"explain near", "score near"}


@pytest.mark.parametrize(
    ("change", "wanted"),
    [({"constraints": "none"}, EXPLAIN | SCORE | CODES), ({"encoding": "onehot"}, ALL)],
)
def test_what_a_card_forbids_and_orders_is_in_the_keys(change, wanted):
    suite = SUITE | {"datasets": ["german_credit"]}
    before = keys(load_suite(suite), dataset="german_credit")
    assert changed(before, keys(load_suite(suite | change), dataset="german_credit")) == wanted


def test_a_judge_more_changes_scores_only():
    more = {"judges": SUITE["judges"] | {"mixture": {"model": "gmm"}}}
    after = keys(load_suite(SUITE | more))
    assert after.pop("judge mixture") not in BEFORE.values()
    assert changed(BEFORE, after) == SCORE


@pytest.mark.parametrize("stage", STAGE_VERSION)
def test_a_new_version_of_a_stage_changes_it_and_what_follows(stage, monkeypatch):
    monkeypatch.setitem(plan.STAGE_VERSION, stage, 99)
    wanted = {
        "split": ALL,
        "predictor": ALL - {"split", "autoencoder"},
        "autoencoder": CODES,
        "density": DENSITY,
        "judge": JUDGES,
        "explain": EXPLAIN | SCORE,
        "score": SCORE,
    }[stage]
    assert changed(BEFORE, keys(load_suite(SUITE))) == wanted


def test_every_part_of_a_card_is_in_the_keys(monkeypatch):
    card = cards.load_card("moons")
    for change in ({"description": "other words"}, {"name": "moons2"}):
        other = card.model_copy(update=change)
        monkeypatch.setattr(printed_form, "load_card", lambda name, other=other: other)
        assert changed(BEFORE, keys(load_suite(SUITE))) == ALL


def test_keys_are_names_of_values():
    """The digits are fixed: a run of last year must be found again."""
    assert canonical({"b": (1, None), "a": {"d": 0.5, "c": "x"}}) == (
        '{"a":{"c":"x","d":0.5},"b":[1,null]}'
    )
    assert key_of("split", 1, {"a": 1}) == "adda5ca8cce261726fad0b17f366641c"
    assert len({key_of(1), key_of("1"), key_of([1]), key_of({"1": 1}), key_of(1, None)}) == 5
    seeds = [seed_of(f"{i}", "fit") for i in range(200)]
    assert all(0 <= s < 2**31 for s in seeds)
    assert len(set(seeds)) == 200
    assert max(seeds) > 2**30
    assert seed_of("k", "fit") == 732268569


def test_a_list_of_metrics_of_ones_own_counts_by_what_it_says(tmp_path):
    """Its entries are the key, not the name of the file: an edited list gives other scores."""
    seen = []
    for text in ("metrics: [l1]", "metrics: [l2]", "metrics: [{ynn: {k: 3}}]", "metrics: [l1]"):
        path = tmp_path / f"list{len(seen)}.yaml"
        path.write_text(text)
        seen.append(keys(load_suite(SUITE | {"metrics": str(path)})))
    assert changed(seen[0], seen[1]) == changed(seen[1], seen[2]) == SCORE
    assert changed(seen[0], seen[3]) == NOTHING  # another name of the same list


def test_settings_and_labels_of_a_list_of_metrics_are_used(tmp_path):
    from cel.benchmark.metric_entries import metric_entries
    from cel.metrics.suites import choose

    path = tmp_path / "mine.yaml"
    path.write_text(
        "metrics:\n- l1\n- ynn: {k: 3, as: near}\n- prob_plausibility: {quantile: 0.3}\n"
    )
    given = {"metrics": str(path), "extra_metrics": ["l1", "redundancy"]}
    params = {"near": {"k": 4}, "redundancy": {}}
    entries = metric_entries(load_suite(SUITE | given | {"metric_params": params}))
    told = {c.name: (c.metric.name, dict(c.params)) for c in choose(entries)}
    assert told == {
        "l1": ("l1", {}),
        "near": ("ynn", {"k": 4}),  # the suite speaks last
        "prob_plausibility": ("prob_plausibility", {"quantile": 0.3}),
        "redundancy": ("redundancy", {}),
    }


def test_the_keys_of_one_suite_are_these():
    """They are the names of what is stored: another spelling would lose earlier runs."""
    assert STAGE_VERSION == {
        "split": 1, "predictor": 1, "density": 1, "judge": 1, "autoencoder": 3, "explain": 2,
        "score": 2,
    }  # fmt: skip
    facts = {
        "wachter": MethodFacts(Scope.LOCAL, frozenset(Task), needs_density=False, version=1),
        "ares": MethodFacts(Scope.GLOBAL, frozenset(Task), needs_density=True, version=3),
        "clue": MethodFacts(
            Scope.LOCAL, frozenset(Task), needs_density=False, version=1,
            autoencoder={"latent": ["latent", None], "steps": ["vae_steps", 1000]},
        ),
    }  # fmt: skip
    methods = {n: SUITE["methods"][n] for n in ("near", "rules", "codes")}
    suite = load_suite(SUITE | {"methods": methods, "target": "paper"})
    block = make_plan(suite, facts).blocks[1]
    card = printed_form.card_of(suite, "moons").model_dump(mode="json")
    split = key_of("split", 1, card, True, 5, 42, 1)
    predictor = key_of("predictor", 1, split, "lr", {"lr": 0.1})
    density = key_of("density", 1, predictor, {"model": "gmm"})
    judges = {"kernel": key_of("judge", 1, predictor, "kernel", {"model": "kde"})}
    found = (block.split_key, block.predictor_key, block.density_key, block.judge_keys)
    assert found == (split, predictor, density, judges)
    expected = {
        "near": key_of("explain", 2, predictor, None, "wachter", 1, {"distance": "l2"}, 0, 6,
                       suite.limits.time_s),
        "rules": key_of("explain", 2, predictor, density, "ares", 3, {}, 1, 6,
                        suite.limits.time_s),
        "codes": key_of("explain", 2, predictor, None, "clue", 1, {"vae_steps": 20}, 0, 6,
                        suite.limits.time_s,
                        key_of("autoencoder", 3, split, {"latent": None, "steps": 20})),
    }  # fmt: skip
    assert {c.method.label: c.explain_key for c in block.cells} == expected
    assert {c.method.label: c.score_key for c in block.cells} == {
        label: key_of("score", 2, key, density, "default.yaml", ["ynn"], {"ynn": {"k": 5}}, judges)
        for label, key in expected.items()
    }
    bare = make_plan(load_suite(SUITE | {"methods": methods, "judges": {}}), facts).blocks[1]
    told = key_of("explain", 2, predictor, None, "wachter", 1, {"distance": "l2"}, "card", 6,
                  suite.limits.time_s)  # fmt: skip
    score = key_of("score", 2, told, density, "default.yaml", ["ynn"], {"ynn": {"k": 5}})
    assert (bare.judge_keys, bare.cells[0].explain_key) == ({}, told)
    assert bare.cells[0].score_key == score


def test_blocks_and_cells_are_in_the_order_of_the_suite():
    suite = load_suite(
        SUITE
        | {
            "datasets": ["wine", "diabetes"],
            "folds": [2, 0],
            "classifiers": {"lr": {}, "mlp": {}},
            "regressors": {"mlp_regressor": {}},
        }
    )
    found = make_plan(suite)
    assert [b.label for b in found.blocks] == [
        "wine/2/lr", "wine/2/mlp", "wine/0/lr", "wine/0/mlp",
        "diabetes/2/mlp_regressor", "diabetes/0/mlp_regressor",
    ]  # fmt: skip
    assert [b.task for b in found.blocks] == [Task.CLASSIFICATION] * 4 + [Task.REGRESSION] * 2
    assert [c.label for c in found.blocks[1].cells] == [
        "wine/2/mlp/dense", "wine/2/mlp/near", "wine/2/mlp/rules", "wine/2/mlp/codes",
    ]  # fmt: skip
    able = [m.label for m in suite.methods if Task.REGRESSION in method_facts(m.method).tasks]
    assert [c.method.label for c in found.blocks[-1].cells] == able
    assert len(able) < 3  # rules are for classes
    assert found.cells == [c for b in found.blocks for c in b.cells]
    assert [b.label for b in found.shard(2, 4).blocks] == ["wine/2/mlp", found.blocks[5].label]
    assert found.shard(1, 1).blocks == found.blocks
    for number, of in ((0, 3), (4, 3)):
        with pytest.raises(ConfigError, match=f"shard {number}/{of} does not exist; use 1/3"):
            found.shard(number, of)


def test_facts_survive_the_file_and_are_used_instead_of_the_class():
    facts = MethodFacts(Scope.GROUP, frozenset({Task.REGRESSION}), needs_density=True, version=7)
    assert facts.to_dict() == {
        "scope": "group", "tasks": ["regression"], "needs_density": True, "version": 7,
    }  # fmt: skip
    assert MethodFacts.from_dict(facts.to_dict()) == facts
    suite = load_suite(SUITE | {"methods": {"near": {"method": "gone:Away"}}})
    assert make_plan(suite, {"gone:Away": facts}).cells == []  # moons is classification
    dense = method_facts("ppcef")
    assert (dense.needs_density, method_facts("wachter").needs_density) == (True, False)
    assert (dense.scope, method_facts("glance").scope) == (Scope.LOCAL, Scope.GROUP)


def test_models_are_known_before_any_work_unless_imported_by_name():
    known = make_plan(load_suite(SUITE | {"classifiers": {"away:Model": {}}}))
    assert known.blocks[0].model == "away:Model"
    with pytest.raises(ConfigError, match="did you mean 'mlp_regressor'"):
        make_plan(load_suite(SUITE | {"regressors": {"mlp_regresor": {}}}))


def test_what_is_not_a_method_is_refused():
    with pytest.raises(ConfigError, match=r"'pathlib:Path' is not a BaseCounterfactualMethod"):
        plan.method_class("pathlib:Path")
    with pytest.raises(ConfigError, match=r"'os:getcwd' is not a BaseCounterfactualMethod"):
        plan.method_class("os:getcwd")


def test_paradigms_follow_the_task_the_scope_and_the_settings():
    methods = {
        "near": {"method": "wachter"},
        "rules": {"method": "ares"},
        "one": {"method": "glance", "params": {"n_actions": 1}},
        "two": {"method": "glance", "params": {"n_actions": 2}},
        "groups": {"method": "group_ppcef", "params": {"level": "global"}},
        "plain": {"method": "group_ppcef"},
        "odd": {"method": "ares", "params": {"n_actions": 1}},
    }
    given = SUITE | {"datasets": ["moons", "diabetes"], "methods": methods}
    given["regressors"] = {"mlp_regressor": {}}
    found = plan.paradigms_of(make_plan(load_suite(given)))
    assert {label: found["moons", label] for label in methods} == {
        "near": "local", "rules": "global", "one": "global", "two": "group",
        "groups": "global", "plain": method_facts("group_ppcef").scope.value, "odd": "global",
    }  # fmt: skip
    assert {found["diabetes", label] for label in methods} == {"regression"}


def test_wanted_classes_of_the_card_and_of_the_printed_tables():
    card, paper = load_suite(SUITE), load_suite(SUITE | {"target": "paper"})
    assert [plan.target_of(card, s) for s in Scope] == [None] * len(Scope)
    told = {s: plan.target_of(paper, s) for s in Scope}
    assert told == {Scope.LOCAL: 0, Scope.GLOBAL: 1, Scope.GROUP: 1}
