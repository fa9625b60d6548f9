"""The stages of a cell as pure functions of their inputs, and where their outputs are kept.

split -> predictor -> density -> explain -> score
                   -> judges -------------/
split -> autoencoders -------/
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

import cel
from cel.benchmark.apart import FORKS, Emit
from cel.benchmark.folds import fold_of
from cel.benchmark.gpu_places import gpu_place
from cel.benchmark.keys import seed_of
from cel.benchmark.metric_entries import metric_entries
from cel.benchmark.plan import Block, Cell, MethodFacts, method_class, method_facts, target_of
from cel.benchmark.printed_form import free_space
from cel.benchmark.recipes import autoencoder_recipe, density_recipe, predictor_recipe
from cel.benchmark.row_scores import write_cell, write_rows
from cel.benchmark.shelf import AUTOENCODER, JUDGE, Shelf, may_be_shared
from cel.benchmark.spec import Suite
from cel.benchmark.store import Store
from cel.errors import ConfigError
from cel.paths import read_json
from cel.protocols import Need, Task
from cel.result import EvaluationContext, ExplanationResult
from cel.testing.untouched import Witness

if TYPE_CHECKING:
    from cel.cf_methods import BaseCounterfactualMethod
    from cel.datasets.splits import Part
    from cel.models.inputs import FitRows

__all__ = ["Workbench", "model_folder", "model_key", "model_stages"]


def model_stages(suite: Suite) -> list[str]:
    """Return the stages that all cells need, in order: predictor, density, the judges."""
    return ["predictor", "density", *(JUDGE + name for name in suite.judges)]


def model_key(block: Block, stage: str) -> str:
    """Return the key of a block's predictor, density, judge or autoencoder."""
    if stage.startswith(AUTOENCODER):
        return stage.removeprefix(AUTOENCODER)
    if stage.startswith(JUDGE):
        return block.judge_keys[stage.removeprefix(JUDGE)]
    return block.predictor_key if stage == "predictor" else block.density_key


def model_folder(stage: str) -> str:
    """Return under which name of a stage the store keeps a model."""
    return stage.partition(".")[0]


