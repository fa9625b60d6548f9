"""Pages and examples for people: every block runs as printed, every named test exists."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cel.cli import main

ROOT = Path(__file__).parents[2]
PAGES = ["your_model", "reading_results", "groups_audit"]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_blocks_of_a_page_run_in_order(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf8")
    space = {}
    found = re.findall(r"^```(python|console)\n(.*?)^```", text, re.S | re.M)
    assert found
    for k, (kind, block) in enumerate(found):
        if kind == "python":
            exec(compile(block, f"{name} block {k}", "exec"), space)
            continue
        for line in block.splitlines():
            assert line.startswith("$ cel ")
            monkeypatch.setattr(sys, "argv", shlex.split(line[2:]))
            with pytest.raises(SystemExit) as stop:
                main()
            assert not stop.value.code, capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(path, tmp_path):
    """In a process of their own: an example may register a method."""
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    if path.stem == "researchers_method":
        assert done.stdout.startswith("0 checks failed")


def test_every_example_is_there():
    assert [p.stem for p in EXAMPLES] == [
        "boosted_audit", "credit_pipeline", "regression_interval", "researchers_method",
    ]  # fmt: skip


def test_each_complaint_names_a_test_that_exists():
    text = (ROOT / "docs" / "why.md").read_text(encoding="utf8")
    lines = re.findall(r"^\| (\d+) \|.*\| `([\w/]+\.py)::(\w+)` \|$", text, re.M)
    assert [int(n) for n, _, _ in lines] == list(range(1, 26))
    for _, path, name in lines:
        code = (ROOT / "tests" / path).read_text(encoding="utf8")
        assert re.search(rf"^def {name}\(", code, re.M), f"{path} has no {name}"


def test_pictures_are_small_and_there():
    for name in (*PAGES, "why"):
        text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf8")
        for picture in re.findall(r"!\[[^\]]*\]\((images/[^)]+)\)", text):
            assert (ROOT / "docs" / picture).stat().st_size < 60_000
