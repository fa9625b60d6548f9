"""Commands on a stranger's run: clear lines and exit codes, nothing written through links."""

import csv
import json
import sys

import pytest

from cel.benchmark import Store, load_suite, make_plan
from cel.cli import main

LABELS = ["a[/red]", "=1+1", "<script>document.title=1</script>", "__proto__", "$x^2_{#}%&~"]
REASON = "\x1b]0;owned\x07[/red] boom \x1b[2J\u202e"


@pytest.fixture
def stranger(tmp_path):
    """A run with hostile labels: invented scores, one failure with a hostile reason."""
    methods = {n: {"method": "cadex", "params": {"random_state": i}} for i, n in enumerate(LABELS)}
    plan = make_plan(load_suite({
        "name": "stranger", "datasets": ["moons"], "folds": [0, 1], "classifiers": {"lr": {}},
        "methods": methods,
    }))  # fmt: skip
    store = Store(tmp_path / "run")
    store.write_json("suite.json", plan.suite.to_dict())
    store.write_json("methods.json", {n: f.to_dict() for n, f in plan.facts.items()})
    first, *others = plan.cells
    store.fail(first.score_key, {"status": "error", "reason": REASON})
    for cell in others:
        scores = {"success": 1.0, "coverage": 1.0, "sparsity": 0.5, "l2_hamming": 0.25, "lof": 1.5}
        document = {"rows": 4, "status": {"found": 4}, "scores": scores, "reasons": {}}
        with store.writing("score", cell.score_key, {"cel": "0.0.7"}) as folder:
            (folder / "scores.json").write_text(json.dumps(document))
            (folder / "times.json").write_text(json.dumps({"time_s": 1.0, "ms_per_row": 2.0}))
    return store.root


def cel(monkeypatch, capsys, *words):
    """Run a command in this process; return its exit code and what it said."""
    monkeypatch.setattr(sys, "argv", ["cel", *map(str, words)])
    monkeypatch.setenv("COLUMNS", "400")
    try:
        main()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    said = capsys.readouterr()
    return code, said.out + said.err


def test_status_shows_labels_and_reasons_as_text(stranger, monkeypatch, capsys):
    """D8 and raw escape codes: a MarkupError, and a terminal that did what a reason said."""
    code, said = cel(monkeypatch, capsys, "status", stranger)
    assert code == 0
    assert "a[/red]" in said
    assert "boom" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_export_writes_no_formulas_and_follows_no_links(stranger, monkeypatch, capsys, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name in ("scores.csv", "scores.tex", "scores.parquet"):
        (stranger / name).unlink(missing_ok=True)
        (stranger / name).symlink_to(victim)
    for kind in ("csv", "latex", "parquet"):
        code, _ = cel(monkeypatch, capsys, "export", stranger, kind)
        assert code == 0
    assert victim.read_text() == "mine"
    with (stranger / "scores.csv").open() as file:
        methods = {line["method"] for line in csv.DictReader(file)}
    assert "'=1+1" in methods
    assert not any(m.startswith(("=", "+", "-", "@")) for m in methods)


def test_the_report_is_written_beside_links_not_through_them(
    stranger, monkeypatch, capsys, tmp_path
):
    """D16: report/scores.csv was a link, and the file it pointed to was overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (stranger / "report").mkdir()
    (stranger / "report" / "scores.csv").symlink_to(victim)
    code, _ = cel(monkeypatch, capsys, "report", stranger)
    assert code == 0
    assert victim.read_text() == "mine"
    page = (stranger / "report" / "index.html").read_text()
    assert "<script>document.title" not in page
    assert "0.0.7" in page


def test_a_report_folder_that_is_a_link_is_refused(stranger, monkeypatch, capsys, tmp_path):
    (tmp_path / "else").mkdir()
    (stranger / "report").symlink_to(tmp_path / "else")
    code, said = cel(monkeypatch, capsys, "report", stranger)
    assert code == 2
    assert "is a link" in said
    assert list((tmp_path / "else").iterdir()) == []


def test_clean_of_a_link_and_of_failures(stranger, monkeypatch, capsys, tmp_path):
    (tmp_path / "link").symlink_to(stranger)
    code, said = cel(monkeypatch, capsys, "clean", tmp_path / "link", "--yes")
    assert code == 2
    assert "is a link" in said
    assert (stranger / "store.json").exists()
    code, _ = cel(monkeypatch, capsys, "clean", stranger, "--failures")
    assert code == 0
    assert not list((stranger / "failures").glob("*.json"))


@pytest.mark.parametrize(
    "words",
    [
        ("run", "smoke", "--out", "FILE"), ("status", "FILE"), ("report", "FILE"),
        ("status", "/proc"), ("data", "describe", "DEEP"), ("data", "fetch", "OUTSIDE"),
        ("run", "DEEP"), ("run", "BOMB", "--dry-run"), ("run", "NAMED", "--dry-run"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_one_line(words, monkeypatch, capsys, tmp_path):
    """M4 and the low ones: tracebacks of the system and of parsers."""
    files = {
        "FILE": "x",
        "DEEP": "[" * 5000,
        "BOMB": "".join(
            f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]\n" for i in range(9)
        ),
        "NAMED": "name: ../../../escaped\ndatasets: [moons]\nmethods: [cadex]\n",
        "OUTSIDE": "name: o\ntitle: O\ntask: regression\nsources: [{files: [{path: ../x.csv}]}]\n"
        "features: [{name: a, kind: continuous}]\ntarget: {columns: [y]}\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    given = [str(tmp_path / f"{w}.yaml") if w in files else w for w in words]
    monkeypatch.chdir(tmp_path)
    code, said = cel(monkeypatch, capsys, *given)
    assert code == 2
    assert "Traceback" not in said
    assert len([line for line in said.splitlines() if line.startswith("error:")]) == 1
    assert not (tmp_path.parent.parent / "escaped").exists()
