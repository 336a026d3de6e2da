"""The options of `jaxfed sweep`: those of a run, of which the traced numbers take several values. Nothing imports jax.

Groups have the names and the fields of those in `options` and `vertical_options`; the help of the fields that are not
given anew is theirs. An empty tuple stands for what the help says.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from jaxfed.commands import options as o
from jaxfed.commands import vertical_options as v

# options that may have several values, each of which is then an axis
SWEPT = (
    "lr", "lr_decay", "server_lr", "alpha", "alpha_lr", "personal_lr", "alpha_l2", "tune_lr", "l2", "read_delay",
    "message_delay",
)  # fmt: skip


def several(metavar: str, otherwise: str = "") -> Any:
    """Help for an option of several values: what stands for one, and what holds without any."""
    return arg(metavar=f"{metavar} ...", help_behavior_hint=f"(default: {otherwise})" if otherwise else None)


@dataclass(frozen=True)
class Sweep:
    """The sweep."""

    seeds: int = 1
    """Runs of each point, with the seeds seed, seed + 1, ..."""
    batch: Annotated[int | None, o.maybe("N", "as many as memory allows")] = None
    """Runs that are computed at once."""
    memory: Annotated[float | None, o.maybe("GIB", "half of a host's that is free, most of an accelerator's")] = None
    """Memory that a device may use for the runs that are computed at once, in GiB."""
    dry_run: bool = False
    """Print what the sweep would take, and run nothing."""
    config: Annotated[str | None, o.maybe("FILE.toml", "none")] = None
    """File with options by name (alpha = [0, 0.5], seeds = 20); what the command line gives overrides it."""
    by: Annotated[str | None, o.maybe("NAME", "validation rows where there are some, else training rows")] = None
    """What the best settings are chosen by, say personal_validation_loss; by test rows only if it is named here."""
    top: int = 10
    """Lines of the table of the best settings."""


@dataclass(frozen=True)
class Output(o.Output):
    """Where results go. A sweep that was stopped goes on by the same line of command."""

    out: Annotated[str | None, o.maybe("FOLDER", "nothing is saved")] = None
    """Folder for results.nc, settings.json and figure.png."""
    overwrite: bool = False
    """Start anew, and replace the results that the folder holds."""


@dataclass(frozen=True)
class Running:
    """Every run of the sweep."""

    rounds: int = 100
    """Rounds to run."""
    every: int = 1
    """Evaluate after every so many rounds."""
    cohort_size: Annotated[int | None, o.maybe("K", "all clients")] = None
    """Clients drawn for each round."""
    seed: int = 0
    """Seed of the first run of each point: the initial model, the cohorts and the minibatches."""
    devices: Annotated[int | None, o.maybe("N", "every core of the CPU, or every GPU")] = None
    """Devices that the sweep is spread over."""
    x64: bool = False
    """Compute in float64."""


@dataclass(frozen=True)
class VerticalRunning:
    """Every run of the sweep."""

    seed: int = 0
    """Seed of the first run of each point: the rows that are drawn."""
    x64: bool = False
    """Compute in float64."""


@dataclass(frozen=True)
class Local(o.Local):
    """What a client does in a round."""

    lr: Annotated[tuple[float, ...], several("LR")] = (0.1,)
    """Step sizes of the local steps."""
    lr_decay: Annotated[tuple[float, ...], several("D")] = (1.0,)
    """Factors on lr after each round: 0.99 is one percent less a round."""


@dataclass(frozen=True)
class ServerRate(o.ServerRate):
    """The server's step size."""

    server_lr: Annotated[tuple[float, ...], several("LR")] = (1.0,)
    """Step sizes of the server; 1 without an optimizer is plain averaging."""


@dataclass(frozen=True)
class Mixing(o.Mixing):
    """APFL's mixture of each client's own model v with the server's w: alpha v + (1 - alpha) w."""

    alpha: Annotated[tuple[float, ...], several("A")] = (0.5,)
    """Mixing weights at the start, 0 (the server's model) to 1 (the client's own)."""
    alpha_lr: Annotated[tuple[float, ...], several("LR", "lr")] = ()
    """Step sizes of alpha."""
    personal_lr: Annotated[tuple[float, ...], several("LR", "lr")] = ()
    """Step sizes of v, the same in all rounds."""
    alpha_l2: Annotated[tuple[float, ...], several("C")] = (0.0,)
    """Each adds 2 alpha_l2 alpha to the slope in alpha."""


@dataclass(frozen=True)
class Tuning(o.Tuning):
    """Fine-tuning of the server's model, at each evaluation."""

    tune_lr: Annotated[tuple[float, ...], several("LR", "lr")] = ()
    """Step sizes of these steps."""


@dataclass(frozen=True)
class Net(o.Net):
    """The model that is fitted."""

    l2: Annotated[tuple[float, ...], several("L2")] = (0.0,)
    """Each adds l2 / 2 times the squared norm of all parameters to the loss."""


@dataclass(frozen=True)
class Problem(v.Problem):
    """What is minimised: the mean loss of the training rows, plus l2 times the regularizer."""

    l2: Annotated[tuple[float, ...], several("L2")] = (1e-4,)
    """Weights of the regularizer."""


@dataclass(frozen=True)
class Method(v.Method):
    """How it is minimised."""

    lr: Annotated[tuple[float, ...], several("LR", "1 / (4 L), L how fast a row's gradient changes in the mean")] = ()
    """Step sizes of a dominated update."""


@dataclass(frozen=True)
class Schedule(v.Schedule):
    """Who does what when, in simulated seconds."""

    read_delay: Annotated[tuple[int, ...], several("N")] = (0,)
    """Fixed: ticks between a read and the update that it is for. (The greatest delay sets the length of svrg's epochs.)
    """
    message_delay: Annotated[tuple[int, ...], several("N")] = (0,)
    """Fixed: ticks between an update and its application."""
