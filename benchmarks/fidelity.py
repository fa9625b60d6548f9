"""Run the fidelity tests and write docs/fidelity.md with the deviations that they measure.

    CEL_DATA=... OMP_NUM_THREADS=1 python benchmarks/fidelity.py [TESTS] [--from FILE] [--out FILE]

TESTS are folders or files, such as tests/methods/dice: only they are run, and the lines of all
other tests stay as the page has them. `--from` takes the results of an earlier
`pytest TESTS --junitxml FILE` instead.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
FOLDERS = [ROOT / "tests" / "methods", ROOT / "tests" / "oracles"]
PAGE = ROOT / "docs" / "fidelity.md"
WHAT = {
    "wachter": "Wachter", "artelt": "Artelt", "dice": "DiCE", "cchvae": "CCHVAE",
    "ppcef": "PPCEF", "cem": "CEM", "cegp": "CEGP", "cadex": "CADEX", "sace": "SACE",
    "cearm": "CEARM", "ares": "AReS", "globe_ce": "GLOBECE", "glance": "GLANCE",
    "tcrex": "TCREx", "nice": "NICE", "nearest": "NearestInstance",
    "growing_spheres": "GrowingSpheres", "face": "FACE", "actionable": "Actionable",
    "exact_relu": "ExactReLU", "moc": "MOC", "geco": "GeCo",
    "causal": "CausalRecourse",
    "cells": "CellSearch", "exact_tree": "ExactTree",
    "live_regions": "LiveRegions", "feature_tweak": "FeatureTweak", "focus": "FOCUS", "rbr": "RBR",
    "robust_nearest": "RobustNearest",
    "group_ppcef": "GroupPPCEF", "dicoflex": "DiCoFlex",
    "roar": "ROAR", "probe": "PROBE", "revise": "REVISE", "clue": "CLUE",
    "several_classes": "several classes: Wachter, CEM, CEGP",
    "gradient_methods_hard_cases": "hard cases: Wachter, CEM, CEGP, CADEX, PPCEF",
    "sampling_methods_hard_cases": "hard cases: Artelt, DiCE, CCHVAE, SACE, CEARM",
    "closed_forms": "closed forms", "densities": "densities", "dequantization": "dequantizers",
    "predictors": "predictors", "metrics_libraries": "metrics",
}  # fmt: skip
INTRO = """\
# How methods and models are checked

Every line is a test in `tests/methods/` or `tests/oracles/`, against a closed form, an exact solver, another library or an exhaustive search. Beside
these, one contract suite (`cel.testing`) runs over all methods: feasible, decodable, immutables equal bit for bit, found means
valid on the real model, same seed same bytes, a row alone equals the row in a batch, order does not matter, budgets are obeyed.

The *measured deviation* is the largest that the test saw, over all its rows and parameters; the test fails above the *limit*.
A deviation that has one allowed side (a cost above the optimum, a missing margin) is 0 on that side. "holds" marks tests of a
property that has no number. A *known gap* is a test that must fail as long as the gap is there. The page is written by
`python benchmarks/fidelity.py`, which runs the tests; the last digits differ between machines.

"""  # noqa: E501
TABLE = """\
## Every test

| what | statement | oracle | measured deviation | limit | file |
|---|---|---|---|---|---|
"""
SUMMARY = """\
## In short

