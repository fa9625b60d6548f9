"""From a suite to cells: what has to be computed, under which names."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cel.benchmark.keys import canonical, key_of
from cel.benchmark.printed_form import card_of, is_constrained
from cel.benchmark.spec import MethodSpec, Suite
from cel.cf_methods import METHODS, BaseCounterfactualMethod
from cel.errors import ConfigError
from cel.metrics.suites import read_entries
from cel.protocols import Need, Scope, Task

__all__ = [
    "Block",
    "Cell",
    "MethodFacts",
    "Plan",
    "make_plan",
    "method_class",
    "method_facts",
    "paradigms_of",
]

STAGE_VERSION = {
    "split": 1, "predictor": 1, "density": 1, "judge": 1, "autoencoder": 3, "explain": 2,
    "score": 2,
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One line of results: a method on one (dataset, fold, model).

    `autoencoder_key` names the autoencoder that the method is given, if it takes one.
    """

    dataset: str
    fold: int
    model: str
    method: MethodSpec
    explain_key: str
    score_key: str
    autoencoder_key: str | None = None

    @property
    def label(self) -> str:
        """A short name for people."""
        return f"{self.dataset}/{self.fold}/{self.model}/{self.method.label}"


@dataclass(frozen=True)
class MethodFacts:
    """What the plan must know of a method; kept with a run, so that reading needs no import.

    `autoencoder` holds [parameter, default] by setting of the autoencoder that it is given.
    """

    scope: Scope
    tasks: frozenset[Task]
    needs_density: bool
    version: int
    autoencoder: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        tasks = sorted(t.value for t in self.tasks)
        return {
            "scope": self.scope.value, "tasks": tasks, "needs_density": self.needs_density,
            "version": self.version,
            **({"autoencoder": dict(self.autoencoder)} if self.autoencoder else {}),
        }  # fmt: skip

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> MethodFacts:
        """Rebuild them from plain values."""
        tasks = frozenset(Task(t) for t in values["tasks"])
        plain = Scope(values["scope"]), tasks, values["needs_density"], values["version"]
        return cls(*plain, dict(values.get("autoencoder", {})))

    def autoencoder_of(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the settings of the autoencoder that a line of a suite is given, if any."""
        if not self.autoencoder or "autoencoder" in params:
            return None
        return {n: params.get(name, own) for n, (name, own) in self.autoencoder.items()}


@dataclass(frozen=True)
class Block:
    """All cells that share a split, a predictor and a density; one worker does them in turn."""

    dataset: str
    fold: int
    model: str
    task: Task
    split_key: str
    predictor_key: str
    density_key: str
    cells: tuple[Cell, ...]
    judge_keys: Mapping[str, str] = field(default_factory=dict)
    autoencoders: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by key

    @property
    def label(self) -> str:
        """A short name for people."""
        return f"{self.dataset}/{self.fold}/{self.model}"


@dataclass(frozen=True)
class Plan:
    """The blocks of a suite, in a fixed order."""

    suite: Suite
    blocks: tuple[Block, ...]
    facts: Mapping[str, MethodFacts]

    @property
    def cells(self) -> list[Cell]:
        """All cells, in order."""
        return [c for b in self.blocks for c in b.cells]

    def shard(self, number: int, of: int) -> Plan:
        """Return every `of`-th block, starting with `number` (1-based)."""
        if not 1 <= number <= of:
            raise ConfigError(f"shard {number}/{of} does not exist; use 1/{of} to {of}/{of}")
        return Plan(self.suite, self.blocks[number - 1 :: of], self.facts)


def method_class(name: str) -> type[BaseCounterfactualMethod]:
    """Return a method by registry name or as `module:Class`."""
    found = METHODS.named(name)
    if not (isinstance(found, type) and issubclass(found, BaseCounterfactualMethod)):
        raise ConfigError(f"{name!r} is not a BaseCounterfactualMethod")
    return found


def method_facts(name: str) -> MethodFacts:
    """Return what the plan must know of a method, by registry name or as `module:Class`."""
    cls = method_class(name)
    settings = _autoencoder_settings(cls)
    plain = cls.scope, frozenset(cls.tasks), Need.DENSITY in cls.needs, cls.version
    return MethodFacts(*plain, settings)


def _autoencoder_settings(cls: type[BaseCounterfactualMethod]) -> dict[str, Any]:
    """Return [parameter, default] by setting, as plain JSON values."""
    if "autoencoder" not in cls.param_names():
        return {}
    known = inspect.signature(cls).parameters
    names = cls.autoencoder_settings
    out = {setting: [name, known[name].default] for setting, name in names.items()}
    plain: dict[str, Any] = json.loads(canonical(out))
    return plain


def make_plan(suite: Suite, known: Mapping[str, MethodFacts] | None = None) -> Plan:
    """Return all blocks of a suite; unknown names are refused here, before any work.

    Args:
        suite: the suite.
        known: facts of methods by implementation, instead of looking at their classes.
    """
    from cel.models import MODELS

    for model in (*suite.classifiers, *suite.regressors):
        if ":" not in model:  # others are imported where they are used, not to read a run
            MODELS.get(model)
    known = known or {}
    names = {m.method for m in suite.methods}
    facts = {n: known[n] if n in known else method_facts(n) for n in sorted(names)}
    blocks: list[Block] = []
    for name in suite.datasets:
        card = card_of(suite, name)
        data = card.model_dump(mode="json")
        free = suite.constraints == "none" and is_constrained(card)
        models = suite.classifiers if card.task is Task.CLASSIFICATION else suite.regressors
        for fold in suite.folds:
            for model, params in models.items():
                place = name, card.task, fold, model
                blocks.append(_block(suite, facts, data, *place, params, free))
    return Plan(suite, tuple(blocks), facts)


def _block(
    suite: Suite,
    facts: Mapping[str, MethodFacts],
    data: Any,
    name: str,
    task: Task,
    fold: int,
    model: str,
    params: Any,
    free: bool,
) -> Block:
    split = key_of(
        "split", STAGE_VERSION["split"], data, suite.binary, suite.n_folds, suite.seed, fold
    )
    predictor = key_of("predictor", STAGE_VERSION["predictor"], split, model, dict(params))
    density = key_of("density", STAGE_VERSION["density"], predictor, dict(suite.density))
    judges = {
        label: key_of("judge", STAGE_VERSION["judge"], predictor, label, dict(options))
        for label, options in suite.judges.items()
    }
    cells, autoencoders = [], {}
    without = ["without constraints"] if free else []
    for spec in suite.methods:
        fact = facts[spec.method]
        if task not in fact.tasks:
            continue
        codes, given = fact.autoencoder_of(spec.params), None
        if codes is not None:
            given = key_of("autoencoder", STAGE_VERSION["autoencoder"], split, codes, *without)
            autoencoders[given] = codes
        explain = key_of(
            "explain", STAGE_VERSION["explain"], predictor,
            density if fact.needs_density else None, spec.method, fact.version,
            dict(spec.params), _target_rule(suite, fact.scope), suite.max_rows,
            suite.limits.time_s, *without, *([] if given is None else [given]),
        )  # fmt: skip
        score = key_of(
            "score", STAGE_VERSION["score"], explain, density, _metrics(suite),
            list(suite.extra_metrics), {k: dict(v) for k, v in suite.metric_params.items()},
            *([judges] if judges else []),
        )  # fmt: skip
        cells.append(Cell(name, fold, model, spec, explain, score, given))
    return Block(
        name, fold, model, task, split, predictor, density, tuple(cells), judges, autoencoders
    )


def _metrics(suite: Suite) -> Any:
    """Return what a score depends on: the name of a packaged list, the entries of one's own."""
    own = Path(suite.metrics).is_file()
    return read_entries(suite.metrics) if own else suite.metrics


def paradigms_of(plan: Plan) -> dict[tuple[str, str], str]:
    """Return {(dataset, label): regression, local, global or group}.

    GLANCE with one action is a global method, under any label; PPCEF for groups is what its
    level says.
    """
    scopes = {m.label: _line_scope(m, plan.facts[m.method]) for m in plan.suite.methods}
    tasks = {b.dataset: b.task for b in plan.blocks}
    return {
        (dataset, label): "regression" if task is Task.REGRESSION else scope
        for dataset, task in tasks.items()
        for label, scope in scopes.items()
    }


def _line_scope(spec: MethodSpec, facts: MethodFacts) -> str:
    if spec.method == "group_ppcef":
        return str(spec.params.get("level", facts.scope.value))
    one_action = spec.method == "glance" and spec.params.get("n_actions") == 1
    return "global" if one_action else facts.scope.value


def _target_rule(suite: Suite, scope: Scope) -> Any:
    """The wanted class: the card's, or as in the printed tables (local 0, global and group 1)."""
    if suite.target == "card":
        return "card"
    return 0 if scope is Scope.LOCAL else 1


def target_of(suite: Suite, scope: Scope) -> int | None:
    """Return the wanted class position, or None for the card's own."""
    rule = _target_rule(suite, scope)
    return None if rule == "card" else int(rule)
