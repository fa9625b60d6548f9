"""The contract of a counterfactual method: authors write `_explain`, the base does the rest."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, Unpack, cast

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.options import Options
from cel.cf_methods.prepare import Prepared, encoding_of, prepare, training_data
from cel.cf_methods.query import Answer, Query, TrainRows
from cel.cf_methods.verify import assemble
from cel.cf_methods.view import ModelView
from cel.errors import (
    BudgetExceeded,
    ConfigError,
    MissingInputError,
    NotFittedError,
    UnsupportedError,
)
from cel.parameters import Parameters, check_choices
from cel.preprocessing import Encoding, PreprocessingPipeline
from cel.protocols import Need, Predictor, Scope, Support, Task
from cel.registry import Registry, did_you_mean
from cel.result import ExplanationResult
from cel.search import Budget, RowStreams
from cel.space import FeatureSpace, Target
from cel.space.region import Region

__all__ = [
    "METHODS",
    "BaseCounterfactualMethod",
    "GlobalMixin",
    "GroupMixin",
    "LocalMixin",
    "Options",
]

METHODS: Registry[type[BaseCounterfactualMethod]] = Registry("method", group="cel.methods")


class BaseCounterfactualMethod(Parameters, ABC):
    """Base of all methods.

    A subclass declares what it needs and supports, stores its settings in `__init__`, and answers
    a `Query` in `_explain`. Checking, batching, timing, snapping, verification on the real model
    and the status of every row are done here.
    """

    name: ClassVar[str] = ""
    scope: ClassVar[Scope] = Scope.LOCAL
    tasks: ClassVar[frozenset[Task]] = frozenset({Task.CLASSIFICATION})
    needs: ClassVar[frozenset[Need]] = frozenset()
    supports: ClassVar[frozenset[Support]] = frozenset(Support) - {Support.MULTIOUTPUT}
    reference: ClassVar[str] = ""
    version: ClassVar[int] = 1
    rows_independent: ClassVar[bool] = True
    takes_intervals: ClassVar[bool] = False  # whether regression targets may be (n, 2 o) ends
    proves: ClassVar[bool] = False  # whether it may say `infeasible` or prove costs
    infeasible_means: ClassVar[str] = ""  # where its answers must be more than valid and allowed
    autoencoder_settings: ClassVar[Mapping[str, str]] = {}  # see `cel.cf_methods.row_codes`
    encoding_: Encoding
    strict_time: bool = False  # whether slow models are asked piecemeal to keep the time limit
    _copies: ClassVar[int] = 40  # float matrices alive per row, for the size of a batch
    _test_params: ClassVar[Mapping[str, Any]] = {}
    _options: ClassVar[type | None] = Options

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" in cls.__dict__ and cls.name and not inspect.isabstract(cls):
            METHODS.add(cls.name, cls)

    def __init__(self, model: Predictor, **options: Unpack[Options]) -> None:
        unknown = sorted(set(options) - set(Options.__annotations__))
        if unknown:
            hint = did_you_mean(unknown[0], self.param_names())
            raise ConfigError(f"{type(self).__name__} has no setting {unknown[0]!r}; {hint}")
        self.model = model
        self.space = options.get("space")
        self.random_state = options.get("random_state", 0)
        self.time_limit = options.get("time_limit")
        self.max_queries = options.get("max_queries")
        self.batch_size = options.get("batch_size")
        self.tolerance = options.get("tolerance", 0.05)
        self.progress = options.get("progress", False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self.model).__name__})"

    # -- the author's part -------------------------------------------------------------------

    @abstractmethod
    def _explain(self, query: Query) -> Answer | Tensor:
        """Return candidates (n, d) for the rows of the query, NaN where there is none."""

    def _fit(self, train: TrainRows) -> None:
        """Learn from training rows; `self.train_` holds them already."""

    def _check(self, model: ModelView, space: FeatureSpace) -> None:
        """Raise `UnsupportedError` for combinations that cannot work."""

    @property
    def keeps_class(self) -> bool:
        """Whether every row is to keep its predicted class, whatever target is given."""
        return False

    # -- the user's part ---------------------------------------------------------------------

    def fit(self, data: Any, y: Any = None) -> Self:
        """Learn from training rows.

        Args:
            data: a `Split`, a data loader, a DataFrame or an (m, d) array of encoded rows.
            y: outcomes, only to be passed on; what counts is what the model predicts.
        """
        started, busy = time.perf_counter(), time.process_time()
        given = training_data(data, y, self.model, self.space)
        view = self._view(Budget())
        self._refuse(view, given.space)
        self.encoding_, self._split = given.encoding, given.split
        x = torch.as_tensor(given.x)
        predicted = torch.as_tensor(view.outcome(given.shown))
        labels = None if given.y is None else torch.as_tensor(given.y)
        reserve = None if given.reserve is None else torch.as_tensor(given.reserve)
        self.train_ = TrainRows(x=x, y=predicted, labels=labels, reserve=reserve)
        self._fit(self.train_)
        self.fit_seconds_ = time.perf_counter() - started
        self.fit_cpu_seconds_ = time.process_time() - busy
        return self

    def adopt_rows(self, other: BaseCounterfactualMethod) -> Self:
        """Learn from the rows that another fitted method of the same model was fitted on."""
        self._refuse(self._view(Budget()), other.space_)
        self.encoding_, self._split, self.train_ = other.encoding_, other._split, other.train_
        self._fit(self.train_)
        return self

    def answer(self, query: Query) -> Answer:
        """Answer a query that another method passes on, without verification."""
        reply = self._explain(query)
        return reply if isinstance(reply, Answer) else Answer(x=reply)

    def explain(self, X: Any, target: Any = None) -> ExplanationResult:
        """Return one outcome per row of `X`.

        Args:
            X: a DataFrame in original units, or an (n, d) array or tensor of encoded rows.
            target: the wanted class (label, or position for encoded rows) or one per row;
                "opposite" for two classes; for regression a value or one per row in units of the
                training range. By default the desirable class of the dataset, the opposite class,
                or the prediction plus 20 % of the range.
        """
        view = self._view(Budget(self.time_limit, strict=self.strict_time))
        self._refuse(view, encoding_of(self).space)
        self._require_fit()
        prepared = self._prepare(X, target, view)
        view.budget.set_aside(view.budget.elapsed())  # verifying takes about as long as preparing
        started, busy = time.perf_counter(), time.process_time()
        answers = [
            answer
            for part, bound in prepared.groups(view)
            for answer in self._answer_in_batches(part, bound)
        ]
        self._synchronise()
        seconds = {
            "fit": getattr(self, "fit_seconds_", 0.0),
            "explain": time.perf_counter() - started,
            "fit_cpu": getattr(self, "fit_cpu_seconds_", 0.0),
            "explain_cpu": time.process_time() - busy,
        }
        return assemble(self, prepared, answers, view, seconds)

    def explain_dataloader(self, loader: Any) -> ExplanationResult:
        """Explain the rows of a loader; a method that needs training rows fits on its split."""
        rows = loader.dataset
        if not hasattr(self, "train_") and getattr(rows, "split", None) is not None:
            self.fit(rows.split)
        if hasattr(rows, "rows"):
            return self.explain(rows.rows)
        return self.explain(torch.cat([batch[0] for batch in loader]))

    @property
    def space_(self) -> FeatureSpace:
        """Encoded features of the training rows."""
        return cast(FeatureSpace, self._fitted.space)

    @property
    def pipeline_(self) -> PreprocessingPipeline | None:
        """What encodes raw tables, or None."""
        return self._fitted.pipeline

    @property
    def target_(self) -> Target | None:
        """The outcome, or None."""
        return self._fitted.target

    @property
    def _fitted(self) -> Encoding:
        if not hasattr(self, "encoding_"):
            raise AttributeError(f"{type(self).__name__} is not fitted")
        return self.encoding_

    # -- machinery ---------------------------------------------------------------------------

    def _prepare(self, X: Any, target: Any, view: ModelView) -> Prepared:
        """Read rows and targets; for methods whose targets are of their own making."""
        return prepare(self, X, target, view)

    def _view(self, budget: Budget) -> ModelView:
        return ModelView(self.model, tolerance=self.tolerance, budget=budget)

    def _refuse(self, view: ModelView, space: FeatureSpace | None) -> None:
        assert space is not None
        who = type(self).__name__
        if view.task not in self.tasks:
            able = sorted(n for n, c in METHODS.items() if view.task in c.tasks)
            raise UnsupportedError(
                f"{who} does not work for {view.task.value}; {', '.join(able)} do"
            )
        if Need.GRADIENTS in self.needs and not view.differentiable:
            raise UnsupportedError(
                f"{who} needs gradients; {type(self.model).__name__} has no logits(). "
                "Use a method without that need, or cel.models.fit_surrogate(...) explicitly"
            )
        if Need.LINEAR_MODEL in self.needs and view.linear() is None:
            raise UnsupportedError(
                f"{who} needs a linear model; {type(self.model).__name__} is not"
            )
        if Need.TREES in self.needs and view.trees() is None:
            raise UnsupportedError(
                f"{who} needs a tree ensemble; {type(self.model).__name__} is none. Wrap one with "
                "cel.wrap(model, data), or use a method without that need"
            )
        if Need.RELU in self.needs and view.relu() is None:
            raise UnsupportedError(
                f"{who} needs a ReLU network; {type(self.model).__name__} is none. Wrap a "
                "torch.nn.Sequential of Linear and ReLU layers, or use a method without that need"
            )
        if Need.DENSITY in self.needs and getattr(self, "gen_model", None) is None:
            raise MissingInputError(f"{who} needs a density; pass gen_model=")
        kinds = {Support(f.kind) for f in space}
        missing = sorted(k.value for k in kinds - self.supports)
        if missing:
            raise UnsupportedError(f"{who} does not support {', '.join(missing)} features")
        if view.task is Task.CLASSIFICATION and view.n_outputs > 2:
            if Support.MULTICLASS not in self.supports:
                raise UnsupportedError(f"{who} works for two classes, not {view.n_outputs}")
        elif (
            view.task is Task.REGRESSION
            and view.n_outputs > 1
            and Support.MULTIOUTPUT not in self.supports
        ):
            raise UnsupportedError(f"{who} works for one output, not {view.n_outputs}")
        check_choices(self)
        self._check(view, space)

    def _require_fit(self) -> None:
        if Need.TRAIN_ROWS in self.needs and not hasattr(self, "train_"):
            raise NotFittedError(
                f"{type(self).__name__} needs training rows; call fit(split) or fit(X, y) first"
            )

    def _answer_in_batches(self, prepared: Prepared, view: ModelView) -> list[tuple[Any, Answer]]:
        todo = np.flatnonzero(prepared.todo)
        copies = self._copies_per_row() + 8 * (view.n_outputs - 1)  # Jacobians count, too
        size = self.batch_size or _rows_per_batch(prepared.space.width * copies)
        if self.max_queries is not None:
            view.budget.max_queries = view.budget.queries + self.max_queries * len(todo)
        parts = [todo[i : i + size] for i in range(0, len(todo), size)]
        answers = []
        for part in self._progress(parts):
            if view.budget.expired:
                break
            query = self._query(prepared, part, view)
            try:
                answer = self.answer(query)
            except BudgetExceeded:
                break
            if answer.x.shape != query.x.shape:
                raise UnsupportedError(
                    f"{type(self).__name__}._explain returned shape {tuple(answer.x.shape)} "
                    f"for rows of shape {tuple(query.x.shape)}"
                )
            answers.append((part, answer))
        return answers

    def _query(self, prepared: Prepared, rows: Any, view: ModelView) -> Query:
        x = torch.as_tensor(prepared.starts.x[rows]).to(self._device())
        target = torch.as_tensor(prepared.target_values[rows]).to(self._device())
        if view.task is Task.REGRESSION:
            target = target.to(x.dtype)
        return Query(
            x=x,
            target=target,
            region=Region.around(prepared.space, x),
            model=view,
            rng=RowStreams.of(x, self.random_state),
            budget=view.budget,
        )

    def _copies_per_row(self) -> int:
        return self._copies

    def _device(self) -> torch.device:
        return torch.device(getattr(self.model, "device", "cpu"))

    def _synchronise(self) -> None:
        if self._device().type == "cuda":
            torch.cuda.synchronize()

    def _progress(self, parts: list[Any]) -> Any:
        if not self.progress:
            return parts
        from rich.progress import track

        return track(parts, description=self.name or type(self).__name__)


def _rows_per_batch(values_per_row: int, memory: int = 2**29) -> int:
    """Return how many rows fit into `memory` bytes of float32 values."""
    return int(np.clip(memory // (4 * max(values_per_row, 1)), 16, 8192))


class LocalMixin:
    """One explanation per row."""

    scope: ClassVar[Scope] = Scope.LOCAL


class GroupMixin:
    """One explanation per group of rows."""

    scope: ClassVar[Scope] = Scope.GROUP


class GlobalMixin:
    """One explanation for all rows."""

    scope: ClassVar[Scope] = Scope.GLOBAL
