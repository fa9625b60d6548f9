"""What a stranger's card, suite or run names stays below its own folder."""

import http.server
import json
import os
import threading

import pytest

from cel import load_dataset
from cel.benchmark import Store, load_suite, make_plan
from cel.benchmark.score_tables import write_scores
from cel.errors import CelError, ConfigError, DataError, StoreError
from cel.paths import file_name, inside, read_bytes, read_json, relative_path, unlinked

CARD = """
name: own
title: Own
task: regression
sources: [{files: [%s]}]
features: [{name: a, kind: continuous}]
target: {columns: [y]}
"""
ROWS = "a,y\n" + "".join(f"{i},{i}\n" for i in range(30))

OUTSIDE = [
    "../outside/x.csv", "/tmp/x.csv", "a/../../x.csv", "..", "~/x.csv", "C:\\x.csv", "\\\\host\\x",
    "a\\..\\x", "x\x00y.csv", "a\nb", "", " ", "\ud800",
]  # fmt: skip


@pytest.fixture
def server(tmp_path):
    """A web server on the loopback that gives the same small table for every path."""

    class Table(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(ROWS)))
            self.end_headers()
            self.wfile.write(ROWS.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Table) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CEL_CACHE", str(folder))
    monkeypatch.delenv("CEL_DATA", raising=False)
    return folder


def _card(folder, *files):
    folder.mkdir(exist_ok=True)
    path = folder / "own.yaml"
    path.write_text(CARD % ", ".join(files))
    return path


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_lead_out_are_refused(name, tmp_path):
    with pytest.raises(ConfigError):
        relative_path(name)
    with pytest.raises(ConfigError):
        inside(tmp_path, name)


def test_a_link_below_the_folder_must_stay_below_it(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "secret").write_text("x")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "a" / "real").write_text("y")
    (tmp_path / "a" / "near").symlink_to(tmp_path / "a" / "real")
    assert inside(tmp_path / "a", "near").read_text() == "y"
    with pytest.raises(ConfigError, match="through a link"):
        inside(tmp_path / "a", "link")


@pytest.mark.parametrize("name", ["../escape/evil.pth", "{tmp}/escape/evil.pth"])
def test_a_card_cannot_write_outside_the_cache(name, tmp_path, cache, server):
    """D1: a card wrote a .pth file into an environment, and its code ran."""
    name = name.format(tmp=tmp_path)
    card = _card(tmp_path / "stranger", f"{{path: '{name}', addresses: ['{server}/x']}}")
    with pytest.raises(ConfigError, match=r"own.yaml.*(leads out|absolute)"):
        load_dataset(card).table  # noqa: B018
    assert not (tmp_path / "escape").exists()


def test_a_link_in_the_cache_is_not_written_through(tmp_path, cache, server):
    cache.mkdir()
    (tmp_path / "precious").mkdir()
    (cache / "sub").symlink_to(tmp_path / "precious")
    card = _card(tmp_path / "stranger", f"{{path: sub/x.csv, addresses: ['{server}/x']}}")
    with pytest.raises(ConfigError, match="through a link"):
        load_dataset(card).table  # noqa: B018
    assert list((tmp_path / "precious").iterdir()) == []


def test_a_download_replaces_nothing(tmp_path, cache, server):
    """D1: with two files of which one existed, both were downloaded and the first overwritten."""
    cache.mkdir()
    (cache / "first.csv").write_text("a,y\n" + "".join(f"{i},7{i}\n" for i in range(30)))
    before = (cache / "first.csv").read_text()
    both = [f"{{path: {n}.csv, addresses: ['{server}/x']}}" for n in ("first", "second")]
    table = load_dataset(_card(tmp_path / "stranger", *both)).table
    assert (cache / "first.csv").read_text() == before
    assert len(table) == 60


def test_a_file_that_differs_from_the_card_stays(tmp_path, cache, server):
    cache.mkdir()
    (cache / "first.csv").write_text("mine,1\n")
    files = [
        f"{{path: first.csv, sha256: {'a' * 64}, addresses: ['{server}/x']}}",
        f"{{path: second.csv, addresses: ['{server}/x']}}",
    ]
    with pytest.raises(DataError, match="sha256"):
        load_dataset(_card(tmp_path / "stranger", *files)).table  # noqa: B018
    assert (cache / "first.csv").read_text() == "mine,1\n"


