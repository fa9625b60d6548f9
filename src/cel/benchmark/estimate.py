"""How long a run will take: by stage and method, from what was measured before."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from cel.benchmark.gpu_places import FASTER
from cel.benchmark.plan import Block, Cell, Plan
from cel.benchmark.shelf import AUTOENCODER, JUDGE
from cel.benchmark.shipped import shipped_table
from cel.benchmark.spec import Suite
from cel.benchmark.stages import model_folder, model_key, model_stages
from cel.benchmark.store import Store
from cel.benchmark.tasks import WorkItem
from cel.paths import MAX_JSON, is_plain_file, read_bytes

__all__ = [
    "BlockCost",
    "BlockName",
    "Estimate",
    "block_costs",
    "cell_seconds",
    "estimate",
    "largest_first",
    "trains_as_measured",
]

BlockName = tuple[str, int, str]  # dataset, fold, model

_FOLDER = Path(str(resources.files("cel.benchmark")))
LINEAR = ("lr", "linear")  # trained in a fraction of a second
METHOD_S = 2.0  # of a method that nobody has measured, on a dataset that nobody has measured


@dataclass
class Estimate:
    """Seconds of one core for the open cells of a plan.

    Attributes:
        stages: seconds by stage: predictor, density, judge, autoencoder, explain, score.
        methods: seconds of explaining by label.
        datasets: seconds of all stages by dataset.
        blocks: seconds of every block with open cells.
        guessed: datasets or methods for which nothing was measured.
    """

    stages: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    methods: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    datasets: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    blocks: list[float] = field(default_factory=list)
    guessed: set[str] = field(default_factory=set)

    @property
    def seconds(self) -> float:
        """Seconds of one core."""
        return sum(self.stages.values())

    def wall(self, jobs: int) -> float:
        """Seconds until `jobs` workers are done; a block is never divided.

        >>> made = Estimate(stages={"explain": 9.0}, blocks=[5.0, 2.0, 2.0])
        >>> made.wall(1), made.wall(2), made.wall(8)
        (9.0, 5.0, 5.0)
        """
        ends = [0.0] * max(1, jobs)
        for seconds in sorted(self.blocks, reverse=True):
            ends.sort()
            ends[0] += seconds
        return max(ends)


def estimate(plan: Plan, store: Store | None, shelf: Store | None = None) -> Estimate:
    """Estimate the open cells of a plan.

    A cell takes what the same method took in this store on the same dataset, nothing where it is
    known to be refused, else what the shipped scores say of it there, else its mean over the
    datasets where it was measured, scaled by the number of rows. Training takes what the packaged
    table says, judges and autoencoders included, and nothing where the store, or the shelf of
    models that runs share, has the model. An autoencoder is counted once for all cells that share
    it.
    """
    known, made = _Known(store, shelf, plan.suite.name), Estimate()
    for block, spent in _spent(plan, store, known, made):
        for stage, seconds in spent.items():
            made.stages[stage] += seconds
        made.datasets[block.dataset] += sum(spent.values())
        made.blocks.append(sum(spent.values()))
    return made


def _spent(
    plan: Plan, store: Store | None, known: _Known, made: Estimate
) -> Iterator[tuple[Block, dict[str, float]]]:
    """Give every block with open cells and its seconds by stage; note methods in `made`."""
    shared: set[str] = set()
    stages = model_stages(plan.suite)
    for block in plan.blocks:
        cells = [c for c in block.cells if store is None or not store.has("score", c.score_key)]
        if not cells:
            continue
        spent: dict[str, float] = defaultdict(float)
        codes = {c.autoencoder_key for c in cells if c.autoencoder_key is not None} - shared
        shared |= codes
        for stage in [*stages, *(AUTOENCODER + key for key in sorted(codes))]:
            spent[model_folder(stage)] += known.training(plan.suite, stage, block, made)
        spent["score"] = known.scoring(block.dataset, len(cells), len(plan.suite.judges))
        spent["explain"] = 0.0
        for cell in cells:
            seconds = known.method(cell, plan.suite.max_rows, made)
            made.methods[cell.method.label] += seconds
            spent["explain"] += seconds
        yield block, spent


@dataclass(frozen=True)
class BlockCost:
    """Seconds of one core for a block: for its models, and for the cells that wait for them."""

    training: float
    explaining: float


def block_costs(plan: Plan, store: Store) -> dict[BlockName, BlockCost]:
    """Estimate every block with open cells, by dataset, fold and model."""
    out = {}
    for block, spent in _spent(plan, store, _Known(store, None, plan.suite.name), Estimate()):
        after = spent["explain"] + spent["score"]
        cost = BlockCost(sum(spent.values()) - after, after)
        out[block.dataset, block.fold, block.model] = cost
    return out


def trains_as_measured(suite: Suite, dataset: str) -> bool:
    """Tell whether the table of training times was measured with models like those of a suite.

    A model of the user's own, or settings beyond those that were measured, may take any time.
    """
    table = _timings()
    given = [*suite.classifiers.items(), *suite.regressors.items()]
    own = any(":" in name for name, _ in given)
    flows = [
        d
        for d in (suite.density, *suite.judges.values())
        if d.get("model", "flow") not in table["closed"]
    ]
    plain = all(_as_measured(s, table) for s in [*(s for _, s in given), *flows])
    return dataset in table["density"] and plain and not own


def _as_measured(settings: Mapping[str, Any], table: Mapping[str, Any]) -> bool:
    """Tell whether a model has no settings but its preset and those measured with it."""
    own = {k: v for k, v in settings.items() if k != "preset"}
    preset = table["preset"].get(str(settings.get("preset")), {})
    return not own or own == preset.get("settings")


def cell_seconds(suite: Suite, cells: Iterable[Cell]) -> dict[str, float]:
    """Return the seconds that each cell takes on one core by the shipped scores, by score key."""
    known, made = _Known(None, None, suite.name), Estimate()
    return {c.score_key: known.method(c, suite.max_rows, made) for c in cells}


def largest_first(tasks: Iterable[WorkItem]) -> list[WorkItem]:
    """Order tasks by the cost of their dataset: a long block that starts last ends last.

    The packaged table of training times stands for the cost; a dataset that it lacks goes first.
    """
    known = _timings()["density"]
    return sorted(tasks, key=lambda task: -float(known.get(task.dataset, float("inf"))))


def _timings() -> Mapping[str, Any]:
    from cel.config import read_yaml

    return read_yaml(_FOLDER / "timings.yaml")


class _Known:
    """What was measured: in the store, in the shipped scores, in the packaged table.

    Args:
        store: of the run.
        shelf: models that runs share.
        suite: whose shipped scores count before those of others.
    """

    def __init__(self, store: Store | None, shelf: Store | None, suite: str) -> None:
        self.table = _timings()
        self.store, self.shelf = store, shelf
        self.own = _wall_times(store)
        self.shipped, self.refused = _shipped(suite), _refused(suite)
        self._rows: dict[str, int] = {}

    def method(self, cell: Cell, limit: int | None, made: Estimate) -> float:
        """Seconds of one cell that explains at most `limit` rows, without its autoencoder's."""
        label, key = cell.method.label, (cell.dataset, cell.method.label)
        part = 1 if cell.autoencoder_key is not None else 0
        if key in self.own:
            return self.own[key]
        if (cell.dataset, cell.model, cell.fold, label) in self.refused:
            return 0.0
        if key in self.shipped:
            return self.shipped[key][part]
        elsewhere = [v for (_, m), v in self.shipped.items() if m == label]
        if not elsewhere:
            made.guessed.add(label)
            mine = [v for (_, m), v in self.own.items() if m == label]
            return sum(mine) / len(mine) if mine else METHOD_S
        made.guessed.add(cell.dataset)
        seconds = sum(v[part] for v in elsewhere) / len(elsewhere)
        rows = sum(n for _, _, n in elsewhere) / len(elsewhere)
        asked = min(0.1 * self.rows(cell.dataset), limit or float("inf"))
        return seconds * max(1.0, asked / max(rows, 1.0))

    def scoring(self, dataset: str, cells: int, judges: int) -> float:
        """Seconds of scoring the cells of a block: references once, then every cell."""
        table, size = self.table["score"], self.rows(dataset) / 10_000
        once = table["references"] + table["references_square"] * size**2
        return float(once + (table["cell"] + table["rows"] * size) * (1 + judges) * cells)

    def training(self, suite: Suite, stage: str, block: Block, made: Estimate) -> float:
        """Seconds of one model; nothing if the store or the shelf has it."""
        key = model_key(block, stage)
        if any(
            s is not None and s.has(model_folder(stage), key) for s in (self.store, self.shelf)
        ):
            return 0.0
        if stage.startswith(AUTOENCODER):
            table = self.table["autoencoder"]
            return float(table["start"] + table["rows"] * self.rows(block.dataset) / 10_000)
        if stage == "predictor" and block.model in LINEAR:
            return 0.1
        kind, given = "flow", _model_settings(suite, stage, block)
        if stage != "predictor":
            kind = str(given.get("model", kind))
        if kind in self.table["closed"]:
            return 0.1 + float(self.table["closed"][kind]) * self.rows(block.dataset) / 10_000
        stage = "predictor" if stage == "predictor" else "density"
        preset = self.table["preset"].get(str(given.get("preset")), {})
        if kind == "flow" and block.dataset in preset.get(stage, {}):
            return float(preset[stage][block.dataset])
        longer = float(preset.get("longer", {}).get(stage, 1.0))
        known = self.table[stage].get(block.dataset)
        if known is None:
            made.guessed.add(block.dataset)
            known = 1.0 + self.rows(block.dataset) / (4000 if stage == "predictor" else 1000)
        return longer * float(known)

    def rows(self, dataset: str) -> int:
        """Rows of a dataset, from the packaged table or its file; 1000 where neither tells."""
        from cel.datasets import load_dataset
        from cel.datasets.catalogue import summarise
        from cel.datasets.file_dataset import FileDataset

        if dataset in self.table["size"]:
            return int(self.table["size"][dataset])
        if dataset not in self._rows:
            found = load_dataset(dataset)
            rows = summarise(found).rows if isinstance(found, FileDataset) else None
            self._rows[dataset] = rows or 1000
        return self._rows[dataset]


