"""`cel explain`: models and tables from files, in parts, all or nothing."""

import json
import sys

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.frontdoor.test_people import pipeline, table

import cel
from cel.cli import main
from cel.datasets.chunks import table_chunks
from cel.errors import ConfigError, DataError
from cel.result import ExplanationResult

MODULE = """
import numpy as np

def score(frame):
    p = 1 / (1 + np.exp(-(frame["income"] / 1000 - frame["debt"] / 2 - 2)))
    return np.stack([1 - p, p], 1)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models in files, tables and constraints."""
    import catboost
    import joblib
    import xgboost

    root = tmp_path_factory.mktemp("place")
    frame, y = table(200)
    model = pipeline(frame, y)
    joblib.dump(model, root / "model.joblib")
    numbers = frame.drop(columns="job")
    positions = (y == "granted").astype(int)
    small = {"n_estimators": 20, "max_depth": 3}
    xgboost.XGBClassifier(**small).fit(numbers, positions).save_model(root / "booster.json")
    cat = catboost.CatBoostClassifier(iterations=20, depth=3, verbose=False, train_dir=root / "c",
                                      allow_writing_files=False)  # fmt: skip
    cat.fit(frame, y, cat_features=["job"]).save_model(root / "model.cbm")
    train = frame.assign(outcome=y).reset_index(names="person")
    train.to_csv(root / "train.csv", index=False)
    train.drop(columns="job").to_csv(root / "numbers.csv", index=False)
    refused = train[model.predict(frame) == "refused"].drop(columns="outcome")
    refused.to_csv(root / "rows.csv", index=False)
    refused.drop(columns="job").to_csv(root / "rows_numbers.csv", index=False)
    refused.to_parquet(root / "rows.parquet", index=False)
    (root / "empty.csv").write_text("")
    (root / "scores.py").write_text(MODULE)
    (root / "broken.json").write_text("{}")
    (root / "broken.onnx").write_text("no")
    (root / "broken.skops").write_text("no")
    (root / "model.h5").write_text("no")
    (root / "folder").mkdir()
    return root, model, refused


