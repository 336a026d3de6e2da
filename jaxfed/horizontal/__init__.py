"""Horizontal federated learning: clients hold different rows of the same features."""

from jaxfed.horizontal.apfl import APFL
from jaxfed.horizontal.data import ClientData
from jaxfed.horizontal.fedavg import FedAvg
from jaxfed.horizontal.federate import Event
from jaxfed.horizontal.federation import FedData
from jaxfed.horizontal.fine_tuned import FineTuned
from jaxfed.horizontal.local_only import LocalOnly
from jaxfed.horizontal.partition import ByKey, Classes, Dirichlet, Iid, Overlapping, Quantity
from jaxfed.horizontal.scaffold import Scaffold
from jaxfed.horizontal.schedulers import FromSpeeds, FullParticipation, Replay, Stale, UniformCohort, participation
from jaxfed.horizontal.server import fedadam, fedavgm, fedyogi
from jaxfed.horizontal.splitting import split

__all__ = [
    "ByKey",
    "Classes",
    "Dirichlet",
    "Iid",
    "Overlapping",
    "Quantity",
    "participation",
    "split",
    "APFL",
    "ClientData",
    "Event",
    "FedAvg",
    "FedData",
    "FineTuned",
    "FromSpeeds",
    "FullParticipation",
    "LocalOnly",
    "Replay",
    "Scaffold",
    "Stale",
    "UniformCohort",
    "fedadam",
    "fedavgm",
    "fedyogi",
]
