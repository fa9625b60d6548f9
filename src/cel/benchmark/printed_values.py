"""The values of the paper's ten tables, with our names beside the printed ones."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

__all__ = ["PAPER_METRICS", "PAPER_MODELS", "paper_results"]

# Printed name -> our metric. The paper's validity counts rows over all explained rows.
PAPER_METRICS = {
    "coverage": "coverage",
    "validity": "success",
    "sparsity": "sparsity_encoded",
    "proximity": "l2_hamming_encoded",
    "prob_plausibility": "prob_plausibility",
    "log_density": "log_density",
    "lof": "lof",
    "isolation_forest": "isolation_forest",
    "time_s": "time_s",
    "mae": "mae",
    "l1": "l1",
    "l2": "l2",
}
PAPER_MODELS = {
    ("classification", "mlp"): "mlp",
    ("classification", "lr"): "lr",
    ("regression", "mlp"): "mlp_regressor",
    ("regression", "lr"): "linear",
}


def paper_results() -> pd.DataFrame:
    """Return every printed value, with our names for models, methods and metrics beside it."""
    folder = Path(str(resources.files("cel.benchmark"))) / "paper"
    table = pd.read_csv(folder / "results.csv")
    regression = table["paradigm"] == "regression"
    tasks = np.where(regression, "regression", "classification")
    pairs = zip(tasks, table["model"], strict=True)
    table["our_model"] = [PAPER_MODELS[p] for p in pairs]
    global_glance = (table["paradigm"] == "global") & (table["method"] == "glance")
    table["our_method"] = np.where(global_glance, "glance_global", table["method"])
    table["our_metric"] = table["metric"].map(PAPER_METRICS)
    table["mean"] = pd.to_numeric(table["mean"], errors="coerce")
    table["std"] = pd.to_numeric(table["std"], errors="coerce")
    return table
