"""Methods that explain one row at a time."""

from __future__ import annotations

from cel.cf_methods.local_methods.actionable import Actionable
from cel.cf_methods.local_methods.artelt import Artelt
from cel.cf_methods.local_methods.auto import Auto
from cel.cf_methods.local_methods.cadex import CADEX
from cel.cf_methods.local_methods.causal import CausalRecourse
from cel.cf_methods.local_methods.cchvae import CCHVAE
from cel.cf_methods.local_methods.cearm import CEARM
from cel.cf_methods.local_methods.cegp import CEGP
from cel.cf_methods.local_methods.cell_search import CellSearch
from cel.cf_methods.local_methods.cem import CEM
from cel.cf_methods.local_methods.clue import CLUE
from cel.cf_methods.local_methods.dice import DiCE
from cel.cf_methods.local_methods.dicoflex import DiCoFlex
from cel.cf_methods.local_methods.exact_relu import ExactReLU
from cel.cf_methods.local_methods.exact_tree import ExactTree
from cel.cf_methods.local_methods.face import FACE
from cel.cf_methods.local_methods.feature_tweak import FeatureTweak
from cel.cf_methods.local_methods.focus import FOCUS
from cel.cf_methods.local_methods.geco import GeCo
from cel.cf_methods.local_methods.growing_spheres import GrowingSpheres
from cel.cf_methods.local_methods.live_regions import LiveRegions
from cel.cf_methods.local_methods.moc import MOC
from cel.cf_methods.local_methods.nearest import NearestInstance
from cel.cf_methods.local_methods.nice import NICE
from cel.cf_methods.local_methods.ppcef import PPCEF
from cel.cf_methods.local_methods.probe import PROBE
from cel.cf_methods.local_methods.rbr import RBR
from cel.cf_methods.local_methods.revise import REVISE
from cel.cf_methods.local_methods.roar import ROAR
from cel.cf_methods.local_methods.robust_nearest import RobustNearest
from cel.cf_methods.local_methods.sace import SACE
from cel.cf_methods.local_methods.wachter import Wachter

__all__ = [
    "CADEX",
    "CCHVAE",
    "CEARM",
    "CEGP",
    "CEM",
    "CLUE",
    "FACE",
    "FOCUS",
    "MOC",
    "NICE",
    "PPCEF",
    "PROBE",
    "RBR",
    "REVISE",
    "ROAR",
    "SACE",
    "Actionable",
    "Artelt",
    "Auto",
    "CausalRecourse",
    "CellSearch",
    "DiCE",
    "DiCoFlex",
    "ExactReLU",
    "ExactTree",
    "FeatureTweak",
    "GeCo",
    "GrowingSpheres",
    "LiveRegions",
    "NearestInstance",
    "RobustNearest",
    "Wachter",
]
