"""Experiments that imitate a suspected cause of a printed value; only their result explains it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd

from cel.benchmark.named import import_folders
from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.printed_values import paper_results
from cel.benchmark.score_tables import collect
from cel.benchmark.spec import MethodSpec, Suite
from cel.benchmark.store import Store
from cel.config import read_yaml
from cel.errors import ConfigError
from cel.registry import did_you_mean

__all__ = ["DERIVED", "Experiment", "experiment_scores", "experiments", "run_experiments"]

CLAIMS = ("method", "metric", "dataset", "model")
Watcher = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One suspected cause.

    Attributes:
        name: of the experiment.
        reason: what is imitated, in words.
        method: labels whose cells it claims; none for all.
        metric: printed metrics that it claims; none for all.
        dataset: datasets that it claims; none for all.
        model: models that it claims; none for all.
        params: changed settings of the method.
        suite: changed settings of the suite.
        derive: name of a function of `DERIVED` that makes the scores: from ours instead of a run,
            or from the scores of the changed run if settings are changed as well.
    """

    name: str
    reason: str
    method: tuple[str, ...] = ()
    metric: tuple[str, ...] = ()
    dataset: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    suite: Mapping[str, Any] = field(default_factory=dict)
    derive: str = ""

    def claims(self, line: Mapping[str, Any]) -> bool:
        """Tell whether a printed cell is among those that the experiment is about."""
        places = {
            "our_method": self.method, "metric": self.metric, "dataset": self.dataset,
            "our_model": self.model,
        }  # fmt: skip
        return all(not wanted or line[name] in wanted for name, wanted in places.items())

    @property
    def is_run(self) -> bool:
        """Whether cells have to be computed."""
        return bool(self.params or self.suite)

    def variant(self, suite: Suite) -> Suite:
        """Return the suite with the suspected mistake in it, and only what the claim is about."""
        datasets = tuple(d for d in suite.datasets if not self.dataset or d in self.dataset)
        models: dict[str, Any] = {
            group: {m: v for m, v in getattr(suite, group).items() if m in self.model}
            for group in ("classifiers", "regressors")
            if self.model
        }
        chosen = [m for m in suite.methods if not self.method or m.label in self.method]
        methods = tuple(
            MethodSpec(label=m.label, method=m.method, params={**m.params, **self.params})
            for m in chosen
        )
        changed: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in self.suite.items()
        }
        return replace(suite, datasets=datasets, methods=methods, **models, **changed)


def unanswered_as_original(scores: pd.DataFrame) -> pd.DataFrame:
    """Score rows without an answer as if the original row had been returned: nothing changed."""
    wide = scores.pivot_table(
        index=["dataset", "model", "method", "fold"], columns="metric", values="value"
    )
    if "success" not in wide:
        return scores.iloc[:0]
    found = wide["success"]
    made = {"coverage": found * 0 + 1, "success": found}
    for name in ("sparsity_encoded", "sparsity", "l2_hamming_encoded", "l2_hamming"):
        if name in wide or not (found > 0).any():  # nowhere an answer: nothing was measured
            made[name] = (wide.get(name, found) * found).where(found > 0, 0.0)
    return _long(made)


def unanswered_as_nan(scores: pd.DataFrame) -> pd.DataFrame:
    """Score rows without an answer as rows of NaN that nobody looked at.

    The largest of NaN scores is that of class 0, which was wanted, so such a row counts as valid;
    every feature differs from NaN, and no density reaches a threshold.
    """
    wide = scores.pivot_table(
        index=["dataset", "model", "method", "fold"], columns="metric", values="value"
    )
    if not {"success", "coverage"} <= set(wide):
        return scores.iloc[:0]
    covered = wide["coverage"]
    made = {"coverage": covered, "success": wide["success"] + 1 - covered}
    for name in ("sparsity_encoded", "sparsity"):
        if name in wide or not (covered > 0).any():
            made[name] = wide.get(name, covered * float("nan")).where(covered > 0, 1.0)
    plausible = wide.get("prob_plausibility", covered * float("nan"))
    made["prob_plausibility"] = (plausible * covered).where(covered > 0, 0.0)
    return _long(made)


def _long(made: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Columns by metric as `collect`'s lines."""
    keys = ["dataset", "model", "method", "fold"]
    lines = (
        pd.DataFrame(made).reset_index().melt(id_vars=keys, var_name="metric", value_name="value")
    )
    return lines.dropna(subset=["value"]).assign(reason="")


DERIVED: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "unanswered_as_original": unanswered_as_original,
    "unanswered_as_nan": unanswered_as_nan,
}


