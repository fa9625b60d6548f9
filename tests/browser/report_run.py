"""A finished run with invented scores and real rows, for tests of the report.

The methods are reached as `report_run:Class`; nothing is trained and nothing is explained.
"""

import json
import zlib
from dataclasses import replace

import numpy as np

from cel.benchmark import Store, Suite, make_plan
from cel.cf_methods import BaseCounterfactualMethod
from cel.datasets import load_dataset
from cel.protocols import Scope, Task
from cel.result import ExplanationResult

LOCAL = ("artelt", "dice", "cchvae", "ppcef", "cem", "cegp", "cadex", "sace")
SCOPES = {"ares": "Global", "globe_ce": "Global", "glance_global": "Global"}
SCOPES |= {"glance": "Group", "tcrex": "Group", "wachter": "Both", "cearm": "Regression"}
PROVER = "cadex"  # its cells say how much is proved
STATUSES = ["found"] * 8 + ["invalid", "not_found", "infeasible", "timeout"]


class Local(BaseCounterfactualMethod):
    def _explain(self, query):
        raise NotImplementedError


class Both(Local):
    tasks = frozenset(Task)


class Regression(Local):
    tasks = frozenset({Task.REGRESSION})


class Global(Local):
    scope = Scope.GLOBAL


class Group(Local):
    scope = Scope.GROUP


def suite(**changes):
    labels = ["wachter", *LOCAL, "cearm", "ares", "globe_ce", "glance_global", "glance", "tcrex"]
    plain = {
        "name": "demo",
        "datasets": ["moons", "wine", "mixed", "synthetic"],
        "folds": [0, 1, 2],
        "classifiers": {"mlp": {}, "lr": {}},
        "regressors": {"mlp_regressor": {}, "linear": {}},
        "methods": {
            m: {"method": f"report_run:{SCOPES.get(m, 'Local')}", "params": {"random_state": i}}
            for i, m in enumerate(labels)  # equal methods with equal settings share their cells
        },
    }
    return Suite.from_dict(plain | changes)


def failure_of(cell):
    """Some cells fail, each in its own way."""
    label, where = cell.method.label, (cell.dataset, cell.model)
    if label == "artelt" and cell.dataset == "mixed":
        return "skip", "artelt handles numbers only; mixed has categories <b>job</b>"
    if label == "cegp" and where == ("wine", "mlp") and cell.fold == 1:
        return "timeout", "killed after 180 s"
    if label == "tcrex" and where == ("wine", "lr"):
        return "error", "ValueError: no rule covers any row"
    if label == "glance" and where == ("moons", "lr") and cell.fold == 2:
        return "missing", ""
    return None


def make_run(folder, *, rows=12, **changes):
    """Write a store with results and scores for every cell that does not fail."""
    store, plan = Store(folder), make_plan(suite(**changes))
    store.write_json("suite.json", plan.suite.to_dict())
    store.write_json("methods.json", {n: f.to_dict() for n, f in plan.facts.items()})
    store.write_json("environment.json", {"cel": "0.1.0", "python": "3.11"})
    for block in plan.blocks:
        split = load_dataset(block.dataset, binary=True).fold(block.fold, plan.suite.n_folds, 42)
        for cell in block.cells:
            failed = failure_of(cell)
            if failed and failed[0] != "missing":
                record = {"status": failed[0], "reason": failed[1], "traceback": ""}
                store.fail(cell.score_key, record)
            if not failed:
                _write(store, cell, result_of(split, cell, rows))
    return store, plan


def _write(store, cell, result):
    with store.writing("explain", cell.explain_key, {}) as folder:
        result.to_parquet(folder / "result.parquet")
    scores, times, reasons = scores_of(cell, result)
    document = {"rows": len(result), "status": result.counts(), "scores": scores}
    if cell.method.label == PROVER:
        found = int(result.found.sum())
        document["proof"] = {"optimal": found - 1, "within_gap": 1, "heuristic": 0}
    with store.writing("score", cell.score_key, {}) as folder:
        (folder / "scores.json").write_text(json.dumps(document | {"reasons": reasons}))
        (folder / "times.json").write_text(json.dumps(times))


