"""A bare name is the publication; every name is a method that can be built with its settings."""

import runpy
from pathlib import Path

import numpy as np
import pytest

from cel.benchmark.spec import load_suite
from cel.cf_methods import METHODS
from cel.cf_methods.local_methods import CEGP, CEM
from cel.cf_methods.variants import VARIANTS, method_names, named
from cel.errors import ConfigError
from cel.testing.problems import PROBLEMS

ROOT = Path(__file__).parents[2]
SHIFTS = {"weights": (0.1, 1e5, 1e4, 1e4, 1e3, 1e2), "lr": 5e-4, "steps": 2000, "stride": 8}

PUBLISHED = {
    "wachter": {"solver": "gradient", "loss": "squared_prob"},
    "artelt": {},
    "dice": {"select": "first"},
    "cchvae": {"screened": False},
    "ppcef": {"solver": "gradient"},
    "dicoflex": {"flow": "maf", "hidden": 16, "norms": (2.0,), "patience": 50, "epochs": 12},
    "revise": {"rounds": 1, "steps": 1000},
    "cem": {"pn_constraint": "two-sided", "threshold": "paper", "kappa": 0.2},
    "cegp": {"search": "c"},
    "cadex": {},
    "sace": {"fallback": None},
    "cearm": {},
    "moc": {
        "mu": 20, "generations": 175, "patience": None, "donors": 0.0, "ice_points": 20,
        "max_rows": 1000,
    },
    "geco": {"size": 100, "parents": 100, "give_up": 1},
    "rnce": {},
    "trex": {"test": "stability", "optimal": False},
    "ares": {"objective": "original", "oracle": False},
    "globe_ce": {"generator": "random", "select": "fixed", "n_sample": 1000},
    "glance": {"generator": "random", "sparsify": False, "goal": 0.0},
    "glance_global": {"generator": "random", "sparsify": False, "goal": 0.0, "n_actions": 1},
    "tcrex": {
        "completion": "clip", "n_rules": 1, "actionable": False, "confidence": 0.0,
        "max_leaf_nodes": 8,
    },
    "group_ppcef": SHIFTS,
    "group_ppcef_global": {"level": "global", **SHIFTS},
    "group_ppcef_local": {"level": "local", **SHIFTS},
}  # fmt: skip


def test_bare_names_have_the_published_settings():
    told = {v.name: dict(v.params) for v in VARIANTS.values() if v.published}
    assert told == PUBLISHED


@pytest.mark.parametrize("name", sorted(VARIANTS))
def test_every_name_is_a_method_with_its_settings(name):
    cls, params = named(name)
    assert set(params) <= set(cls.param_names())
    assert VARIANTS[name].what
    if name in METHODS:
        assert VARIANTS[name].published or cls.name != name
    else:
        assert not any(v.params == params for v in VARIANTS.values() if v.name == cls.name)


@pytest.mark.parametrize("suite", ["quick", "standard"])
def test_suites_run_what_the_names_say(suite):
    for spec in load_suite(suite).methods:
        cls, params = named(spec.label)
        assert (spec.method, dict(spec.params)) == (cls.name, params), spec.label


# What the printed runs set besides what a name stands for; other lines of `paper` are their names.
PRINTED = {
    "wachter": {"distance": "l2", "loss": "logit_hinge2"},
    "wachter_exact": {"distance": "l2"},
    "dice": {"posthoc_sparsity": None},
    "ppcef": {"quantile": 0.25},
    "ppcef_tangents": {"quantile": 0.25},
    "cchvae": {"p": 1.0, "step": 0.1, "latent": 16, "max_shells": 2000},
    "cchvae_screened": {"p": 1.0, "step": 0.1, "latent": 16, "max_shells": 2000},
    "cadex": {"lr": 0.001, "max_iter": 1000},
    "cegp": {"beta": 0.01, "c_init": 1.0, "max_iter": 500},
    "ares": {"bins": 10},
    "glance": {"initial_clusters": 50, "n_local": 10, "choice": "mean-act"},
    "glance_global": {"initial_clusters": 50, "n_local": 10, "choice": "mean-act"},
}


