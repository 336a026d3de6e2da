"""Who saw what in a vertical run, what can be inferred from it, what defends against that; and noise for clients.

`record` plays a run and returns its `Transcript`. Modules: `labels`, `inversion`, `completion`, `residue`, `features`,
`gram` (with `reconstruction`) and `unmask` attack its views; `label_metrics`, `matrix` and `tradeoff` judge that;
`accounting` says what `PrivateUpdates` is worth.
"""

from jaxfed.privacy import (
    accounting,
    completion,
    features,
    gram,
    inversion,
    label_metrics,
    labels,
    matrix,
    messages,
    reconstruction,
    residue,
    tradeoff,
    unmask,
)
from jaxfed.privacy.clients import PrivateUpdates
from jaxfed.privacy.defences import BatchGradients, Clip, Gaussian, MaxNorm, RandomisedResponse
from jaxfed.privacy.marvell import Marvell
from jaxfed.privacy.recording import record
from jaxfed.privacy.runs import Runs
from jaxfed.privacy.transcript import Pass, Sum, Transcript, View

__all__ = [
    "BatchGradients",
    "Clip",
    "Gaussian",
    "Marvell",
    "MaxNorm",
    "Pass",
    "PrivateUpdates",
    "RandomisedResponse",
    "Runs",
    "Sum",
    "Transcript",
    "View",
    "accounting",
    "completion",
    "features",
    "gram",
    "inversion",
    "label_metrics",
    "labels",
    "matrix",
    "messages",
    "reconstruction",
    "record",
    "residue",
    "tradeoff",
    "unmask",
]