def _rng(*parts):
    return np.random.default_rng(zlib.crc32("/".join(map(str, parts)).encode()))


def result_of(split, cell, rows):
    """Rows whose features are partly those of another row; some have no answer."""
    rng, test = _rng(cell.label), split.test
    x = test.X[:rows]
    status = rng.choice(STATUSES, len(x)).astype(object)
    x_cfs = _mixed_rows(rng, split.space, x, split.train.X)
    x_cfs[~np.isin(status, ["found", "invalid"])] = np.nan
    has = ~np.isnan(x_cfs).any(1)
    if split.target.task is Task.CLASSIFICATION:
        y, goal = np.zeros(len(x), int), np.ones(len(x), int)
        y_cfs = np.where(has, np.where(status == "found", 1, 0), -1)
    else:
        y = np.asarray(test.y[:rows], float)
        goal = y + 0.2
        y_cfs = np.where(has[:, None], goal + rng.normal(0, 0.01, goal.shape), np.nan)
    result = ExplanationResult(
        x_origs=x, x_cfs=x_cfs, y_origs=y, y_cf_targets=goal, y_cfs=y_cfs, status=status,
        source_ids=np.asarray(test.index[:rows]), space=split.space, pipeline=split.pipeline,
        target=split.target, method=cell.method.label,
    )  # fmt: skip
    return replace(result, seconds={"fit": 0.1, "explain": 1.0})


def _mixed_rows(rng, space, x, other):
    out, donors = np.array(x), other[rng.integers(0, len(other), len(x))]
    for feature in space:
        columns = list(feature.columns)
        take = rng.random(len(x)) < 0.5
        out[np.ix_(take, columns)] = donors[np.ix_(take, columns)]
    return out


def scores_of(cell, result):
    """Invented values: a level per method and dataset, noise per fold."""
    skill, where = _rng(cell.method.label), _rng(cell.dataset, cell.model)
    noise = _rng(cell.label, "noise")
    regression = result.task is Task.REGRESSION
    far = 0.1 + 0.4 * skill.random() + 0.2 * where.random() + 0.03 * noise.random()
    dense = skill.random() * 0.7 + 0.1 * noise.random()
    scores = {
        "coverage": float(result.has_candidate.mean()),
        "success": float(result.found.mean()),
        "validity": 0.8 + 0.2 * skill.random(),
        "mae": 0.05 * skill.random() + 0.01 * noise.random() if regression else None,
        "sparsity": min(1.0, far * 1.2),
        "sparsity_encoded": min(1.0, far),
        "l1": 2 * far,
        "l2": far,
        "l2_hamming": far,
        "l2_hamming_encoded": far * 0.8,
        "gower": far / 2,
        "log_density": float(-(10 ** (1 + 3 * (1 - dense)))),
        "density_percentile": dense,
        "prob_plausibility": dense * 0.9,
        "lof": 1 + 2 * (1 - dense),
        "isolation_forest": 0.15 * dense - 0.05,
        "redundancy": 0.3 * skill.random(),
        "ynn": 0.5 + 0.5 * dense,
        "cost_gap": 0.05 * noise.random() if cell.dataset == "mixed" else None,
        "effectiveness_gap": 0.2 * noise.random() if cell.dataset == "mixed" else None,
    }
    reasons = {} if regression else {"mae": "defined for regression only"}
    for gap in ("cost_gap", "effectiveness_gap"):
        told = "group: a 0.12, b 0.1" if cell.dataset == "mixed" else "needs a protected feature"
        reasons[gap] = told
    speed = float(10 ** (4 * skill.random() - 1)) * (1 + 0.2 * noise.random())
    explain = speed * len(result) / 1000
    times = {"ms_per_row": speed, "time_explain_s": explain, "time_fit_s": 0.1}
    return scores, times | {"time_s": explain + 0.1}, reasons
