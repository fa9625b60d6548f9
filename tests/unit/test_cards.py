"""Cards: every key is checked, every packaged card is sensible, and contradictions are refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from cel.config import read_yaml, write_yaml
from cel.datasets import load_card, load_dataset
from cel.datasets.cards import CARDS, card_names, space_of
from cel.datasets.specs import MAX_CATEGORIES
from cel.errors import ConfigError
from cel.space import Implication, LinearRelation

PAPER = {
    "adult", "audit", "bank_marketing", "blobs", "credit_default", "digits", "german_credit",
    "give_me_some_credit", "heloc", "law", "lending_club", "moons", "wine", "synthetic",
    "concrete", "diabetes", "yacht", "scm20d",
}  # fmt: skip

CARD = """\
name: tiny
title: Tiny
task: classification
sources: [{files: [{path: tiny.csv}]}]
features:
  - {name: age, kind: integer, lower: 0, upper: 120}
  - {name: job, kind: categorical, categories: [none, some]}
target: {columns: [y], classes: [{label: 0}, {label: 1}], desired: 1}
"""


def card_file(folder: Path, text: str = CARD) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path


def has_data(name: str) -> bool:
    return bool(os.environ.get("CEL_DATA")) and load_dataset(name).find() is not None


def test_the_paper_and_mixed_have_cards():
    assert set(card_names()) == PAPER | {"mixed", "causal_people"}


@pytest.mark.parametrize("name", sorted(PAPER | {"mixed", "causal_people"}))
def test_packaged_cards_are_complete(name):
    card = load_card(name)
    assert card.name == name
    assert card.notes
    assert card.licence
    assert (card.paper is None) == (name in ("mixed", "causal_people"))
    for source in card.sources:
        for file in source.files:
            assert file.sha256 or name == "lending_club"
    assert any(f.addresses for s in card.sources for f in s.files) or card.generator
    if card.task == "classification":
        assert card.target.desired is not None


@pytest.mark.parametrize("name", sorted(PAPER | {"mixed"}))
def test_age_only_rises_and_protected_features_stay(name):
    space = space_of(load_card(name))
    for feature in space:
        if feature.name.lower() == "age":
            assert feature.direction == "up"
        if "education" in feature.name.lower():
            assert feature.direction == "up"
        if feature.protected:
            assert not feature.mutable
        if feature.name.lower() in ("sex", "race", "native-country", "personal_status_sex"):
            assert feature.protected


def test_adult_rows_stay_human():
    space = space_of(load_card("adult"))
    assert "Never-married" in space["marital-status"].categories
    assert "Never-married" not in space["marital-status"].allowed
    rules = {str(c) for c in space.constraints}
    assert "relationship in {Wife} -> sex in {Female}" in rules
    assert "relationship in {Husband} -> sex in {Male}" in rules


def test_heloc_codes_are_outside_the_bounds_but_known():
    card = load_card("heloc")
    assert all(f.lower is not None and f.lower >= 0 for f in card.features)
    assert all(-9 in f.special for f in card.features)


@pytest.mark.data
@pytest.mark.parametrize("name", [n for n in card_names() if load_card(n).sources])
def test_constraints_hold_for_nearly_all_real_rows(name):
    if not has_data(name):
        pytest.skip("needs CEL_DATA")
    if name == "lending_club":
        with pytest.warns(UserWarning, match="subset"):
            frame = load_dataset(name).frame
    else:
        frame = load_dataset(name).frame
    for rule in space_of(load_card(name)).constraints:
        if isinstance(rule, LinearRelation):
            broken = sum(c * frame[n].to_numpy() for n, c in rule.terms) > rule.bound
        else:
            assert isinstance(rule, Implication)
            given = frame[rule.feature].isin(list(rule.values)).to_numpy()
            then = frame[rule.then_feature].isin(list(rule.then_values)).to_numpy()
            assert given.any()
            broken = given & ~then
        assert broken.mean() < 1e-3, str(rule)


def test_a_good_card_loads(tmp_path):
    card = load_card(card_file(tmp_path))
    assert card.target.labels == (0, 1)
    assert space_of(card).names == ("age", "job")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("task:", "tsk:", "unknown key 'tsk'; did you mean 'task'"),
        ("upper: 120", "uper: 120", r"features\[0\]: unknown key 'uper'; did you mean 'upper'"),
        ("kind: integer", "kind: whole", r"features\[0\].kind"),
        ("lower: 0", "lower: 200", "lower bound 200.0 is above upper bound 120.0"),
        ("lower: 0", "lower: low", r"features\[0\].lower"),
        ("kind: integer,", "kind: integer, categories: [1],", "do not apply to integer"),
        (", categories: [none, some]", "", "'job': a categorical feature needs `categories`"),
        ("[none, some]", "[none, none]", "a category is listed twice"),
        ("[none, some]", "[none, some], allowed: [many]", "'many' is not one of its categories"),
        ("[none, some]", "[none, some], allowed: []", "`allowed` is empty"),
        ("[none, some]", "[none, some], direction: up", "make it ordinal"),
        ("[none, some]", "[none, some], lower: 0", "bounds are for numbers"),
        ("upper: 120", "upper: 120, weight: 0", "weight must be positive"),
        ("name: job", "name: age", "column 'age' is listed twice"),
        ("columns: [y]", "columns: [age]", "column 'age' is listed twice"),
        ("columns: [y]", "columns: []", "target.columns is empty"),
        ("{label: 1}]", "{label: 0}]", "a class is listed twice"),
        (", {label: 1}]", "]", "two or more classes"),
        ("desired: 1", "desired: 2", "there is no class 2"),
        ("task: classification", "task: regression", "need classification"),
        ("task: classification", "task: guess", "task"),
        ("sources: [{files: [{path: tiny.csv}]}]", "", "either `sources` or `generator`"),
        ("path: tiny.csv", "path: tiny.csv, sha256: abc", "64 lower-case hexadecimal digits"),
    ],
)
def test_wrong_cards_name_file_and_key(tmp_path, old, new, message):
    assert old in CARD
    path = card_file(tmp_path, CARD.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
        load_card(path)
    assert str(path) in str(caught.value)


def test_contradictory_constraints_are_refused(tmp_path):
    relation = "relations: [{terms: {age: -1}, bound: -200}]\n"
    with pytest.raises(ConfigError, match="contradicts the bounds"):
        load_card(card_file(tmp_path, CARD + relation))
    rule = "implications: [{given: {job: [none]}, then: {age: [3]}}]\n"
    with pytest.raises(ConfigError, match="'age' has no category 3"):
        load_card(card_file(tmp_path, CARD + rule))
    rule = "implications: [{given: {jobb: [none]}, then: {job: [none]}}]\n"
    with pytest.raises(ConfigError, match="did you mean 'job'"):
        load_card(card_file(tmp_path, CARD + rule))
    pair = "class_pair: [0, 0]\n"
    with pytest.raises(ConfigError, match="two different classes"):
        load_card(card_file(tmp_path, CARD + pair))


def test_too_many_categories_fail_fast(tmp_path):
    many = ", ".join(f"c{i}" for i in range(MAX_CATEGORIES + 1))
    with pytest.raises(ConfigError, match="1,001 categories"):
        load_card(card_file(tmp_path, CARD.replace("none, some", many)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "line 1"),
        ("a: 1\nb: 2\na: 3\n", "line 3: key 'a' is given twice"),
        ("", "is empty"),
        ("- 1\n", "holds a list"),
    ],
)
def test_bad_yaml_names_the_line(tmp_path, text, message):
    path = card_file(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_yaml(path)
    assert str(path) in str(caught.value)


def test_yaml_must_be_utf8_and_exist(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"title: caf\xe9\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        read_yaml(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_yaml(tmp_path / "missing.yaml")


def test_write_yaml_round_trip_and_never_overwrites(tmp_path):
    path = tmp_path / "a.yaml"
    data = {"b": [1, "no", None], "a": {"x": 0.5}}
    write_yaml(path, data, comment="one\ntwo")
    assert read_yaml(path) == data
    assert path.read_text().startswith("# one\n# two\n")
    with pytest.raises(ConfigError, match="exists already"):
        write_yaml(path, {})
    with pytest.raises(ConfigError, match="cannot be written"):
        write_yaml(tmp_path / "missing" / "a.yaml", {})
    assert [p.name for p in tmp_path.iterdir()] == ["a.yaml"]


def test_unknown_names_get_a_hint():
    with pytest.raises(ConfigError, match="did you mean 'adult'"):
        load_card("adlt")
    with pytest.raises(ConfigError, match="did you mean 'adult'"):
        load_dataset("adlt")


def test_cards_are_the_only_files_in_their_folder():
    assert {p.suffix for p in CARDS.iterdir()} == {".yaml"}
    assert np.all([p.stat().st_size < 20_000 for p in CARDS.iterdir()])
