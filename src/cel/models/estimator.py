"""Estimators that have a torch module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypedDict

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from cel.errors import ConfigError, DataError, NotFittedError, TrainingError
from cel.models.inputs import FitRows, as_matrix, read_rows, resolve_device, validation_cut
from cel.models.layers import FrozenModule
from cel.models.names import MODELS
from cel.models.training.jobs import Job, Outcome
from cel.models.training.loop import seeded, train
from cel.models.training.schedule import PREDICTOR_PRESETS, Schedule
from cel.parameters import Parameters
from cel.preprocessing import Encoded
from cel.registry import did_you_mean
from cel.space import FeatureSpace

__all__ = ["PytorchBase", "TrainOptions"]

ROWS_AT_ONCE = 65_536


class TrainOptions(TypedDict, total=False):
    """Constructor arguments that every model takes."""

    random_state: int
    device: str
    preset: Literal["default", "paper"]
    epochs: int | None
    patience: int | None
    batch_size: int | None
    lr: float | None
    time_limit: float | None
    progress: bool


class PytorchBase(Parameters, Encoded, ABC):
    """An estimator that *has* a torch module, `module_`, built when `fit` knows the shapes.

    An author writes `_build` and, where it differs, the loss. Modules see (n, d) rows, or
    (s, n, d) when they say `stackable = True` (see `cel.models.training.stack.Stack`).

    Args:
        random_state: seed of initial weights, order of rows, dropout and validation cut.
        device: where the module lives.
        preset: "default", or "paper" for the published settings; None below takes them from it.
        epochs: most passes over the rows.
        patience: epochs without improvement on the validation rows before stopping.
        batch_size: rows per step.
        lr: step size of Adam.
        time_limit: seconds of training.
        progress: whether to show a bar.
    """

    name: ClassVar[str]
    presets: ClassVar[Mapping[str, Schedule]] = PREDICTOR_PRESETS
    closed_form: ClassVar[bool] = False
    """Whether the model is solved, so that the settings of the training loop do not apply."""
    _test_params: ClassVar[Mapping[str, Any]] = {}

    module_: nn.Module
    history_: pd.DataFrame
    n_features_in_: int
    n_outputs_: int

    def __init__(
        self,
        *,
        random_state: int = 0,
        device: str = "cpu",
        preset: Literal["default", "paper"] = "default",
        epochs: int | None = None,
        patience: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        time_limit: float | None = None,
        progress: bool = False,
    ) -> None:
        self.random_state, self.device, self.preset = random_state, device, preset
        self.epochs, self.patience, self.batch_size = epochs, patience, batch_size
        self.lr, self.time_limit, self.progress = lr, time_limit, progress

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in vars(cls):
            MODELS.add(cls.name, cls)

    # -- what an author writes ---------------------------------------------------------------

    @abstractmethod
    def _build(self, n_in: int, n_out: int) -> nn.Module:
        """Return the untrained module; torch is seeded around this call."""

    def _initialise(self, module: nn.Module, *tables: Tensor) -> None:
        """Set weights that depend on the training rows; torch is seeded around this call."""

    @abstractmethod
    def _loss(self, module: nn.Module, *batch: Tensor) -> Tensor:
        """Return one loss per row, (..., n), from tables (..., n, k)."""

    @abstractmethod
    def _learn_target(self, rows: FitRows) -> None:
        """Set `n_outputs_` and what else is known from the targets."""

    @abstractmethod
    def _encode_target(self, y: np.ndarray | None) -> Tensor | None:
        """Return targets as the tensor that `_loss` takes, with one row per row."""

    def _solve(self, job: Job) -> Outcome:
        """Train; models with a closed form do it here instead."""
        return train([job], progress=self.progress)[0]

    def _state(self) -> dict[str, Any]:
        """Return learned attributes besides the weights, as JSON; `load` sets them again."""
        return {}

    # -- fitting -----------------------------------------------------------------------------

    def fit(
        self, data: Any, y: Any = None, *, space: FeatureSpace | None = None, valid: Any = None
    ) -> Self:
        """Learn from a DataLoader of a CEL dataset, or from rows and targets.

        Args:
            data: a loader, encoded rows (n, d), or a raw DataFrame.
            y: labels (n,), or values (n, m).
            space: encoded space of the rows; with a DataFrame its raw space, else inferred.
            valid: pair of validation rows and targets; else the loader's, else 15 % of the rows.
        """
        with torch.inference_mode(False), torch.enable_grad():
            job = self.prepare(read_rows(data, y, space, valid))
            return self.adopt(job, self._solve(job))

    def prepare(self, rows: FitRows) -> Job:
        """Check everything, build the module and return what is to be trained."""
        schedule, device = self.schedule(), resolve_device(self.device)
        if not len(rows.X):
            raise DataError(f"{type(self).__name__} cannot learn from 0 rows")
        self.encoding_ = rows.encoding
        self.n_features_in_ = rows.X.shape[1]
        self._learn_target(rows)
        fit, valid = self._tables(rows, device)
        with seeded(self.random_state, device):
            module = self._build(self.n_features_in_, self.n_outputs_).to(device)
            self._initialise(module, *fit)
        return Job(
            module=module,
            loss=self._loss,
            train=fit,
            valid=valid,
            schedule=schedule.for_rows(len(fit[0])),
            seed=self.random_state,
            name=type(self).__name__,
        )

    def adopt(self, job: Job, outcome: Outcome) -> Self:
        """Take over a trained module; raise if its training diverged, keeping the best weights."""
        job.module.zero_grad(set_to_none=True)
        self.module_ = job.module.requires_grad_(False).eval()
        self.history_ = pd.DataFrame(outcome.history)
        if outcome.reason == "diverged":
            raise TrainingError(
                f"{job.name}: the loss was not finite in epoch {len(outcome.history)}; the "
                f"weights of epoch {outcome.best_epoch} are kept. Lower "
                f"lr={job.schedule.lr:g}, or look for extreme values in the rows"
            )
        return self

    def schedule(self) -> Schedule:
        """Return the preset with the settings of this model."""
        if self.preset not in self.presets:
            hint = did_you_mean(str(self.preset), self.presets)
            raise ConfigError(f"unknown preset {self.preset!r}; {hint}")
        names = ("epochs", "patience", "batch_size", "lr", "time_limit")
        given = {n: getattr(self, n) for n in names if getattr(self, n) is not None}
        if self.closed_form and given:
            name, value = next(iter(given.items()))
            raise ConfigError(
                f"{type(self).__name__} is solved directly; {name}={value!r} has no use"
            )
        return self.presets[self.preset].override(**given)

    def _tables(
        self, rows: FitRows, device: torch.device
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return the tables of training and of validation rows, on the device."""
        X, target = rows.X.float(), self._encode_target(rows.y)
        if rows.valid_x is not None:
            parts = [(X, target), (rows.valid_x.float(), self._encode_target(rows.valid_y))]
        elif self.closed_form:
            parts = [(X, target), (X, target)]
        else:
            whole = target is not None and not target.is_floating_point() and target.dim() == 1
            labels = target.numpy() if whole and target is not None else None
            cut = validation_cut(len(X), labels, self.random_state)
            parts = [(X[i], None if target is None else target[i]) for i in cut]
        fit, valid = (tuple(t.to(device) for t in p if t is not None) for p in parts)
        return fit, valid

    # -- using -------------------------------------------------------------------------------

    def frozen(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return the module for use: eval mode, no gradients to parameters, in `dtype`.

        It shares the weights of `module_` where the dtype allows, and leaves `module_` untouched.
        """
        self.check_fitted()
        cache = self.__dict__.get("_frozen_")
        if cache is None or cache.module is not self.module_:
            cache = self._frozen_ = FrozenModule(self.module_)
        return cache.as_dtype(dtype)

    def check_fitted(self) -> None:
        """Raise unless the model was fitted or loaded."""
        if not hasattr(self, "module_"):
            raise NotFittedError(f"{type(self).__name__} is not fitted; call fit first")

    def _input(self, x: Tensor) -> Tensor:
        """Return a tensor of encoded rows on the model's device, with its width checked."""
        self.check_fitted()
        if x.dim() != 2 or x.shape[1] != self.n_features_in_:
            raise DataError(
                f"expected rows of shape (n, {self.n_features_in_}), got {tuple(x.shape)}"
            )
        x = x if x.is_floating_point() else x.float()
        return x.to(next(self.module_.parameters(), x).device)

    def _over_rows(self, X: Any, function: Callable[[Tensor], Tensor]) -> np.ndarray:
        """Apply a function to checked rows, chunk by chunk without gradients."""
        self.check_fitted()
        x = as_matrix(X, pipeline=self.pipeline_, width=self.n_features_in_)
        with torch.no_grad():
            parts = [function(self._input(part)) for part in torch.split(x, ROWS_AT_ONCE)]
        return torch.cat(parts).cpu().numpy()

    # -- files -------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write the fitted model to one safetensors file with JSON metadata."""
        from cel.models.storage import save_model

        return save_model(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, device: str = "cpu") -> Self:
        """Read a model of this class; nothing in the file is executed."""
        from cel.models.storage import load_model

        model = load_model(path, device=device)
        if not isinstance(model, cls):
            raise ConfigError(f"{path} holds a {type(model).__name__}, not a {cls.__name__}")
        return model