def test_a_link_beside_a_card_does_not_read_another_file(tmp_path, cache):
    (tmp_path / "secret.csv").write_text(ROWS)
    card = _card(tmp_path / "stranger", "{path: x.csv}")
    (tmp_path / "stranger" / "x.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(ConfigError, match="through a link"):
        load_dataset(card).table  # noqa: B018
    assert len(load_dataset(card, data_path=tmp_path / "secret.csv").table) == 30


@pytest.mark.parametrize("name", ["../../../escaped", "a/b", "..", "", "x\x1b[2J", "n" * 5000, 7])
def test_a_suite_name_is_one_folder(name):
    with pytest.raises(ConfigError, match="suite name"):
        load_suite({"name": name, "datasets": ["moons"], "methods": ["wachter"]})


@pytest.mark.parametrize("name", ["quick", "my suite", "größe", "a.b", "x" * 200])
def test_plain_names_are_fine(name):
    assert file_name(name) == name


# -- stores ----------------------------------------------------------------------------------


def _entry(store, key="k", text="hello"):
    with store.writing("score", key, {"what": "test"}) as folder:
        (folder / "data.txt").write_text(text)


def _status(store, files, key="k"):
    _entry(store, key)
    (store.folder("score", key) / "status.json").write_text(json.dumps({"files": files}))


def test_merge_deletes_nothing_outside_through_a_link(tmp_path):
    """D4: `objects/zzz` was a link to a folder that held a status.json somewhere."""
    a, b = Store(tmp_path / "a"), Store(tmp_path / "b")
    _entry(b)
    precious = tmp_path / "precious"
    (precious / "project").mkdir(parents=True)
    (precious / "project" / "status.json").write_text('{"files": {"x": "0"}}')
    (precious / "project" / "thesis.tex").write_text("years")
    (b.root / "objects" / "zzz").symlink_to(precious)
    (b.root / "objects" / "score" / "project").symlink_to(precious / "project")
    assert a.merge(b) == 1
    assert (precious / "project" / "thesis.tex").read_text() == "years"
    assert not (a.root / "objects" / "zzz").exists()


def test_merge_leaves_its_source_as_it_was(tmp_path):
    a, b = Store(tmp_path / "a"), Store(tmp_path / "b")
    _entry(b)
    (b.folder("score", "k") / "data.txt").write_text("harmed")
    before = sorted(p.relative_to(b.root) for p in b.root.rglob("*"))
    assert a.merge(b) == 0
    assert sorted(p.relative_to(b.root) for p in b.root.rglob("*")) == before


def test_merge_copies_no_content_of_links(tmp_path):
    """D16: a link in an entry brought the file it pointed to into the target."""
    a, b = Store(tmp_path / "a"), Store(tmp_path / "b")
    (tmp_path / "secret").write_text("hello")
    _entry(b)
    (b.folder("score", "k") / "data.txt").unlink()
    (b.folder("score", "k") / "data.txt").symlink_to(tmp_path / "secret")
    _entry(b, "extra")
    (b.folder("score", "extra") / "more").symlink_to(tmp_path)
    assert a.merge(b) == 0


def test_intact_removes_a_link_and_not_what_it_points_to(tmp_path):
    store = Store(tmp_path / "s")
    _entry(store)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years")
    (store.root / "objects" / "score" / "k2").symlink_to(tmp_path / "precious")
    assert not store.intact("score", "k2")
    assert (tmp_path / "precious" / "thesis.tex").read_text() == "years"
    assert not store.has("score", "k2")


@pytest.mark.parametrize("name", ["/dev/zero", "../k/data.txt", "/etc/hostname", "pipe"])
def test_intact_reads_only_the_files_of_the_entry(tmp_path, name):
    """D11: /dev/zero filled the memory, a FIFO waited for ever."""
    store = Store(tmp_path / "s")
    _status(store, {name: "0"})
    if name == "pipe":
        os.mkfifo(store.folder("score", "k") / "pipe")
    assert not store.intact("score", "k")


@pytest.mark.parametrize("text", ["null", "[]", '{"files": []}', '{"files": {}}', "7", "[" * 9999])
def test_any_status_is_survived(tmp_path, text):
    """D12: damaged means computed again, also where the damage is valid JSON."""
    store = Store(tmp_path / "s")
    _entry(store)
    (store.folder("score", "k") / "status.json").write_text(text)
    assert not store.sound("score", "k")
    assert not store.intact("score", "k")
    assert not store.folder("score", "k").exists()


def test_writing_does_not_follow_links(tmp_path):
    """D16: scores, log and small files of a run were written through links."""
    plan = make_plan(load_suite({"name": "s", "datasets": ["moons"], "methods": ["wachter"]}))
    store = Store(tmp_path / "s")
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("scores.parquet", ".scores.parquet.tmp", "suite.json"):
        (store.root / name).symlink_to(victim)
    write_scores(store, plan)
    store.write_json("suite.json", {})
    (store.root / "log.jsonl").symlink_to(victim)
    with pytest.raises(StoreError, match="is a link"):
        store.log("run")
    assert victim.read_text() == "mine"
    assert not (store.root / "scores.parquet").is_symlink()


@pytest.mark.parametrize("name", ["tmp", "objects", "failures"])
def test_folders_of_a_store_may_not_be_links(tmp_path, name):
    store = Store(tmp_path / "s")
    (tmp_path / "else").mkdir()
    (store.root / name).symlink_to(tmp_path / "else")
    write = (lambda: store.fail("k", {})) if name == "failures" else (lambda: _entry(store))
    with pytest.raises(StoreError, match="is a link"):
        write()
    assert list((tmp_path / "else").iterdir()) == []


def test_a_relative_store_does_not_move_with_the_working_directory(tmp_path, monkeypatch):
    """D3: after os.chdir in a method, results went elsewhere."""
    monkeypatch.chdir(tmp_path)
    store = Store("runs/x")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    _entry(store)
    assert (tmp_path / "runs" / "x" / "objects" / "score" / "k" / "data.txt").exists()


def test_what_cannot_be_a_small_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_bytes(b"0" * 100)
    (tmp_path / "deep").write_text("[" * 100_000)
    (tmp_path / "digits").write_text("1" * 10_000)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{")
    for name in ("pipe", "big", "missing"):
        with pytest.raises(StoreError, match=name):
            read_bytes(tmp_path / name, 10)
    for name in ("deep", "digits", "bytes"):
        with pytest.raises(StoreError, match=f"{name} is damaged"):
            read_json(tmp_path / name)
    with pytest.raises(CelError, match="leads out"):
        unlinked(tmp_path, "..", "x")


def test_a_file_is_no_folder_for_a_run(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        Store(tmp_path / "file")
