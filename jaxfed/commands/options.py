"""The options of the command line, in groups, with the help that a reader sees. Nothing here imports jax.

A command is a dataclass of groups (`catalogue`), and its settings file holds the same groups. Names are those of the
library's fields where it has the same thing. None stands for what the help says, often another option's value.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tyro.conf import arg


def maybe(metavar: str, otherwise: str) -> Any:
    """Help for an option that may be absent: what stands for its value, and what holds without it."""
    return arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


_WEIGHTS = "uniform for apfl, else examples"


@dataclass(frozen=True)
class Data:
    """What the clients hold."""

    dataset: str = "mnist5k"
    """mnist5k, digits, breast_cancer, diabetes (they come with the installed packages), tfds:NAME or idx:FOLDER."""
    data_dir: Annotated[str | None, maybe("FOLDER", "JAXFED_DATA_DIR, else that of TFDS")] = None
    """Where the prepared sets of TensorFlow Datasets are."""
    download: bool = False
    """Let TensorFlow Datasets download and prepare a set that is not there."""
    num_clients: int = 100
    """Clients that the rows are dealt to."""
    iid: bool = False
    """Deal rows at random, in equal numbers. This is also what happens when no other split is asked for."""
    classes_per_client: Annotated[int | None, maybe("K", "no such split")] = None
    """Deal each client rows of exactly K classes."""
    concentration: Annotated[float | None, maybe("C", "no such split")] = None
    """Deal each class in proportions drawn from Dirichlet(C): small C, few clients hold a class; large C, all do."""
    quantity: Annotated[float | None, maybe("C", "no such split")] = None
    """Deal rows at random, in numbers proportional to a draw from Dirichlet(C)."""
    validation: float = 0.0
    """Fraction of each client's rows kept from training, to choose settings by; below 1."""
    data_seed: int = 0
    """Seed of the split; the same seed gives the same clients to every algorithm."""


@dataclass(frozen=True)
class Net:
    """The model that is fitted."""

    model: Literal["logistic", "mlp", "cnn", "linear"] = "logistic"
    """Logistic regression; dense layers; convolutions (images only); least squares (real targets only)."""
    hidden: tuple[int, ...] = (200, 200)
    """Widths of the hidden layers of mlp."""
    l2: float = 0.0
    """Adds l2 / 2 times the squared norm of all parameters to the loss."""


@dataclass(frozen=True)
class Local:
    """What a client does in a round."""

    lr: float = 0.1
    """Step size of the local steps."""
    lr_decay: float = 1.0
    """Factor on lr after each round: 0.99 is one percent less a round."""
    local_steps: int = 10
    """Local steps a round."""
    batch_size: int | Literal["full"] = 20
    """Rows a local step; full (or 0): all rows of the client."""
    batches: Literal["with_replacement", "epochs"] = "with_replacement"
    """Minibatches drawn independently, or by passes over the client's rows in a new order each time."""
    local_epochs: Annotated[int | None, maybe("E", "as many as local-steps says")] = None
    """Passes over the client's rows a round, in place of local-steps; needs --batches epochs."""


@dataclass(frozen=True)
class Momentum:
    """The clients' optimizer."""

    momentum: float = 0.0
    """Momentum of the local steps, started anew each round; from 0 (plain SGD) to below 1."""


@dataclass(frozen=True)
class Server:
    """What the server does with the clients' mean update."""

    server_optimizer: Literal["none", "momentum", "adam", "yogi"] = "none"
    """None adds server-lr times the update; the others are FedAvgM, FedAdam and FedYogi."""
    weights: Annotated[Literal["uniform", "examples"] | None, maybe("{uniform,examples}", _WEIGHTS)] = None
    """Whether clients count equally in the mean, or by their numbers of rows."""


@dataclass(frozen=True)
class ServerRate:
    """The server's step size."""

    server_lr: float = 1.0
    """Step size of the server; 1 without an optimizer is plain averaging."""


@dataclass(frozen=True)
class Tuning:
    """Fine-tuning of the server's model, at each evaluation."""

    tune_steps: int = 10
    """Steps of plain SGD on the client's own rows."""
    tune_lr: Annotated[float | None, maybe("LR", "lr")] = None
    """Step size of these steps."""