def test_the_printed_suite_runs_the_names_with_what_was_printed_and_nothing_else():
    told = set()
    for spec in load_suite("paper").methods:
        cls, params = named(spec.label)
        assert spec.method == cls.name
        assert dict(spec.params) == {**params, **PRINTED.get(spec.label, {})}, spec.label
        told.add(spec.label)
    assert set(PRINTED) <= told


# Left to `standard`, as the header of the suite says: slower than all others together.
SLOW = {"exact_relu", "group_ppcef", "dicoflex"}


@pytest.mark.parametrize("suite", ["quick", "standard", "paper"])
def test_variants_stand_beside_the_publication_in_every_suite(suite):
    labels = {m.label for m in load_suite(suite).methods}
    methods = {VARIANTS[m].method if m in VARIANTS else m for m in labels}
    slow = SLOW if suite == "quick" else set()
    wanted = [n for n, v in VARIANTS.items() if v.method in methods and v.method not in slow]
    missing = [name for name in wanted if name not in labels]
    assert [m for m in missing if m != "rnce"] == [], "rnce is robust_nearest under another name"
    assert named("rnce") == named("robust_nearest")
    if suite != "paper":
        assert {v.method for v in VARIANTS.values()} - methods <= slow


def test_a_suite_may_add_settings_to_a_name():
    given = {"name": "s", "datasets": ["moons"], "methods": {"cem": {"params": {"kappa": 0.5}}}}
    (spec,) = load_suite(given).methods
    assert spec.params == {**PUBLISHED["cem"], "kappa": 0.5}
    again = load_suite(load_suite(given).to_dict())
    assert again.methods == load_suite(given).methods


def test_explicit_methods_are_taken_as_they_are():
    given = {"name": "s", "datasets": ["moons"], "methods": {"mine": {"method": "wachter"}}}
    (spec,) = load_suite(given).methods
    assert (spec.method, spec.params) == ("wachter", {})


def test_the_docs_name_every_variant_with_its_settings():
    told = runpy.run_path(str(ROOT / "benchmarks" / "names.py"))["lines"]()
    assert "\n".join(told) in (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")


def test_unknown_names_are_answered_with_a_hint():
    with pytest.raises(ConfigError, match="did you mean 'wachter_exact'"):
        named("wachter_exct")
    assert "elastic_net" in method_names()


def test_pertinent_negatives_move_away_from_b_to_either_side():
    problem = PROBLEMS["binary_numeric"]()
    b = np.full(problem.space.width, 0.4, dtype=np.float32)
    method = CEM(
        problem.model, space=problem.space, pn_constraint="two-sided", no_info=b, c_steps=6
    ).fit(problem.x_train)
    result = method.explain(problem.x, problem.target)
    assert result.found.any()
    x, y = result.x_origs[result.found], result.x_cfs[result.found]
    moved = np.abs(y - x) > 0
    assert (np.abs(y - b) > np.abs(x - b))[moved].all()
    free = CEM(problem.model, space=problem.space, no_info=b).fit(problem.x_train)
    plain = free.explain(problem.x, problem.target)
    x, y = plain.x_origs[plain.found], plain.x_cfs[plain.found]
    assert ((np.abs(y - b) < np.abs(x - b)) & (np.abs(y - x) > 0)).any()  # the set forbids some


def test_more_values_of_c_bring_cegp_nearer():
    """Smaller c lets the distance count for more; the best point of all descents is kept."""
    problem = PROBLEMS["binary_numeric"]()
    few, many = (
        problem.fitted(CEGP, search="c", theta=0.1, c_steps=steps, max_iter=200, lr=0.01)
        .explain(problem.x, problem.target)
        for steps in (1, 8)
    )  # fmt: skip
    assert many.found.all()
    x, y = few.x_origs[few.found], (few.x_cfs[few.found], many.x_cfs[few.found])
    far = [0.1 * np.abs(z - x).sum(1) + np.square(z - x).sum(1) for z in y]
    assert (far[1] <= far[0] + 1e-6).all()
    assert (far[1] < 0.9 * far[0]).mean() > 0.5
