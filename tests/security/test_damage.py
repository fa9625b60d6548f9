"""Damaged and foreign stores, results and models: one error that names the file, or a repair."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import cel
from cel.benchmark import Store, collect, open_run, run
from cel.benchmark.score_tables import cell_table, versions_of
from cel.benchmark.side_by_side import compare_runs
from cel.errors import CelError, StoreError
from cel.models import MODELS, load_model
from cel.report import write_report
from cel.report.citation import citation
from cel.report.source import read_run
from cel.result import ExplanationResult

GARBAGE = ["", "null", "[]", "7", '"x"', "{", "\x00\xff", "[" * 100_000, '{"schema": "x"}', "{}"]


@pytest.fixture(scope="module")
def finished(suite, tmp_path_factory):
    """A small finished run, made once; tests work on copies."""
    folder = tmp_path_factory.mktemp("finished") / "r"
    summary = run(suite | {"methods": ["cadex", "wachter"]}, folder)
    assert summary.complete
    assert summary.done == 2
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "r")
    return tmp_path / "r"


def _look(folder):
    """Everything that reads a run."""
    store, plan = open_run(folder)
    cell_table(store, plan)
    table = collect(store, plan)
    compare_runs(table, table)
    return read_run(folder)


def _refusal(action):
    """The words of a StoreError or another error of ours; "" if there was none."""
    try:
        action()
    except CelError as error:
        return str(error) or "nothing"
    return ""


@pytest.mark.parametrize("name", ["suite.json", "store.json", "methods.json"])
@pytest.mark.parametrize("text", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_in_small_files_is_named(copy, name, text):
    """M3 and D12: JSONDecodeError, TypeError and AttributeError from status, report and run."""
    (copy / name).write_bytes(text.encode("latin-1"))
    said = _refusal(lambda: _look(copy))
    assert not said or name in said
    assert not said or any(w in said for w in ("remove", "cel run", "choose", "update"))


def test_a_run_repairs_its_small_files(copy, suite):
    """Docs promise it: damaged means computed again; here, written again."""
    before = (copy / "scores.parquet").read_bytes()
    for name in ("suite.json", "methods.json", "environment.json", "environments.json"):
        (copy / name).write_text("{")
    (copy / "scores.parquet").write_text("x")
    assert run(suite | {"methods": ["cadex", "wachter"]}, copy).ran == 0
    assert (copy / "scores.parquet").read_bytes() == before
    _look(copy)


@pytest.mark.parametrize("text", ['{"rows": 1', '{"rows": "x"}'])
def test_damaged_scores_are_missing_until_they_are_repaired(copy, suite, text):
    """D12: `cel status` and `cel report` died of a cut off scores.json."""
    before = (copy / "scores.parquet").read_bytes()
    (victim, *_) = (copy / "objects" / "score").glob("*/scores.json")
    victim.write_text(text)
    states = cell_table(*open_run(copy))
    assert sorted(states["state"]) == ["done", "missing"]
    assert states["reason"].str.contains("damaged").sum() == 1
    summary = run(suite | {"methods": ["cadex", "wachter"]}, copy)
    assert (summary.ran, summary.done) == (1, 2)
    assert (copy / "scores.parquet").read_bytes() == before


@pytest.mark.parametrize("text", GARBAGE)
def test_a_failure_of_any_shape_is_survived(copy, text):
    store, plan = open_run(copy)
    key = plan.cells[0].score_key
    shutil.rmtree(store.folder("score", key))
    store.fail(key, {"status": "error", "reason": "boom"})
    (copy / "failures" / f"{key}.json").write_bytes(text.encode("latin-1"))
    assert set(cell_table(store, plan)["state"]) == {"done", "missing"}


def test_reading_a_strangers_run_imports_nothing(copy, monkeypatch):
    """A run without methods.json imported the modules that its suite names."""
    suite = json.loads((copy / "suite.json").read_text())
    suite["methods"]["evil"] = {"method": "this:Zen"}
    (copy / "suite.json").write_text(json.dumps(suite))
    (copy / "methods.json").unlink()
    monkeypatch.delitem(__import__("sys").modules, "this", raising=False)
    with pytest.raises(StoreError, match="imports nothing"):
        open_run(copy)
    assert "this" not in __import__("sys").modules


def test_infinite_settings_reach_the_report(copy):
    """D9: `.inf` and `.nan` of a method ended the report with a ValueError."""
    suite = json.loads((copy / "suite.json").read_text())
    suite["metric_params"] = {"lof": {"a": float("inf"), "b": float("nan")}}
    (copy / "suite.json").write_text(json.dumps(suite))
    run_data = read_run(copy)
    from cel.report.html import page_html
    from cel.report.page_data import page_data
    from cel.report.paper_tables import paper_tables

    page = page_html(page_data(run_data, paper_tables(run_data.scores, run_data.cells)))
    assert '"a":"inf"' in page


def test_scores_remember_their_version_and_the_report_cites_all(copy, suite, monkeypatch):
    """D14: the last version that touched a folder was cited for every cell."""
    store, plan = open_run(copy)
    assert versions_of(store, plan) == {cel.__version__: 2}
    first = plan.cells[0].score_key
    shutil.rmtree(store.folder("score", first))
    made = store.folder("score", plan.cells[1].score_key)
    with store.writing("score", first, {"cel": "0.9.9"}) as folder:
        for name in ("scores.json", "times.json"):
            shutil.copyfile(made / name, folder / name)
    text = citation(read_run(copy))["bibtex"]
    assert "0.9.9" in text
    assert cel.__version__ in text


# -- results and models ----------------------------------------------------------------------


def _result(finished):
    (path, *_) = sorted((finished / "objects" / "explain").glob("*/result.parquet"))
    return path


def _rewritten(path, out, header=None, **columns):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    meta = json.loads(table.schema.metadata[b"cel"])
    text = json.dumps(meta | header if isinstance(header, dict) else meta)
    for name, values in columns.items():
        place = table.column_names.index(name)
        table = table.set_column(place, name, pa.array(values))
    pq.write_table(table.replace_schema_metadata({b"cel": text.encode()}), out)
    return out


def test_every_wrong_shape_of_a_result_is_a_store_error(finished, tmp_path):
    """KeyError, TypeError, AttributeError and RecursionError reached the user."""
    path, n = _result(finished), 4
    wrong = [
        {"header": {"version": 99}}, {"header": {"version": "x"}}, {"header": {"space": 7}},
        {"header": {"space": {"features": 3}}}, {"header": {"pipeline": [1]}},
        {"header": {"target": "x"}}, {"header": {"params": []}}, {"header": {"method": 7}},
        {"header": {"format": "other"}}, {"header": {"task": "x"}},
        {"status": ["<script>"] * n}, {"status": [7] * n}, {"x_cfs": [1.0] * n},
        {"y_origs": [99] * n}, {"y_cf_targets": [-5] * n}, {"y_origs": ["a"] * n},
        {"x_origs": [[1.0]] * n}, {"source_id": [None] * n, "y_cfs": [None] * n},
    ]  # fmt: skip
    for change in wrong:
        out = _rewritten(path, tmp_path / "x.parquet", **change)
        with pytest.raises(StoreError, match=r"x\.parquet"):
            ExplanationResult.from_parquet(out)


OPTIONAL = ("set_size", "sheet", "rows", "reasons", "bound", "proof")


def test_every_wrong_document_is_a_store_error(finished):
    good = json.loads(ExplanationResult.from_parquet(_result(finished)).to_json())
    ExplanationResult.from_json(json.dumps(good))
    texts = [json.dumps({k: v for k, v in good.items() if k != name}) for name in good
             if name not in OPTIONAL]  # fmt: skip
    texts += [json.dumps(good | {name: wrong}) for name in good for wrong in ("x", [[[]]], {})
              if name not in ("params", "seconds", "logs", "method", "source_ids", *OPTIONAL)
              or (name in ("params", "seconds", "logs") and wrong != {})]  # fmt: skip
    texts += ["", "null", "7", "[" * 100_000, '{"format": "cel.result"}']
    for text in texts:
        try:
            ExplanationResult.from_json(text)
        except StoreError:
            continue
        pytest.fail(f"accepted: {text[:200]}")


def test_a_small_file_cannot_announce_a_large_result(finished, tmp_path):
    """420 KB of parquet became 5.5 GB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    meta = pq.read_schema(_result(finished)).metadata
    flat = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(3 * 10**7, dtype=np.int8)), pa.array([0.5], type=pa.float32())
    ).cast(pa.float32())
    rows = pa.FixedSizeListArray.from_arrays(flat, 3000)
    names = [f"x{i}" for i in range(12)]
    table = pa.table(dict.fromkeys(names, rows)).replace_schema_metadata(meta)
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 2_000_000
    with pytest.raises(StoreError, match="announces 360,000,000 values"):
        ExplanationResult.from_parquet(tmp_path / "x.parquet")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    x = np.random.default_rng(0).random((60, 3)).astype(np.float32)
    y = (x[:, 0] > 0.5).astype(np.int64)
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    MODELS.get("mlp")(epochs=1).fit(x, y).save(path)
    return path


