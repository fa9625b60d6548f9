"""The store: all or nothing, damage is noticed, failures are not results."""

import json
import os
from pathlib import Path

import pytest

import cel
from cel.benchmark import Store
from cel.errors import StoreError


def _entry(store, key="k", text="hello"):
    with store.writing("score", key, {"what": "test"}) as folder:
        (folder / "data.txt").write_text(text)


def _interrupted(store):
    with store.writing("score", "k", {}) as folder:
        (folder / "data.txt").write_text("half")
        raise RuntimeError("disk full")


def test_an_entry_is_complete_or_absent(tmp_path):
    store = Store(tmp_path / "s")
    with pytest.raises(RuntimeError, match="disk"):
        _interrupted(store)
    assert not store.has("score", "k")
    assert list((tmp_path / "s" / "tmp").iterdir()) == []
    _entry(store)
    assert store.intact("score", "k")
    assert store.spec("score", "k") == {"what": "test"}


@pytest.mark.parametrize("damage", ["truncate", "delete", "status"])
def test_damage_is_noticed_and_removed(tmp_path, damage):
    store = Store(tmp_path / "s")
    _entry(store)
    folder = store.folder("score", "k")
    if damage == "truncate":
        (folder / "data.txt").write_text("hel")
    elif damage == "delete":
        (folder / "data.txt").unlink()
    else:
        (folder / "status.json").write_text("{")
    assert not store.intact("score", "k")
    assert not store.has("score", "k")
    assert "damaged" in (tmp_path / "s" / "log.jsonl").read_text()


def test_the_first_of_two_writers_wins(tmp_path):
    store = Store(tmp_path / "s")
    with store.writing("score", "k", {}) as folder:
        (folder / "data.txt").write_text("slow")
        _entry(store, text="fast")
    assert (store.folder("score", "k") / "data.txt").read_text() == "fast"
    assert store.intact("score", "k")


def test_a_newer_store_and_a_foreign_folder_are_refused(tmp_path):
    Store(tmp_path / "new")
    (tmp_path / "new" / "store.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(StoreError, match="newer version"):
        Store(tmp_path / "new")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError, match="not a CEL store"):
        Store(tmp_path / "other")


def test_failures_are_no_results(tmp_path):
    store = Store(tmp_path / "s")
    store.fail("k", {"status": "error", "reason": "boom"})
    assert store.failure("k")["reason"] == "boom"
    assert not store.has("score", "k")
    store.forgive("k")
    assert store.failure("k") is None


def test_merge_copies_what_is_missing(tmp_path):
    a, b = Store(tmp_path / "a"), Store(tmp_path / "b")
    _entry(a, "one")
    _entry(b, "one", "other")
    _entry(b, "two")
    assert a.merge(b) == 1
    assert (a.folder("score", "one") / "data.txt").read_text() == "hello"
    assert a.intact("score", "two")


def test_sweeping_spares_a_run_that_is_going_on(tmp_path):
    store = Store(tmp_path / "s")
    with store.writing("score", "k", {}) as folder:
        (folder / "data.txt").write_text("slow")
        old = folder.with_name("old")
        old.mkdir()
        os.utime(old, (0, 0))
        Store(tmp_path / "s").sweep()
        assert not old.exists()
    assert store.intact("score", "k")


def test_a_store_that_another_run_is_just_making_is_shared(tmp_path):
    """Two runs at once: the second saw the first one's half-written marker and refused."""
    root = tmp_path / "s"
    root.mkdir()
    (root / ".store.json.1a2b3c4d").write_text("")
    assert Store(root).read_json("store.json")["schema"] == 1


def test_a_store_that_another_run_has_made_meanwhile_is_shared(tmp_path, monkeypatch):
    root = tmp_path / "s"
    root.mkdir()
    listed = Path.iterdir

    def quicker(folder):
        if folder == root:
            (root / "objects").mkdir(exist_ok=True)
            (root / "store.json").write_text(json.dumps({"schema": 1, "cel": cel.__version__}))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", quicker)
    assert Store(root).root == root
    (root / "store.json").write_text(json.dumps({"schema": 99, "cel": "9"}))
    with pytest.raises(StoreError):
        Store(root)


def test_a_folder_with_other_files_is_refused(tmp_path):
    (tmp_path / ".store.jsonx").write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        Store(tmp_path)