@pytest.fixture
def run(place, monkeypatch, capsys):
    monkeypatch.chdir(place[0])
    monkeypatch.setenv("COLUMNS", "200")
    before = list(sys.path)

    def go(*arguments):
        monkeypatch.setattr(sys, "argv", ["cel", "explain", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out = capsys.readouterr()
        assert "Traceback" not in out.out + out.err
        return int(stop.value.code or 0), out.out + out.err

    yield go
    sys.path[:] = before


USUAL = ["--background", "train.csv", "--target", "granted", "--id", "person"]
PICKLE = ["--model", "model.joblib", "--allow-pickle", *USUAL]


def test_a_csv_file_becomes_a_csv_file_that_her_model_agrees_with(run, place):
    root, model, refused = place
    code, said = run(*PICKLE, "--data", "rows.csv", "--out", "out.csv", "--chunk", "7")
    assert code == 0, said
    assert "left out, only in the background: outcome" in said
    out = pd.read_csv(root / "out.csv")
    assert list(out.cel_row) == list(refused.person)
    assert (out.cel_status == "found").all()
    assert (model.predict(out[["income", "debt", "age", "job"]]) == "granted").all()
    assert out.cel_changes.str.contains(" from ").all()
    (root / "out.csv").unlink()


def test_parts_give_what_the_whole_gives(run, place):
    root = place[0]
    for chunk in ("7", "100000"):
        code, said = run(*PICKLE, "--data", "rows.parquet", "--out", f"o{chunk}.parquet",
                         "--chunk", chunk)  # fmt: skip
        assert code == 0, said
    parts, whole = (pd.read_parquet(root / f"o{c}.parquet") for c in ("7", "100000"))
    pd.testing.assert_frame_equal(parts, whole)
    assert pq.ParquetFile(root / "o7.parquet").num_row_groups > 1
    for chunk in ("7", "100000"):
        (root / f"o{chunk}.parquet").unlink()


def test_pages_documents_and_lines(run, place):
    root, _, refused = place
    for name in ("p.html", "d.json", "l.jsonl"):
        code, said = run(*PICKLE, "--data", "rows.csv", "--out", name)
        assert code == 0, said
    assert "What would have to change" in (root / "p.html").read_text()
    result = ExplanationResult.from_json((root / "d.json").read_text())
    assert list(result.source_ids) == list(refused.person)
    lines = [json.loads(x) for x in (root / "l.jsonl").read_text().splitlines()]
    assert len(lines) == len(refused)
    assert lines[0]["cel_sentence"].startswith(f"Row {refused.person.iloc[0]}: change ")
    for name in ("p.html", "d.json", "l.jsonl"):
        (root / name).unlink()


@pytest.mark.parametrize(
    "options",
    [
        ["--model", "model.cbm", "--data", "rows.csv", *USUAL],
        ["--model", "booster.json", "--data", "rows_numbers.csv", "--background", "numbers.csv",
         "--target", "1", "--id", "person"],
        ["--model", "scores:score", "--classes", "refused,granted", "--data", "rows.csv", *USUAL],
    ],
    ids=["catboost", "xgboost", "function"],
)  # fmt: skip
def test_kinds_of_models(run, place, options):
    code, said = run(*options, "--out", "out.csv")
    assert code == 0, said
    out = pd.read_csv(place[0] / "out.csv")
    assert set(out.cel_status) <= {"found", "not_applicable"}
    assert (out.cel_status == "found").any()
    (place[0] / "out.csv").unlink()


def test_a_skops_file(run, place):
    sio = pytest.importorskip("skops.io", reason="an extra")
    root, model, _ = place
    sio.dump(model, root / "model.skops")
    options = ["--model", "model.skops", "--data", "rows.csv", *USUAL, "--out", "out.csv"]
    code, said = run(*options)
    if code:  # a type of scikit-learn that skops does not know yet
        assert "not trusted: " in said
        types = said.split("not trusted: ")[1].split(";")[0].split(", ")
        code, said = run(*options, *[x for t in types for x in ("--trust", t)])
    assert code == 0, said
    (root / "out.csv").unlink()
    (root / "model.skops").unlink()


def test_an_onnx_file(run, place):
    pytest.importorskip("onnxruntime", reason="an extra")
    convert = pytest.importorskip("skl2onnx", reason="makes the file of this test")
    from skl2onnx.common.data_types import FloatTensorType
    from sklearn.linear_model import LogisticRegression

    root = place[0]
    frame, y = table(200)
    numbers = frame.drop(columns="job").astype(float)
    scale = numbers.std().to_numpy()
    model = LogisticRegression(max_iter=2000).fit(numbers.to_numpy() / scale, y == "granted")
    model.coef_ = model.coef_ / scale
    made = convert.convert_sklearn(model, initial_types=[("x", FloatTensorType([None, 3]))],
                                   options={"zipmap": False})  # fmt: skip
    (root / "model.onnx").write_bytes(made.SerializeToString())
    options = ["--model", "model.onnx", "--data", "rows_numbers.csv", "--background",
               "numbers.csv", "--id", "person", "--out", "out.csv"]  # fmt: skip
    code, said = run(*options, "--classes", "refused,granted", "--target", "granted")
    assert code == 0, said
    out = pd.read_csv(root / "out.csv")
    found = out[out.cel_status == "found"]
    assert len(found)
    assert model.predict(found[["income", "debt", "age"]].to_numpy(dtype=float)).all()
    (root / "out.csv").unlink()
    (root / "model.onnx").unlink()


WRONG = {
    "pickle": (["--model", "model.joblib", "--data", "rows.csv", *USUAL], "--allow-pickle"),
    "model": (["--model", "nosuch.skops", "--data", "rows.csv", *USUAL], "nosuch.skops"),
    "kind": (["--model", "model.h5", "--data", "rows.csv", *USUAL], "unknown kind of model"),
    "xgboost": (["--model", "broken.json", "--data", "rows.csv", *USUAL], "XGBoost"),
    "onnx": (["--model", "broken.onnx", "--data", "rows.csv", *USUAL], "onnx"),
    "skops": (["--model", "broken.skops", "--data", "rows.csv", *USUAL], "skops"),
    "module": (["--model", "nosuch:f", "--data", "rows.csv", *USUAL], "nosuch"),
    "attribute": (["--model", "scores:nope", "--data", "rows.csv", *USUAL], "nope"),
    "data": ([*PICKLE, "--data", "nosuch.csv"], "nosuch.csv"),
    "data-empty": ([*PICKLE, "--data", "empty.csv"], "empty.csv"),
    "data-kind": ([*PICKLE, "--data", "scores.py"], "unknown kind of table"),
    "target": ([*PICKLE[:-4], "--target", "grnted", "--data", "rows.csv"], "granted"),
    "id": ([*PICKLE[:-1], "nobody", "--data", "rows.csv"], "nobody"),
    "chunk": ([*PICKLE, "--data", "rows.csv", "--chunk", "0"], "chunk"),
    "n": ([*PICKLE, "--data", "rows.csv", "--n", "0"], "n is 0"),
    "method": ([*PICKLE, "--data", "rows.csv", "--method", "wachtr"], "wachter"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refusals_leave_nothing_behind(run, place, name):
    before = sorted(p.name for p in place[0].iterdir() if p.name != "__pycache__")
    options, words = WRONG[name]
    code, said = run(*options, "--out", "out.csv")
    assert code == 2, said
    assert words in said, said
    after = sorted(p.name for p in place[0].iterdir() if p.name != "__pycache__")
    assert after == before


@pytest.mark.parametrize("out", ["out.xlsx", "folder", "no/such/out.csv"])
def test_places_that_cannot_be_written(run, out):
    code, said = run(*PICKLE, "--data", "rows.csv", "--out", out)
    assert code == 2
    assert out in said


# -- tables in parts -------------------------------------------------------------------------


def test_batches_are_the_rows_in_order(place):
    root, model, refused = place
    frame, _ = table(200)
    explainer = cel.Explainer(model, frame, target="granted")
    sizes, labels = [], []
    for result in explainer.explain_batches(root / "rows.parquet", chunk=9):
        sizes.append(len(result))
        labels += list(result.source_ids)
        assert result.found.all()
    assert labels == list(range(len(refused)))
    assert max(sizes) == 9
    whole = explainer.explain(refused.drop(columns="person"))
    parts = pd.concat(r.to_frame() for r in explainer.explain_batches(
        refused.drop(columns="person"), chunk=9))  # fmt: skip
    pd.testing.assert_frame_equal(parts, whole.to_frame())


def test_a_csv_file_is_never_read_as_a_whole(tmp_path):
    import tracemalloc

    path, rng, peaks = tmp_path / "big.csv", np.random.default_rng(0), []
    for n in (10_000, 60_000):
        pd.DataFrame(rng.normal(size=(n, 8))).to_csv(path, index=False)
        tracemalloc.start()
        assert sum(len(part) for part in table_chunks(path, 1_000)) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0]


@pytest.mark.parametrize("chunk", [0, 2.5, True])
def test_nonsense_parts_are_refused(chunk):
    with pytest.raises(ConfigError, match="whole number of rows"):
        next(table_chunks(pd.DataFrame({"a": [1]}), chunk))


def test_tables_that_are_none(tmp_path):
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        next(table_chunks(tmp_path / "x.parquet"))
    with pytest.raises(DataError, match="expected tables"):
        next(table_chunks([1]))


def test_constraints_in_a_file_bind_and_wrong_ones_are_named(run, place):
    root, _, refused = place
    (root / "rules.yaml").write_text(
        "immutable: [age, job]\nincreasing: [income]\nranges:\n  debt: [0, null]\nmax_changes: 2\n"
    )
    call = [*PICKLE, "--data", "rows.csv", "--out", "bound.csv"]
    code, said = run(*call, "--constraints", "rules.yaml")
    assert code == 0, said
    out = pd.read_csv(root / "bound.csv")
    found = out[out.cel_status == "found"]
    before = refused.set_index("person").loc[found.cel_row]
    assert len(found) > 20
    for name in ("age", "job"):
        assert (found[name].to_numpy() == before[name].to_numpy()).all()
    assert (found.income.to_numpy() >= before.income.to_numpy()).all()
    assert (found.debt >= 0).all()
    moved = sum((found[n].to_numpy() != before[n].to_numpy()) for n in ("income", "debt"))
    assert moved.max() <= 2
    assert (moved == 2).any() or (found.debt.to_numpy() != before.debt.to_numpy()).any()
    (root / "wrong.yaml").write_text("immutable: [agee]\n")
    code, said = run(*call, "--constraints", "wrong.yaml")
    assert code != 0
    assert "agee" in said
    assert "age" in said.replace("agee", "")
    code, said = run(*call, "--constraints", "nowhere.yaml")
    assert code != 0
    assert "nowhere.yaml" in said
