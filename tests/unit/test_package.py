"""The package as users get it: quick to import, complete in its wheel, README that runs."""

import inspect
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

import cel

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", ["cel", "cel.benchmark", "cel.benchmark.hatched", "cel.cli"])
def test_import_is_light(module):
    code = (
        f"import {module}, sys\n"
        "print([m for m in ('torch', 'pandas', 'sklearn') if m in sys.modules])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("name", cel.__all__)
def test_public_names_resolve(name):
    assert getattr(cel, name) is not None


@pytest.mark.parametrize(
    "package", [p.parent for p in (ROOT / "src").rglob("__init__.py")
                if "__getattr__ = lazy_names(" in p.read_text()], ids=lambda p: p.name,
)  # fmt: skip
def test_late_names_are_no_modules(package):
    """A module that was imported would stand where the name is looked for."""
    found = import_module(".".join(package.relative_to(ROOT / "src").parts))
    late = inspect.getclosurevars(found.__getattr__).nonlocals["homes"]
    assert late
    modules = {p.stem for p in package.iterdir()}
    assert not modules & set(late)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'explian'"):
        _ = cel.explian


def _blocks():
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("number", range(len(_blocks())))
def test_readme_blocks_run(number, capsys):
    exec(compile(_blocks()[number], f"README block {number}", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("file", ["README.md", "pyproject.toml"])
def test_counts_are_those_of_the_registries(file):
    from cel.cf_methods import METHODS
    from cel.datasets import DATASETS

    text = (ROOT / file).read_text()
    assert {int(n) for n in re.findall(r"(\d+) methods", text)} == {len(METHODS)}
    for paper, ours in re.findall(r"(\d+) \+ (\d+) datasets", text):
        assert int(paper) + int(ours) == len(list(DATASETS))


def test_modules_stay_small():
    long = {
        str(p.relative_to(ROOT)): n
        for p in (ROOT / "src").rglob("*.py")
        if (n := len(p.read_text().splitlines())) > 400
    }
    assert long == {}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment that has the wheel and the packages it needs, but not this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    venv.create(folder / "env", with_pip=False)
    site = next((folder / "env" / "lib").glob("python*/site-packages"))
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    # A path file gives the other packages without the editable install, whose own path file
    # counts only in its own folder.
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "env" / "bin" / "python"


def _run(python, code, cwd):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("CEL_", "PYTHON"))}
    environment["CEL_CACHE"] = str(cwd / "cache")
    command = [str(python), "-c", code]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def test_the_wheel_has_everything(installed, tmp_path):
    where = _run(installed, "import cel; print(cel.__file__)", tmp_path)
    assert str(ROOT) not in where.stdout, where.stdout + where.stderr
    listed = _run(
        installed, "import sys; sys.argv = ['cel', 'data', 'list', '--json'];"
        "from cel.cli import main; main()", tmp_path,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    rows = {r["name"]: r for r in json.loads(listed.stdout)}
    embedded = ["moons", "blobs", "synthetic", "digits", "wine", "diabetes", "mixed",
                "causal_people"]  # fmt: skip
    assert len(rows) == 20
    assert {n for n, r in rows.items() if r["found"]} == set(embedded)
    code = f"import cel\nfor n in {embedded}: print(n, len(cel.load_dataset(n)))"
    loaded = _run(installed, code, tmp_path)
    assert loaded.stdout.split()[::2] == embedded, loaded.stderr
    other = _run(
        installed,
        "from cel.benchmark import load_suite, packaged_suites as p\n"
        "from cel.benchmark.side_by_side import paper_results\n"
        "print([load_suite(s).name for s in p()], len(paper_results()))",
        tmp_path,
    )
    assert "['causal', 'paper', 'quick', 'robust', 'smoke', 'standard'] 2790" in other.stdout, (
        other.stderr
    )


def test_file_and_class_names_have_one_meaning():
    """`base.py` is the base class of its package; NICE is a flow and a method in their papers."""
    root = Path(cel.__file__).parent
    files = Counter(p.name for p in root.rglob("*.py"))
    twice = {name for name, n in files.items() if n > 1} - {"__init__.py", "base.py"}
    assert not twice, f"files of the same name: {sorted(twice)}"
    defined = (re.findall(r"^class (\w+)", p.read_text(), re.M) for p in root.rglob("*.py"))
    classes = Counter(name for names in defined for name in names)
    assert {name for name, n in classes.items() if n > 1} == {"NICE"}
