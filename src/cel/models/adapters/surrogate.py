"""Differentiable stand-ins for black boxes, asked for by name and never used silently."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from cel.errors import ConfigError
from cel.models.classifiers import MLPClassifier
from cel.models.estimator import TrainOptions
from cel.models.inputs import FitRows, as_matrix, read_rows, validation_cut
from cel.models.regressors import MLPRegressor
from cel.preprocessing import Encoded, Encoding
from cel.protocols import Predictor, Task, positions
from cel.space import FeatureSpace

__all__ = ["SurrogateModel", "fit_surrogate"]


class _SoftLabelMLP(MLPClassifier):
    """A network fitted to probabilities (n, K) by the Kullback-Leibler divergence."""

    def _learn_target(self, rows: FitRows) -> None:
        assert rows.y is not None
        self.n_outputs_ = rows.y.shape[1]
        self.classes_ = np.arange(self.n_outputs_)

    def _encode_target(self, y: np.ndarray | None) -> Tensor:
        return torch.from_numpy(np.array(y, dtype=np.float32))

    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        x, p = batch
        log_q: Tensor = module(x).log_softmax(-1)
        return (p * (p.clamp(min=1e-12).log() - log_q)).sum(-1)


class SurrogateModel(Encoded):
    """The answers of a real model together with the gradients of a network that imitates it.

    `predict` and `predict_proba` ask the real model, so whatever is found along the gradients of
    `logits` is judged by the real model.

    Attributes:
        real: the model that is explained.
        imitation: the fitted network.
        fidelity_: on held-out rows, the share of equal predictions, or R2 for regression.
    """

    def __init__(self, real: Predictor, imitation: Any, fidelity: float) -> None:
        self.real, self.imitation, self.fidelity_ = real, imitation, fidelity
        self.task = Task(real.task)
        self.encoding_ = Encoding.of(real)
        self.classes_ = getattr(real, "classes_", None)
        self.n_features_in_, self.n_outputs_ = imitation.n_features_in_, imitation.n_outputs_

    @property
    def threshold(self) -> float | None:
        """Probability from which on the real model predicts the second of two classes, if any."""
        found: float | None = getattr(self.real, "threshold", None)
        return found

    def decide(self, X: Any) -> np.ndarray:
        """Return the class positions (n,) that the real model decides on."""
        own = getattr(self.real, "decide", None)
        return positions(self.real, self.real.predict_proba(X)) if own is None else own(X)

    @property
    def reads_tables(self) -> bool:
        """Whether the real model is asked with raw tables."""
        return bool(getattr(self.real, "reads_tables", False))

    def bound(self, decode: Any) -> SurrogateModel:
        """Return the same pair with another way from encoded rows to raw tables."""
        return SurrogateModel(self.real.bound(decode), self.imitation, self.fidelity_)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"SurrogateModel({self.real!r}, fidelity={self.fidelity_:.3f})"

    def predict(self, X: Any) -> np.ndarray:
        """Return the predictions of the real model."""
        return self.real.predict(X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probabilities of the real model (n, K)."""
        return self.real.predict_proba(X)

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits or values of the imitation; gradients reach `x`."""
        out: Tensor = self.imitation.logits(x)
        return out


def fit_surrogate(
    real: Predictor,
    X: Any,
    *,
    hidden: tuple[int, ...] = (256, 256),
    crossovers: float = 1.0,
    **options: Unpack[TrainOptions],
) -> SurrogateModel:
    """Fit a network to the probabilities, or values, that a black box gives.

    Args:
        real: the black box, for example from `wrap`.
        X: encoded rows (n, d), a raw DataFrame, or a loader; labels are not used.
        hidden: widths of the network.
        crossovers: how many additional rows to ask for per row; each takes every feature from one
            of two random rows.
        options: see `PytorchBase`.

    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from cel.models import wrap
    >>> X = np.random.default_rng(0).random((200, 2))
    >>> tree = DecisionTreeClassifier(max_depth=1).fit(X, X[:, 0] > 0.5)
    >>> model = fit_surrogate(wrap(tree, space=FeatureSpace.continuous(2)), X, epochs=30)
    >>> model.fidelity_ > 0.8
    True
    """
    if crossovers < 0:
        raise ConfigError(f"crossovers must not be negative, got {crossovers!r}")
    seed, space = options.get("random_state", 0), getattr(real, "space_", None)
    x = _rows(X, real, space).float()
    fit, held = validation_cut(len(x), None, seed)
    rows = torch.cat([x[fit], _cross(x[fit], space, int(crossovers * len(fit)), seed)])
    soft = real.task == Task.CLASSIFICATION
    ask = real.predict_proba if soft else real.predict
    wanted, kept = ask(rows.numpy()), ask(x[held].numpy())
    maker = _SoftLabelMLP if soft else MLPRegressor
    model = maker(hidden=hidden, **options)
    model.fit(rows, wanted, space=space, valid=(x[held], kept))
    if soft:
        fidelity = float((model.predict(x[held]) == kept.argmax(1)).mean())
    else:
        fidelity = model.score(x[held], kept)
    return SurrogateModel(real, model, fidelity)


def _rows(X: Any, real: Predictor, space: FeatureSpace | None) -> Tensor:
    if hasattr(X, "dataset"):
        return read_rows(X, None, space, None).X
    return as_matrix(X, pipeline=getattr(real, "pipeline_", None))


def _cross(x: Tensor, space: FeatureSpace | None, n: int, seed: int) -> Tensor:
    """Return (n, d) rows that take each feature from one of two random rows."""
    rng = torch.Generator().manual_seed(seed)
    owner = torch.arange(x.shape[1]) if space is None else torch.from_numpy(space.owner)
    pairs = torch.randint(len(x), (2, n), generator=rng)
    first = torch.rand(n, int(owner.max()) + 1, generator=rng) < 0.5
    return torch.where(first[:, owner], x[pairs[0]], x[pairs[1]])