def _model(path, out, change):
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta = json.loads(file.metadata()["cel-model"])
    text = change if isinstance(change, str) else json.dumps(meta | change(meta))
    save_file(tensors, out, {"cel-model": text})
    return out


def _with(name, **values):
    return lambda meta: {name: {**meta[name], **values}}


WRONG_MODELS = {
    "deep": "[" * 100_000,
    "infinite version": lambda meta: {"version": float("inf")},
    "params as text": lambda meta: {"params": "x"},
    "state as text": lambda meta: {"state": "x"},
    "state of ours": _with("state", module_=3),
    "state that is a method": _with("state", predict=3),
    "huge layers": _with("params", hidden=[30_000, 30_000]),
    "huge input": lambda meta: {"n_features_in_": 10**9},
    "endless number": lambda meta: {"n_outputs_": 10**30},
    "another model": lambda meta: {"model": "os.system"},
    "no space": lambda meta: {"space": {"features": 7}},
}


@pytest.mark.parametrize("name", WRONG_MODELS)
def test_every_wrong_model_is_a_store_error_and_takes_no_memory(model_file, tmp_path, name):
    """2.6 to 3.4 GB were taken from header sizes; inf, deep JSON and text were raw errors."""
    out = _model(model_file, tmp_path / "x.safetensors", WRONG_MODELS[name])
    with pytest.raises(StoreError, match=r"x\.safetensors"):
        load_model(out)


