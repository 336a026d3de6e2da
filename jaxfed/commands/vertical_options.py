"""The options of vertical runs, in groups, with the help that a reader sees. Nothing here imports jax.

As in `options`: names are the library's where it has the same thing, None stands for what the help says.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from jaxfed.commands.options import maybe


@dataclass(frozen=True)
class Parties:
    """Who holds which columns of the table."""

    dataset: str = "breast_cancer"
    """A table: breast_cancer, diabetes (they come with the installed packages), credit, libsvm:FILE or tfds:NAME."""
    data_dir: Annotated[str | None, maybe("FOLDER", "JAXFED_DATA_DIR, else that of TFDS")] = None
    """Where the file of credit, LIBSVM files and the prepared sets of TensorFlow Datasets are."""
    download: bool = False
    """Let TensorFlow Datasets download and prepare a set that is not there."""
    parties: int = 8
    """Parties that the columns are dealt to, at random, in nearly equal numbers."""
    active: int = 3
    """How many of them, the first ones, hold the labels: each runs a dominating loop."""
    intercept: bool = False
    """Give the first party a column of ones, regularised like the others."""
    scale: Literal["none", "standard", "minmax", "maxabs"] = "none"
    """Scale each column by statistics of the training rows (only maxabs for a sparse table)."""
    data_seed: int = 0
    """Seed of the deal."""


@dataclass(frozen=True)
class Problem:
    """What is minimised: the mean loss of the training rows, plus l2 times the regularizer."""

    loss: Annotated[
        Literal["logistic", "squared", "half_squared", "robust", "squared_hinge"] | None,
        maybe("{logistic,squared,half_squared,robust,squared_hinge}", "logistic for two classes, squared else"),
    ] = None
    """Loss of a row. Logistic and squared_hinge are for two classes."""
    regularizer: Literal["l2", "nonconvex", "none"] = "l2"
    """Half the squared norm, or half the sum of w^2 / (1 + w^2)."""
    l2: float = 1e-4
    """Weight of the regularizer."""


@dataclass(frozen=True)
class Method:
    """How it is minimised."""

    method: Literal["sgd", "svrg", "saga"] = "svrg"
    """Plain stochastic gradients, or variance reduced by a reference point (svrg) or a table (saga)."""
    lr: Annotated[float | None, maybe("LR", "1 / (4 L), L how fast a row's gradient changes in the mean")] = None
    """Step size of a dominated update."""
    batch_size: int = 1
    """Rows of a dominated update."""
    epoch_length: Annotated[int | None, maybe("N", "one pass over the rows")] = None
    """Dominated updates between two reference points of svrg."""
    forward_only: bool = False
    """Leave the parties without labels where they are: no backward updating (AFSVRG-VP)."""


@dataclass(frozen=True)
class Protection:
    """What hides the parties' products from each other, and the labels behind theta."""

    masks: Literal["none", "float", "32", "64"] = "none"
    """Mask products and sum them over two trees (Algorithm 1): floats, or fixed point modulo 2^32 or 2^64."""
    mask_scale: float = 1.0
    """Float masks are uniform between minus this and this."""
    defence: Literal["none", "gaussian", "max-norm", "marvell", "randomised-response", "clip", "batch-gradients"] = (
        "none"
    )
    """What changes theta before it is sent."""
    strength: Annotated[float | None, maybe("S", "the defence's own")] = None
    """Gaussian: standard deviation; max-norm: factor of its noise; marvell: power; randomised-response: epsilon; clip:
    bound."""


@dataclass(frozen=True)
class Schedule:
    """Who does what when, in simulated seconds."""

    scheduler: Literal["sync", "async", "fixed"] = "async"
    """A barrier after every round, loops that wait for nobody, or delays of a fixed number of ticks."""
    tau1: int = 8
    """Async: bound on how many updates a read may miss, 0 to 120."""
    tau2: int = 8
    """Async: bound on how many updates a message may be late, 0 to 120."""
    strict: bool = False
    """Async: keep the exact order in real time inside ticks; about three times as many of them."""
    read_delay: int = 0
    """Fixed: ticks between a read and the update that it is for."""
    message_delay: int = 0
    """Fixed: ticks between an update and its application."""
    update_time: float = 1.0
    """Seconds that a party takes to update its block; fixed: seconds of a tick."""
    reply_time: float = 0.2
    """Seconds that a party takes to evaluate its part of a score."""
    link_time: float = 0.1
    """Seconds of a message's way to or from a party."""
    jitter: float = 0.1
    """Coefficient of variation of each of these times, 0 to 0.57."""
    threads: Annotated[int | None, maybe("N", "as many as active parties")] = None
    """Update threads of a party."""
    straggler: Annotated[float | None, maybe("F", "none")] = None
    """Make one party slower: its time is 1 + F times as long (0.4: 40 percent slower)."""
    straggler_kind: Literal["update", "reply", "link", "start"] = "update"
    """Which of the straggler's times is longer; start: the party starts F seconds late."""
    straggler_party: Annotated[int | None, maybe("P", "the last")] = None
    """Number of the straggler, from 0."""
    schedule_seed: int = 0
    """Seed of the jitter."""


@dataclass(frozen=True)
class Export:
    """The schedule as a file."""

    export_schedule: Annotated[str | None, maybe("FILE.npz", "not written")] = None
    """Write the schedule before the run: arrays read, complete, apply, snapshot and time, a row for each tick."""


@dataclass(frozen=True)
class Length:
    """How long the run is (one of these; 20 epochs by default)."""

    epochs: Annotated[float | None, maybe("N", "20")] = None
    """Passes over the training rows: each is rows / batch-size dominated updates."""
    ticks: Annotated[int | None, maybe("N", "not by ticks")] = None
    """Ticks of the schedule; sync: rounds."""
    seconds: Annotated[float | None, maybe("S", "not by time")] = None
    """Simulated seconds."""
    every: Annotated[float | None, maybe("N", "1 epoch, or a twentieth of ticks or seconds")] = None
    """Evaluate after every so many epochs, or ticks or seconds where the length is given in these."""


@dataclass(frozen=True)
class VerticalRunning:
    """The run."""

    seed: int = 0
    """Seed of the rows that are drawn."""
    x64: bool = False
    """Compute in float64."""
    target_accuracy: Annotated[float | None, maybe("A", "not reported")] = None
    """Report the first record at which the accuracy on test rows is at least A."""
    target_objective: Annotated[float | None, maybe("F", "not reported")] = None
    """Report the first record at which the objective is at most F."""
