"""benchmarks/suite_times.py: what a log says about the time of a run."""

import json
import runpy
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))  # as where the script is started
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "suite_times.py"))
sys.path.remove(str(ROOT / "benchmarks"))


def _stack(label, device):
    return {"event": "start", "kind": "stack", "label": label, "device": device}


def _start(kind, label):
    return {"event": "start", "kind": kind, "label": label}


def _end(kind, label):
    return {"event": kind, "label": label, "key": label}


ARGV = ["run", "tiny", "--out", "/secret/r", "-j", "2"]
RUN = [
    (0, {"event": "run", "suite": "tiny", "open": 3, "argv": ARGV}),
    (1, _stack("a: 2 of predictor", "cuda")), (1, _stack("b: 2 of predictor", "cpu")),
    (3, {"event": "stacked", "label": "a: 2 of predictor"}), (3, _start("train", "a/0/mlp")),
    (4, _start("cell", "a/0/mlp/x")),
    (5, {"event": "stacked", "label": "b: 2 of predictor"}), (5, _start("train", "b/0/mlp")),
    (5.5, _start("cell", "b/0/mlp/x")), (6, _end("done", "a/0/mlp/x")),
    (6, _start("cell", "a/0/mlp/y")), (6.5, _end("skip", "a/0/mlp/y")),
    (10, _end("done", "b/0/mlp/x")),
]  # fmt: skip
FINISHED = [(12, {"event": "finished", "seconds": 12.0})]
BEFORE = [(-50, {"event": "run", "suite": "tiny", "open": 1, "argv": []})]
AFTER = [(20, _start("cell", "a/0/mlp/z")), (50, _end("done", "a/0/mlp/z"))]


def _log(tmp_path, events):
    lines = [json.dumps({"time": 1000 + t, **e}) for t, e in events]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("before", [[], BEFORE])
@pytest.mark.parametrize(("end", "wall"), [([], None), (FINISHED, 12.0)])
@pytest.mark.parametrize("after", [[], AFTER])
def test_a_run_is_read_from_its_first_event_to_its_last_cell(tmp_path, before, end, wall, after):
    events = [*before, *RUN, *end, *after]
    run = SCRIPT["timeline"](_log(tmp_path, events) / "log.jsonl")
    assert (run.zero, run.suite, run.workers, run.cells) == (1000, "tiny", 2, 3)
    assert run.command == "cel run tiny -j 2"
    assert run.ended == {"done": 2, "skip": 1}
    assert (run.wall, run.last) == (wall, 10)
    spent = {k: sum(b - a for n, a, b in run.spans if n == k) for k, _, _ in run.spans}
    assert spent == {"device": 2, "core": 4, "explain": 8.5}


def test_a_block_without_stacks_trains_its_models_itself(tmp_path):
    stage = {"event": "stage", "label": "a/0/mlp", "borrowed": False}
    events = [
        (0, {"event": "run", "suite": "tiny", "open": 1, "argv": ARGV}),
        (1, _start("train", "a/0/mlp")), (3, {**stage, "stage": "predictor"}),
        (7, {**stage, "stage": "density"}), (8, _start("cell", "a/0/mlp/x")),
        (10, _end("done", "a/0/mlp/x")),
    ]  # fmt: skip
    run = SCRIPT["timeline"](_log(tmp_path, events) / "log.jsonl")
    assert run.spans == [
        ("core", 1, 3), ("core", 3, 7), ("explain", 7, 8), ("explain", 8, 10)
    ]  # fmt: skip


def test_workers_and_the_gpu_over_time(tmp_path):
    run = SCRIPT["timeline"](_log(tmp_path, RUN) / "log.jsonl")
    (tmp_path / "load").write_text("999 1.0 7, 4\n1001.5 1.0 50, 4\n1002.5 1.0 100, 4\nbroken\n")
    load = SCRIPT["read_load"](tmp_path / "load")
    lines = SCRIPT["over_time"](run, load)[2:]
    assert len(lines) == 10
    assert lines[0] == "| 0 | 1 | 0.0 | 0.0 | 0.0 | 2.0 |  |"
    assert lines[1] == "| 1 | 2 | 0.0 | 1.0 | 1.0 | 0.0 | 50 % |"
    assert lines[2] == "| 2 | 3 | 0.0 | 1.0 | 1.0 | 0.0 | 100 % |"
    assert lines[9] == "| 9 | 10 | 1.0 | 0.0 | 0.0 | 1.0 |  |"


