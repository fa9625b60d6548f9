"""Pages on extending and on suites: every console line works as printed, in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from cel.benchmark import Limits, Suite

ROOT = Path(__file__).parents[2]
EXTENDING = sorted((ROOT / "docs" / "extending").glob("*.md"))
PAGES = [*EXTENDING, ROOT / "docs" / "suite.md"]


def blocks(page, *languages):
    """Return the fenced blocks of a page in some languages."""
    kinds = "|".join(languages)
    return re.findall(rf"^```(?:{kinds})\n(.*?)^```", page.read_text(encoding="utf8"), re.S | re.M)


def files(page):
    """Return the files of a page: blocks whose first line is a comment with a file name."""
    named = [re.match(r"# (\w+\.(?:py|yaml))\n", b) for b in blocks(page, "python", "yaml")]
    assert all(named), f"{page.name}: every block of code begins with the name of its file"
    return {m.group(1): m.string for m in named}


def commands(page):
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines), lines
    return [line.removeprefix("$ ") for line in lines]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with `cel` and `python`: the package under test as a console script starts it."""
    folder = tmp_path_factory.mktemp("bin")
    cel = folder / "cel"
    cel.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {folder / "cel.py"} "$@"\n')
    (folder / "cel.py").write_text(
        "import sys\nsys.path.pop(0)\nfrom cel.cli import main\nsys.exit(main())\n"
    )
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    cel.chmod(0o755)
    python.chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_the_commands_of_a_page_work_as_printed(page, programs, tmp_path):
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf8")
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    assert commands(page)
    for command in commands(page):
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True,
            env=os.environ | {"PATH": path},
        )  # fmt: skip
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"$ {command}\n{said}"
        assert " failed" not in said or ", 0 failed" in said, f"$ {command}\n{said}"


def test_every_page_is_in_the_table():
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf8")
    assert set(re.findall(r"\(extending/(\w+)\.md\)", text)) == {p.stem for p in EXTENDING}


def test_examples_are_as_short_as_the_overview_says():
    lengths = {name: len(text.splitlines()) for p in PAGES for name, text in files(p).items()}
    assert lengths["shells.py"] < 60
    assert lengths["moves.py"] <= 62


def test_every_field_of_a_suite_has_a_line_with_its_default():
    text = (ROOT / "docs" / "suite.md").read_text(encoding="utf8")
    lines = re.findall(r"^\| `([\w.]+)` \|.*\| (.*?) ?\|$", text, re.M)
    named = [f.name for f in fields(Suite)] + [f"limits.{f.name}" for f in fields(Limits)]
    assert sorted(name for name, _ in lines) == sorted(named)
    suite = Suite(name="s", datasets=(), methods=())
    said = {
        k: yaml.safe_load(v.strip("`")) for k, v in lines if not v.startswith(("req", "seven"))
    }
    plain = json.loads(json.dumps(suite.to_dict()))
    plain |= {f"limits.{k}": v for k, v in plain.pop("limits").items()}
    del said["limits"]
    assert said == {k: plain[k] for k in said}
    assert len(suite.extra_metrics) == 7
