"""The reference page of all metrics, written from the registry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

from cel.metrics.base import METRICS, Metric
from cel.metrics.evaluation import Evaluation
from cel.metrics.example import ExampleMethod, ExampleModel, example, regression_example
from cel.protocols import Task
from cel.result import ExplanationResult

__all__ = ["SETTINGS", "render"]

SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "connectedness": {"k": 1, "quantile": 0.5},
        "cost_gap": {"min_rows": 1},
        "delta_validity": {"delta": 0.05},
        "discriminative_power": {"k": 2},
        "effectiveness_gap": {"min_rows": 1},
        "lof": {"k": 3},
        "lof_median": {"k": 3},
        "retraining_shift": {"feature": "job"},
        "ynn": {"k": 3},
    }
)  # defaults are meant for more than twelve training rows

HEAD = """\
# Metrics

Written by `cel.metrics.docs.render()`; do not edit by hand.

x is a row, x' its counterfactual, f the model, p the number of features. A one-hot block is one
feature. Rows: *explained* needed an answer, *candidates* got one, *found* got a verified one,
*cell* is the whole run. A metric that cannot be computed is NaN with a reason in
`scores.reasons`.

```python
from cel.metrics import MetricsOrchestrator

scores = MetricsOrchestrator(conf_path="default.yaml").compute(result)
scores["validity"], scores.reasons, scores.to_frame(), scores.per_row(), scores.bootstrap()
```

Suites: `default.yaml` (the paper's), `full.yaml`, `density.yaml`, `outliers.yaml`,
`fairness.yaml`, `robustness.yaml`, or a file of your own with a list
`metrics:` of names or `name: {setting: value, as: label}`.

@SUMMARY@
## The example

`cel.metrics.example.example()` has ten people who want class 2. Age and hours are scaled; the
model looks at the score age + hours + 0.2 [job = c] and puts a row into class 1 from 0.6 and into
class 2 from 1.0. Sex is protected and fixed, age may only rise, hours come in steps of 0.1, and
hours - age must not exceed 0.6. The density is log p = -10 [(age - m)^2 + (hours - m)^2] with
m = 0.6 for class 2.

| row | status | age | hours | job | sex | age' | hours' | job' | sex' |
|---|---|---|---|---|---|---|---|---|---|
"""


PARTS = (
    "outcome", "proximity", "density", "outliers", "timing", "diversity", "minimality",
    "neighbours", "robustness", "retraining", "data_shift", "weight_changes", "fairness",
    "rule_counts",
)  # fmt: skip


def render() -> str:
    """Return the page as Markdown text."""
    result = example()
    head = HEAD.replace("@SUMMARY@", _summary())
    lines = [head + "\n".join(_example_rows()) + "\n"]
    for part in PARTS:
        module = import_module(f"cel.metrics.{part}")
        lines.append(f"## {str(module.__doc__).splitlines()[0]}\n")
        for name, metric in METRICS.items():
            if name == metric.name and metric.function.__module__ == module.__name__:
                lines.append(_section(metric, result))
    return "\n".join(lines)


def _summary() -> str:
    """Return one table over all metrics, by question."""
    lines = ["## All metrics", "", "| question | metric | better | rows | needs | meaning |"]
    lines.append("|---|---|---|---|---|---|")
    for part in PARTS:
        module = import_module(f"cel.metrics.{part}")
        question = str(module.__doc__).splitlines()[0].rstrip(".")
        for name, metric in METRICS.items():
            if name == metric.name and metric.function.__module__ == module.__name__:
                needs = ", ".join(sorted(metric.needs))
                meaning = metric.meaning.replace("|", "\\|")
                said = f"`{name}`", metric.arrow.strip(), metric.rows, needs, meaning
                lines.append(f"| {question} | {' | '.join(said)} |")
                question = ""
    return "\n".join(lines) + "\n"


def _example_rows() -> list[str]:
    result = example()
    lines = []
    for i, status in enumerate(result.status):
        before, after = _words(result.x_origs[i]), _words(result.x_cfs[i])
        lines.append(f"| {i} | {status} | {before} | {after} |")
    return lines


def _words(row: Any) -> str:
    if math.isnan(row[0]):
        return " | ".join("-" * 4)
    jobs = {(1.0, 0.0, 0.0): "a", (0.0, 1.0, 0.0): "b", (0.0, 0.0, 1.0): "c"}
    job = jobs.get(tuple(row[2:5].tolist()), "a/b")
    return f"{row[0]:g} | {row[1]:g} | {job} | {'F' if row[5] > 0.5 else 'M'}"


def _section(metric: Metric, result: ExplanationResult) -> str:
    needs = ", ".join(sorted(metric.needs)) or "nothing but the result"
    tasks = " and ".join(sorted(t.value for t in metric.tasks))
    settings = ", ".join(f"`{k}={v!r}`" for k, v in metric.parameters.items()) or "none"
    facts = [
        f"- better: {metric.better} {metric.arrow}".rstrip(),
        f"- unit: {metric.unit or 'none'}",
        f"- rows: {metric.rows}",
        f"- needs: {needs}",
        f"- tasks: {tasks}",
        f"- settings: {settings}",
    ]
    also = f" (also `{'`, `'.join(metric.aliases)}`)" if metric.aliases else ""
    source = f"\nReference: {metric.reference}.\n" if metric.reference else ""
    return (
        f"### `{metric.name}`{also} {metric.arrow}".rstrip()
        + f"\n\n{metric.meaning}\n\n    {metric.formula}\n\n"
        + "\n".join(facts)
        + f"\n{source}\n{_worked(metric, result)}\n"
    )


def _worked(metric: Metric, result: ExplanationResult) -> str:
    settings = dict(SETTINGS.get(metric.name, {}))
    only_numbers = metric.tasks == {Task.REGRESSION}
    shown = regression_example() if only_numbers else result
    assert shown.context is not None
    model = shown.context.model
    method = ExampleMethod(model) if isinstance(model, ExampleModel) else None
    evaluation = Evaluation(result=shown, context=shown.context, method=method)
    score = metric.score(evaluation, **settings)
    said = ", ".join(f"{k}={v!r}" for k, v in settings.items())
    where = "regression_example()" if only_numbers else "the example"
    head = f"On {where}{f' with {said}' if said else ''}: "
    if score.values is None:
        return head + _number(score.value) + (f" ({score.reason})." if score.reason else ".")
    pairs = zip(score.positions.tolist(), score.values.tolist(), strict=True)
    rows = ", ".join(f"row {i}: {_number(v)}" for i, v in pairs)
    return f"{head}{rows}; {metric.aggregate} **{_number(score.value)}**."


def _number(value: float) -> str:
    text = f"{value:.3g}"
    return "0" if text in ("-0", "0") else text
