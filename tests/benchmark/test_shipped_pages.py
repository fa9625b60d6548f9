"""Pages whose every number comes from the shipped scores say what their scripts print."""

import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from scipy import stats

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["findings", "reproduction"])
def test_the_page_is_what_the_script_prints(name, monkeypatch):
    monkeypatch.setattr("sys.argv", [name])
    told = runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))["page"]()
    assert (ROOT / "docs" / f"{name}.md").read_text() == told, f"run benchmarks/{name}.py --write"


def test_the_example_equals_scipy_and_scikit_posthocs():
    """Numbers are read off the page, so the page has to say what other libraries compute."""
    page = (ROOT / "docs" / "findings.md").read_text()
    part = page.partition("## Check it")[2].partition("\n## ")[0]
    made = {}
    exec(re.search(r"```python\n(.*?)```", part, re.DOTALL)[1], made)
    (said,) = re.findall(r"gives p = (\S+), the first", part)
    assert made["p"] == pytest.approx(float(said), rel=1e-5)
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    table = pd.DataFrame(lines[2:], columns=lines[0]).set_index("dataset").astype(float)
    assert table.shape[0] >= 12
    flat = " ".join(part.split())
    (said,) = re.findall(r"columns gives p = (\S+)\.", flat)
    wanted = stats.friedmanchisquare(*table.to_numpy().T).pvalue
    assert wanted == pytest.approx(float(said), rel=1e-5)
    places = table.rank(axis=1).mean()
    told = dict(re.findall(r"(\w+) (\d+\.\d{3})[,;]", flat))
    assert {m: f"{v:.3f}" for m, v in places.items()} == told
    (apart,) = re.findall(r"more than (\S+) apart", flat)
    nemenyi = scikit_posthocs.posthoc_nemenyi_friedman(table.to_numpy()).to_numpy()
    gaps = np.abs(places.to_numpy()[:, None] - places.to_numpy()[None, :])
    off = ~np.eye(len(places), dtype=bool)
    assert np.array_equal((gaps > float(apart))[off], (nemenyi < 0.05)[off])


def test_a_verdict_needs_more_than_a_direction():
    script = runpy.run_path(str(ROOT / "benchmarks" / "findings.py"))
    sure = {"units": 13, "a": "x", "b": "y", "gap": 0.2, "holm": 0.01}
    told = lambda *lines: script["verdict"](pd.DataFrame(lines))  # noqa: E731
    assert told(sure, sure) == "**holds**"
    assert told(sure, sure | {"holm": 0.2}).startswith("open: 2 of 2")
    assert told(sure, sure | {"gap": -0.2}) == "**fails**: y before x"
    assert told(sure | {"gap": -0.2, "holm": 0.06}).startswith("open: 0 of 1")
    assert told(sure | {"units": 0}) == "no common cells"
