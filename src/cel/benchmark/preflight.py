"""What can be known to be wrong before anything is trained or written."""

from __future__ import annotations

import importlib.util
import os
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union

from cel.benchmark.named import model_class
from cel.benchmark.plan import Plan, method_class
from cel.benchmark.spec import MethodSpec, Suite
from cel.errors import ConfigError, DataError, MissingDependencyError, StoreError, UnsupportedError
from cel.parameters import parameter_hints
from cel.registry import did_you_mean

__all__ = [
    "check_datasets",
    "check_folder",
    "check_machine",
    "check_method_settings",
    "check_settings",
    "preflight",
]

ENGINES = ("local", "dask")
OURS = ("model", "gen_model", "space")  # given by the benchmark, not by a suite


def preflight(
    plan: Plan,
    out: str | Path,
    *,
    jobs: int = 1,
    engine: str = "local",
    address: str | None = None,
    shard: tuple[int, int] | None = None,
    device: str = "cpu",
) -> None:
    """Refuse a run that cannot work, before a folder is made: settings, machine and folder.

    Args:
        plan: what is to be run.
        out: where it is to go.
        jobs: worker processes.
        engine: "local" or "dask".
        address: of a dask scheduler.
        shard: (i, n).
        device: "cpu" or "cuda".
    """
    check_machine(jobs=jobs, engine=engine, address=address, device=device)
    _check_gradients(plan.suite, device)
    if shard is not None:
        plan.shard(*shard)
    if not plan.cells:
        raise ConfigError(
            f"suite {plan.suite.name!r}: nothing is left to run; no method works for the task of "
            "the datasets with these models and folds"
        )
    check_settings(plan.suite)
    check_folder(out)


def check_machine(*, jobs: int, engine: str, address: str | None, device: str) -> None:
    """Refuse workers, engines and devices that are not there."""
    if engine not in ENGINES:
        raise ConfigError(f"unknown engine {engine!r}; {did_you_mean(engine, ENGINES)}")
    if jobs < 1:
        raise ConfigError(f"jobs={jobs}: at least one worker process is needed")
    if address is not None and engine != "dask":
        raise ConfigError(f"address {address!r} is used with engine 'dask' only")
    if engine == "dask" and importlib.util.find_spec("distributed") is None:
        raise MissingDependencyError("dask.distributed", "dask")
    _check_device(device)


def _check_device(device: str) -> None:
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise ConfigError(f"unknown device {device!r}; use cpu or cuda")
    if kind == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise ConfigError(f"device {device!r}: this machine has no CUDA device; use cpu")
    if number and int(number) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise ConfigError(f"device {device!r}: this machine has {count}, numbered from 0")


def _check_gradients(suite: Suite, device: str) -> None:
    """Refuse metrics that train models in workers beside a GPU: their forks lose autograd."""
    from cel.benchmark.metric_entries import metric_entries
    from cel.metrics.suites import choose

    if device == "cpu":
        return
    trained = [c.name for c in choose(metric_entries(suite)) if c.metric.trains]
    if trained:
        raise ConfigError(
            f"suite {suite.name!r}: {', '.join(trained)} train models where cells are scored, "
            f"which works on cores only; the device is {device}, leave out --device"
        )


def check_folder(out: str | Path) -> None:
    """Refuse a folder that cannot become or be the store of a run; nothing is written."""
    path = Path(out)
    there = next((p for p in (path, *path.absolute().parents) if p.exists()), Path("."))
    if not there.is_dir():
        raise StoreError(f"{out}: {there} is a file; choose a folder")
    if there == path and any(path.iterdir()) and not (path / "store.json").exists():
        raise StoreError(f"{out} is not empty and is not a CEL store; choose another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise StoreError(f"{out}: {there} cannot be written to; choose another folder")


def check_settings(suite: Suite) -> None:
    """Refuse wrong settings of methods, models, the density and metrics."""
    from cel.benchmark.metric_entries import metric_entries
    from cel.metrics.suites import choose

    for spec in suite.methods:
        check_method_settings(spec)
    for group in ("classifiers", "regressors"):
        for name, params in getattr(suite, group).items():
            _check_arguments(model_class(name), params or {}, f"{group}.{name}")
    judges = {f"judges.{k}": v for k, v in suite.judges.items()}
    for where, given in {"density": suite.density, **judges}.items():
        options = dict(given)
        name = options.pop("model", None)
        if name is not None:
            _check_arguments(model_class(str(name)), options, where)
    choose(metric_entries(suite))


def check_method_settings(spec: MethodSpec) -> None:
    """Refuse settings of a method by name, type and range.

    Ranges are what the method itself checks before it begins; they are asked for on a small
    problem of `cel.testing`, without fitting anything.
    """
    cls, where = method_class(spec.method), f"methods.{spec.label}"
    _check_arguments(cls, spec.params, where)
    if not spec.params:
        return
    from cel.cf_methods.view import ModelView
    from cel.testing.problems import PROBLEMS

    problem = next((p for make in PROBLEMS.values() if (p := make()).task in cls.tasks), None)
    if problem is None:
        return
    try:
        method = problem.build(cls, **dict(spec.params))
        method._check(ModelView(problem.model), problem.space)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except UnsupportedError:
        return  # the small problem is not what the method is for; its settings were accepted
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {cls.__name__} refuses its settings: {error}") from error


def _check_arguments(cls: type, params: Mapping[str, Any], where: str) -> None:
    """Refuse names that no constructor of the class takes, and values of another type."""
    known = parameter_hints(cls)
    for name, value in params.items():
        if name not in known or name in OURS:
            shown = [n for n in known if n not in OURS]
            raise ConfigError(
                f"{where}: {cls.__name__} has no setting {name!r}; {did_you_mean(name, shown)}"
            )
        if not _fits(value, known[name]):
            raise ConfigError(
                f"{where}.{name}: {value!r} is not {_words(known[name])}, which "
                f"{cls.__name__} wants"
            )


def _fits(value: Any, hint: Any) -> bool:
    """Tell whether a plain value can be meant for a type; types it cannot judge admit all."""
    origin = typing.get_origin(hint)
    if origin is Literal:
        return value in typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in typing.get_args(hint))
    kind = origin or hint
    if kind in (None, type(None)):
        return value is None
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        numbers = int if kind is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if kind is str:
        return isinstance(value, str)
    if kind in (list, tuple, Sequence, set, frozenset):
        return isinstance(value, list | tuple | set | frozenset)
    if kind in (dict, Mapping):
        return isinstance(value, Mapping)
    return True


def _words(hint: Any) -> str:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, inner))
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in inner)
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    names |= {type(None): "null", list: "a list", tuple: "a list", Sequence: "a list"}
    return names.get(origin or hint, str(hint))


def check_datasets(plan: Plan) -> None:
    """Refuse datasets that cannot be read; files that have an address are fetched here.

    Cards of one's own are held against their file. What is wrong with every dataset is told at
    once.
    """
    from cel.datasets import load_dataset
    from cel.datasets.file_dataset import FileDataset

    wrong = []
    for name in dict.fromkeys(b.dataset for b in plan.blocks):
        try:
            dataset = load_dataset(name, binary=plan.suite.binary)
            if not isinstance(dataset, FileDataset):
                continue
            if dataset.card.generator is None:
                dataset.files()
            if str(name).endswith((".yaml", ".yml")):
                dataset.load()
        except (DataError, ConfigError) as error:
            wrong.append(f"{name}: {error}")
    if wrong:
        raise DataError(
            "; ".join(wrong) + ". Bring the files, or choose datasets that are at hand with -d"
        )
