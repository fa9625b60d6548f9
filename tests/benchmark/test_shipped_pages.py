"""Pages whose every number comes from the shipped scores say what their scripts print."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["findings", "reproduction"])
def test_the_page_is_what_the_script_prints(name, monkeypatch):
    monkeypatch.setattr("sys.argv", [name])
    told = runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text() == told, f"run benchmarks/{name}.py --write"


def test_a_verdict_needs_more_than_a_direction():
    script = runpy.run_path(str(ROOT / "benchmarks" / "findings.py"))
    import pandas as pd

    sure = {"units": 13, "a": "x", "b": "y", "gap": 0.2, "holm": 0.01}
    told = lambda *lines: script["verdict"](pd.DataFrame(lines))  # noqa: E731
    assert told(sure, sure) == "**holds**"
    assert told(sure, sure | {"holm": 0.2}).startswith("open: 2 of 2")
    assert told(sure, sure | {"gap": -0.2}) == "**fails**: y before x"
    assert told(sure | {"gap": -0.2, "holm": 0.06}).startswith("open: 0 of 1")
    assert told(sure | {"units": 0}) == "no common cells"
