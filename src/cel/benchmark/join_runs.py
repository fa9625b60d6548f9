"""Shards and partial runs of one suite, brought together in one folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cel.benchmark.plan import Plan, make_plan
from cel.benchmark.preflight import check_folder
from cel.benchmark.runner import open_run
from cel.benchmark.score_tables import write_scores
from cel.benchmark.spec import Suite
from cel.benchmark.store import Store
from cel.errors import ConfigError

__all__ = ["join_runs"]

Opened = tuple[Path, Store, Plan]


def join_runs(sources: Iterable[Path], out: Path) -> tuple[Plan, dict[str, int]]:
    """Copy what runs have finished into one folder, and write its score table.

    Args:
        sources: folders of runs that are parts of one suite.
        out: where they go; a run that is there already is one of them.

    Returns:
        (the plan of the whole, how many entries were copied from each folder).
    """
    runs = [_opened(path, out) for path in dict.fromkeys(sources)]
    if (out / "store.json").exists() and (out / "suite.json").exists():
        runs.insert(0, _opened(out, None))
    check_folder(out)
    suite, facts = _together(runs)
    target = Store(out)
    counts = {str(source): target.merge(store) for source, store, _ in runs if source != out}
    plan = make_plan(suite, facts)
    target.write_json("suite.json", suite.to_dict())
    target.write_json("methods.json", {name: f.to_dict() for name, f in plan.facts.items()})
    if target.read_json("environment.json") is None:
        target.write_json("environment.json", runs[0][1].read_json("environment.json"))
    write_scores(target, plan)
    return plan, counts


def _opened(path: Path, out: Path | None) -> Opened:
    if out is not None and path.resolve() == out.resolve():
        raise ConfigError(f"{path} is both what is merged and where it goes; choose another --out")
    store, plan = open_run(path)
    return path, store, plan


def _together(runs: list[Opened]) -> tuple[Suite, dict[str, Any]]:
    """Return the suite of which all runs are parts, and what is known of its methods."""
    first, _, plan = runs[0]
    suite, facts = plan.suite, dict(plan.facts)
    for path, _, other in runs[1:]:
        if name := suite.differs(other.suite):
            raise ConfigError(
                f"{path} is a run of another suite than {first}: {name} is "
                f"{getattr(other.suite, name)!r} and {getattr(suite, name)!r}"
            )
        if changed := _other_settings(suite, other.suite):
            raise ConfigError(f"{path}: {changed!r} has other settings than in {first}")
        suite, facts = other.suite.joined(suite), {**facts, **other.facts}
    return suite, facts


def _other_settings(one: Suite, other: Suite) -> str:
    """Return a method or model that two suites name with different settings; "" if none."""
    known = {m.label: m for m in one.methods}
    changed = [m.label for m in other.methods if known.get(m.label, m) != m]
    for group in ("classifiers", "regressors"):
        mine, theirs = getattr(one, group), getattr(other, group)
        changed += [m for m in theirs if m in mine and dict(theirs[m]) != dict(mine[m])]
    return changed[0] if changed else ""