def test_cpu_seconds_are_summed_by_line_and_by_dataset(tmp_path):
    lines = [("a", "x", 90.0), ("b", "x", 8.0), ("a", "y", 1.0), ("b", "y", 1.0), ("b", "z", 0.0)]
    table = pd.DataFrame(lines, columns=["dataset", "method", "value"]).assign(metric="time_cpu_s")
    other = table.assign(metric="time_s", value=1e6)
    total, by_line, by_dataset = SCRIPT["by_line"](pd.concat([table, other]))
    assert "100 over 5 cells" in total
    assert by_line == "By line: `x` 98, `y` 2; the other 1 together 0."
    assert by_dataset == "By dataset: `a` 91, `b` 9."


def test_the_text_stands_between_the_marks_of_its_suite(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nmore\n")
    SCRIPT["write"]("one", "paper", page)
    SCRIPT["write"]("two", "quick", page)
    before = page.read_text()
    assert before.startswith("# Page\n\nmore\n")
    SCRIPT["write"](r"three \1", "paper", page)
    assert page.read_text() == before.replace("one", r"three \1")
    assert before.count("suite times: quick -->") == 2


def _explained(label):
    return {"event": "stage", "stage": "explain", "label": label}


PARTS = [
    (0, {"event": "run", "suite": "tiny", "open": 3, "argv": ARGV}),
    (1, _stack("a: 2 of predictor", "cpu")),
    (3, {"event": "stacked", "label": "a: 2 of predictor"}), (3, _start("train", "a/0/mlp")),
    (4, _start("cell", "a/0/mlp/x")), (7, _explained("a/0/mlp/x")),
    (9, _end("done", "a/0/mlp/x")),
    (9, _start("cell", "a/0/mlp/y")),
    (9.5, {"event": "stage", "stage": "autoencoder", "label": "a/0/mlp"}),
    (11, _explained("a/0/mlp/y")), (11.5, _end("done", "a/0/mlp/y")),
    (11.5, _start("cell", "a/0/mlp/z")), (12, _end("skip", "a/0/mlp/z")),
]  # fmt: skip
CELLS = {"x": (0.5, 2.0, 2.5, 1.25), "y": (9.0, 1.0, 10.0, 10.0)}
"""Seconds of fits, of searches, of both, and of computing; the fit of y is of something shared."""


def test_seconds_of_workers_by_part_add_up(tmp_path):
    run = SCRIPT["timeline"](_log(tmp_path, PARTS) / "log.jsonl")
    names = ("time_fit_s", "time_explain_s", "time_s", "time_cpu_s")
    lines = [
        ("a", 0, "mlp", method, name, value)
        for method, values in CELLS.items()
        for name, value in zip(names, values, strict=True)
    ]
    columns = ["dataset", "fold", "model", "method", "metric", "value"]
    found = SCRIPT["parts"](run, pd.DataFrame(lines, columns=columns))
    assert {name: seconds for name, (seconds, _) in found.items()} == {
        "starting, until the first model or block": 2 * 1.0,
        "training on a core": 2.0,
        "training on the GPU": 0.0,
        "fits": 0.5 + 0.5,  # of y what there was time for
        "searches": 3.0,
        "around searches: forks, verification, files": 0.5,
        "references of the metrics": 1.5,
        "scoring": 1.0,
        "loading models, refusals": 1.0 + 0.5 + 0.5,
        "idle later": 24.0 - 13.0,
    }
    assert found["fits"][1] == 0.25 + 0.5
    assert found["searches"][1] == 1.0 + 1.0
    assert sum(seconds for seconds, _ in found.values()) == run.workers * run.last


def test_cpu_seconds_of_models_are_summed_by_stage(tmp_path):
    for stage, key, seconds in (
        ("density", "a", 2.0),
        ("density", "b", 3.4),
        ("predictor", "a", 1),
    ):
        place = tmp_path / "objects" / stage / key
        place.mkdir(parents=True)
        (place / "time.json").write_text(json.dumps({"seconds": 99.0, "cpu_seconds": seconds}))
    assert SCRIPT["by_model"](tmp_path) == [
        "CPU seconds of trained models: density 5, predictor 1."
    ]
    assert SCRIPT["by_model"](tmp_path / "objects") == []