@dataclass(frozen=True)
class Control:
    """SCAFFOLD's control variates."""

    control: Literal["I", "II"] = "II"
    """The paper's option: the gradient of all rows at the server's model (I), or the mean along the path (II)."""


@dataclass(frozen=True)
class Mixing:
    """APFL's mixture of each client's own model v with the server's w: alpha v + (1 - alpha) w."""

    alpha: float = 0.5
    """Mixing weight at the start, 0 (the server's model) to 1 (the client's own)."""
    adaptive: bool = False
    """Let every client learn its alpha."""
    alpha_lr: Annotated[float | None, maybe("LR", "lr")] = None
    """Step size of alpha."""
    personal_lr: Annotated[float | None, maybe("LR", "lr")] = None
    """Step size of v, the same in all rounds."""
    alpha_every: Literal["round", "step"] = "round"
    """Move alpha once a round, at the first local step, or at every step."""
    alpha_l2: float = 0.0
    """Adds 2 alpha_l2 alpha to the slope in alpha."""
    alpha_gradient: Literal["exact", "fedtorch"] = "exact"
    """The slope in alpha, or what the authors' code takes for it."""
    mix: Literal["params", "logits"] = "params"
    """Mix the parameters, or the outputs."""
    order: Literal["simultaneous", "sequential"] = "simultaneous"
    """Move w and v from the same values, or w first."""
    evaluate_with: Literal["server", "local"] = "server"
    """Evaluate the mixture with the server's new w, or with the client's own w of its last round."""


@dataclass(frozen=True)
class Processes:
    """One run in several processes, on one machine or many: start each with the same options, but for process-id."""

    coordinator: Annotated[str | None, maybe("HOST:PORT", "one process")] = None
    """Where the processes meet: the first one's machine, and a free port there."""
    num_processes: Annotated[int | None, maybe("N", "what Slurm or Open MPI says")] = None
    """How many processes there are."""
    process_id: Annotated[int | None, maybe("I", "what Slurm or Open MPI says")] = None
    """Which of them this is, from 0; process 0 alone prints and writes files."""
    distributed: bool = False
    """Under Slurm or Open MPI: join the processes that these started, as they tell; no other option is needed."""


@dataclass(frozen=True)
class Running:
    """The run."""

    rounds: int = 100
    """Rounds to run."""
    every: int = 1
    """Evaluate after every so many rounds."""
    cohort_size: Annotated[int | None, maybe("K", "all clients")] = None
    """Clients drawn for each round."""
    seed: int = 0
    """Seed of the initial model, the cohorts and the minibatches."""
    devices: Annotated[int | None, maybe("N", "every core of the CPU, or every GPU")] = None
    """Devices that the clients are spread over; in several processes, those of each."""
    x64: bool = False
    """Compute in float64."""
    target_accuracy: Annotated[float | None, maybe("A", "not reported")] = None
    """Report the first recorded round at which the mean test accuracy over clients is at least A, and the bytes."""
    processes: Processes = field(default_factory=Processes)


@dataclass(frozen=True)
class Long:
    """Long runs."""

    checkpoint: Annotated[str | None, maybe("FOLDER", "a kill loses the run")] = None
    """Keep in this folder what is needed to go on after a kill. The same command goes on from there."""
    checkpoint_seconds: float = 60.0
    """Write it at most once in so many seconds."""


@dataclass(frozen=True)
class Output:
    """Where results go."""

    out: Annotated[str | None, maybe("FOLDER", "nothing is saved")] = None
    """Folder for results.nc, state.pkl, settings.json and figure.png."""
    overwrite: bool = False
    """Replace the results that the folder holds."""
    quiet: bool = False
    """No progress bar and no table."""


@dataclass(frozen=True)
class Track:
    """Where the figures of each record also go while the run goes on (pip install -e ".[track]")."""

    tensorboard: Annotated[str | None, maybe("FOLDER", "not there")] = None
    """Folder for TensorBoard."""
    wandb: Annotated[str | None, maybe("PROJECT", "not there")] = None
    """Project of Weights & Biases; WANDB_MODE=offline in the environment keeps it on this machine."""


@dataclass(frozen=True)
class Start:
    """Where the run starts."""

    continue_from: Annotated[str | None, maybe("FOLDER", "a new model")] = None
    """Go on from the state of an earlier run. Its settings hold where no other is given, and its rounds count on."""