| what | tests | with a number | deviations above half of their limit | known gaps |
|---|---|---|---|---|
"""


def listing() -> list[tuple[str, str, str, str]]:
    """Return (what, statement, file, test) of every test function, in the order of the page."""
    found = []
    for path in sorted(p for folder in FOLDERS for p in folder.rglob("test_*.py")):
        own = path.parent.parent == FOLDERS[0]
        subject = path.parent.name if own else re.sub(r"^test_(fidelity_)?", "", path.stem)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                words = ast.get_docstring(node) or node.name.removeprefix("test_").replace(
                    "_", " "
                )
                statement = words.splitlines()[0].rstrip(".").replace("|", "\\|")
                found.append((WHAT.get(subject, subject), statement, path.name, node.name))
    order = dict.fromkeys([*WHAT.values(), *(line[0] for line in found)])
    place = {what: i for i, what in enumerate(order)}
    return sorted(found, key=lambda line: (place[line[0]], line[2]))


def measured(results: Path) -> dict[tuple[str, str], dict[tuple, float]]:
    """Return the largest deviation for each (file, test) and (oracle, unit, limit, gap)."""
    tests: dict[tuple[str, str], dict[tuple, float]] = {}
    for case in ElementTree.parse(results).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            sys.exit(f"{case.get('classname')}.{case.get('name')} failed: no page is written")
        skipped = case.find("skipped")
        expected = skipped is not None and skipped.get("type") == "pytest.xfail"
        if skipped is not None and not expected:
            continue
        file = case.get("classname", "").split(".")[-1] + ".py"
        seen = tests.setdefault((file, case.get("name", "").split("[")[0]), {})
        for item in case.iter("property"):
            told = json.loads(item.get("value", ""))
            gap = skipped.get("message") if expected and told["value"] > told["limit"] else None
            key = (told["oracle"], told["unit"], told["limit"], gap)
            seen[key] = max(seen.get(key, 0.0), told["value"])
    return tests


def number(value: float) -> str:
    """Two digits, and exponents without zeros: 0.0012, 3.4e-6."""
    if value == 0 or value >= 1e-3:
        return f"{value:.2g}"
    return f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")


def cells(seen: dict[tuple, float] | None) -> tuple[str, ...]:
    """Return the columns oracle, measured deviation and limit."""
    if seen is None:
        return "", "not run", ""
    if not seen:
        return "", "holds", ""
    oracles, values, limits = [], [], []
    for (oracle, unit, limit, gap), value in seen.items():
        oracles.append(oracle)
        values.append(f"{number(value)} ({unit})" + (f", known gap: {gap}" if gap else ""))
        limits.append(number(limit))
    return tuple("<br>".join(c).replace("|", "\\|") for c in (oracles, values, limits))


def told(text: str) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """Return the columns oracle, deviation and limit of each (what, statement, file) of a page."""
    lines = [line.replace("\\|", "\0") for line in text.splitlines() if line.endswith(".py |")]
    rows = [[c.strip().replace("\0", "\\|") for c in line[1:-1].split("|")] for line in lines]
    return {(r[0], r[1], r[5]): tuple(r[2:5]) for r in rows}


def page(results: Path, before: str = "") -> str:
    """Return the page; what the results do not have stays as it was before."""
    tests, old = measured(results), told(before)
    lines = []
    for what, statement, file, test in listing():
        new = tests.get((file, test))
        kept = old.get((what, statement, file)) if new is None else None
        oracle, value, limit = kept or cells(new)
        lines.append(f"| {what} | {statement} | {oracle} | {value} | {limit} | {file} |\n")
    return INTRO + summary(lines) + TABLE + "".join(lines)


def summary(lines: list[str]) -> str:
    """Return one line per subject: how many tests, and how near they come to their limits."""
    counts: dict[str, list[int]] = {}
    for (what, _, _), (_, value, limit) in told("".join(lines)).items():
        pairs = list(zip(value.split("<br>"), limit.split("<br>"), strict=True)) if limit else []
        gaps = [v for v, _ in pairs if "known gap" in v]
        near = [v for v, most in pairs if v not in gaps and _near(v.split(" ")[0], most)]
        own = counts.setdefault(what, [0, 0, 0, 0])
        for i, n in enumerate((1, bool(pairs), len(near), len(gaps))):
            own[i] += n
    rows = [f"| {what} | {' | '.join(map(str, n))} |\n" for what, n in counts.items()]
    return SUMMARY + "".join(rows) + "\n"


def _near(value: str, limit: str) -> bool:
    return float(limit) > 0 and float(value) > float(limit) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tests", nargs="*", type=Path, default=FOLDERS)
    parser.add_argument("--from", dest="results", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = options.results or Path(folder) / "results.xml"
        if options.results is None:
            command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={results}"]
            subprocess.run([*command, *map(str, options.tests)], cwd=ROOT, check=True)
        before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
        options.out.write_text(page(results, before), encoding="utf-8")


if __name__ == "__main__":
    main()
