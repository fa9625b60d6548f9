"""Models in files: weights as safetensors, everything else as JSON in the header."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from cel.errors import StoreError, UnsupportedError
from cel.models.inputs import resolve_device
from cel.models.names import MODELS
from cel.models.training.loop import seeded
from cel.preprocessing import Encoding, PreprocessingPipeline
from cel.protocols import Task
from cel.space import Target
from cel.space.serialize import plain_label, space_from_dict, space_to_dict

if TYPE_CHECKING:
    from cel.models.estimator import PytorchBase

__all__ = ["load_model", "save_model"]

FORMAT, VERSION = "cel-model", 1
HISTORY = "history_"


def save_model(model: PytorchBase, path: Path) -> Path:
    """Write `model` to `path`; an existing file is replaced only when all is written."""
    model.check_fitted()
    tensors = {k: v.detach().cpu().contiguous() for k, v in model.module_.state_dict().items()}
    history = model.history_
    tensors[HISTORY] = torch.from_numpy(np.array(history, dtype=np.float64, order="C"))
    meta = {
        "version": VERSION,
        "model": model.name,
        "params": _plain_params(model),
        "n_features_in_": model.n_features_in_,
        "n_outputs_": model.n_outputs_,
        "state": model._state(),
        "history": list(history.columns),
        "space": None if model.space_ is None else space_to_dict(model.space_),
        "pipeline": None if model.pipeline_ is None else model.pipeline_.to_dict(),
        "target": None if model.target_ is None else _target_to_dict(model.target_),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        save_file(tensors, unfinished, {FORMAT: json.dumps(meta)})
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def load_model(path: str | Path, *, device: str = "cpu") -> PytorchBase:
    """Rebuild the model of a file; its class comes from the registry, never from the file."""
    path = Path(path)
    place = resolve_device(device)
    meta, tensors = _read(path)
    try:
        history = tensors.pop(HISTORY)
        params = {k: _tuples(v) for k, v in meta["params"].items()} | {"device": device}
        model = MODELS.get(meta["model"])(**params)
        for name, value in meta["state"].items():
            setattr(model, name, np.array(value) if name == "classes_" else value)
        model.n_features_in_, model.n_outputs_ = meta["n_features_in_"], meta["n_outputs_"]
        space, target, pipeline = meta["space"], meta["target"], meta["pipeline"]
        model.encoding_ = Encoding(
            space=None if space is None else space_from_dict(space),
            target=None if target is None else _target_from_dict(target),
            pipeline=None if pipeline is None else PreprocessingPipeline.from_dict(pipeline),
        )
        model.history_ = pd.DataFrame(history.numpy(), columns=meta["history"])
        with seeded(0):  # the random weights of a new module must not use up the global stream
            module = model._build(model.n_features_in_, model.n_outputs_)
        module.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise StoreError(f"{path} is damaged or was made by other code: {error}") from error
    model.module_ = module.to(place).requires_grad_(False).eval()
    return model


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise StoreError(f"{path} is no safetensors file, or was truncated: {error}") from error
    if FORMAT not in header:
        raise StoreError(f"{path} was not written by CEL: its header has no {FORMAT!r}")
    try:
        meta = json.loads(header[FORMAT])
        version = int(meta["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} has a damaged header: {error}") from error
    if version > VERSION:
        raise StoreError(
            f"{path} has version {version}, this CEL reads up to {VERSION}; update it"
        )
    return meta, tensors


def _plain_params(model: PytorchBase) -> dict[str, Any]:
    params = model.get_params(deep=False)
    for name, value in params.items():
        try:
            json.dumps(value)
        except TypeError as error:
            raise UnsupportedError(
                f"{type(model).__name__}({name}={value!r}) cannot be saved as JSON"
            ) from error
    return params


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _target_to_dict(target: Target) -> dict[str, Any]:
    return {
        "names": list(target.names),
        "task": str(target.task),
        "classes": [plain_label(c) for c in target.classes],
        "desired": None if target.desired is None else plain_label(target.desired),
        "lower": list(target.lower),
        "upper": list(target.upper),
    }


def _target_from_dict(data: dict[str, Any]) -> Target:
    values = {k: _tuples(v) for k, v in data.items()}
    return Target(**values | {"task": Task(data["task"])})
