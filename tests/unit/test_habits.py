"""What keeps the house in order: lint of the page, lowest versions, workflow, citation, site."""

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import cel

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")


def load(path):
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lint(root):
    command = [NODE, "--expose-internals", root / "tools" / "check_page.js"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def page(tmp_path):
    """A copy of what the lint reads, to be broken."""
    for name in ("tools", "src/cel/report"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    return tmp_path


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_scripts_of_the_report_are_clean():
    said = lint(ROOT)
    assert said.returncode == 0, said.stderr


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("added", "complaint"),
    [
        ("const q = [1, 2;", "Unexpected token"),
        ("document.title = nowhere;", "nobody declares nowhere"),
        ("document.title = String(({ a: 1 }).a) + b;", "nobody declares b"),
        ("function lonely() { return 1; }", "lonely is never used"),
        ("document.onclick = () => { const idle = 1; };", "idle is never used"),
        ("document.onclick = () => { var old = 1; return old; };", "use const or let"),
        ("if (document.title == 'x') document.title = 'y';", "use === instead of =="),
        ("document.body.innerHTML = 'x';", "innerHTML takes text for markup"),
        ("console.log('x');", "console.log"),
        ("eval('1');", "eval"),
    ],
)
def test_the_lint_of_the_page_can_fail(page, added, complaint):
    script = page / "src" / "cel" / "report" / "assets" / "main.js"
    line = len(script.read_text().splitlines()) + 1
    script.write_text(script.read_text() + added + "\n")
    said = lint(page)
    assert said.returncode == 1
    assert f"main.js:{line}: " in said.stderr
    assert complaint in said.stderr


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_scripts_share_one_scope_and_each_belongs_to_the_page(page):
    assets = page / "src" / "cel" / "report" / "assets"
    first = re.search(r"^function (\w+)", (assets / "core.js").read_text(), re.M).group(1)
    with open(assets / "main.js", "a") as script:
        script.write(f"function {first}() {{ return {first}; }}\n")
    (assets / "forgotten.js").write_text("")
    said = lint(page)
    assert f"{first} is also declared in core.js" in said.stderr
    assert "forgotten.js: html.py does not include it" in said.stderr


def test_every_lower_bound_is_declared_and_printed():
    lowest = load(ROOT / "tools" / "lowest.py")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = lowest.lowest(project)
    assert {"numpy", "scipy", "typer", "matplotlib", "cvxpy", "botorch", "dask"} <= set(found)
    assert "torch" not in found
    pinned = dict(
        line.lower().split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()
    )
    for name, version in found.items():
        assert _numbers(version) <= _numbers(pinned[name.lower()]), name


def _numbers(version):
    return [int(n) for n in re.findall(r"\d+", version)]


def test_every_tool_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.M)
    known = {re.sub(r"[-_.]+", "-", n).lower() for n in pinned}
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(d for e in ("all", "docs", "dev") for d in extras[e])]
    names = {re.match(r"[\w.-]+", d).group().lower().replace("_", "-") for d in declared}
    assert names - known - {"ce-library"} == set()


def test_pythons_of_classifiers_and_workflow_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = [c.rpartition(" ")[2] for c in project["classifiers"] if "Python :: 3." in c]
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert workflow["jobs"]["test"]["strategy"]["matrix"]["python"] == said
    assert project["requires-python"] == f">={said[0]}"


def test_ci_and_hooks_call_what_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    called = re.findall(r"\bmake ([\w-]+)", workflow + hooks)
    assert {"lint", "test", "docs", "lowest", "mutants", "lint-page"} <= set(called) <= targets
    for hook in yaml.safe_load(hooks)["repos"][0]["hooks"]:
        program = hook["entry"].split()[0]
        assert program == "make" or (ROOT / "Makefile").read_text().count(Path(program).name)


def test_the_benchmark_installs_extras_that_exist_and_no_tools():
    makefile = (ROOT / "Makefile").read_text()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    (chosen,) = re.findall(r"^BENCH_EXTRAS := (\S+)$", makefile, re.M)
    assert set(chosen.split(",")) <= set(extras) - {"dev", "docs", "baselines"}
    assert "report" in chosen  # `make bench` draws its figures


def test_the_citation_names_the_authors_and_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    assert citation["version"] == cel.__version__
    authors = citation["preferred-citation"]["authors"]
    assert [a["family-names"] for a in authors] == ["Furman", "Lenkiewicz", "Musiałek", "Zięba"]


def test_every_page_has_its_place_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = re.findall(r"(?:: |- )([\w/]+\.md)$", text, re.M)
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md")}
    assert set(listed) == pages
    assert len(listed) == len(set(listed))


def test_the_first_page_runs():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "found" in done.stdout
