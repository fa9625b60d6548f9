"""Models in files: weights as safetensors, everything else as JSON in the header."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.utils._python_dispatch import TorchDispatchMode

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
_OURS = ("module_", "space_", "target_", "pipeline_", "history_", "n_features_in_", "n_outputs_")
_DAMAGE = (
    ArithmeticError, AttributeError, LookupError, MemoryError, NotImplementedError,
    RecursionError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


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
            if not re.fullmatch(r"[a-z][a-z0-9_]*_", name) or name in _OURS:
                raise ValueError(f"{name!r} is nothing that is learnt")
            setattr(model, name, np.array(value) if name == "classes_" else value)
        model.n_features_in_, model.n_outputs_ = meta["n_features_in_"], meta["n_outputs_"]
        space, target, pipeline = meta["space"], meta["target"], meta["pipeline"]
        model.encoding_ = Encoding(
            space=None if space is None else space_from_dict(space),
            target=None if target is None else _target_from_dict(target),
            pipeline=None if pipeline is None else PreprocessingPipeline.from_dict(pipeline),
        )
        model.history_ = pd.DataFrame(history.numpy(), columns=meta["history"])
        size = sum(t.numel() for t in tensors.values())
        _check_sizes(model, size)
        # The random weights of a new module must not use up the global stream.
        with seeded(0), _Frugal(size):
            module = model._build(model.n_features_in_, model.n_outputs_)
        module.load_state_dict(tensors)
    except _DAMAGE as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise StoreError(f"{path} is damaged or was made by other code: {reason}") from error
    model.module_ = module.to(place).requires_grad_(False).eval()
    return model


def _check_sizes(model: PytorchBase, size: int) -> None:
    """Refuse settings whose numbers cannot belong to `size` stored numbers."""
    widths = [model.n_features_in_, model.n_outputs_]
    for value in (*widths, *_numbers(model.get_params(deep=False))):
        if not isinstance(value, int) or abs(value) > 2**31:
            raise ValueError(f"{str(value)[:40]} is no size")
    if max(widths) > size + 1:
        raise ValueError(f"{max(widths)} columns, but only {size} stored numbers")


class _Frugal(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses tensors that are far larger than what is stored, before they take memory.

    Args:
        stored: numbers in the file; a module may use a multiple of them for masks and the like.
    """

    def __init__(self, stored: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._one, self._all = max(2**22, 16 * stored), max(2**24, 64 * stored)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = [tuple(a.shape) for a in args if isinstance(a, torch.Tensor)]
        if shapes:
            try:
                count = math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
            except RuntimeError:  # not an operation that broadcasts
                count = max(map(math.prod, shapes))
        else:
            count = max((_count(a) for a in args), default=0)
        self._all -= 0 if shapes and count <= max(map(math.prod, shapes)) else count
        if count > self._one or self._all < 0:
            raise ValueError("its settings ask for more memory than its weights can fill")
        return func(*args, **(kwargs or {}))


def _count(size: Any) -> int:
    """Return how many numbers an argument of a function that makes tensors asks for."""
    if isinstance(size, list | tuple):
        return math.prod(abs(int(v)) for v in size if isinstance(v, int | float))
    return abs(size) if isinstance(size, int) else 0


def _numbers(value: Any) -> Iterator[int]:
    """Give all whole numbers in settings."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _numbers(part)
    elif isinstance(value, int):
        yield value


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise StoreError(f"there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, MemoryError) as error:
        raise StoreError(f"{path} is no safetensors file, or was truncated: {error}") from error
    if FORMAT not in header:
        raise StoreError(f"{path} was not written by CEL: its header has no {FORMAT!r}")
    try:
        meta = json.loads(header[FORMAT])
        version = int(meta["version"])
        if not isinstance(meta["params"], dict) or not isinstance(meta["state"], dict):
            raise TypeError("params and state are no mappings")
    except _DAMAGE as error:
        raise StoreError(f"{path} has a damaged header: {str(error)[:300]}") from error
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
