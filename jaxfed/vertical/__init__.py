"""The vertical side: parties that hold different features of the same rows, and VFB2 with its baselines."""

from jaxfed.vertical.alignment import align
from jaxfed.vertical.baselines import afsvrg_vp, non_federated
from jaxfed.vertical.data import PartyData
from jaxfed.vertical.federation import VerticalData, plan
from jaxfed.vertical.objective import Objective
from jaxfed.vertical.saga import VFB2SAGA
from jaxfed.vertical.saga_literal import LiteralSAGA
from jaxfed.vertical.schedulers import BilevelAsync, FixedDelay, Synchronous
from jaxfed.vertical.secure import SecureAggregation
from jaxfed.vertical.sgd import VFB2SGD
from jaxfed.vertical.solver import Optimum, optimum
from jaxfed.vertical.splitting import overlap, split
from jaxfed.vertical.svrg import VFB2SVRG
from jaxfed.vertical.units import Epochs, Seconds

__all__ = [
    "BilevelAsync",
    "Epochs",
    "FixedDelay",
    "LiteralSAGA",
    "Objective",
    "Optimum",
    "PartyData",
    "Seconds",
    "SecureAggregation",
    "Synchronous",
    "VFB2SAGA",
    "VFB2SGD",
    "VFB2SVRG",
    "VerticalData",
    "afsvrg_vp",
    "align",
    "non_federated",
    "optimum",
    "overlap",
    "plan",
    "split",
]
