"""Where the time of a run went: wall time and its parts, cores and GPU over time, lines.

    python benchmarks/suite_times.py RUN [--load LOAD] [--write] [--name NAME]

RUN is a folder of `cel run`. Its log says when every stack, block and cell began and ended; of a
log with several runs the largest is taken, up to its last cell. LOAD is a file of lines of unix
time, load average, GPU percent and GPU MB, such as a loop over `nvidia-smi` leaves; lines outside
the run are passed over. `--write` puts the text between the marks of the suite, or of NAME, in
docs/performance.md, and adds marks at the end of the page where there are none. Without stacks
every block trains its models before its cells; that counts as training on a core.

Seconds of workers are told by part: what a fit, a search, the references of a block, scoring and
loading took by the clock, and of fits and searches how much was computing. What is between the
clock and computing is waiting for a core: more processes than cores, or two on one core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cel.benchmark.printed_values import paper_results
from marked import put_between

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
PARTS = 10  # of the run, in the table over time
FOLDERS = ("--out", "--store", "-o")
MODELS = ("predictor", "density")  # stages that a block needs before its cells
LARGE = 0.015  # share of the CPU seconds from which on a line is named


@dataclass
class Timeline:
    """What a log says of one run; times are seconds since its beginning.

    Attributes:
        zero: unix time of its beginning.
        suite: name of the suite.
        command: what was typed, without folders.
        workers: processes at once.
        cells: planned and open when it began.
        ended: how many cells have scores, were refused, failed.
        wall: until the tables were written; None where the log does not say.
        last: until the last cell.
        spans: (kind, start, end) of what workers did: device, core (stacks), explain.
        cells_spent: one line per cell with scores: dataset, fold, model, method, whether it is
            the first of its block, seconds until it was explained, and of scoring it.
    """

    zero: float
    suite: str
    command: str
    workers: int
    cells: int
    ended: dict[str, int]
    wall: float | None
    last: float
    spans: list[tuple[str, float, float]]
    cells_spent: pd.DataFrame


def read_events(path):
    """Return the events of the largest run in a log, without what follows its last cell."""
    events = [json.loads(line) for line in path.read_text(encoding="utf8").splitlines() if line]
    begins = [i for i, e in enumerate(events) if e["event"] == "run"]
    if not begins:
        raise SystemExit(f"{path} has no run in it")
    start = max(begins, key=lambda i: events[i]["open"])
    left, out, seen = events[start]["open"], [], set()
    for event in events[start:]:
        if event["event"] == "run" and event is not events[start]:
            break
        out.append(event)
        if event["event"] in ("done", "skip", "fail") and event["key"] not in seen:
            seen.add(event["key"])
        if len(seen) >= left and event["event"] == "finished":
            break
        if len(seen) >= left and event["event"] == "start":  # of something else in this folder
            return out[:-1]
    return out


def timeline(path):
    """Read what the workers did."""
    events = read_events(path)
    zero, argv = events[0]["time"], [*events[0].get("argv", []), ""]
    asked = [b for a, b in itertools.pairwise(argv) if a in ("-j", "--jobs")]
    begun, spans, prepared, ended, last = {}, [], set(), {}, 0.0
    stacked = any(e["event"] == "stacked" for e in events)
    for event in events:
        kind, label, now = event["event"], event.get("label", ""), event["time"] - zero
        if kind == "start":
            begun[event["kind"], label] = now, event.get("device", "")
            block = label.rpartition("/")[0]
            if event["kind"] == "cell" and block not in prepared:
                prepared.add(block)
                before = begun.get(("train", block))
                spans += [("explain", before[0], now)] if before else []
        elif kind == "stage" and event["stage"] in MODELS and not stacked:
            spans.append(("core", begun["train", label][0], now))
            begun["train", label] = now, ""
        elif kind == "stacked":
            since, device = begun["stack", label]
            spans.append(("core" if device == "cpu" else "device", since, now))
        elif kind in ("done", "skip", "fail"):
            ended[kind] = ended.get(kind, 0) + 1
            last = now
            if ("cell", label) in begun:
                spans.append(("explain", begun["cell", label][0], now))
    over = [e["seconds"] for e in events if e["event"] == "finished"]
    workers = int(asked[0]) if asked and asked[0].isdigit() else most_at_once(spans)
    return Timeline(
        zero, events[0]["suite"], command(argv), workers, events[0]["open"], ended,
        over[-1] if over else None, last, spans, cells_spent(events),
    )  # fmt: skip


def cells_spent(events):
    """Return what every cell took until it was explained, and then until it was scored."""
    begun, explained, first, lines = {}, {}, {}, []
    for event in events:
        kind, label, now = event["event"], event.get("label", ""), event["time"]
        if kind == "start" and event["kind"] == "cell":
            begun[label] = now
        elif kind == "stage" and event["stage"] == "autoencoder":  # trained or loaded until now
            begun |= {name: now for name in begun if name.startswith(f"{label}/")}
        elif kind == "stage" and event["stage"] == "explain":
            explained[label] = now
        elif kind == "done" and label in explained and label in begun:
            block = label.rpartition("/")[0]
            spent = explained[label] - begun[label], now - explained[label]
            dataset, fold, model, method = label.rsplit("/", 3)
            lines.append((dataset, int(fold), model, method, block not in first, *spent))
            first[block] = label
    names = ["dataset", "fold", "model", "method", "first", "explaining", "scoring"]
    return pd.DataFrame(lines, columns=names)


def parts(run, times):
    """Return {part: (seconds of workers, of them computing or None)}; they add up to all.

    Args:
        run: the timeline.
        times: long table of the times of cells, may be empty.
    """
    spent = {
        k: sum(b - a for n, a, b in run.spans if n == k) for k in ("device", "core", "explain")
    }
    begin = min((a for _, a, _ in run.spans), default=0.0)
    cells = run.cells_spent
    wide = times.pivot_table(
        index=["dataset", "fold", "model", "method"], columns="metric", values="value"
    )
    wide = wide.reindex(columns=["time_fit_s", "time_explain_s", "time_s", "time_cpu_s"])
    cells = cells.join(wide, on=["dataset", "fold", "model", "method"]).fillna(0.0)
    search = cells["time_explain_s"].clip(upper=cells["explaining"])
    # what a shared autoencoder took counts as a fit of every line that uses it, but was spent once
    fit = cells["time_fit_s"].clip(upper=cells["explaining"] - search)
    cpu = (
        (cells["time_cpu_s"] / cells["time_s"].where(cells["time_s"] > 0)).fillna(0).clip(upper=1)
    )
    usual = cells[~cells["first"]].groupby(["dataset"])["scoring"].mean()
    later = cells["dataset"].map(usual).fillna(0.0).clip(upper=cells["scoring"])
    references = (cells["scoring"] - later).where(cells["first"], 0.0)
    around = cells["explaining"] - search - fit
    out = {
        "starting, until the first model or block": (run.workers * begin, None),
        "training on a core": (spent["core"], None),
        "training on the GPU": (spent["device"], None),
        "fits": (fit.sum(), (fit * cpu).sum()),
        "searches": (search.sum(), (search * cpu).sum()),
        "around searches: forks, verification, files": (around.sum(), None),
        "references of the metrics": (references.sum(), None),
        "scoring": ((cells["scoring"] - references).sum(), None),
    }
    told = cells["explaining"].sum() + cells["scoring"].sum()
    out["loading models, refusals"] = (spent["explain"] - told, None)
    out["idle later"] = (run.workers * run.last - sum(v for v, _ in out.values()), None)
    return out


def parts_table(run, times):
    """Return the table of parts, with the seconds that each would take of the whole machine."""
    lines = [
        f"| worker seconds | sum | computing | seconds of {run.workers} workers |",
        "|---|---|---|---|",
    ]
    known = parts(run, times)
    for name, (seconds, cpu) in known.items():
        computing = "" if cpu is None else f"{cpu:,.0f}"
        lines.append(f"| {name} | {seconds:,.0f} | {computing} | {seconds / run.workers:.0f} |")
    lines.append(f"| all | {run.workers * run.last:,.0f} | | {run.last:.0f} |")
    waited = sum(seconds - cpu for seconds, cpu in known.values() if cpu is not None)
    floor = (sum(v for v, _ in known.values()) - waited - known["idle later"][0]) / run.workers
    floor -= known["starting, until the first model or block"][0] / run.workers
    told = (
        f"Fits and searches waited {waited:,.0f} s for a core. Without that, the start and idle "
        f"workers the same work takes {floor:,.0f} s."
    )
    return [*lines, "", told]


def command(argv):
    """Return what was typed, without folders, which say nothing to others.

    >>> command(["run", "quick", "--out", "here", "-j", "2"])
    'cel run quick -j 2'
    """
    kept, folder = [], False
    for word in argv:
        if not folder and word not in FOLDERS:
            kept.append(word)
        folder = word in FOLDERS
    return " ".join(["cel", *filter(None, kept)])


def most_at_once(spans):
    """Return how many workers were seen at once."""
    steps = sorted([(a, 1) for _, a, _ in spans] + [(b, -1) for _, _, b in spans])
    count = most = 0
    for _, step in steps:
        count += step
        most = max(most, count)
    return most


def share(spans, kind, start, end):
    """Return how many workers did this on average between two times."""
    spent = sum(max(0.0, min(b, end) - max(a, start)) for k, a, b in spans if k == kind)
    return spent / max(end - start, 1e-9)


def read_load(path):
    """Return unix times and the percent of the GPU."""
    out = []
    for line in path.read_text().splitlines():
        words = re.findall(r"[\d.]+", line)
        if len(words) >= 3:
            out.append((float(words[0]), float(words[2])))
    return out


def over_time(run, load):
    """Return the table over time."""
    lines = [
        "| from s | to s | workers explaining | training on a core | on the GPU | idle | GPU |",
        "|---|---|---|---|---|---|---|",
    ]
    edges = [run.last * i / PARTS for i in range(PARTS + 1)]
    for start, end in itertools.pairwise(edges):
        doing = [share(run.spans, kind, start, end) for kind in ("explain", "core", "device")]
        idle = max(0.0, run.workers - sum(doing))
        seen = [p for t, p in load if start <= t - run.zero < end]
        gpu = f"{sum(seen) / len(seen):.0f} %" if seen else ""
        told = " | ".join(f"{n:.1f}" for n in (*doing, idle))
        lines.append(f"| {start:.0f} | {end:.0f} | {told} | {gpu} |")
    return lines


def by_line(times):
    """Return sentences on the CPU seconds by line and by dataset."""
    cpu = times[times["metric"] == "time_cpu_s"]
    total = float(cpu["value"].sum())
    printed = cpu[cpu["method"].isin(paper_results()["our_method"])]["value"].sum()
    out = [
        f"CPU seconds of fits and searches: {total:,.0f} over {len(cpu):,} cells, "
        f"{printed:,.0f} of them for the lines that are printed in the paper."
    ]
    for column, word in (("method", "line"), ("dataset", "dataset")):
        sums = cpu.groupby(column)["value"].sum().sort_values(ascending=False)
        named = sums[sums >= LARGE * total]
        said = ", ".join(f"`{name}` {seconds:,.0f}" for name, seconds in named.items())
        rest = f"; the other {len(sums) - len(named)} together {sums[len(named) :].sum():,.0f}"
        out.append(f"By {word}: {said}{rest if len(sums) > len(named) else ''}.")
    return out


def text_of(folder, load):
    """Return the text of a run and the name of its suite."""
    run = timeline(folder / "log.jsonl")
    cells = [f"{run.cells:,} cells"]
    words = {"done": "scored", "skip": "not applicable", "fail": "failed"}
    cells += [f"{run.ended.get(kind, 0):,} {word}" for kind, word in words.items()]
    busy = {
        k: sum(b - a for n, a, b in run.spans if n == k) for k in ("explain", "core", "device")
    }
    trained = max((b for k, _, b in run.spans if k != "explain"), default=0.0)
    wall = "" if run.wall is None else f"wall time {run.wall:,.0f} s, "
    lines = [
        f"`{run.command}`{machine(folder)}: {', '.join(cells)}. {run.workers} workers; {wall}"
        f"the last cell after {run.last:,.0f} s, the last training after {trained:,.0f} s.",
        f"Seconds of workers: {busy['explain']:,.0f} explaining and scoring, {busy['core']:,.0f} "
        f"training on a core, {busy['device']:,.0f} training on the GPU; "
        f"{(sum(busy.values())) / max(run.workers * run.last, 1e-9):.0%} of all.",
        "",
        *over_time(run, load),
        "",
    ]
    if (folder / "times.parquet").exists():
        times = pd.read_parquet(folder / "times.parquet")
        lines += [*parts_table(run, times), "", *by_line(times), *by_model(folder)]
    return "\n".join(lines).rstrip(), run.suite


def by_model(folder):
    """Return a sentence on the CPU seconds of models that are kept in the folder of a run."""
    spent = {}
    for path in sorted(folder.glob("objects/*/*/time.json")):
        seconds = json.loads(path.read_text()).get("cpu_seconds", 0.0)
        stage = path.parts[-3]
        spent[stage] = spent.get(stage, 0.0) + seconds
    known = ", ".join(f"{stage} {seconds:,.0f}" for stage, seconds in spent.items())
    return [f"CPU seconds of trained models: {known}."] if known else []


def machine(folder):
    """Return the machine of a run in words."""
    path = folder / "environment.json"
    about = json.loads(path.read_text()) if path.exists() else {}
    return f" on {about['cores']} cores ({about['cpu']})" if {"cores", "cpu"} <= set(about) else ""


def write(text, suite, page=PAGE):
    """Put a text between the marks of a suite, which are added at the end if there are none."""
    name = f"suite times: {suite}"
    before = page.read_text(encoding="utf-8")
    if f"<!-- {name} -->" not in before:
        marks = f"<!-- {name} -->\n\n<!-- end of {name} -->"
        added = f"{before.rstrip()}\n\n### `{suite}`, where its time goes\n\n{marks}\n"
        page.write_text(added, encoding="utf-8")
    put_between(page, name, text)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--load", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--name")
    options = parser.parse_args()
    text, suite = text_of(options.run, read_load(options.load) if options.load else [])
    print(text)
    if options.write:
        write(text, options.name or suite)


if __name__ == "__main__":
    main()
