"""Small problems with closed-form models on which every method is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from cel.cf_methods.view import ModelView
from cel.models.adapters import wrap
from cel.preprocessing import PreprocessingPipeline
from cel.protocols import Need, Task
from cel.space import Feature, FeatureSpace, Implication, LinearRelation, Target
from cel.testing.doubles import BlackBox

__all__ = ["PROBLEMS", "GaussianDensity", "ToyModel", "ToyProblem"]


class ToyModel:
    """A fixed differentiable model; linear when `weights` are its whole story."""

    space_: FeatureSpace
    pipeline_: PreprocessingPipeline
    target_: Target

    def __init__(
        self, weights: np.ndarray, bias: np.ndarray, task: Task, *, bend: float = 0.0
    ) -> None:
        self.task, self.bend = task, bend
        self.weights, self.bias = torch.as_tensor(weights), torch.as_tensor(bias)
        self.n_outputs_ = len(bias)
        self.classes_ = np.arange(len(bias))
        if not bend:
            self.linear_ = lambda: (self.weights, self.bias)

    def logits(self, x: Tensor) -> Tensor:
        """Return a linear map, bent by a sine when `bend` is set."""
        z = x @ self.weights.to(x).T + self.bias.to(x)
        return z + self.bend * torch.sin(3 * z) if self.bend else z

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return softmax probabilities."""
        with torch.no_grad():
            return torch.softmax(self.logits(torch.as_tensor(np.asarray(X))), 1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """Return class positions or values."""
        with torch.no_grad():
            z = self.logits(torch.as_tensor(np.asarray(X))).numpy()
        return z if self.task is Task.REGRESSION else np.asarray(z.argmax(1))


class GaussianDensity:
    """One broad Gaussian per class around the training mean, in encoded coordinates."""

    def __init__(self, centres: Tensor, scale: float = 0.4) -> None:
        self.centres, self.scale = centres, scale

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Return log p(x | context)."""
        if context is None or context.is_floating_point():
            centre = self.centres.mean(0).to(x)
        else:
            centre = self.centres.to(x)[context.long().reshape(-1)]
        d = x.shape[1]
        constant = d * np.log(self.scale * np.sqrt(2 * np.pi))
        return -0.5 * ((x - centre) / self.scale).square().sum(-1) - float(constant)

    def sample(self, n: int, context: Tensor | None = None) -> Tensor:
        """Return the centre of the context, repeated."""
        position = 0 if context is None else int(context.reshape(-1)[0])
        return self.centres[position].expand(n, -1).clone()


@dataclass(frozen=True, kw_only=True, eq=False)
class ToyProblem:
    """A model, a space, training rows and rows to explain.

    Attributes:
        name: what reports call it.
        task: classification or regression.
        model: the model that is explained.
        space: the encoded space.
        x_train: (m, d) encoded training rows.
        x: (n, d) encoded rows to explain.
        target: position of the wanted class, None for regression.
        pipeline: given where users hand over tables instead of encoded rows.
    """

    name: str
    task: Task
    model: Any
    space: FeatureSpace
    x_train: np.ndarray
    x: np.ndarray
    target: Any
    pipeline: PreprocessingPipeline | None = None

    @property
    def density(self) -> GaussianDensity:
        """A density over the rows of this problem."""
        x = torch.as_tensor(self.x_train)
        if self.task is Task.REGRESSION:
            return GaussianDensity(x.mean(0, keepdim=True))
        y = torch.as_tensor(self.outcome(self.x_train))
        return GaussianDensity(torch.stack([x[y == k].mean(0) for k in torch.unique(y)]))

    def outcome(self, x: np.ndarray) -> np.ndarray:
        """Return what the model says of encoded rows: class positions (n,) or values (n, o)."""
        return ModelView(self.model).outcome(x)

    @property
    def wanted(self) -> Any:
        """The target as a user says it: a label where the model has labels."""
        labels = getattr(self.model, "target_", None)
        return self.target if labels is None else labels.classes[self.target]

    def given(self, x: np.ndarray) -> Any:
        """Return encoded rows (n, d) as a user has them: a table where there is a pipeline."""
        return x if self.pipeline is None else self.pipeline.inverse_transform(x)

    def build(self, cls: type, **changes: Any) -> Any:
        """Make an instance of a method class with its cheap settings."""
        known: dict[str, Any] = {} if self.pipeline is not None else {"space": self.space}
        if Need.DENSITY in cls.needs:  # type: ignore[attr-defined]
            known["gen_model"] = self.density
        params = dict(cls._test_params) | known | changes  # type: ignore[attr-defined]
        return cls(self.model, **params)

    def fitted(self, cls: type, **changes: Any) -> Any:
        """Make an instance and fit it on the training rows."""
        method = self.build(cls, **changes)
        return method.fit(self.given(self.x_train), self.model.predict(self.x_train))

    def explain(self, method: Any, x: np.ndarray | None = None) -> Any:
        """Let a method explain rows (n, d), by default those of the problem."""
        return method.explain(self.given(self.x if x is None else x), self.wanted)


def _numeric() -> ToyProblem:
    rng = np.random.default_rng(0)
    rows = rng.random((240, 3)).astype(np.float32)
    w = np.array([[0, 0, 0], [4, 3, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.5], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("binary_numeric", model, FeatureSpace.continuous(3), rows, 1)


def _bent() -> ToyProblem:
    rng = np.random.default_rng(1)
    rows = rng.random((240, 3)).astype(np.float32)
    w = np.array([[0, 0, 0], [4, 3, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.5], dtype=np.float32), Task.CLASSIFICATION, bend=0.2)
    return _problem("binary_curved", model, FeatureSpace.continuous(3), rows, 1)


def _mixed() -> ToyProblem:
    rng = np.random.default_rng(2)
    space = FeatureSpace(
        (
            Feature(name="income", columns=(0,)),
            Feature(name="months", kind="integer", columns=(1,), step=0.1),
            Feature(
                name="job", kind="categorical", columns=(2, 3, 4), categories=("a", "b", "c"),
                allowed=("b", "c"),
            ),
            Feature(name="age", kind="integer", columns=(5,), step=0.05, direction="up"),
            Feature(name="origin", columns=(6,), mutable=False),
            Feature(name="debt", columns=(7,), direction="down"),
        )
    )  # fmt: skip
    n = 300
    job = np.eye(3)[rng.integers(0, 3, n)]
    rows = np.column_stack(
        [
            rng.random(n), rng.integers(0, 11, n) / 10, job,
            rng.integers(0, 21, n) / 20, rng.random(n), rng.random(n),
        ]
    ).astype(np.float32)  # fmt: skip
    w = np.array([[0] * 8, [3, 2, -1, 0, 1.5, 1, 2, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -3.2], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("mixed", model, space, rows, 1)


def _three_classes() -> ToyProblem:
    rng = np.random.default_rng(3)
    rows = rng.random((300, 2)).astype(np.float32)
    w = np.array([[4, 0], [-2, 4], [-2, -4]], dtype=np.float32)
    model = ToyModel(w, np.array([-1.5, 0, 2.5], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("three_classes", model, FeatureSpace.continuous(2), rows, 0)


def _regression() -> ToyProblem:
    rng = np.random.default_rng(4)
    rows = rng.random((200, 3)).astype(np.float32)
    w = np.array([[0.5, 0.3, -0.2]], dtype=np.float32)
    model = ToyModel(w, np.array([0.2], dtype=np.float32), Task.REGRESSION)
    return _problem("regression", model, FeatureSpace.continuous(3), rows, None)


def _outputs() -> ToyProblem:
    rng = np.random.default_rng(5)
    rows = rng.random((200, 4)).astype(np.float32)
    w = np.array([[0.6, 0.2, 0, 0], [0, 0.2, 0.6, 0.1]], dtype=np.float32)
    model = ToyModel(w, np.array([0.1, 0.1], dtype=np.float32), Task.REGRESSION)
    return _problem("multi_output", model, FeatureSpace.continuous(4), rows, None)


def _boosted_trees() -> ToyProblem:
    from sklearn.ensemble import GradientBoostingClassifier

    p = _mixed()
    labels = p.model.predict(p.x_train)
    trees = GradientBoostingClassifier(n_estimators=20, max_depth=3, random_state=0)
    model = wrap(trees.fit(p.x_train, labels), space=p.space, task=Task.CLASSIFICATION)
    return _problem("trees_mixed", model, p.space, np.concatenate([p.x, p.x_train]), 1)


def _forest() -> ToyProblem:
    from sklearn.ensemble import RandomForestClassifier

    p = _three_classes()
    trees = RandomForestClassifier(n_estimators=10, max_depth=5, random_state=0)
    trees.fit(p.x_train, p.model.predict(p.x_train))
    model = wrap(trees, space=p.space, task=Task.CLASSIFICATION)
    return _problem("trees_three_classes", model, p.space, np.concatenate([p.x, p.x_train]), 0)


def _tree_regression() -> ToyProblem:
    from sklearn.ensemble import ExtraTreesRegressor

    p = _regression()
    trees = ExtraTreesRegressor(n_estimators=10, max_depth=6, random_state=0)
    trees.fit(p.x_train, p.model.predict(p.x_train)[:, 0])
    model = wrap(trees, space=p.space, task=Task.REGRESSION)
    return _problem("trees_regression", model, p.space, np.concatenate([p.x, p.x_train]), None)


def _black_box() -> ToyProblem:
    """The mixed problem with a bent score of which only predictions are known."""
    p = _mixed()
    bent = ToyModel(p.model.weights.numpy(), p.model.bias.numpy(), p.task, bend=0.2)
    return _problem("black_box", BlackBox(bent), p.space, np.concatenate([p.x, p.x_train]), 1)


def _related() -> ToyProblem:
    """Numbers that bound each other, ranks, and a job that asks for a degree."""
    rng = np.random.default_rng(6)
    grades = ("none", "school", "degree", "doctor", "other")
    space = FeatureSpace(
        (
            Feature(name="used", columns=(0,)),
            Feature(name="limit", columns=(1,)),
            Feature(
                name="grade", kind="ordinal", columns=(2,), step=0.25, categories=grades,
                allowed=grades[:4],
            ),
            Feature(
                name="job", kind="categorical", columns=(3, 4, 5),
                categories=("clerk", "nurse", "doctor"),
            ),
            Feature(name="years", kind="integer", columns=(6,), step=0.1, direction="up"),
        ),
        (
            LinearRelation.of({"used": 1, "limit": -1}),
            LinearRelation.of({"used": 1, "years": 1}, 1.5),
            Implication("job", ("doctor",), "grade", ("degree", "doctor")),
        ),
    )  # fmt: skip
    n = 400
    low, high = np.sort(rng.random((n, 2)), 1).T
    grade, job = rng.integers(0, 4, n), rng.integers(0, 3, n)
    job = np.where((job == 2) & (grade < 2), 0, job)
    years = np.minimum(rng.integers(0, 11, n) / 10, np.floor((1.5 - low) * 10) / 10)
    rows = np.column_stack([low, high, grade / 4, np.eye(3)[job], years]).astype(np.float32)
    w = np.array([[0] * 7, [2.5, -1, 1.5, 0, 0.2, 1.5, 1.5]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.9], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("related", model, space, rows, 1)


def _table() -> ToyProblem:
    """A table with labels in its columns and in its outcome; the model knows the pipeline."""
    rng = np.random.default_rng(7)
    n, size, homes = 300, ("small", "medium", "large"), ("own", "rent", "none")
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 70, n),
            "income": np.round(rng.lognormal(8, 0.6, n), 2),
            "home": rng.choice(homes, n),
            "size": rng.choice(size, n),
            "debt": np.round(rng.random(n) * 5000, 2),
        }
    )
    raw = FeatureSpace(
        (
            Feature(name="age", kind="integer", lower=18, upper=90, step=1, mutable=False),
            Feature(name="income", columns=(1,), lower=0, upper=np.inf),
            Feature(name="home", kind="categorical", columns=(2,), categories=homes),
            Feature(name="size", kind="ordinal", columns=(3,), categories=size, upper=2, step=1),
            Feature(name="debt", columns=(4,), lower=0, upper=np.inf, direction="down"),
        )
    )  # fmt: skip
    pipeline = PreprocessingPipeline().fit(frame, raw)
    w = np.array([[0] * 7, [1, 4, 1, 0, -1, 1.5, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -1.6], dtype=np.float32), Task.CLASSIFICATION)
    model.space_, model.pipeline_ = pipeline.space_, pipeline
    model.target_ = Target(names=("loan",), task=Task.CLASSIFICATION, classes=("no", "yes"))
    p = _problem("table", model, pipeline.space_, pipeline.transform(frame), 1)
    return replace(p, pipeline=pipeline)


def _problem(
    name: str, model: Any, space: FeatureSpace, rows: np.ndarray, target: Any
) -> ToyProblem:
    keep = np.arange(len(rows)) < 12 if target is None else model.predict(rows) != target
    return ToyProblem(
        name=name, task=model.task, model=model, space=space,
        x_train=rows[24:], x=rows[np.flatnonzero(keep)[:12]], target=target,
    )  # fmt: skip


PROBLEMS: dict[str, Callable[[], ToyProblem]] = {
    "binary_numeric": _numeric,
    "binary_curved": _bent,
    "mixed": _mixed,
    "three_classes": _three_classes,
    "regression": _regression,
    "multi_output": _outputs,
    "trees_mixed": _boosted_trees,
    "trees_three_classes": _forest,
    "trees_regression": _tree_regression,
    "black_box": _black_box,
    "related": _related,
    "table": _table,
}
