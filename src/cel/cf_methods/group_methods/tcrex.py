"""T-CREx: rules that lead to the target, and metarules that say whose (Bewley et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from cel.cf_methods.base import GroupMixin, Options
from cel.cf_methods.global_base import ExplanationMethod, FitSplit
from cel.cf_methods.group_methods.tcrex_checks import actionable_views, check_settings, log_of
from cel.cf_methods.group_methods.tcrex_complete import Completion, Order, complete
from cel.cf_methods.group_methods.tcrex_donors import Donors
from cel.cf_methods.group_methods.tcrex_metarules import Metarules, learn_metarules
from cel.cf_methods.group_methods.tcrex_reach import Reach
from cel.cf_methods.group_methods.tcrex_rules import Wanted, find_rules
from cel.cf_methods.group_methods.tcrex_surrogate import Surrogates
from cel.cf_methods.group_methods.tcrex_units import box_units
from cel.cf_methods.problem import Applied, Learned, Problem
from cel.cf_methods.query import Query, TrainRows
from cel.cf_methods.units import GlobalExplanation
from cel.cf_methods.view import ModelView
from cel.protocols import Task
from cel.search import Budget
from cel.space import FeatureSpace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TCREx"]
