"""Files, downloads and settings are bounded before memory or time is taken."""

import gzip
import http.server
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile

import numpy as np
import pytest

import cel.datasets.download as download_module
import cel.datasets.files as files_module
from cel import load_dataset
from cel.benchmark import load_suite
from cel.config import read_yaml
from cel.datasets.cards import load_card
from cel.datasets.specs import FileSpec
from cel.errors import CelError, ConfigError, DataError, StoreError

CARD = """
name: own
title: Own
task: regression
sources: [{files: [%s]}]
features: [{name: a, kind: continuous}]
target: {columns: [y]}
"""
ROWS = "a,y\n" + "".join(f"{i},{i}\n" for i in range(30))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv("CEL_CACHE", str(folder))
    monkeypatch.delenv("CEL_DATA", raising=False)
    return folder


@pytest.fixture
def serve():
    """Start a server whose answer is written by a function."""
    servers = []

    def start(write):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.end_headers()
                try:
                    write(self.wfile)
                except OSError:
                    return

            def log_message(self, *_):
                pass

        running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        running.daemon_threads = True
        threading.Thread(target=running.serve_forever, daemon=True).start()
        servers.append(running)
        return f"http://127.0.0.1:{running.server_port}/x"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def _card(folder, address, size=None):
    more = "" if size is None else f", size: {size}"
    path = folder / "own.yaml"
    path.write_text(CARD % f"{{path: own.csv, addresses: ['{address}']{more}}}")
    return path


def _bomb(kind):
    body = io.BytesIO()
    if kind == "gzip":
        with gzip.GzipFile(fileobj=body, mode="wb") as packed:
            for _ in range(64):
                packed.write(b"0,0\n" * 2**18)
    else:
        with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", b"0,0\n" * 2**24)
    return body.getvalue()


@pytest.mark.parametrize("kind", ["gzip", "zip"])
def test_unpacking_stops_at_the_size_of_the_card(tmp_path, cache, serve, kind):
    """D10: 3 MB became 3.1 GB on disk."""
    bomb = _bomb(kind)
    card = _card(tmp_path, serve(lambda out: out.write(bomb)), size=10_000)
    with pytest.raises(DataError, match=r"more than 10,000 bytes.*state the number"):
        load_dataset(card).table  # noqa: B018
    assert [p for p in cache.rglob("*") if p.is_file()] == []


def test_an_endless_server_is_left_at_the_limit(tmp_path, cache, serve, monkeypatch):
    monkeypatch.setattr("cel.datasets.specs.MAX_BYTES", 1_000_000)

    def endless(out):
        while True:
            out.write(b"0,0\n" * 2**14)

    with pytest.raises(DataError, match="more than 1,000,000 bytes"):
        load_dataset(_card(tmp_path, serve(endless))).table  # noqa: B018
    assert list(cache.rglob(".part*")) == []


def test_a_slow_server_is_left_when_the_time_is_over(tmp_path, cache, serve, monkeypatch):
    monkeypatch.setattr(download_module, "TOTAL_TIME_S", 1.0)

    def slow(out):
        for _ in range(300):
            out.write(b"0")
            out.flush()
            time.sleep(0.2)

    started = time.monotonic()
    with pytest.raises(DataError, match="took longer than 1 seconds"):
        load_dataset(_card(tmp_path, serve(slow))).table  # noqa: B018
    assert time.monotonic() - started < 20


def test_a_file_of_just_the_stated_size_is_fine(tmp_path, cache, serve):
    card = _card(tmp_path, serve(lambda out: out.write(ROWS.encode())), size=len(ROWS))
    assert len(load_dataset(card).table) == 30


