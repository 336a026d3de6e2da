"""jaxfed: a JAX-compiled, vectorized simulator of federated learning."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxfed import (
        averaging,
        core,
        datasets,
        history,
        horizontal,
        losses,
        models,
        parallel,
        plots,
        privacy,
        results,
        sinks,
        steps,
        sweeps,
        testing,
        theory,
        trees,
        vertical,
    )
    from jaxfed.horizontal import APFL, ClientData, FedAvg, FedData, FineTuned, LocalOnly, Scaffold
    from jaxfed.models import Model
    from jaxfed.runner import Run, load, run
    from jaxfed.sweeps import compare, sweep
    from jaxfed.types import Measure
    from jaxfed.vertical import VFB2SAGA, VFB2SGD, VFB2SVRG, PartyData

# Public names and their homes, imported when first used, so that `jaxfed --help` starts without jax.
_HOME = {
    **dict.fromkeys(("APFL", "ClientData", "FedAvg", "FedData", "FineTuned", "LocalOnly", "Scaffold"), "horizontal"),
    **dict.fromkeys(("PartyData", "VFB2SAGA", "VFB2SGD", "VFB2SVRG"), "vertical"),
    **dict.fromkeys(("Run", "load", "run"), "runner"),
    "Measure": "types",
    "Model": "models",
    "compare": "sweeps",
    "sweep": "sweeps",
}

__all__ = [
    "APFL",
    "ClientData",
    "FedAvg",
    "FedData",
    "FineTuned",
    "LocalOnly",
    "Measure",
    "Model",
    "PartyData",
    "Run",
    "Scaffold",
    "VFB2SAGA",
    "VFB2SGD",
    "VFB2SVRG",
    "averaging",
    "compare",
    "core",
    "datasets",
    "history",
    "horizontal",
    "load",
    "losses",
    "models",
    "parallel",
    "plots",
    "privacy",
    "results",
    "run",
    "sinks",
    "steps",
    "sweep",
    "sweeps",
    "testing",
    "theory",
    "trees",
    "vertical",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'jaxfed' has no attribute {name!r}")
    home = import_module(f"jaxfed.{_HOME.get(name, name)}")
    return getattr(home, name) if name in _HOME else home


def __dir__() -> list[str]:
    return __all__
