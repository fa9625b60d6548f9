"""Small problems with closed-form models on which every method is checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cel.models.adapters import wrap
from cel.protocols import Need, Task
from cel.space import Feature, FeatureSpace

__all__ = ["PROBLEMS", "GaussianDensity", "Problem", "ToyModel"]


class ToyModel:
    """A fixed differentiable model; linear when `weights` are its whole story."""

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
class Problem:
    """A model, a space, training rows and rows to explain."""

    name: str
    task: Task
    model: Any
    space: FeatureSpace
    x_train: np.ndarray
    x: np.ndarray
    target: Any

    @property
    def density(self) -> GaussianDensity:
        """A density over the rows of this problem."""
        x = torch.as_tensor(self.x_train)
        if self.task is Task.REGRESSION:
            return GaussianDensity(x.mean(0, keepdim=True))
        y = torch.as_tensor(self.model.predict(self.x_train))
        return GaussianDensity(torch.stack([x[y == k].mean(0) for k in torch.unique(y)]))

    def build(self, cls: type, **changes: Any) -> Any:
        """Make an instance of a method class with its cheap settings."""
        extra = {"gen_model": self.density} if Need.DENSITY in cls.needs else {}  # type: ignore[attr-defined]
        params = dict(cls._test_params) | extra | {"space": self.space} | changes  # type: ignore[attr-defined]
        return cls(self.model, **params)

    def fitted(self, cls: type, **changes: Any) -> Any:
        """Make an instance and fit it on the training rows."""
        return self.build(cls, **changes).fit(self.x_train, self.model.predict(self.x_train))


def _numeric() -> Problem:
    rng = np.random.default_rng(0)
    rows = rng.random((240, 3)).astype(np.float32)
    w = np.array([[0, 0, 0], [4, 3, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.5], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("binary_numeric", model, FeatureSpace.continuous(3), rows, 1)


def _bent() -> Problem:
    rng = np.random.default_rng(1)
    rows = rng.random((240, 3)).astype(np.float32)
    w = np.array([[0, 0, 0], [4, 3, -2]], dtype=np.float32)
    model = ToyModel(w, np.array([0, -2.5], dtype=np.float32), Task.CLASSIFICATION, bend=0.2)
    return _problem("binary_curved", model, FeatureSpace.continuous(3), rows, 1)


def _mixed() -> Problem:
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


def _three_classes() -> Problem:
    rng = np.random.default_rng(3)
    rows = rng.random((300, 2)).astype(np.float32)
    w = np.array([[4, 0], [-2, 4], [-2, -4]], dtype=np.float32)
    model = ToyModel(w, np.array([-1.5, 0, 2.5], dtype=np.float32), Task.CLASSIFICATION)
    return _problem("three_classes", model, FeatureSpace.continuous(2), rows, 0)


def _regression() -> Problem:
    rng = np.random.default_rng(4)
    rows = rng.random((200, 3)).astype(np.float32)
    w = np.array([[0.5, 0.3, -0.2]], dtype=np.float32)
    model = ToyModel(w, np.array([0.2], dtype=np.float32), Task.REGRESSION)
    return _problem("regression", model, FeatureSpace.continuous(3), rows, None)


def _outputs() -> Problem:
    rng = np.random.default_rng(5)
    rows = rng.random((200, 4)).astype(np.float32)
    w = np.array([[0.6, 0.2, 0, 0], [0, 0.2, 0.6, 0.1]], dtype=np.float32)
    model = ToyModel(w, np.array([0.1, 0.1], dtype=np.float32), Task.REGRESSION)
    return _problem("multi_output", model, FeatureSpace.continuous(4), rows, None)


def _boosted_trees() -> Problem:
    from sklearn.ensemble import GradientBoostingClassifier

    p = _mixed()
    labels = p.model.predict(p.x_train)
    trees = GradientBoostingClassifier(n_estimators=20, max_depth=3, random_state=0)
    model = wrap(trees.fit(p.x_train, labels), space=p.space, task=Task.CLASSIFICATION)
    return _problem("trees_mixed", model, p.space, np.concatenate([p.x, p.x_train]), 1)


def _forest() -> Problem:
    from sklearn.ensemble import RandomForestClassifier

    p = _three_classes()
    trees = RandomForestClassifier(n_estimators=10, max_depth=5, random_state=0)
    trees.fit(p.x_train, p.model.predict(p.x_train))
    model = wrap(trees, space=p.space, task=Task.CLASSIFICATION)
    return _problem("trees_three_classes", model, p.space, np.concatenate([p.x, p.x_train]), 0)


def _tree_regression() -> Problem:
    from sklearn.ensemble import ExtraTreesRegressor

    p = _regression()
    trees = ExtraTreesRegressor(n_estimators=10, max_depth=6, random_state=0)
    trees.fit(p.x_train, p.model.predict(p.x_train)[:, 0])
    model = wrap(trees, space=p.space, task=Task.REGRESSION)
    return _problem("trees_regression", model, p.space, np.concatenate([p.x, p.x_train]), None)


def _problem(name: str, model: Any, space: FeatureSpace, rows: np.ndarray, target: Any) -> Problem:
    keep = np.arange(len(rows)) < 12 if target is None else model.predict(rows) != target
    return Problem(
        name=name, task=model.task, model=model, space=space,
        x_train=rows[24:], x=rows[np.flatnonzero(keep)[:12]], target=target,
    )  # fmt: skip


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "binary_numeric": _numeric,
    "binary_curved": _bent,
    "mixed": _mixed,
    "three_classes": _three_classes,
    "regression": _regression,
    "multi_output": _outputs,
    "trees_mixed": _boosted_trees,
    "trees_three_classes": _forest,
    "trees_regression": _tree_regression,
}
