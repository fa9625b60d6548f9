"""Wrong input is named, ends with the right exit code, and leaves nothing behind.

Every line of the tables below is a command that must fail. All of them run in one folder whose
contents are compared before and after.
"""

import io
import json
import shutil
import sys
from pathlib import Path

import pytest

from cel.cli import main

HELPERS = Path(__file__).parents[1] / "browser"
CSV = "age,income,job,y\n" + "".join(
    f"{20 + i},{1000 + 7 * i},{'abc'[i % 3]},{'no' if i % 2 else 'yes'}\n" for i in range(60)
)
CARD = """name: own
title: Own
task: classification
sources: [{files: [{path: own.csv}]}]
features:
  - {name: age, kind: integer, lower: 0, upper: 99}
  - {name: %s, kind: integer, lower: 0, upper: 9999}
drop: [job]
target: {columns: [y], classes: [{label: "no"}, {label: "yes"}]}
"""
SUITE = "name: mine\ndatasets: [moons]\nmethods: [sace]\n"

RUN = {  # options of `cel run smoke`: words of the answer
    "device": ("--device abacus", "abacus"),
    "device-empty": ("--device= ", "device"),
    "device-cuda": ("--device cuda", "no CUDA device"),
    "device-number": ("--device cuda:x", "cuda:x"),
    "gpu-search": ("--gpu-search", "add --device cuda"),
    "jobs-0": ("-j 0", "at least one worker"),
    "jobs-negative": ("-j -3", "at least one worker"),
    "jobs-word": ("-j many", "--jobs"),
    "shard-4/3": ("--shard 4/3", "4/3"),
    "shard-0/3": ("--shard 0/3", "0/3"),
    "shard-1/0": ("--shard 1/0", "1/0"),
    "shard-words": ("--shard a/b", "a/b"),
    "shard-number": ("--shard 3", "1/3"),
    "shard-three": ("--shard 1/2/3", "1/2/3"),
    "engine": ("--engine daks", "dask"),
    "address": ("--address tcp://x:1", "dask"),
    "dataset": ("-d nosuch", "nosuch"),
    "dataset-hint": ("-d monos", "moons"),
    "method": ("-m nosuch", "nosuch"),
    "method-hint": ("-m wachtr", "wachter"),
    "method-module": ("-m nosuch_module:Thing", "nosuch_module"),
    "method-attribute": ("-m json:Nope", "Nope"),
    "method-class": ("-m json:JSONDecoder", "JSONDecoder"),
    "method-colon": ("-m :", ":"),
    "model": ("--model nosuch", "nosuch"),
    "fold-9": ("--fold 9", "fold 9"),
    "fold-negative": ("--fold -1", "-1"),
    "fold-word": ("--fold x", "--fold"),
    "out-file": ("--out file.txt", "file.txt"),
    "out-below-file": ("--out file.txt/run", "file.txt"),
    "out-other": ("--out other", "not a CEL store"),
    "option": ("--foo", "--foo"),
    "set-plain": ("--set foo", "path=value"),
    "set-empty": ("--set =5", "path=value"),
}
SET = {  # --set of `cel run quick`: words of the answer
    "nosuch=1": "nosuch",
    "methods.nosuch.x=1": "nosuch",
    "methods.ppcef.alphaa=5": "alpha",
    "methods.ppcef.alpha=many": "many",
    "methods.ppcef.alpha=-5": "alpha",
    "methods.ppcef.alpha=null": "alpha",
    "methods.ppcef.alpha=[1]": "alpha",
    "methods.ppcef.quantile=7": "quantile",
    "methods.ppcef.steps=1.5": "steps",
    "methods.ppcef.steps=true": "steps",
    "methods.ppcef.gen_model=1": "gen_model",
    "methods.dice.method=xx": "method",
    "methods.glance.n_actions=0": "n_actions",
    "methods.glance.n_actions=two": "n_actions",
    "methods.sace.foo=1": "foo",
    "methods.sace.random_state=x": "random_state",
    "methods.tcrex.n_trees=0": "n_trees",
    "methods.ares.bins=1": "bins",
    "methods=5": "methods",
    "classifiers.mlp.foo=1": "foo",
    "classifiers.mlp.epochs=ten": "epochs",
    "classifiers.nosuch={}": "nosuch",
    "density.model=nosuch": "nosuch",
    'extra_metrics=["nosuch"]': "nosuch",
    "extra_metrics=5": "extra_metrics",
    "metrics=nosuch.yaml": "nosuch",
    "metric_params.lof.zzz=1": "zzz",
    "limits.time_s=abc": "time_s",
    "limits.time_s=-1": "time_s",
    "limits.memory_mb=0": "memory_mb",
    "limits.foo=1": "foo",
    "folds=7": "folds",
    "folds=[9]": "fold",
    "datasets=5": "datasets",
    'datasets=["nosuch"]': "nosuch",
    "target=maybe": "maybe",
    "binary=7": "binary",
    "seed=abc": "seed",
    "n_folds=0": "n_folds",
    "max_rows=-1": "max_rows",
    "name=../x": "name",
    "name=": "name",
}
COMMANDS = {  # whole commands: words of the answer
    "suite": ("run nosuch", "nosuch"),
    "suite-hint": ("run quikc", "quick"),
    "suite-missing": ("run", "suite"),
    "suite-empty": ("run suites/empty.yaml", "empty.yaml"),
    "suite-list": ("run suites/list.yaml", "list.yaml"),
    "suite-word": ("run suites/word.yaml", "word.yaml"),
    "suite-key": ("run suites/key.yaml", "mehtods"),
    "suite-twice": ("run suites/twice.yaml", "twice"),
    "suite-tab": ("run suites/tab.yaml", "tab.yaml"),
    "suite-bytes": ("run suites/bytes.yaml", "bytes.yaml"),
    "suite-deep": ("run suites/deep.yaml", "deep.yaml"),
    "suite-lacks": ("run suites/lacks.yaml", "methods"),
    "suite-nothing": ("run suites/nothing.yaml", "nothing"),
    "suite-folder": ("run suites", "suites"),
    "suite-card": ("run suites/card.yaml --out new", "incomee"),
    "suite-bad-param": ("run suites/param.yaml", "foo"),
    "status-missing": ("status nosuch", "nosuch"),
    "status-file": ("status file.txt", "file.txt"),
    "status-other": ("status other", "not a run"),
    "status-argument": ("status", "folder"),
    "clean-missing": ("clean nosuch --yes", "nosuch"),
    "clean-other": ("clean other --yes", "not a run"),
    "clean-unasked": ("clean good", ""),
    "export-kind": ("export good excel", "excel"),
    "export-hint": ("export good latx", "latex"),
    "export-folder": ("export good csv -o other", "other"),
    "export-nowhere": ("export good csv -o no/such/x.csv", "x.csv"),
    "export-missing": ("export nosuch csv", "nosuch"),
    "export-metric": ("export good latex --metric nosuch -o x.tex", "nosuch"),
    "export-empty": ("export unscored csv", "no scores yet"),
    "merge-nothing": ("merge nostoreA nostoreB --out m", "nostoreA"),
    "merge-one-missing": ("merge good nostoreB --out m", "nostoreB"),
    "merge-itself": ("merge good --out good", "good"),
    "merge-no-out": ("merge good", "--out"),
    "merge-no-source": ("merge --out m", "sources"),
    "merge-file": ("merge good --out file.txt", "file.txt"),
    "merge-other": ("merge good --out other", "other"),
    "merge-suites": ("merge good differing --out m", "another suite"),
    "compare-one": ("compare good", "cel compare"),
    "compare-missing": ("compare nostore --with papper", "nostore"),
    "compare-with": ("compare good --with papper", "paper"),
    "compare-by": ("compare good --with paper --by nosuch", "nosuch"),
    "compare-metric": ("compare good --with paper --metric nosuch", "nosuch"),
    "compare-verdict": ("compare good --with paper --verdict nosuch", "nosuch"),
    "compare-three": ("compare good good good", "cel compare"),
    "compare-empty": ("compare unscored --with paper", "no scores yet"),
    "report-missing": ("report nosuch", "nosuch"),
    "report-none": ("report", "cel report --shipped quick"),
    "report-shipped": ("report --shipped papper", "paper"),
    "report-both": ("report good --shipped quick", "--shipped"),
    "report-file": ("report file.txt", "file.txt"),
    "report-unscored": ("report unscored", "no scores yet"),
    "list-nothing": ("list nosuch", "nosuch"),
    "check-name": ("check nosuch", "nosuch"),
    "check-hint": ("check wachtr", "wachter"),
    "check-module": ("check nosuch_module:Thing", "nosuch_module"),
    "check-attribute": ("check json:Nope", "Nope"),
    "check-class": ("check json:JSONDecoder", "JSONDecoder"),
    "command": ("nosuch", "nosuch"),
    "root-option": ("--versionn", "--version"),
    "describe-name": ("data describe adlt", "adult"),
    "describe-missing": ("data describe nosuch.yaml", "nosuch.yaml"),
    "describe-deep": ("data describe suites/deep.yaml", "deep.yaml"),
    "describe-empty": ("data describe suites/empty.yaml", "empty.yaml"),
    "describe-misfit": ("data describe wrong.yaml", "incomee"),
    "verify-misfit": ("data verify wrong.yaml", "wrong"),
    "verify-missing": ("data verify lost.yaml", "missing"),
    "verify-name": ("data verify adlt", "adult"),
    "fetch-name": ("data fetch adlt", "adult"),
    "init-missing": ("data init nosuch.csv -t y", "nosuch.csv"),
    "init-folder": ("data init other -t y", "other"),
    "init-empty": ("data init csv/empty.csv -t y", "empty.csv"),
    "init-header": ("data init csv/header.csv -t y", "no rows"),
    "init-one-row": ("data init csv/one.csv -t y", "two are needed"),
    "init-twice": ("data init csv/twice.csv -t y", "'income'"),
    "init-nul": ("data init csv/nul.csv -t y", "NUL"),
    "init-word": ("data init csv/word.csv -t y", "12x"),
    "init-utf16": ("data init csv/utf16.csv -t y", "utf16.csv"),
    "init-no-target": ("data init own.csv -o new.yaml", "--target"),
    "init-target": ("data init own.csv -t yy -o new.yaml", "'y'"),
    "init-constant": ("data init csv/constant.csv -t y", "two are needed"),
    "init-exists": ("data init own.csv -t y -o wrong.yaml", "exists already"),
    "init-no-feature": ("data init csv/only.csv -t y", "feature"),
}
DAMAGE = {
    "emptied": b"",
    "garbled": b"\x80\x81{[",
    "cut": b'{"schema": 1, "na',
    "a list": b"[1, 2]",
    "a number": b"7",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a good run, damaged ones, files that are no runs, suites, cards and tables."""
    root = tmp_path_factory.mktemp("place")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HELPERS))
        import report_run

        small = {
            "datasets": ["wine"], "folds": [0], "classifiers": {"lr": {}},
            "methods": {"dice": {"method": "report_run:Local"}},
        }  # fmt: skip
        report_run.make_run(root / "good", rows=4, **small)
        report_run.make_run(root / "differing", rows=4, **small, seed=7)
        report_run.make_run(root / "unscored", rows=4, **small)
        shutil.rmtree(root / "unscored" / "objects")
        for name in ("store", "suite", "methods"):
            for how, data in DAMAGE.items():
                shutil.copytree(root / "good", root / f"{name} {how}")
                (root / f"{name} {how}" / f"{name}.json").write_bytes(data)
        _write_files(root)
        yield root
    sys.modules.pop("report_run", None)


def _write_files(root):
    (root / "file.txt").write_text("a file\n")
    (root / "other").mkdir()
    (root / "other" / "thesis.txt").write_text("mine\n")
    (root / "own.csv").write_text(CSV)
    (root / "wrong.yaml").write_text(CARD % "incomee")
    (root / "lost.yaml").write_text((CARD % "income").replace("own.csv", "lost.csv"))
    suites = root / "suites"
    suites.mkdir()
    texts = {
        "empty": "", "list": "- a\n- b\n", "word": "hello\n", "key": SUITE.replace("met", "meht"),
        "twice": SUITE + "name: again\n", "tab": "name:\tx\n\tdatasets: [moons]\n",
        "deep": "[" * 5000, "lacks": "name: mine\ndatasets: [moons]\n",
        "nothing": SUITE.replace("[moons]", "[diabetes]"),
        "card": SUITE.replace("[moons]", f"[{root / 'wrong.yaml'}]"),
        "param": "name: mine\ndatasets: [moons]\nmethods: {sace: {params: {foo: 1}}}\n",
    }  # fmt: skip
    texts["key"] = SUITE.replace("methods", "mehtods")
    for name, text in texts.items():
        (suites / f"{name}.yaml").write_text(text)
    (suites / "bytes.yaml").write_bytes(b"\x80\x81\x82")
    csv = root / "csv"
    csv.mkdir()
    header, *lines = CSV.splitlines(keepends=True)
    tables = {
        "empty": "", "header": header, "one": header + lines[0],
        "twice": CSV.replace("age,income", "income,income"),
        "nul": CSV.replace("25,", "2\x005,"), "word": CSV.replace(",1049,", ",12x,"),
        "constant": CSV.replace("yes", "no"),
        "only": "y\n" + "a\nb\n" * 20,
    }  # fmt: skip
    for name, text in tables.items():
        (csv / f"{name}.csv").write_text(text)
    (csv / "utf16.csv").write_bytes(CSV.encode("utf-16"))


@pytest.fixture
def cel(place, monkeypatch, capsys):
    """Run a command in the folder; check what every refusal has in common."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("CEL_CACHE", str(place.parent / "cache"))
    monkeypatch.delenv("CEL_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["cel", *arguments])
        before = _listing(place)
        with pytest.raises(SystemExit) as stop:
            main()
        out = capsys.readouterr()
        said = out.out + out.err
        assert "Traceback" not in said
        assert _listing(place) == before, "something was left behind"
        return int(stop.value.code or 0), said

    return run


def _listing(folder):
    return {
        str(p.relative_to(folder)): p.stat().st_size
        for p in folder.rglob("*")
        if p.is_file() or not any(p.iterdir())
    }


def _refused(code, said, words):
    assert code == 2, said
    assert words.lower() in said.lower(), said  # typer wrote arguments in capitals for a while


@pytest.mark.parametrize("name", RUN)
def test_options_of_a_run(cel, name):
    options, words = RUN[name]
    _refused(*cel("run", "smoke", *options.split()), words)


@pytest.mark.parametrize("setting", SET)
def test_settings_of_a_run(cel, setting):
    looking = ["--dry-run"] if len(setting) % 2 else []  # a dry run refuses the same
    _refused(*cel("run", "quick", *looking, "--set", setting), SET[setting])


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(cel, name):
    command, words = COMMANDS[name]
    code, said = cel(*command.split())
    if name == "clean-unasked":  # nobody answered the question
        assert code == 1, said
        return
    _refused(code, said, words)


READERS = ("status", "report", "export", "compare", "merge")
DAMAGED = [(c, f) for c in READERS for f in ("store", "suite")]
DAMAGED.append(("run", "store"))  # a run writes the suite again: tests/security/test_damage.py


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize(("command", "file"), DAMAGED)
def test_damaged_run_files_are_named(cel, command, file, how):
    folder = f"{file} {how}"
    rest = {"compare": ["--with", "paper"], "merge": ["--out", "m"]}.get(command, [])
    given = ["run", "smoke", "--out", folder] if command == "run" else [command, folder, *rest]
    code, said = cel(*given)
    assert code == 2, said
    assert folder in said
    assert f"{file}.json" in said or "not a run" in said


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("command", ["status", "compare"])
def test_methods_of_a_stranger_are_not_imported_to_be_described(cel, command, how):
    rest = ["--with", "paper"] if command == "compare" else []
    code, said = cel(command, f"methods {how}", *rest)
    assert code == 2, said
    assert "methods.json" in said
    assert "cel run" in said


def test_there_are_more_than_a_hundred():
    assert len(RUN) + len(SET) + len(COMMANDS) + 2 * 6 * len(DAMAGE) > 150


def test_what_is_right_is_not_refused(cel):
    code, said = cel("run", "quick", "--dry-run", "--json", "--set", "methods.ppcef.alpha=5")
    assert code == 0
    assert json.loads(said)["open"] > 10
    code, said = cel("status", "good", "--json")
    assert code == 0
    assert json.loads(said)["states"] == {"done": 1}
    assert cel("--version")[0] == 0
