"""Suites, keys and plans: names are checked early, keys depend on content only."""

import pytest

from cel.benchmark import Suite, load_suite, make_plan, packaged_suites
from cel.benchmark.keys import key_of, seed_of
from cel.errors import ConfigError


def test_keys_do_not_depend_on_dict_order():
    assert key_of({"a": 1, "b": {"c": 2, "d": 3}}) == key_of({"b": {"d": 3, "c": 2}, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert seed_of("k", "fit") != seed_of("k", "explain")


@pytest.mark.parametrize("name", packaged_suites())
def test_packaged_suites_are_complete(name):
    suite = load_suite(name)
    assert Suite.from_dict(suite.to_dict()) == suite
    plan = make_plan(suite)
    keys = [c.score_key for c in plan.cells]
    assert len(set(keys)) == len(keys) > 0


def test_paper_suite_has_every_printed_cell():
    from cel.benchmark.side_by_side import paper_results

    cells = {(c.dataset, c.model, c.method.label) for c in make_plan(load_suite("paper")).cells}
    printed = paper_results()
    wanted = set(zip(printed["dataset"], printed["our_model"], printed["our_method"], strict=True))
    assert wanted <= cells


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": ["monns"]}, "did you mean 'moons'"),
        ({"methods": {"wachtr": None}}, "did you mean 'wachter'"),
        ({"classifiers": {"mpl": {}}}, "did you mean 'mlp'"),
        ({"foldz": [0]}, "did you mean 'folds'"),
        ({"folds": [9]}, "fold 9 of 5"),
        ({"target": "best"}, "'card' or 'paper'"),
        ({"limits": {"times": 3}}, "did you mean 'time_s'"),
        ({"methods": {"mine": {"method": "no_such_module:Class"}}}, "cannot import"),
    ],
)
def test_wrong_names_are_refused_with_a_hint(tiny, change, message):
    with pytest.raises(ConfigError, match=message):
        make_plan(load_suite(tiny | change))


def test_selection_and_overrides(tiny):
    suite = load_suite(tiny)
    assert suite.narrowed(datasets=["wine"]).datasets == ("wine",)
    with pytest.raises(ConfigError, match="not in the suite"):
        suite.narrowed(datasets=["adult"])
    with pytest.raises(ConfigError, match="not in the suite"):
        suite.narrowed(methods=["shell"])
    changed = suite.with_setting("methods.shells.random_state", 3)
    before = {c.method.label: c.score_key for c in make_plan(suite).cells}
    after = {c.method.label: c.score_key for c in make_plan(changed).cells}
    assert {m for m in before if before[m] != after[m]} == {"shells"}
    with pytest.raises(ConfigError, match="did you mean"):
        suite.with_setting("method.shells.random_state", 3)


def test_shards_partition_the_blocks(tiny):
    plan = make_plan(load_suite(tiny))
    parts = [plan.shard(i, 3).blocks for i in (1, 2, 3)]
    assert sorted(b.label for p in parts for b in p) == sorted(b.label for b in plan.blocks)
    with pytest.raises(ConfigError, match="shard 4/3"):
        plan.shard(4, 3)


def test_earlier_scores_stay_until_new_settings_have_theirs(tmp_path):
    """A cell that failed or was not finished does not take the place of an earlier score."""
    from cel.benchmark import Store, load_suite, make_plan
    from cel.benchmark.runner import keep_earlier

    base = {"name": "own", "datasets": ["moons"], "folds": [0, 1], "classifiers": {"lr": {}}}

    def plan(**params):
        methods = {"near": {"method": "wachter", "params": params}}
        return make_plan(load_suite(base | {"methods": methods}))

    def score(cells):
        for cell in cells:
            with store.writing("score", cell.score_key, {}) as folder:
                (folder / "scores.json").write_text("{}")

    store = Store(tmp_path / "r")
    earlier, now = plan(), plan(distance="l2")
    assert keep_earlier(store, now, earlier, now) is now  # nothing is lost
    score(earlier.cells)
    assert keep_earlier(store, now, earlier, now).suite == earlier.suite
    score(now.cells[:1])
    assert keep_earlier(store, now, earlier, now).suite == earlier.suite
    assert keep_earlier(store, now, earlier, now.shard(1, 2)) is now  # the rest was not asked for
    score(now.cells[1:])
    assert keep_earlier(store, now, earlier, now) is now
