"""Unfitted models of a block, and the rows that they learn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from cel.benchmark.named import model_class
from cel.benchmark.spec import Suite

if TYPE_CHECKING:
    from cel.datasets.splits import Part
    from cel.models.inputs import FitRows
    from cel.space import FeatureSpace

__all__ = ["autoencoder_recipe", "density_recipe", "is_solved", "predictor_recipe"]

Recipe = tuple[Any, "FitRows"]


def predictor_recipe(suite: Suite, name: str, split: Any, options: Mapping[str, Any]) -> Recipe:
    """Return the model that is explained.

    Args:
        suite: has the settings of the model.
        name: of the model.
        split: the fold.
        options: seed and device.
    """
    from cel.models.inputs import read_rows

    models = {**suite.classifiers, **suite.regressors}
    model = model_class(name)(**options, **models[name])
    return model, read_rows(split.loader("train", seed=0), None, None, None)


def is_solved(name: str | None) -> bool:
    """Tell whether a model of the library is solved instead of trained, given its name.

    >>> is_solved("kde"), is_solved("maf"), is_solved(None), is_solved("mine:Model")
    (True, False, False, False)
    """
    return name is not None and ":" not in name and bool(model_class(name).closed_form)


def density_recipe(
    split: Any,
    predicted: Callable[[Part], np.ndarray],
    given: Mapping[str, Any],
    options: Mapping[str, Any],
) -> Recipe:
    """Return a density of the rows, conditional on what the model predicts.

    Args:
        split: the fold.
        predicted: tells what the model predicts for a part of the fold.
        given: settings of the suite.
        options: seed and device.
    """
    from cel.models.generative import default_density
    from cel.models.inputs import read_rows

    name = given.get("model")
    here = {"device": "cpu"} if is_solved(name) else {}  # seconds; the way to a GPU takes as long
    options = {**options, **here, **{k: v for k, v in given.items() if k != "model"}}
    model = (
        default_density(split.space, **options) if name is None else model_class(name)(**options)
    )
    fit, valid = ((getattr(split, p).X, predicted(p)) for p in ("train", "valid"))
    return model, read_rows(*fit, split.space, valid)


def autoencoder_recipe(
    split: Any, space: FeatureSpace, settings: Mapping[str, Any], options: Mapping[str, Any]
) -> Recipe:
    """Return the autoencoder that a method would train for itself with the same seed.

    Args:
        split: the fold.
        space: the features as methods may change them.
        settings: of the autoencoder, see `cel.cf_methods.row_codes.unfitted_vae`.
        options: seed and device.
    """
    import torch

    from cel.cf_methods.row_codes import unfitted_vae
    from cel.models.inputs import read_rows

    rows = torch.as_tensor(np.asarray(split.train.X, dtype=np.float32))
    seed, device = options["random_state"], options["device"]
    model = unfitted_vae(rows, **settings, seed=seed, device=device)
    return model, read_rows(rows, None, space, None)