def test_the_unchanged_model_loads(model_file, tmp_path):
    a = load_model(model_file)
    b = load_model(_model(model_file, tmp_path / "x.safetensors", lambda meta: {}))
    x = torch.rand(5, 3)
    assert torch.equal(a.logits(x), b.logits(x))


# -- fuzz ------------------------------------------------------------------------------------


def _harm(path, chance):
    """Do something random to a file."""
    data = path.read_bytes()
    kind = chance.randrange(7)
    at = chance.randrange(len(data) + 1)
    if kind == 0:
        path.write_bytes(data[:at])
    elif kind == 1:
        path.unlink()
    elif kind == 2:
        path.write_bytes(data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :])
    elif kind == 3:
        path.write_bytes(chance.randbytes(chance.randrange(200)))
    elif kind == 4:
        path.write_text(chance.choice(GARBAGE[:6]))
    elif kind == 5:
        path.unlink()
        path.symlink_to(path.parent.parent / "elsewhere")
    else:
        path.write_bytes(data + data[:at])


def _use(folder, other):
    """Read a run and merge it into another."""
    store, plan = open_run(folder)
    assert len(cell_table(store, plan)) == 2
    collect(store, plan)
    Store(other).merge(store)


def _fuzz(finished, suite, folder, count, seed, every):
    """Harm a copy of a run `count` times; every so often let `cel run` repair it."""
    chance = random.Random(seed)
    outside = folder / "precious"
    outside.mkdir()
    (outside / "status.json").write_text('{"files": {}}')
    (outside / "thesis.tex").write_text("years")
    methods = suite | {"methods": ["cadex", "wachter"]}
    wanted = (finished / "scores.parquet").read_bytes()
    files = sorted(p.relative_to(finished) for p in finished.rglob("*") if p.is_file())
    repaired = 0
    for i in range(count):
        work = folder / "work"
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(finished, work)
        victim = chance.choice(files)
        _harm(work / victim, chance)
        assert _refusal(lambda work=work, i=i: _use(work, folder / f"m{i}")) != "nothing"
        if i % every == 0 and victim.name != "store.json":
            repaired += 1
            said = _refusal(lambda work=work: run(methods, work))
            assert not said or "link" in said
            assert said or (work / "scores.parquet").read_bytes() == wanted
        shutil.rmtree(folder / f"m{i}", ignore_errors=True)
        assert (outside / "thesis.tex").read_text() == "years"
        assert len(list(outside.iterdir())) == 2
    return repaired


def test_random_damage(finished, suite, tmp_path):
    """Any file of a run harmed at random: never a traceback, another result or a loss outside."""
    assert _fuzz(finished, suite, tmp_path, 24, seed=0, every=8) > 0


@pytest.mark.slow
def test_random_damage_for_long(finished, suite, tmp_path):
    assert _fuzz(finished, suite, tmp_path, 1000, seed=1, every=25) > 10


def test_the_report_of_a_damaged_run_is_written_whole_or_not_at_all(copy, monkeypatch):
    """A full disk left half an index.html."""
    write_report(copy, baselines=False)
    page = copy / "report" / "index.html"
    before = page.read_bytes()

    def full(self, data):
        with self.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        write_report(copy, baselines=False)
    assert page.read_bytes() == before
    assert [p.name for p in (copy / "report").iterdir() if p.name.startswith(".")] == []
