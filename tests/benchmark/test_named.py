"""Methods, models and metrics in files of the user: found when named, never otherwise."""

import os
import shutil
import subprocess
import sys

import pandas as pd
import pytest

from cel.benchmark import Suite, open_run
from cel.benchmark.named import import_folders, named_in
from cel.errors import ConfigError
from cel.registry import import_named, look_in

MINE = """
from torch import nn

from cel.cf_methods.local_methods import Wachter
from cel.metrics import metric
from cel.models import ClassifierPytorchMixin, PytorchBase


class Mine(Wachter):
    name = "my_wachter"


class Heir(Wachter):
    pass


class Net(ClassifierPytorchMixin, PytorchBase):
    name = "my_net"

    def _build(self, n_in, n_out):
        return nn.Sequential(nn.Linear(n_in, 8), nn.Tanh(), nn.Linear(8, n_out))


@metric("my_rise", better="none", rows="found", meaning="First column.", formula="x'_0 - x_0")
def rise(ev):
    return ev.cf[:, 0] - ev.x[:, 0]
"""
SUITE = """
name: own
datasets: [moons]
folds: [0]
classifiers: {"mine_all:Net": {epochs: 20}}
density: {model: gmm}
max_rows: 4
extra_metrics: ["mine_all:rise"]
methods: {mine: {method: "mine_all:Mine"}}
"""
STRANGER = """
open(r"{mark}", "a").write(__name__)
raise SystemExit("a stranger's file was imported")
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine_all.py").write_text(MINE)
    (tmp_path / "own.yaml").write_text(SUITE)
    return tmp_path


def cel(*arguments, folder):
    """Run the program as a console script does: the folder is not on the path by itself."""
    command = [sys.executable, "-P", "-c", "from cel.cli import main; main()"]
    return subprocess.run(
        [*command, *map(str, arguments)], cwd=folder, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A run of the suite in a folder that also holds files of a stranger."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "mine_all.py").write_text(MINE)
    (folder / "own.yaml").write_text(SUITE)
    for name in ("random", "statistics", "torch", "cel", "numbers", "yaml", "shells"):
        (folder / f"{name}.py").write_text(STRANGER.format(mark=folder / "imported"))
    done = cel("run", "own.yaml", folder=folder)
    assert "1 of 1 cells started, 1 have scores" in done.stdout, done.stdout + done.stderr
    return folder


@pytest.mark.slow
def test_a_suite_names_a_model_a_metric_and_a_method_of_the_folder(ran):
    scores = pd.read_parquet(ran / "runs" / "own" / "scores.parquet")
    assert set(scores["model"]) == {"mine_all:Net"}
    assert scores.set_index("metric")["value"].loc["my_rise"] == pytest.approx(0, abs=2)


@pytest.mark.slow
def test_files_that_nobody_named_are_not_imported(ran):
    """Names that Python, torch and CEL import themselves lie in the folder."""
    assert not (ran / "imported").exists(), (ran / "imported").read_text()


@pytest.mark.slow
def test_a_stored_model_of_the_folder_is_read_again(ran):
    """The model is in the store; a fresh worker makes only explanations and scores."""
    again = cel("run", "own.yaml", "--set", "max_rows=3", "-o", "runs/own", folder=ran)
    assert "1 of 1 cells started, 1 have scores" in again.stdout, again.stdout + again.stderr


@pytest.mark.slow
def test_a_run_is_read_where_its_files_are_not(ran):
    _, plan = open_run(ran / "runs" / "own")
    assert "mine_all" not in sys.modules
    assert [c.method.method for c in plan.cells] == ["mine_all:Mine"]


@pytest.mark.slow
def test_what_a_run_says_is_not_imported_from_the_folder(ran, tmp_path):
    """A run whose records lack a method is refused; reading it must not import anything."""
    shutil.copytree(ran / "runs" / "own", tmp_path / "run")
    (tmp_path / "run" / "methods.json").unlink()
    said = cel("status", tmp_path / "run", folder=ran)
    assert said.returncode == 2
    assert "does not describe 'mine_all:Mine', and reading a run imports nothing" in said.stderr


def test_the_module_form_of_the_program_leaves_the_folder_alone(folder):
    mark = folder / "imported"
    (folder / "mlxtend.py").write_text(STRANGER.format(mark=mark))
    (folder / "rich.py").write_text(STRANGER.format(mark=mark))
    done = subprocess.run(
        [sys.executable, "-m", "cel", "list", "suites"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert not mark.exists()


def test_the_label_is_the_name_of_the_class_if_it_has_its_own(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    suite = Suite.from_dict({"name": "s", "datasets": ["moons"], "methods": ["wachter"]})
    picked = suite.narrowed(methods=["mine_all:Mine", "mine_all:Heir", "wachter"]).methods
    assert [m.label for m in picked] == ["my_wachter", "heir", "wachter"]
    sys.modules.pop("mine_all")


def test_workers_are_told_where_the_files_are(folder, monkeypatch):
    package = folder / "mypack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("from mine_all import Heir\n")
    monkeypatch.syspath_prepend(str(folder))
    methods = {"a": {"method": "mypack.inner:Heir"}, "b": {"method": "wachter"}}
    suite = Suite.from_dict({"name": "s", "datasets": ["moons"], "methods": methods})
    assert list(named_in(suite)) == ["mypack.inner:Heir"]
    assert import_folders(suite) == [os.path.realpath(folder)]
    for name in ("mypack", "mypack.inner", "mine_all"):
        sys.modules.pop(name)


def test_a_folder_comes_after_everything_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    look_in(tmp_path)
    look_in(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    assert sys.path.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_file:Method", "go to the folder of no_such_file.py"),
        ("random:Method", r"'random' \(.*random.py\) has no 'Method'"),
        (":Method", "write it as module:attribute"),
        ("module:", "write it as module:attribute"),
    ],
)
def test_names_that_lead_nowhere_say_the_way_out(name, said):
    with pytest.raises(ConfigError, match=said):
        import_named(name, "method")


@pytest.mark.parametrize("what", ["methods", "classifiers", "extra_metrics"])
def test_a_named_thing_must_be_of_its_kind(what):
    wrong = {what: ["math:tau"] if what == "extra_metrics" else {"math:tau": {}}}
    values = {"name": "s", "datasets": ["moons"], "methods": ["wachter"], **wrong}
    with pytest.raises(ConfigError, match="'math:tau' is not a"):
        import_folders(Suite.from_dict(values))
