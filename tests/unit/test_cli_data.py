"""`cel data`: tables, JSON, errors in one line, and cards for own files."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from cel.cli import main
from cel.config import read_yaml
from cel.datasets import load_dataset

KEYS = {"name", "task", "rows", "categorical", "numerical", "classes", "label_shares", "found"}


@pytest.fixture
def cel(monkeypatch, capsys, tmp_path):
    """Return a function that runs `cel` and returns exit code, stdout and stderr."""
    monkeypatch.setenv("CEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CEL_DATA", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["cel", *arguments])
        with pytest.raises(SystemExit) as stop:
            main()
        out = capsys.readouterr()
        return int(stop.value.code or 0), out.out, out.err

    return run


@pytest.fixture
def csv(tmp_path):
    rng = np.random.default_rng(0)
    n = 60
    frame = pd.DataFrame(
        {
            "key": [f"row-{i}" for i in range(n)],
            "age": rng.integers(18, 80, n),
            "height": rng.normal(1.7, 0.1, n).round(2),
            "job": rng.choice(["none", "some", "no"], n),
            "member": rng.choice([True, False], n),
            "one": 1,
            "y": rng.choice(["good", "bad"], n),
        }
    )
    frame.loc[3, "height"] = np.nan
    path = tmp_path / "my.csv"
    frame.to_csv(path, index=False)
    return path


def test_list_without_files(cel):
    code, out, _ = cel("data", "list", "--json")
    rows = {r["name"]: r for r in json.loads(out)}
    assert code == 0
    assert len(rows) == 20
    assert all(set(r) >= KEYS for r in rows.values())
    found = {name for name, r in rows.items() if r["found"]}
    assert found == {
        "moons",
        "blobs",
        "synthetic",
        "digits",
        "wine",
        "diabetes",
        "mixed",
        "causal_people",
    }
    assert rows["adult"]["rows"] == 32561
    assert rows["scm20d"]["classes"] is None
    assert rows["wine"]["label_shares"]["1"] == pytest.approx(0.399, abs=1e-3)
    code, out, _ = cel("data", "list")
    assert code == 0
    assert "32,561" in out
    assert "cont. (16)" in out
    assert "CEL_DATA" in out


def test_list_loads_no_torch():
    code = (
        "import sys; sys.argv = ['cel', 'data', 'list', '--json']\n"
        "from cel.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_describe(cel, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # wherever the tests run
    code, out, _ = cel("data", "describe", "adult")
    assert code == 0
    assert "CC BY 4.0" in out
    assert "relationship in {Wife} -> sex in {Female}" in out
    assert "up only" in out
    assert "not to Never-married, Widowed" in out
    assert "Stray spaces" in out
    code, out, _ = cel("data", "describe", "heloc", "--json")
    answer = json.loads(out)
    assert answer["card"]["features"][0]["name"] == "ExternalRiskEstimate"
    assert set(answer) >= KEYS


def test_errors_are_one_red_line_and_exit_code_2(cel):
    code, out, err = cel("data", "describe", "adlt")
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("error: unknown dataset 'adlt'; did you mean 'adult'")


def test_fetch_of_generated_data_and_without_addresses(cel, tmp_path):
    code, out, _ = cel("data", "fetch", "moons")
    assert code == 0
    assert "needs no file" in out
    card = tmp_path / "own.yaml"
    card.write_text(
        "name: own\ntitle: Own\ntask: regression\nsources: [{files: [{path: own.csv}]}]\n"
        "features: [{name: x, kind: continuous}]\ntarget: {columns: [y]}\n"
    )
    code, _, err = cel("data", "fetch", str(card))
    assert code == 2
    assert "own.csv" in err
    assert "names no address" in err
    (tmp_path / "own.csv").write_text("x,y\n1,2\n2,3\n")
    code, out, _ = cel("data", "fetch", str(card))
    assert code == 0
    assert "own.csv" in out


def test_verify(cel, monkeypatch, tmp_path):
    code, out, _ = cel("data", "verify", "--json")
    status = {r["name"]: r["status"] for r in json.loads(out)}
    assert code == 0
    assert status["wine"] == "ok"
    assert status["yacht"] == "missing"
    wrong = tmp_path / "raw" / "yacht"
    wrong.mkdir(parents=True)
    (wrong / "yacht.csv").write_text("0,1\n1,2\n")
    monkeypatch.setenv("CEL_DATA", str(wrong.parent))
    code, out, err = cel("data", "verify")
    assert code == 2
    assert "yacht: wrong" in out
    assert "sha256" in out
    assert "wrong: yacht" in err


def test_init_writes_a_card_that_works(cel, csv, tmp_path):
    code, out, _ = cel("data", "init", str(csv), "--target", "y")
    assert code == 0
    assert "'key': dropped (60 different words, an id?)" in out
    assert "'one': dropped (1 different value)" in out
    assert "'age': integer" in out
    assert "1 rows with missing values are dropped" in out
    card = read_yaml(tmp_path / "my.yaml")
    kinds = {f["name"]: f["kind"] for f in card["features"]}
    assert kinds == {
        "age": "integer",
        "height": "continuous",
        "job": "categorical",
        "member": "categorical",
    }
    dataset = load_dataset(tmp_path / "my.yaml")
    assert len(dataset) == 59
    assert dataset.target.classes == ("bad", "good")
    assert dataset.raw_space["job"].categories == ("no", "none", "some")
    assert dataset.split().space.width == 1 + 1 + 3 + 2
    code, _, err = cel("data", "init", str(csv), "--target", "y")
    assert code == 2
    assert "exists already" in err


def test_init_guesses_regression_and_hints(cel, csv, tmp_path):
    other = str(tmp_path / "other.yaml")
    code, out, _ = cel("data", "init", str(csv), "-t", "height", "-o", other)
    assert code == 0
    assert "so regression" in out
    assert load_dataset(other).task == "regression"
    code, _, err = cel("data", "init", str(csv), "-t", "heigt", "-o", str(tmp_path / "c.yaml"))
    assert code == 2
    assert "did you mean 'height'" in err
    assert not (tmp_path / "c.yaml").exists()
    code, _, err = cel("data", "init", str(csv), "-t", "one", "-o", str(tmp_path / "c.yaml"))
    assert code == 2
    assert "two are needed" in err
    code, _, err = cel("data", "init", str(tmp_path / "no.csv"), "-t", "y")
    assert code == 2
    assert "no such file" in err