def experiments(names: Iterable[str] = ()) -> list[Experiment]:
    """Return the registered experiments, all or some.

    >>> [e.name for e in experiments(["cegp_theta_0"])]
    ['cegp_theta_0']
    """
    path = Path(str(resources.files("cel.benchmark"))) / "paper" / "experiments.yaml"
    known = {}
    for entry in read_yaml(path)["experiments"]:
        lists = {k: tuple(entry[k]) for k in CLAIMS if k in entry}
        known[entry["name"]] = Experiment(**{**entry, **lists})
    for name in names:
        if name not in known:
            raise ConfigError(f"unknown experiment {name!r}; {did_you_mean(name, known)}")
    return [known[n] for n in names] if names else list(known.values())


def _plan(experiment: Experiment, plan: Plan) -> Plan | None:
    """The cells of an experiment in a run: those beside which something is printed, if any."""
    suite = experiment.variant(plan.suite)
    if not suite.methods or not suite.datasets:
        return None
    labels = {c.method.label for c in plan.cells}
    methods = tuple(m for m in suite.methods if m.label in labels)
    if not methods:
        return None
    table = paper_results().dropna(subset=["mean"])
    lines: list[dict[str, Any]] = table.to_dict("records")  # type: ignore[assignment]
    names = ("dataset", "our_model", "our_method")
    printed = {tuple(line[n] for n in names) for line in lines if experiment.claims(line)}
    made = make_plan(replace(suite, methods=methods), plan.facts)
    wanted = {c.score_key for c in made.cells if (c.dataset, c.model, c.method.label) in printed}
    return _only(made, wanted) if wanted else None


def _only(plan: Plan, keys: Collection[str]) -> Plan:
    """The part of a plan with these cells, each once."""
    blocks = []
    for block in plan.blocks:
        cells = {c.score_key: c for c in block.cells if c.score_key in keys}
        if cells:
            blocks.append(replace(block, cells=tuple(cells.values())))
    return replace(plan, blocks=tuple(blocks))


def _plans(chosen: Iterable[Experiment], plan: Plan) -> list[Plan]:
    """What experiments compute, those that change methods alone as lines of one suite.

    Then a worker loads the models of a block once for all of them, and what metrics learn from
    training rows is learnt once.
    """
    apart, together, keys = [], list[MethodSpec](), set[str]()
    for experiment in chosen:
        made = _plan(experiment, plan) if experiment.is_run else None
        if made is None:
            continue
        if experiment.suite:
            apart.append(made)
            continue
        keys.update(c.score_key for c in made.cells)
        together += [
            replace(m, label=f"{m.label} by {experiment.name}") for m in made.suite.methods
        ]
    if together:
        suite = replace(plan.suite, methods=tuple(together))
        apart.insert(0, _only(make_plan(suite, plan.facts), keys))
    return apart


def run_experiments(
    store: Store,
    plan: Plan,
    names: Iterable[str] = (),
    *,
    jobs: int = 1,
    device: str = "cpu",
    watch: Watcher | None = None,
) -> int:
    """Compute the open cells of experiments in the store of a run; return how many there were.

    Only cells beside which something is printed are computed; nothing else can be explained.
    Predictors, densities and whatever else an experiment does not touch are those of the run.

    Args:
        store: of the run.
        plan: of the run.
        names: which experiments; all by default.
        jobs: worker processes.
        device: "cpu" or "cuda", for models that an experiment needs anew.
        watch: called with every event.
    """
    from cel.benchmark.runner import _recorder, pending_tasks
    from cel.benchmark.supervisor import Supervisor

    tasks = []
    for made in _plans(experiments(names), plan):
        folders = import_folders(made.suite)
        for task in pending_tasks(made, store):
            task.folders = folders
            task.facts = {name: fact.to_dict() for name, fact in made.facts.items()}
            tasks.append(task)
    count = sum(len(t.cells) for t in tasks)
    if tasks:
        Supervisor(
            store.root, jobs=jobs, memory_mb=plan.suite.limits.memory_mb, device=device,
            report=_recorder(store, watch), log=store.root / "workers.log",
        ).run(tasks)  # fmt: skip
    return count


def experiment_scores(store: Store, plan: Plan, names: Iterable[str] = ()) -> pd.DataFrame:
    """Return what experiments have given so far: `collect`'s columns and the experiment's name."""
    ours = collect(store, plan, times=False)
    parts = []
    for experiment in experiments(names):
        table = ours
        if experiment.is_run:
            made = _plan(experiment, plan)
            if made is None:
                continue
            table = collect(store, made, times=False)
        if experiment.derive and len(table):
            table = DERIVED[experiment.derive](table)
        parts.append(table.assign(experiment=experiment.name))
    filled = [p for p in parts if len(p)]
    return pd.concat(filled, ignore_index=True) if filled else pd.DataFrame()
