"""jaxfed: a JAX-compiled, vectorized simulator of federated learning."""

from jaxfed import averaging, core, datasets, horizontal, losses, models, parallel, results, steps, trees
from jaxfed.horizontal import APFL, ClientData, FedAvg, FedData, FineTuned, LocalOnly, Scaffold
from jaxfed.models import Model
from jaxfed.runner import Run, load, run
from jaxfed.types import Measure

__all__ = [
    "APFL",
    "ClientData",
    "FedAvg",
    "FedData",
    "FineTuned",
    "LocalOnly",
    "Measure",
    "Model",
    "Run",
    "Scaffold",
    "averaging",
    "core",
    "datasets",
    "horizontal",
    "load",
    "losses",
    "models",
    "parallel",
    "results",
    "run",
    "steps",
    "trees",
]