class Workbench:
    """Everything that the cells of one block share, made once and read from the store if there.

    Args:
        suite: the suite.
        block: the block.
        store: where finished stages are.
        device: "cpu" or "cuda".
        facts: of the methods, as the plan knows them; by default those of their classes here.
        shelf: models that runs share, or None.
        gpu: score keys of the cells that are explained on the device if it has a place free.
    """

    def __init__(
        self,
        suite: Suite,
        block: Block,
        store: Store,
        device: str = "cpu",
        facts: Mapping[str, MethodFacts] | None = None,
        shelf: Shelf | None = None,
        gpu: Collection[str] = (),
    ) -> None:
        self.suite, self.block, self.store, self.device = suite, block, store, device
        self.shelf, self.gpu = shelf, frozenset(gpu)
        self._facts = facts or {}
        self._made: dict[str, Any] = {}

    # -- shared stages -----------------------------------------------------------------------

    @property
    def split(self) -> Any:
        """The fold."""
        return fold_of(self.suite, self.block)

    def predictor(self) -> Any:
        """The trained model that is explained."""
        return self.model("predictor")

    def density(self) -> Any:
        """The density of the rows, conditional on what the model predicts."""
        return self.model("density")

    def judges(self) -> dict[str, Any]:
        """Densities that score and that no method may query."""
        return {name: self.model(JUDGE + name) for name in self.suite.judges}

    def model(self, stage: str) -> Any:
        """The model of a stage; trained first if the store has none."""
        if stage in self._made:
            return self._made[stage]
        if self.missing(stage):
            self.train(stage)
        # Read back even what was just made, so that a resumed run sees the very same model.
        self._made[stage] = self._stored_model(stage)
        return self._made[stage]

    def loaded(self, stage: str) -> bool:
        """Whether the model of a stage is at hand."""
        return stage in self._made

    def _stored_model(self, stage: str, device: str = "cpu") -> Any:
        from cel.models import load_model

        folder = self.store.folder(model_folder(stage), self.key(stage))
        return load_model(folder / "model.safetensors", device=device)

    def train(self, stage: str) -> None:
        """Train and store the model of a stage."""
        from cel.models import fit_many

        started, busy = time.perf_counter(), time.process_time()
        model, rows = self.recipe(stage)
        fit_many([model], [rows])
        self.keep(stage, model, time.perf_counter() - started, time.process_time() - busy)

    def key(self, stage: str) -> str:
        """Return the key of the block's predictor, density, judge or autoencoder."""
        return model_key(self.block, stage)

    def missing(self, stage: str) -> bool:
        """Whether the store has no intact model of this stage for this block."""
        return not self.store.intact(model_folder(stage), self.key(stage))

    def obtain(self, stage: str, train: Callable[[], None]) -> bool:
        """Get a missing model from the shelf, or by `train`; tell whether it was borrowed."""
        if self.shelf is None or not may_be_shared(self.suite, self.block, stage):
            train()
            return False
        where, patience = model_folder(stage), self.suite.limits.train_s / 2
        return self.shelf.obtain(self.store, where, self.key(stage), train, patience_s=patience)

    def borrow(self, stage: str) -> bool:
        """Copy a model from the shelf if it is there; tell whether it was."""
        if self.shelf is None or not may_be_shared(self.suite, self.block, stage):
            return False
        return self.shelf.borrow(self.store, model_folder(stage), self.key(stage))

    def lend(self, stage: str) -> None:
        """Copy a model onto the shelf."""
        if self.shelf is not None and may_be_shared(self.suite, self.block, stage):
            self.shelf.lend(self.store, model_folder(stage), self.key(stage))

    def recipe(self, stage: str) -> tuple[Any, FitRows]:
        """Return the unfitted model of a stage, and what it learns from."""
        options = {"random_state": seed_of(self.key(stage), "fit"), "device": self.device}
        if stage == "predictor":
            return predictor_recipe(self.suite, self.block.model, self.split, options)
        if stage.startswith(AUTOENCODER):
            settings = self.block.autoencoders[self.key(stage)]
            return autoencoder_recipe(self.split, self.space, settings, options)
        given = self.suite.density
        if stage.startswith(JUDGE):
            given = self.suite.judges[stage.removeprefix(JUDGE)]
        return density_recipe(self.split, self._predicted, given, options)

    def keep(self, stage: str, model: Any, seconds: float, cpu_seconds: float) -> None:
        """Store a fitted predictor, density, judge or autoencoder."""
        where = model_folder(stage)
        with self.store.writing(where, self.key(stage), self._spec(stage)) as folder:
            model.save(folder / "model.safetensors")
            spent = {"seconds": seconds, "cpu_seconds": cpu_seconds}
            (folder / "time.json").write_text(json.dumps(spent))

    @property
    def space(self) -> Any:
        """The features as methods may change them."""
        space = self.split.space
        return free_space(space) if self.suite.constraints == "none" else space

    def autoencoder_stage(self, cell: Cell) -> str | None:
        """Return the stage of the autoencoder of a cell; None if it takes none."""
        if cell.autoencoder_key is None or not bool(self.space.mutable_mask.any()):
            return None
        return AUTOENCODER + cell.autoencoder_key

    def _predicted(self, part: Part) -> np.ndarray:
        """What the model predicts for a part of the fold, asked once per block."""
        if part not in self._made:
            model, split = self.predictor(), self.split
            x = getattr(split, part).X
            if self.block.task is Task.REGRESSION:
                y = np.asarray(model.predict(x), dtype=np.float32).reshape(len(x), -1)
                self._made[part] = y
            elif part == "test":
                self._made[part] = np.asarray(model.predict_proba(x).argmax(1), dtype=np.int64)
            else:  # rows for fitting and for validation in one pass
                both = np.concatenate([split.train.X, split.valid.X])
                y = np.asarray(model.predict_proba(both).argmax(1), dtype=np.int64)
                self._made["train"], self._made["valid"] = np.split(y, [len(split.train.X)])
        return np.asarray(self._made[part])

    def _spec(self, stage: str) -> dict[str, Any]:
        b = self.block
        about = {"stage": stage, "dataset": b.dataset, "fold": b.fold, "model": b.model}
        if stage.startswith(AUTOENCODER):  # the same for every model
            about |= {"stage": model_folder(stage), "model": None}
        return about

    # -- one cell ----------------------------------------------------------------------------

    def context(self) -> EvaluationContext:
        """Model, density and rows for the metrics."""
        if "context" not in self._made:
            plain = EvaluationContext.of(self.split, self.predictor(), self.density())
            _, predicted = self._training_rows()
            self._made["context"] = replace(
                plain, levels=self.levels(), judges=self.judges(), y_train=predicted,
                y_test=self._made.get("test"),
            )  # fmt: skip
        context: EvaluationContext = self._made["context"]
        return context

    def levels(self) -> Any:
        """Log-densities of all training rows: the thresholds of methods and metrics alike."""
        from cel.models.generative.levels import DensityLevels

        if "levels" not in self._made:
            self._made["levels"] = DensityLevels.of(self.density(), *self._training_rows())
        return self._made["levels"]

    def _training_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows for fitting and for validation, and what the model predicts for them."""
        x = np.concatenate([self.split.train.X, self.split.valid.X])
        return x, np.concatenate([self._predicted("train"), self._predicted("valid")])

    def explained(self, cell: Cell) -> bool:
        """Whether the store has the counterfactuals of a cell."""
        return self.store.intact("explain", cell.explain_key)

    def explain(self, cell: Cell, say: Emit = lambda _: None) -> None:
        """Compute and store the counterfactuals of a cell.

        Args:
            cell: the cell.
            say: called with a `deadline` when the search begins, and with `altered` if the method
                changed something that is not its own.
        """
        if cell.score_key not in self.gpu or not FORKS:  # a worker itself must not touch a GPU
            self._explain_on("cpu", cell, say)
            return
        with gpu_place(self.store.at("gpu"), self.device) as free:
            self._explain_on(self.device if free else "cpu", cell, say)

    def _explain_on(self, device: str, cell: Cell, say: Emit) -> None:
        limits = self.suite.limits
        given, witness = self._given() if device == "cpu" else self._fresh_things(device)
        cls = self._class(cell)
        goal, rows = self._asked(target_of(self.suite, cls.scope))
        extra = {"gen_model": given["the density"]} if Need.DENSITY in cls.needs else {}
        if Need.DENSITY in cls.needs and "levels" in cls.param_names():
            extra["levels"] = self.levels() if FORKS else copy.deepcopy(self.levels())
        options: dict[str, Any] = {
            "random_state": seed_of(cell.explain_key, "explain"),
            "time_limit": limits.time_s,
        }
        if self.suite.constraints == "none":
            options["space"] = self.space
        codes = self.autoencoder_stage(cell)
        if codes is not None:
            shared = FORKS and device == "cpu"
            extra["autoencoder"] = self.model(codes) if shared else self._fresh(codes, device)
        method = cls(given["the model"], **(options | extra | dict(cell.method.params)))
        method.fit(given["the rows"])
        if codes is not None:  # what a method learns is its own time, whoever shares it
            wall, busy = self._spent(codes)
            method.fit_seconds_ += wall
            method.fit_cpu_seconds_ += busy
        say({"event": "deadline", "seconds": limits.time_s + limits.grace_s})
        test = self.split.test
        label = _label(goal, self.split.target)
        result: ExplanationResult = method.explain(test.X[rows], label)
        result = replace(result, source_ids=np.asarray(test.index)[rows])
        if changed := witness.changes():
            say({"event": "altered", "what": changed[:20]})
        spec = self._cell_spec(cell) | ({} if device == "cpu" else {"device": device})
        with self.store.writing("explain", cell.explain_key, spec) as folder:
            result.to_parquet(folder / "result.parquet")

    def _fresh(self, stage: str, device: str) -> Any:
        """A copy of a model that nobody else uses."""
        self.model(stage)
        return self._stored_model(stage, device)

    def _spent(self, stage: str) -> tuple[float, float]:
        """Seconds that the training of a model took, by the clock and of computing."""
        path = self.store.folder(model_folder(stage), self.key(stage)) / "time.json"
        spent = read_json(path)
        return float(spent["seconds"]), float(spent["cpu_seconds"])

    def prepare(self) -> None:
        """Load what all methods of the block get, before the first of them is forked."""
        if FORKS:
            rows, model, density = self.split, self.predictor(), self.density()
            given = {"the rows": rows, "the model": model, "the density": density}
            self.levels()  # metrics need them in any case
            self._predicted("test")
            self._made["given"] = given, Witness(given)

    def _given(self) -> tuple[dict[str, Any], Witness]:
        """What a method gets: the block's own things in a fork, otherwise fresh copies."""
        if "given" in self._made:
            known: tuple[dict[str, Any], Witness] = self._made["given"]
            return known
        return self._fresh_things("cpu")

    def _fresh_things(self, device: str) -> tuple[dict[str, Any], Witness]:
        """What a method gets, in copies: rows as they are, models on a device."""
        given = {
            "the rows": copy.deepcopy(self.split),
            "the model": self._fresh("predictor", device),
            "the density": self._fresh("density", device),
        }
        return given, Witness(given)

    def _class(self, cell: Cell) -> type[BaseCounterfactualMethod]:
        """Return the class of a cell's method, if it is the one that was planned."""
        name = cell.method.method
        planned, cls = self._facts.get(name), method_class(name)
        if planned is not None and planned != method_facts(name):
            raise ConfigError(
                f"{name} is another version here (version {cls.version}) than where the run was "
                f"planned (version {planned.version}); install the same one on all machines"
            )
        return cls

    def _asked(self, target: int | None) -> tuple[int | None, np.ndarray]:
        """Return the wanted class and which test rows are explained; no method has run yet."""
        test = self.split.test
        if self.block.task is Task.CLASSIFICATION:
            if target is None:
                target = self.split.target.desired_position
            goal = 1 if target is None else target
            rows = np.flatnonzero(self._predicted("test") != goal)
        else:
            goal, rows = None, np.arange(len(test.X))
        return goal, rows[: self.suite.max_rows]

    def score(self, cell: Cell) -> None:
        """Compute and store the metrics of a cell."""
        from cel.benchmark.kept_references import references_of
        from cel.metrics import MetricsOrchestrator

        if self.store.intact("score", cell.score_key):
            return
        path = self.store.folder("explain", cell.explain_key) / "result.parquet"
        result = ExplanationResult.from_parquet(path).with_context(self.context())
        if "judge" not in self._made:  # metrics of a file are read once
            entries, kept = metric_entries(self.suite), references_of(self.context())
            self._made["judge"] = MetricsOrchestrator(metrics=entries, references=kept)
        recorded = np.concatenate([self.split.train.y, self.split.valid.y])
        scores = self._made["judge"].compute(result, labels=recorded)
        with self.store.writing("score", cell.score_key, self._cell_spec(cell)) as folder:
            found_on = self.store.spec("explain", cell.explain_key).get("device", "cpu")
            write_cell(folder, scores, result, str(found_on))
            write_rows(folder, scores, self.suite.extra_metrics)

    def _scope(self, name: str) -> str:
        known = self._facts.get(name)
        return (method_class(name) if known is None else known).scope.value

    def _cell_spec(self, cell: Cell) -> dict[str, Any]:
        m = cell.method
        return self._spec("cell") | {
            "method": m.label,
            "implementation": m.method,
            "params": dict(m.params),
            "scope": self._scope(m.method),
            "task": self.block.task.value,
            "explain_key": cell.explain_key,
            "cel": cel.__version__,
        }


def _label(position: int | None, target: Any) -> Any:
    return None if position is None else target.classes[position]
