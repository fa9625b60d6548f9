"""Datasets: counts of the paper's table, bad files, downloads, folds' parts and loaders."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import os
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from cel.datasets import (
    DATASETS,
    FileDataset,
    MixedDistribution,
    TabularRows,
    load_dataset,
)
from cel.datasets.catalogue import card_dataset, mismatches, summarise
from cel.datasets.files import cache_dir
from cel.errors import CelError, ConfigError, DataError
from cel.preprocessing import PreprocessingPipeline, StandardScaler
from cel.protocols import Task

EMBEDDED = ("blobs", "causal_people", "diabetes", "digits", "mixed", "moons", "synthetic", "wine")
FILES = tuple(n for n in DATASETS if n not in EMBEDDED)

CARD = """\
name: tiny
title: Tiny
task: classification
sources: [{files: [{path: data/tiny.csv}]}]
features:
  - {name: age, kind: integer, lower: 0, upper: 120, special: [-1]}
  - {name: pay, kind: continuous}
  - {name: job, kind: categorical, categories: [none, some, 3]}
drop: [id]
target: {columns: [y], classes: [{label: bad, values: [0]}, {label: good, values: [1]}]}
"""
ROWS = "id,age,pay,job,y\n1,20,1.5,none,0\n2,30,2.5, some,1\n3,-1,0.5,3.0,1\n4,50,9,3,0\n"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("CEL_CACHE", str(tmp_path / "cache"))


def tiny(folder: Path, rows: str | bytes = ROWS, card: str = CARD) -> FileDataset:
    (folder / "tiny.yaml").write_text(card)
    (folder / "tiny.csv").write_bytes(rows if isinstance(rows, bytes) else rows.encode())
    return FileDataset(folder / "tiny.yaml")


# -- the datasets of the paper --------------------------------------------------------------


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_datasets_need_no_file(name, monkeypatch):
    monkeypatch.delenv("CEL_DATA", raising=False)
    dataset = card_dataset(name)
    found = summarise(dataset)
    assert found.found
    assert mismatches(found, dataset.card) == []
    split = dataset.split()
    assert len(split.train) + len(split.valid) + len(split.test) == len(dataset)
    assert split.train.X.dtype == np.float32


@pytest.mark.data
@pytest.mark.parametrize("name", [n for n in FILES if n != "lending_club"])
def test_counts_equal_the_papers_table(name):
    dataset = card_dataset(name)
    if dataset.find() is None:
        pytest.skip("needs the raw file; set CEL_DATA")
    assert mismatches(summarise(dataset), dataset.card) == []


@pytest.mark.data
def test_lending_club_is_a_flagged_subset():
    dataset = card_dataset("lending_club")
    if dataset.find() is None:
        pytest.skip("needs the raw file; set CEL_DATA")
    with pytest.warns(UserWarning, match=r"34,000 of the 93,888 rows"):
        assert len(dataset) == 34_000
    found = summarise(dataset)
    assert (found.categorical, found.numerical, found.classes) == (4, 8, 2)
    assert "subset" in found.note
    assert dataset.card.paper.rows == 93_888


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_real_rows_survive_the_round_trip(name):
    dataset = card_dataset(name)
    if dataset.find() is None:
        pytest.skip("needs the raw file; set CEL_DATA")
    if name == "lending_club":
        with pytest.warns(UserWarning, match="subset"):
            split = dataset.split()
    else:
        split = dataset.split()
    back = split.pipeline.inverse_transform(split.test.X, index=split.test.frame.index)
    assert list(back.columns) == list(split.test.frame.columns)
    for column in back:
        before, after = split.test.frame[column], back[column]
        assert before.dtype == after.dtype
        if dataset.raw_space[column].categories:
            assert (before == after).all()
        else:
            width = np.ptp(dataset.frame[column].to_numpy(np.float64)) or 1.0
            assert (np.abs(before.to_numpy() - after.to_numpy()) <= 1e-6 * width).all()


def test_missing_files_say_how_to_get_them(monkeypatch):
    monkeypatch.delenv("CEL_DATA", raising=False)
    monkeypatch.setattr("cel.datasets.download._receive", _no_network)
    with pytest.raises(DataError, match=r"no connection.*CEL_DATA") as caught:
        len(load_dataset("yacht"))
    assert "514da61a143a" in str(caught.value)
    assert not summarise(card_dataset("yacht")).found


def _no_network(address, part, most):
    import requests

    raise requests.exceptions.ConnectionError("no route")


def test_binary_restriction():
    whole, pair = load_dataset("wine"), load_dataset("wine", binary=True)
    assert (len(whole), len(pair)) == (178, 119)
    assert pair.target.classes == (1, 2)
    assert np.bincount(pair.table.y).tolist() == [71, 48]
    assert len(load_dataset("blobs", binary=True)) == 1000
    assert len(load_dataset("digits", binary=True)) == 360
    assert len(load_dataset("moons", binary=True)) == 1024
    assert load_dataset("synthetic", binary=True).task is Task.REGRESSION
    swapped = load_dataset("wine", class_pair=(2, 0))
    assert swapped.target.classes == (2, 0)
    assert swapped.target.desired is None
    assert np.bincount(swapped.table.y).tolist() == [48, 59]
    with pytest.raises(ConfigError, match="no class 7"):
        len(load_dataset("wine", class_pair=(1, 7)))


def test_generators_match_the_papers_recipes():
    from sklearn.datasets import make_moons

    x, y = make_moons(n_samples=1024, noise=0.1, random_state=42)
    moons = load_dataset("moons")
    np.testing.assert_array_equal(moons.frame.to_numpy(), x)
    np.testing.assert_array_equal(moons.table.y, y)
    assert len(load_dataset("moons", n=50)) == 50
    with pytest.raises(ConfigError, match="did you mean 'noise'"):
        len(load_dataset("moons", noize=1))
    with pytest.raises(ConfigError, match="no option 'n'"):
        len(load_dataset("yacht", n=3))


# -- reading files --------------------------------------------------------------------------


def test_a_small_file(tmp_path):
    table = tiny(tmp_path).table
    assert table.frame["age"].tolist() == [20, 30, -1, 50]
    assert table.frame["age"].dtype == np.int64
    assert table.frame["job"].tolist() == ["none", "some", 3, 3]
    assert table.y.tolist() == [0, 1, 1, 0]
    assert table.target.classes == ("bad", "good")
    assert table.frame.index.tolist() == [0, 1, 2, 3]


def test_gzip_and_bom_and_places(tmp_path, monkeypatch):
    tiny(tmp_path)
    (tmp_path / "tiny.csv").unlink()
    far = tmp_path / "far" / "data"
    far.mkdir(parents=True)
    (far / "tiny.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + ROWS.encode()))
    monkeypatch.setenv("CEL_DATA", os.pathsep.join([str(tmp_path / "nowhere"), str(far.parent)]))
    assert len(FileDataset(tmp_path / "tiny.yaml")) == 4
    monkeypatch.delenv("CEL_DATA")
    assert len(FileDataset(tmp_path / "tiny.yaml", far)) == 4
    assert len(FileDataset(tmp_path / "tiny.yaml", far / "tiny.csv.gz")) == 4
    with pytest.raises(DataError, match="check data_path"):
        len(FileDataset(tmp_path / "tiny.yaml", tmp_path / "typo"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("", "is empty"),
        ("id,age,pay,job,y\n", "no rows"),
        ("<!DOCTYPE html><html>sign in</html>", "holds a web page"),
        (ROWS.replace("pay", "age", 1), "column 'age' occurs twice"),
        (ROWS.replace("pay", "pya", 1), "column 'pay' is missing; did you mean 'pya'"),
        (ROWS.replace(",y", ",yy", 1), "target column 'y' is missing"),
        (ROWS.replace("id,", "key,", 1), "unknown column 'key'"),
        (ROWS.replace(" some", "sone"), "column 'job' holds 'sone'.*did you mean 'some'"),
        (ROWS.replace("none,0", "none,2"), "column 'y' holds '?2"),
        (ROWS.replace("1.5", "1.5e"), "column 'pay' holds '1.5e' in row 0"),
        (ROWS.replace("1.5", ""), "column 'pay' is empty in row 0"),
        (ROWS.replace("1.5", "inf"), "column 'pay', row 0: inf is infinite"),
        (ROWS.replace("20", "20.5"), "column 'age', row 0: 20.5 is not a whole number"),
        (ROWS.replace("50", "500"), "column 'age', row 3: 500 is outside the bounds"),
        (ROWS.replace(",1\n", ",0\n"), "column 'y' holds one class only"),
        (ROWS.replace("9,3,0", "9,3,0,5"), "Expected 5 fields in line 5, saw 6; check the file"),
        (ROWS.replace("none,0", "none,0,5"), "the first row has 6 values and the header 5 names"),
        (ROWS.replace("1.5", "").replace("2.5", "").replace("0.5", "").replace("9,", ","),
         "column 'pay' has no value in any row"),
        (ROWS.encode().replace(b"none", b"n\xf6ne"), "is not utf-8 text.*encoding: latin-1"),
        (ROWS.encode().replace(b"pay", b"p\xe4y", 1), "is not utf-8 text"),
    ],
)  # fmt: skip
def test_bad_files_name_file_column_and_value(tmp_path, rows, message):
    with pytest.raises(DataError, match=message) as caught:
        len(tiny(tmp_path, rows))
    assert str(tmp_path / "tiny.csv") in str(caught.value)


def test_wrong_hash_is_reported_before_anything_else(tmp_path):
    wrong = CARD.replace("path: data/tiny.csv", f"path: tiny.csv, sha256: {'a' * 64}")
    for rows in (ROWS, ROWS.replace("pay", "pya", 1), ROWS.replace("1.5", "x")):
        with pytest.raises(DataError, match=r"its sha256 is .*, but the card says aaaaaa"):
            len(tiny(tmp_path, rows, wrong))
    right = wrong.replace("a" * 64, hashlib.sha256(ROWS.encode()).hexdigest())
    assert len(tiny(tmp_path, ROWS, right)) == 4


def test_cut_off_gzip(tmp_path):
    tiny(tmp_path)
    (tmp_path / "tiny.csv").unlink()
    packed = gzip.compress(ROWS.encode() * 500)
    (tmp_path / "tiny.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(DataError, match="cut off or damaged"):
        len(FileDataset(tmp_path / "tiny.yaml"))


def test_an_id_among_the_categories_fails_fast(tmp_path):
    n = 100_000
    rows = "id,age,pay,job,y\n" + "\n".join(f"{i},20,1.0,u{i},{i % 2}" for i in range(n))
    dataset = tiny(tmp_path, rows)
    start = time.perf_counter()
    with pytest.raises(DataError, match=r"different values where the card lists 3.*`drop`"):
        len(dataset)
    assert time.perf_counter() - start < 5


def test_missing_values_drop_keep_or_coerce(tmp_path):
    rows = ROWS.replace("1.5", "NA").replace("3.0,1", ",1")
    dropped = tiny(tmp_path, rows, CARD + "rows: {missing: drop}\n").table
    assert dropped.frame.index.tolist() == [1, 3]
    kept = tiny(tmp_path, rows, CARD + "rows: {missing: keep}\n").table
    assert kept.frame["pay"].isna().tolist() == [True, False, False, False]
    assert kept.frame["job"].isna().tolist() == [False, False, True, False]
    words = ROWS.replace("1.5", "much")
    coerced = tiny(tmp_path, words, CARD + "read: {coerce: [pay]}\nrows: {missing: drop}\n").table
    assert coerced.frame.index.tolist() == [1, 2, 3]
    named = tiny(tmp_path, words, CARD + "read: {na_values: [much]}\nrows: {missing: drop}\n")
    assert len(named) == 3


def test_filters_and_balancing(tmp_path):
    body = "\n".join(
        f"{i},{20 + i},{i / 7},{('none', 'some')[i % 2]},{int(i < 8)}" for i in range(40)
    )
    rows = "id,age,pay,job,y\n" + body + "\n"
    balanced = tiny(tmp_path, rows, CARD + "rows: {downsample: true}\n").table
    assert np.bincount(balanced.y).tolist() == [8, 8]
    sampled = tiny(tmp_path, rows, CARD + "rows: {sample: 11}\n").table
    assert len(sampled) == 11
    kept = tiny(tmp_path, rows, CARD + "rows: {keep: {job: [some]}}\n").table
    assert set(kept.frame["job"]) == {"some"}
    assert "the same value in every row: job" in kept.notes
    with pytest.raises(ConfigError, match="did you mean 'job'"):
        len(tiny(tmp_path, rows, CARD + "rows: {keep: {jb: [some]}}\n"))
    with pytest.raises(DataError, match="no rows are left"):
        len(tiny(tmp_path, rows, CARD + "rows: {keep: {job: [other]}}\n"))
    shuffled = "\n".join(reversed(body.splitlines()))
    again = tiny(tmp_path, "id,age,pay,job,y\n" + shuffled, CARD + "rows: {downsample: true}\n")
    assert sorted(again.frame["age"]) == sorted(balanced.frame["age"])


def test_words_that_look_like_numbers_stay_words(tmp_path):
    card = CARD.replace("[none, some, 3]", '["007", "7", "TRUE"]')
    rows = ROWS.replace("none", "007").replace(" some", "7").replace("3.0", "TRUE")
    table = tiny(tmp_path, rows.replace("9,3,", "9,7,"), card).table
    assert table.frame["job"].tolist() == ["007", "7", "TRUE", "7"]
    card = CARD.replace("[none, some, 3]", "[true, false]")
    rows = ROWS.replace("none", "TRUE").replace(" some", "false").replace("3.0", "False")
    table = tiny(tmp_path, rows.replace("9,3,", "9,1,"), card).table
    assert table.frame["job"].tolist() == [True, False, False, True]


def test_arff_and_renamed_columns(tmp_path):
    card = (
        "name: arff\ntitle: Arff\ntask: regression\n"
        "sources: [{files: [{path: a.arff}], format: arff}]\n"
        "features: [{name: speed, column: '0', kind: continuous}]\n"
        "target: {columns: ['1']}\n"
    )
    (tmp_path / "a.yaml").write_text(card)
    (tmp_path / "a.arff").write_text(
        "@relation x\n@attribute 'v' numeric\n@attribute 'w' numeric\n@data\n1,2\n3,4\n"
    )
    table = FileDataset(tmp_path / "a.yaml").table
    assert table.frame["speed"].tolist() == [1.0, 3.0]
    assert table.y.tolist() == [[2.0], [4.0]]


# -- downloads, from a server of our own ----------------------------------------------------


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body, claimed = self.server.files.get(self.path, (None, 0))
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(claimed))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("CEL_DATA", raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as httpd:
        httpd.files = {}
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield httpd
        httpd.shutdown()
        thread.join()


def served(server, folder: Path, *bodies: bytes, cut: int = 0) -> FileDataset:
    """Return a dataset whose addresses serve the bodies; the last `cut` bytes are not sent."""
    port = server.server_address[1]
    addresses = [f"http://127.0.0.1:{port}/{i}" for i in range(len(bodies))]
    server.files |= {f"/{i}": (b[: len(b) - cut], len(b)) for i, b in enumerate(bodies)}
    sha = hashlib.sha256(ROWS.encode()).hexdigest()
    file = f"{{path: data/tiny.csv, sha256: {sha}, addresses: [{', '.join(addresses)}]}}"
    (folder / "tiny.yaml").write_text(CARD.replace("{path: data/tiny.csv}", file))
    return FileDataset(folder / "tiny.yaml")


def cached() -> list[str]:
    return sorted(p.name for p in cache_dir().rglob("*") if p.is_file())


def test_download_once(server, tmp_path):
    dataset = served(server, tmp_path, ROWS.encode())
    assert len(dataset) == 4
    assert cached() == ["tiny.csv"]
    server.files.clear()
    assert len(FileDataset(tmp_path / "tiny.yaml")) == 4


def test_archives_are_unpacked(server, tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.csv", ROWS)
    packed = gzip.compress(ROWS.encode())
    for body in (path.read_bytes(), packed):
        served(server, tmp_path, body).files()
        assert cached() == ["tiny.csv"]
        (cache_dir() / "data" / "tiny.csv").unlink()


def test_the_next_address_is_tried(server, tmp_path):
    dataset = served(server, tmp_path, b"<html>moved</html>", b"id,age\n1,2\n", ROWS.encode())
    assert len(dataset) == 4


@pytest.mark.parametrize(
    ("body", "cut", "message"),
    [
        (b"<html>please sign in</html>", 0, "holds a web page"),
        (b"id,age\n1,2\n", 0, "its sha256 is"),
        (b"", 0, "is empty"),
        (ROWS.encode(), 10, "cut off"),
        (gzip.compress(ROWS.encode() * 99)[:-20], 0, "cut off or damaged"),
    ],
)
def test_bad_downloads_leave_nothing_behind(server, tmp_path, body, cut, message):
    with pytest.raises(DataError, match=message) as caught:
        len(served(server, tmp_path, body, cut=cut))
    assert f"127.0.0.1:{server.server_address[1]}/0" in str(caught.value)
    assert list(cache_dir().rglob("*.csv*")) == []
    assert list(cache_dir().rglob(".part*")) == []


def test_server_errors_and_dead_servers(server, tmp_path):
    dataset = served(server, tmp_path, ROWS.encode())
    server.files.clear()
    with pytest.raises(DataError, match="answered 404"):
        len(dataset)
    text = (tmp_path / "tiny.yaml").read_text()
    (tmp_path / "tiny.yaml").write_text(text.replace(str(server.server_address[1]), "9"))
    with pytest.raises(DataError, match="no connection"):
        len(FileDataset(tmp_path / "tiny.yaml"))
    (tmp_path / "tiny.yaml").write_text(text.replace("http://", "carrier-pigeon://"))
    with pytest.raises(DataError, match="could not be downloaded"):
        len(FileDataset(tmp_path / "tiny.yaml"))


# -- splits and loaders ---------------------------------------------------------------------


def test_split_of_mixed_data():
    dataset = load_dataset("mixed")
    split = dataset.split()
    assert (len(split.train), len(split.valid), len(split.test)) == (1360, 240, 400)
    assert split.name == "mixed"
    assert split.fold == 0
    assert split.space.width == 2 + 3 + 1 + 1 + 1 + 1
    assert not split.space["group"].mutable
    assert split.space["education"].direction == "up"
    training = np.concatenate([split.train.X, split.valid.X])
    income = split.space["income"].columns[0]
    assert training[:, income].min() == 0
    assert training[:, income].max() == 1
    shares = [np.mean(part.y) for part in (split.train, split.valid, split.test)]
    assert np.ptp(shares) < 0.01
    assert (split.test.frame.index == split.test.index).all()


def test_regression_range_is_the_training_range():
    split = load_dataset("diabetes").split()
    training = np.concatenate([split.train.y, split.valid.y])
    assert training.dtype == np.float32
    assert training.shape[1] == 1
    assert (training.min(), training.max()) == (0.0, 1.0)
    raw = split.target.decode(split.test.y)
    expected = load_dataset("diabetes").table.y[split.test.index]
    np.testing.assert_allclose(raw, expected, rtol=1e-5)


def test_loaders_carry_what_they_know():
    dataset = load_dataset("mixed", n=300)
    state = torch.random.get_rng_state()
    loader = dataset.train_dataloader(batch_size=64)
    rows = loader.dataset
    assert isinstance(rows, TabularRows)
    assert rows.space is rows.split.space is dataset.split().space
    assert rows.pipeline is rows.split.pipeline
    assert rows.target.classes == (0, 1)
    x, y = next(iter(loader))
    assert x.shape == (64, rows.space.width)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    seen = torch.cat([x for x, _ in loader])
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, rows.rows.X.tolist()))
    assert len(dataset.test_dataloader().dataset) == 60
    assert len(dataset.valid_dataloader().dataset) == 36
    for _ in dataset.test_dataloader():
        pass
    assert torch.equal(state, torch.random.get_rng_state())
    first = next(iter(dataset.train_dataloader(seed=1)))[0]
    assert torch.equal(first, next(iter(dataset.train_dataloader(seed=1)))[0])
    with pytest.raises(ConfigError, match="unknown part"):
        dataset.split().loader("all")


def test_own_pipelines_are_fitted_in_each_fold():
    pipeline = PreprocessingPipeline([StandardScaler()])
    dataset = load_dataset("moons", n=200, pipeline=pipeline)
    splits = list(dataset.folds(3))
    assert not hasattr(pipeline, "space_")
    assert splits[0].pipeline is not splits[1].pipeline
    training = np.concatenate([splits[0].train.X, splits[0].valid.X])
    np.testing.assert_allclose(training.mean(0), 0, atol=1e-5)


def test_too_few_rows_for_the_folds(tmp_path):
    with pytest.raises(DataError, match=r"class .* has 2 rows"):
        tiny(tmp_path).split()
    with pytest.raises(ConfigError, match="two or more folds"):
        next(load_dataset("moons").folds(1))
    with pytest.raises(ConfigError, match="no fold 7"):
        load_dataset("moons").fold(7)
    assert load_dataset("moons").fold(3).fold == 3


def test_entry_points_may_bring_any_dataset():
    def factory(**options):
        return load_dataset("moons", **options)

    DATASETS.add("test-only", factory)
    try:
        assert len(load_dataset("test-only", n=20)) == 20
    finally:
        del DATASETS._items["test-only"]


def test_every_error_is_ours():
    assert issubclass(DataError, CelError)


# -- the known distribution -----------------------------------------------------------------


def test_mixed_density_integrates_to_one():
    people = MixedDistribution()
    states = people.states()
    assert len(states) == 168
    assert np.exp(states["log_prob"]).sum() == pytest.approx(1, abs=1e-12)
    state = states.iloc[[100]].reset_index(drop=True)
    grid = np.linspace(-8, 14, 300)
    income, savings = (g.ravel() for g in np.meshgrid(grid, grid))
    frame = pd.DataFrame({c: np.repeat(state[c].to_numpy(), len(income)) for c in state})
    frame = frame.assign(income=income, savings=savings)
    cell = (grid[1] - grid[0]) ** 2
    mass = np.exp(people.log_density(frame)).sum() * cell
    assert mass == pytest.approx(np.exp(state["log_prob"][0]), rel=1e-6)
    per_class = [np.exp(people.log_density(frame, y)).sum() * cell for y in (0, 1)]
    prior = people.class_prior()
    assert float(prior @ np.array(per_class)) == pytest.approx(mass, rel=1e-6)


def test_mixed_samples_follow_the_density():
    people = MixedDistribution()
    frame = people.sample(200_000, seed=3)
    prior = people.class_prior()
    assert prior.sum() == pytest.approx(1)
    assert frame["loan"].mean() == pytest.approx(prior[1], abs=0.005)
    assert people.probability(frame).mean() == pytest.approx(prior[1], abs=0.005)
    counts = frame.value_counts(["group", "job", "education", "children"], normalize=True)
    expected = people.states().set_index(counts.index.names)["log_prob"].map(np.exp)
    both = expected.to_frame("p").join(counts.rename("q")).fillna(0)
    assert np.abs(both["p"] - both["q"]).max() < 0.003
    # E[log p(x) - log p(x | y)] over p(x | y) p(y) is minus the mutual information of x and y.
    y = frame["loan"].to_numpy()
    gap = people.log_density(frame, y) - people.log_density(frame)
    p = people.probability(frame)
    entropy = -(p * np.log(p) + (1 - p) * np.log1p(-p)).mean()
    information = -(prior * np.log(prior)).sum() - entropy
    assert gap.mean() == pytest.approx(information, abs=0.01)


def test_mixed_refuses_unknown_values_and_impossible_ones():
    people = MixedDistribution()
    frame = people.sample(2, seed=0)
    assert np.isneginf(people.log_density(frame.assign(children=7))).all()
    with pytest.raises(DataError, match="'pilot'"):
        people.log_density(frame.assign(job="pilot"))
