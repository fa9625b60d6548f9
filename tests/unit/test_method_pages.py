"""docs/methods.md: every registered method has its section, its picture and its measured times."""

from __future__ import annotations

import re
import runpy
import struct
from pathlib import Path

import pytest

from cel.cf_methods import METHODS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^### [^\n]*\(`(\w+)`[^\n]*\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(PAGE))


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(str(ROOT / "benchmarks" / "names.py"))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_section_that_says_when_to_use_it(name):
    section = SECTIONS[name]
    for said in ("*Idea.*", "*Use it*", "*Do not", "*Cost:*"):
        assert said in section.replace("\n", " "), f"{name}: no {said}"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_has_a_small_picture(name):
    assert f"](images/methods/{name}.png)" in SECTIONS[name]
    picture = (ROOT / "docs" / "images" / "methods" / f"{name}.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture[16:24]) == (420, 315)
    assert len(picture) < 25_000


def test_pictures_and_times_are_those_of_the_script(script):
    assert script["with_blocks"](PAGE) == PAGE
    assert set(script["SKETCHES"]) == set(METHODS)


def test_no_picture_is_left_over():
    files = {p.stem for p in (ROOT / "docs" / "images" / "methods").glob("*")}
    assert files == set(METHODS)