def _model_settings(suite: Suite, stage: str, block: Block) -> Mapping[str, Any]:
    """What the suite says of a predictor, of the density or of a judge."""
    if stage == "predictor":
        return {**suite.classifiers, **suite.regressors}.get(block.model, {})
    return suite.density if stage == "density" else suite.judges[stage[len(JUDGE) :]]


def _shipped(suite: str) -> dict[tuple[str, str], tuple[float, float, float]]:
    """{(dataset, method): (core seconds of a cell, of them the search, rows)} of shipped scores.

    Means over models and folds. What a suite itself has counts before what others have.
    """
    paths = sorted((_FOLDER / "baselines").glob("*.parquet"), key=lambda p: (p.stem == suite, p))
    return {key: line for path in paths for key, line in _measured(path).items()}


def _refused(suite: str) -> set[tuple[str, str, int, str]]:
    """(dataset, model, fold, method) of the cells of a suite that methods are known to refuse."""
    blank = shipped_table(suite, "blank")
    if not len(blank):
        return set()
    told = blank[blank["state"] == "skip"]
    names = [told[name] for name in ("dataset", "model", "fold", "method")]
    return set(zip(*names, strict=True))


@lru_cache(maxsize=8)
def _measured(path: Path) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Core seconds of a cell, of its search, and rows, by dataset and method, of one table."""
    names = ["time_s", "time_cpu_s", "time_explain_s", "rows"]
    columns = ["dataset", "method", "metric", "value", "reason"]
    table = pd.read_parquet(path, columns=columns, filters=[("metric", "in", names)])
    elsewhere = table["reason"].str.startswith("on ") & (table["metric"] != "rows")
    longer = table["method"].map(FASTER).astype(float).fillna(1.0).where(elsewhere, 1.0)
    table["value"] = table["value"] * longer  # of a GPU: what a core would take
    wide = table.groupby(["dataset", "method", "metric"])["value"].mean().unstack()
    wide = wide.reindex(columns=names).dropna()
    search = wide["time_explain_s"] * (wide["time_cpu_s"] / wide["time_s"]).clip(upper=1.0)
    lines = zip(wide.index, wide["time_cpu_s"], search, wide["rows"], strict=True)
    return {key: (float(a), float(b), float(c)) for key, a, b, c in lines}


def _wall_times(store: Store | None) -> dict[tuple[str, str], float]:
    """{(dataset, method): mean seconds of a finished cell} of this store."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    if store is None or not is_plain_file(store.root / "log.jsonl"):
        return {}
    for line in read_bytes(store.root / "log.jsonl", MAX_JSON).splitlines():
        try:
            event = json.loads(line)
            label, seconds = str(event["label"]), float(event["wall_s"])
            dataset, _, _, method = label.rsplit("/", 3)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # another event, or a line cut off by a crash: an estimate can do without
        times[dataset, method].append(seconds)
    return {key: sum(v) / len(v) for key, v in times.items()}
