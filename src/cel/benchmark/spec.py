"""What a benchmark run consists of: a suite, from YAML or from a dict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from cel.benchmark.suite_checks import check_limits, check_values
from cel.cf_methods.variants import VARIANTS
from cel.errors import ConfigError
from cel.paths import file_name
from cel.registry import did_you_mean, import_named

__all__ = ["Limits", "MethodSpec", "Suite", "load_suite", "packaged_suites"]

CHOICES = {
    "target": ("card", "paper"),
    "constraints": ("card", "none"),
    "encoding": ("card", "onehot", "printed"),
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Budgets of one cell.

    Attributes:
        time_s: seconds that a method may search; rows left over become `timeout`.
        grace_s: further seconds before what is running is killed.
        memory_mb: memory of the worker and all that it started, beyond which it is killed.
        train_s: seconds for one model, for what a method learns in `fit`, and for the metrics.
    """

    time_s: float = 120.0
    grace_s: float = 60.0
    memory_mb: int = 8000
    train_s: float = 900.0


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """One line of the leaderboard: a method with its settings.

    Attributes:
        label: name of the line.
        method: registry name, or `module:Class`.
        params: settings of the constructor.
    """

    label: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Datasets x folds x models x methods, with everything that fixes the numbers."""

    name: str
    datasets: tuple[str, ...]
    methods: tuple[MethodSpec, ...]
    folds: tuple[int, ...] = (0, 1, 2, 3, 4)
    n_folds: int = 5
    seed: int = 42
    classifiers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"mlp": {}})
    regressors: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: {"mlp_regressor": {}}
    )
    density: Mapping[str, Any] = field(default_factory=dict)
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metrics: str = "default.yaml"
    extra_metrics: tuple[str, ...] = (
        "sparsity_encoded",
        "l2_hamming_encoded",
        "redundancy",
        "ynn",
        "cost_gap",
        "effectiveness_gap",
        "n_units",
    )
    metric_params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    target: str = "card"
    constraints: str = "card"
    encoding: str = "card"
    binary: bool = True
    max_rows: int | None = None
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        file_name(self.name, "suite name")  # a run is kept in runs/NAME
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                said = " or ".join(map(repr, known))
                raise ConfigError(
                    f"suite {self.name!r}: {name} is {said}, not {getattr(self, name)!r}"
                )
        wrong = [f for f in self.folds if not 0 <= f < self.n_folds]
        if wrong:
            raise ConfigError(
                f"suite {self.name!r}: fold {wrong[0]} of {self.n_folds} does not exist"
            )
        labels = [m.label for m in self.methods]
        if len(set(labels)) != len(labels):
            raise ConfigError(f"suite {self.name!r}: a method label appears twice")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values from which `Suite.from_dict` builds an equal suite."""
        plain = asdict(self)
        plain["methods"] = {
            m.label: {"method": m.method, **({"params": dict(m.params)} if m.params else {})}
            for m in self.methods
        }
        return plain

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "suite") -> Suite:
        """Build a suite from plain values, refusing unknown keys."""
        known = {f.name for f in fields(cls)}
        _no_strangers(values, known, where)
        check_values(values, where)
        for required in ("name", "datasets", "methods"):
            if required not in values:
                raise ConfigError(f"{where}: {required!r} is missing")
        given = dict(values)
        given["datasets"] = tuple(given["datasets"])
        given["methods"] = tuple(_methods(given["methods"], where))
        for name in ("folds", "extra_metrics"):
            if name in given:
                given[name] = tuple(given[name])
        if "limits" in given and not isinstance(given["limits"], Limits):
            _no_strangers(given["limits"], {f.name for f in fields(Limits)}, f"{where}: limits")
            check_limits(given["limits"], where)
            given["limits"] = Limits(**given["limits"])
        for group in ("classifiers", "regressors"):
            if isinstance(given.get(group), list | tuple):
                given[group] = {name: {} for name in given[group]}
            elif group in given:
                given[group] = {name: params or {} for name, params in given[group].items()}
        return cls(**given)

    def narrowed(
        self,
        *,
        datasets: Iterable[str] = (),
        methods: Iterable[str] = (),
        models: Iterable[str] = (),
        folds: Iterable[int] = (),
    ) -> Suite:
        """Return the part of the suite that was asked for; a `module:Class` method is added."""
        suite = self
        if picked := tuple(datasets):
            suite = replace(suite, datasets=tuple(_choose(picked, self.datasets, "dataset")))
        if wanted := tuple(methods):
            suite = replace(suite, methods=tuple(_pick_methods(wanted, self.methods)))
        if only := tuple(models):
            _choose(only, [*self.classifiers, *self.regressors], "model")
            suite = replace(
                suite,
                classifiers={k: v for k, v in self.classifiers.items() if k in only},
                regressors={k: v for k, v in self.regressors.items() if k in only},
            )
        if numbers := tuple(folds):
            suite = replace(suite, folds=numbers)
        return suite

    def differs(self, other: Suite) -> str:
        """Return the first setting besides the selection that differs; "" if none does.

        Datasets, folds, methods and models are what a part of a suite selects.
        """
        chosen = {"datasets", "folds", "methods", "classifiers", "regressors"}
        settings = [f.name for f in fields(self) if f.name not in chosen]
        return next((n for n in settings if getattr(self, n) != getattr(other, n)), "")

    def joined(self, earlier: Suite) -> Suite:
        """Return this suite with what an earlier part of it had besides.

        Where both name a method or a model, this one counts. Other settings must be equal, or the
        earlier suite has no part in it.
        """
        if self.differs(earlier):
            return self
        mine = {m.label: m for m in self.methods}
        return replace(
            self,
            datasets=tuple(dict.fromkeys([*earlier.datasets, *self.datasets])),
            folds=tuple(sorted({*earlier.folds, *self.folds})),
            methods=tuple(({m.label: m for m in earlier.methods} | mine).values()),
            classifiers={**earlier.classifiers, **self.classifiers},
            regressors={**earlier.regressors, **self.regressors},
        )

    def with_setting(self, path: str, value: Any) -> Suite:
        """Return the suite with one setting changed, as in `methods.ppcef.alpha=50`."""
        head, *rest = path.split(".")
        plain = self.to_dict()
        if head not in plain:
            raise ConfigError(f"unknown setting {path!r}; {did_you_mean(head, plain)}")
        if head == "methods" and len(rest) == 2:
            label, name = rest
            _choose([label], plain["methods"], "method")
            plain["methods"][label].setdefault("params", {})[name] = value
        elif not rest:
            plain[head] = value
        else:
            node = plain[head]
            for part in rest[:-1]:
                node = node.setdefault(part, {})
            node[rest[-1]] = value
        return Suite.from_dict(plain, where="--set")


