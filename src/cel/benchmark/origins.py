"""What a score belongs to: the version of its method, and the very models that were explained.

Scores that come with the package say so cell by cell. Equal keys mean equal recipes, equal digests
equal weights: networks that are trained again on another kind of machine differ by rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cel.benchmark.keys import key_of
from cel.benchmark.plan import Block, Plan
from cel.benchmark.store import Store
from cel.errors import CelError
from cel.paths import read_bytes

__all__ = ["Kinship", "digest_of", "earlier_versions", "kinship", "origins", "planned"]

CELL = ["dataset", "model", "method", "fold"]
PLACE = ["dataset", "model", "fold"]
MODELS = ("predictor", "density")
DIGITS = 12  # of keys and digests
MOST_BYTES = 2**30  # of a file that is read whole


def planned(plan: Plan) -> pd.DataFrame:
    """Return what the cells of a plan would belong to.

    Columns: dataset, model, method, fold; version of the method; key of the answers; recipe, which
    names how the models of the block are trained.
    """
    lines = [
        (b.dataset, b.model, c.method.label, b.fold, plan.facts[c.method.method].version,
         c.explain_key[:DIGITS], _recipe(b))
        for b in plan.blocks
        for c in b.cells
    ]  # fmt: skip
    return pd.DataFrame(lines, columns=[*CELL, "version", "key", "recipe"])


def origins(store: Store, plan: Plan) -> pd.DataFrame:
    """Return what the scored cells of a run belong to: `planned`, and digests of the models.

    A column per model, "predictor" and "density"; "" where the run does not hold it any more.
    """
    table = planned(plan)
    done = [store.has("score", c.score_key) for c in plan.cells]
    held = {(b.dataset, b.model, b.fold): _digests(store, b) for b in plan.blocks}
    places = table[PLACE].itertuples(index=False, name=None)
    digests = pd.DataFrame([held[place] for place in places], columns=list(MODELS))
    return pd.concat([table, digests], axis=1)[done].reset_index(drop=True)


def _recipe(block: Block) -> str:
    return key_of(block.predictor_key, block.density_key, dict(block.judge_keys))[:DIGITS]


def _digests(store: Store, block: Block) -> dict[str, str]:
    keys = {"predictor": block.predictor_key, "density": block.density_key}
    return {
        stage: digest_of(store.folder(stage, key) / "model.safetensors")
        if store.has(stage, key)
        else ""
        for stage, key in keys.items()
    }


def digest_of(path: Path) -> str:
    """Return a digest of the arrays in the file of a model; "" if it cannot be read.

    A link is not followed: the run may be a stranger's.
    """
    from safetensors import SafetensorError, deserialize

    total = hashlib.blake2b(digest_size=DIGITS // 2)
    try:
        data = read_bytes(path, MOST_BYTES)
        arrays: list[tuple[str, Any]] = deserialize(data)  # type: ignore[no-untyped-call]
    except (OSError, CelError, SafetensorError):
        return ""
    for name, array in sorted(arrays, key=lambda pair: pair[0]):
        total.update(f"{name} {array['dtype']} {array['shape']} ".encode())
        total.update(array["data"])
    return total.hexdigest()


def earlier_versions(told: pd.DataFrame, plan: Plan) -> dict[str, tuple[int, int]]:
    """Return {line: (version of its scores, version here)} where these differ.

    Args:
        told: what scores belong to; lines that the plan does not have are passed over.
        plan: made by the version that is installed.
    """
    if told.empty:
        return {}
    both = told.merge(planned(plan), on=CELL, suffixes=("", "_now"))
    both = both[both["version"] != both["version_now"]]
    first = both.groupby("method")[["version", "version_now"]].min()
    return {str(m): (int(then), int(now)) for m, then, now in first.itertuples()}


@dataclass(frozen=True)
class Kinship:
    """How the models of a run are related to those that other scores belong to.

    Attributes:
        blocks: that both have.
        recipe: of them, those whose models are trained in the same way.
        known: of these, those the weights of whose models both know.
        weights: of these, those whose models have the same weights.
    """

    blocks: int
    recipe: int
    known: int
    weights: int


def kinship(mine: pd.DataFrame, told: pd.DataFrame) -> Kinship:
    """Compare the models of two tables of `origins`, block by block."""
    if mine.empty or told.empty:  # nothing is known
        return Kinship(0, 0, 0, 0)
    names: Mapping[Any, Any] = {"recipe": "first", **dict.fromkeys(MODELS, "first")}
    a, b = (t.groupby(PLACE).agg(names) for t in (mine, told))
    both = a.join(b.add_suffix("_told"), how="inner")
    recipe = both["recipe"] == both["recipe_told"]
    known = recipe.copy()
    for name in MODELS:
        known &= (both[name] != "") & (both[f"{name}_told"] != "")
    weights = known.copy()
    for name in MODELS:
        weights &= both[name] == both[f"{name}_told"]
    return Kinship(len(both), *(int(part.sum()) for part in (recipe, known, weights)))