def test_sigterm_during_a_download_leaves_nothing(tmp_path, cache, serve):
    def slow(out):
        for _ in range(600):
            out.write(b"0")
            out.flush()
            time.sleep(0.1)

    card = _card(tmp_path, serve(slow))
    code = f"from cel import load_dataset; load_dataset({str(card)!r}).table"
    process = subprocess.Popen([sys.executable, "-c", code], env=os.environ.copy())
    deadline = time.monotonic() + 60
    while not list(cache.rglob(".part*/*")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    assert list(cache.rglob(".part*")) == []


def test_remains_of_killed_downloads_are_swept(tmp_path, cache, serve):
    cache.mkdir()
    old = cache / ".part-old"
    old.mkdir()
    (old / "x").write_text("half")
    os.utime(old, (0, 0))
    load_dataset(_card(tmp_path, serve(lambda out: out.write(ROWS.encode())))).table  # noqa: B018
    assert not old.exists()


def test_size_says_nothing_about_results(tmp_path):
    """The keys of the store come from the card; a limit must not change them."""
    assert "size" not in FileSpec(path="x", size=7).model_dump(mode="json")


# -- local files -----------------------------------------------------------------------------


def test_a_local_archive_of_one_endless_line(tmp_path, cache, monkeypatch):
    """A .gz of one line of 2 GB took 4.2 GB of memory and ended in a raw _csv.Error."""
    monkeypatch.setattr(files_module, "MAX_LINE", 100_000)
    with gzip.open(tmp_path / "own.csv.gz", "wb") as out:
        for _ in range(64):
            out.write(b"0" * 2**20)
    (tmp_path / "own.yaml").write_text(CARD % "{path: own.csv}")
    tracemalloc.start()
    with pytest.raises(DataError, match="a line is longer"):
        load_dataset(tmp_path / "own.yaml").table  # noqa: B018
    assert tracemalloc.get_traced_memory()[1] < 30 * 2**20
    tracemalloc.stop()


def test_a_local_archive_larger_than_its_card_says(tmp_path, cache):
    with gzip.open(tmp_path / "own.csv.gz", "wb") as out:
        out.write(b"a,y\n" + b"0,0\n" * 2**20)
    (tmp_path / "own.yaml").write_text(CARD % "{path: own.csv, size: 9999}")
    with pytest.raises(DataError, match="more than 9,999 bytes"):
        load_dataset(tmp_path / "own.yaml").table  # noqa: B018


def test_a_long_field_is_no_traceback(tmp_path, cache):
    (tmp_path / "own.csv").write_text("a" * 200_000 + ",y\n1,2\n")
    (tmp_path / "own.yaml").write_text(CARD % "{path: own.csv}")
    with pytest.raises(DataError, match="cannot be read as a table"):
        load_dataset(tmp_path / "own.yaml").table  # noqa: B018


@pytest.mark.parametrize("read", ["separator: '(a+)+$'", "separator: ''", "encoding: none_such",
                                  "encoding: zlib_codec"])  # fmt: skip
def test_patterns_and_codecs_are_refused(tmp_path, cache, read):
    (tmp_path / "own.yaml").write_text(CARD % "{path: own.csv}" + f"read: {{{read}}}\n")
    with pytest.raises(ConfigError, match=r"separator is one|there is no encoding"):
        load_card(tmp_path / "own.yaml")


# -- YAML ------------------------------------------------------------------------------------

ALIASES = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
BAD_YAML = {
    "aliases": (ALIASES, "once its aliases are expanded"),
    "nesting": ("a: " + "[" * 5000, "nested more than"),
    "deep but closed": ("a: " + "[" * 500 + "]" * 500, "nested more than"),
    "itself": ("a: &a [*a]", "once its aliases are expanded"),
    "list as key": ("? [a]\n: 1", "a key must be a word"),
    "digits": ("a: " + "1" * 10_000, "not valid YAML"),
    "date": ("a: 2020-99-99", "not valid YAML"),
    "large": ("a: " + "x" * 3_000_000, "larger than"),
    "tag": ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
    "control": ("a: \x07", "not valid YAML|unacceptable|special characters"),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_hostile_yaml_is_refused_at_once(tmp_path, name):
    """D18 and M4: tracebacks, and 2.35 GB for 10^9 aliases."""
    text, message = BAD_YAML[name]
    path = tmp_path / "x.yaml"
    path.write_text(text)
    started = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        read_yaml(path)
    assert time.monotonic() - started < 10


def test_yaml_from_a_pipe_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match="not a plain file"):
        read_yaml(tmp_path / "x.yaml")


GOOD = {"name": "s", "datasets": ["moons"], "methods": ["wachter"]}
BAD_SUITES = [
    {"methods": 7}, {"methods": [[1]]}, {"methods": {"a": 7}}, {"methods": {"a": {"params": 3}}},
    {"methods": {"a": {"method": 3}}}, {"methods": {7: None}}, {"methods": {"a" * 10_000: None}},
    {"methods": {}}, {"methods": {"a\ud800": {"method": "cadex"}}},
    {"folds": "abc"}, {"folds": [0.5]}, {"folds": [True]}, {"folds": [-1]},
    {"folds": 3}, {"n_folds": "5"}, {"n_folds": 10**12}, {"limits": 7}, {"limits": {"time_s": -1}},
    {"limits": {"memory_mb": "x"}}, {"limits": {"time_s": float("nan")}},
    {"limits": {"train_s": float("inf")}}, {"datasets": [["moons"]]}, {"datasets": "moons"},
    {"datasets": []}, {"max_rows": -3}, {"max_rows": 0}, {"max_rows": "all"}, {"seed": -1},
    {"classifiers": 7}, {"classifiers": {"lr": 7}}, {"classifiers": {3: {}}}, {"density": []},
    {"metrics": ["a"]}, {"extra_metrics": "l2"}, {"metric_params": {"l2": 3}}, {"binary": "no"},
    {"target": ["card"]}, {"name": ["x"]},
]  # fmt: skip


@pytest.mark.parametrize("change", BAD_SUITES, ids=repr)
def test_values_of_a_suite_are_checked(change):
    """D18: wrong types were tracebacks, `max_rows: -3` and negative limits went through."""
    with pytest.raises(ConfigError):
        load_suite(GOOD | change)


def test_a_suite_of_good_values_is_as_before():
    suite = load_suite(GOOD | {"classifiers": ["lr", "mlp"], "limits": {"time_s": 3}})
    assert suite.classifiers == {"lr": {}, "mlp": {}}
    assert load_suite(suite.to_dict()) == suite


def test_every_error_is_ours(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text("- a\n- b\n")
    with pytest.raises(CelError, match="holds a list"):
        load_suite(path)


def _block(table, **options):
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as file:
        file.write_table(table)
    return bytes(sink.getvalue())


def test_a_table_in_a_header_cannot_announce_more_than_it_has():
    """Compressed batches, columns without bytes and dictionaries of nothing: none is read."""
    import pyarrow as pa

    from cel.arrow_block import read_block

    many = 3_000_000
    small = pa.array([0], pa.int8())
    wide = pa.DictionaryArray.from_arrays(small, pa.nulls(many))
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([many], pa.int32()), [1])
    bombs = [
        (_block(pa.table({"a": np.zeros(many)}), compression="zstd"), many),
        (_block(pa.table({"a": [0]}), compression="lz4"), 1),
        (_block(pa.table({"a": pa.nulls(many)})), 5),
        (_block(pa.table({"a": wide})), 1),
        (_block(pa.table({"a": runs})), many),
        (_block(pa.table({"a": pa.array([[None] * 9], pa.list_(pa.null()))})), 1),
        (b"ARROW1\0\0" + b"\xff" * 40, 1),
        (b"no such thing", 1),
    ]
    for data, rows in bombs:
        before = pa.total_allocated_bytes()
        with pytest.raises((OSError, pa.ArrowException)) as refused:
            read_block(data, rows)
        del refused
        assert pa.total_allocated_bytes() - before < many, data[:20]
    kept = pa.table(
        {"a": [1.5, 2.5], "b": pa.array(["x", "y"]).dictionary_encode(), "c": [None] * 2}
    )
    read = read_block(_block(kept), 2)
    assert read[["a", "b"]].astype(str).to_numpy().tolist() == [["1.5", "x"], ["2.5", "y"]]
    assert read["c"].isna().all()


def test_damaged_heads_of_tables_are_refused():
    """One byte changed anywhere: the table, a refusal of ours or of Arrow, never anything else."""
    import pyarrow as pa

    from cel.arrow_block import read_block

    whole = _block(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
    chance, refused = random.Random(0), 0
    for _ in range(400):
        place, value = chance.randrange(len(whole)), chance.randrange(256)
        data = whole[:place] + bytes([value]) + whole[place + 1 :]
        try:
            assert len(read_block(data, 3)) == 3
        except (StoreError, pa.ArrowException, UnicodeDecodeError, OSError, ValueError):
            refused += 1
    assert refused > 20