def _no_strangers(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    known = set(known)
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where} is {str(values)[:60]!r}; expected `key: value` lines")
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; {did_you_mean(str(key), known)}")


def _methods(given: Any, where: str) -> list[MethodSpec]:
    if isinstance(given, list | tuple):
        items = {m.label if isinstance(m, MethodSpec) else m: m for m in given}
    else:
        items = dict(given)
    out = []
    for label, value in items.items():
        if isinstance(value, MethodSpec):
            out.append(value)
            continue
        entry = {} if value is None or isinstance(value, str) else dict(value)
        _no_strangers(entry, {"method", "params"}, f"{where}: methods.{label}")
        params = dict(entry.get("params") or {})
        method = entry.get("method")
        if not method and label in VARIANTS:  # a name stands for a method with settings
            method, params = VARIANTS[label].method, {**VARIANTS[label].params, **params}
        out.append(MethodSpec(label=label, method=method or label, params=params))
    return out


def _choose(wanted: Iterable[str], known: Iterable[str], kind: str) -> list[str]:
    known = list(known)
    for name in wanted:
        if name not in known:
            raise ConfigError(f"{kind} {name!r} is not in the suite; {did_you_mean(name, known)}")
    return list(wanted)


def _pick_methods(wanted: Iterable[str], known: Iterable[MethodSpec]) -> list[MethodSpec]:
    by_label = {m.label: m for m in known}
    out = []
    for name in wanted:
        if ":" in name:
            found = import_named(name, "method")
            own = getattr(found, "__dict__", {}).get("name")  # an inherited name is another's
            out.append(MethodSpec(label=own or name.rpartition(":")[2].lower(), method=name))
        else:
            _choose([name], by_label, "method")
            out.append(by_label[name])
    return out


def packaged_suites() -> dict[str, Path]:
    """Return the suites that come with the package, by name."""
    folder = Path(str(resources.files("cel.benchmark"))) / "suites"
    return {p.stem: p for p in sorted(folder.glob("*.yaml"))}


def load_suite(source: str | Path | Mapping[str, Any] | Suite) -> Suite:
    """Return a suite from a packaged name, a YAML file, a dict or a suite."""
    from cel.config import read_yaml

    if isinstance(source, Suite):
        return source
    if isinstance(source, Mapping):
        return Suite.from_dict(source)
    known = packaged_suites()
    path = known.get(str(source), Path(source))
    if not path.exists():
        hint = did_you_mean(str(source), known)
        raise ConfigError(f"no suite {str(source)!r}, neither packaged nor a file; {hint}")
    return Suite.from_dict(read_yaml(path), where=str(path.name))
