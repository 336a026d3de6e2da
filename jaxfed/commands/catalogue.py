"""The commands: each a dataclass of option groups, whose docstring is what `--help` says of it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from jaxfed.commands import options as o
from jaxfed.commands import vertical_options as v
from jaxfed.commands.attack_options import Attack
from jaxfed.commands.sweep_catalogue import SWEEPS


def _group(cls: type) -> Any:
    return field(default_factory=cls)


@dataclass(frozen=True)
class Apfl:
    """APFL: every client mixes its own model with the server's, by a weight alpha that it may learn."""

    preset: Annotated[
        Literal["none", "fedtorch"], arg(help="Defaults of the authors' code in place of the paper's (without its l2).")
    ] = "none"
    mixing: o.Mixing = _group(o.Mixing)
    local: o.Local = _group(o.Local)
    rate: o.ServerRate = _group(o.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)


@dataclass(frozen=True)
class FedAvg:
    """FedAvg: local steps from the server's model, then the mean of the clients' models."""

    local: o.Local = _group(o.Local)
    momentum: o.Momentum = _group(o.Momentum)
    rate: o.ServerRate = _group(o.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)


@dataclass(frozen=True)
class LocalOnly:
    """Local training only: every client fits its own model and sends nothing."""

    local: o.Local = _group(o.Local)
    momentum: o.Momentum = _group(o.Momentum)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)


@dataclass(frozen=True)
class FineTuned:
    """FedAvg, then fine-tuning: the personal model is the server's after some steps on the client's own rows."""

    tuning: o.Tuning = _group(o.Tuning)
    local: o.Local = _group(o.Local)
    momentum: o.Momentum = _group(o.Momentum)
    rate: o.ServerRate = _group(o.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)


@dataclass(frozen=True)
class Scaffold:
    """SCAFFOLD: FedAvg with local steps corrected by control variates, at twice its bytes."""

    control: o.Control = _group(o.Control)
    local: o.Local = _group(o.Local)
    rate: o.ServerRate = _group(o.ServerRate)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)


@dataclass(frozen=True)
class Vfb2:
    """VFB2: parties that hold different columns of the same rows fit one linear model, waiting for nobody."""

    method: v.Method = _group(v.Method)
    problem: v.Problem = _group(v.Problem)
    data: v.Parties = _group(v.Parties)
    protection: v.Protection = _group(v.Protection)
    schedule: v.Schedule = _group(v.Schedule)
    length: v.Length = _group(v.Length)
    running: v.VerticalRunning = _group(v.VerticalRunning)
    start: o.Start = _group(o.Start)
    long: o.Long = _group(o.Long)
    output: o.Output = _group(o.Output)
    track: o.Track = _group(o.Track)
    export: v.Export = _group(v.Export)


@dataclass(frozen=True)
class Compare:
    """Compare: several algorithms on one split, with the same settings where they share them, in one table."""

    algorithms: tuple[Literal["fedavg", "scaffold", "local", "fine-tuned", "apfl", "apfl-adaptive"], ...] = (
        "fedavg", "scaffold", "local", "apfl", "apfl-adaptive",
    )  # fmt: skip
    """What to compare; apfl-adaptive is apfl with --adaptive."""
    seeds: int = 1
    """Runs of each algorithm, with the seeds seed, seed + 1, ..."""
    mixing: o.Mixing = _group(o.Mixing)
    tuning: o.Tuning = _group(o.Tuning)
    control: o.Control = _group(o.Control)
    local: o.Local = _group(o.Local)
    momentum: o.Momentum = _group(o.Momentum)
    rate: o.ServerRate = _group(o.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: o.Net = _group(o.Net)
    running: o.Running = _group(o.Running)
    output: o.Output = _group(o.Output)


@dataclass(frozen=True)
class Show:
    """Show: the table of a saved run, comparison or sweep again, and its figure drawn anew."""

    folder: Positional[str]
    """Folder of the run, its --out."""
    target_accuracy: Annotated[float | None, arg(metavar="A", help_behavior_hint="(default: that of the run)")] = None
    """Report the first recorded round at which the mean test accuracy over clients is at least A, and the bytes."""
    target_objective: Annotated[float | None, arg(metavar="F", help_behavior_hint="(default: that of the run)")] = None
    """Of a vertical run: report the first record at which the objective is at most F."""
    by: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: that of the sweep)")] = None
    """Of a sweep: what the best settings are chosen by, say personal_validation_loss."""
    top: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: that of the sweep)")] = None
    """Of a sweep: lines of the table."""


@dataclass(frozen=True)
class ExportResults:
    """Export: a saved run, comparison or sweep as a table, a line for each lane and record."""

    folder: Positional[str]
    """Folder of the run, its --out."""
    csv: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="(default: standard output)")] = None
    """File of comma-separated values: the settings, seed, round, time, then every quantity (means over clients)."""
    overwrite: bool = False
    """Replace the file."""


@dataclass(frozen=True)
class Predict:
    """Predict: what a saved run's model says of rows (a client's, or all of a vertical run), a line for each."""

    folder: Positional[str]
    """Folder of the run, its --out."""
    client: Annotated[int | None, arg(metavar="C", help_behavior_hint="(required, but for a vertical run)")] = None
    """Number of the client whose personal model predicts, from 0."""
    server: bool = False
    """Predict with the server's model in place of the client's."""
    rows: Literal["train", "validation", "test"] = "test"
    """Which of the client's rows, or of the data set's, to predict."""
    x: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="(default: the run's own rows)")] = None
    """A file with rows of your own [n, ...], shaped and scaled as those of the data set: NumPy's .npy, or .csv with or
    without a line of names (for a sparse table: SciPy's .npz)."""
    out: Annotated[str | None, arg(metavar="FILE", help_behavior_hint="(default: standard output)")] = None
    """File for the lines."""


@dataclass(frozen=True)
class Theory:
    """Theory: the claims of both papers, each measured: a table with intervals and verdicts."""

    smoke: bool = False
    """Toy size, in under a minute: many claims stay undecided."""
    only: Annotated[tuple[str, ...], arg(metavar="ID [ID ...]", help_behavior_hint="(default: all)")] = ()
    """Measure these claims only."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: only print)")] = None
    """Write claims.json, claims.md and the figures here as each part ends; the same line goes on after a stop."""
    seed: int = 0
    """Seed of all experiments."""


COMMANDS: dict[str, type] = {
    "apfl": Apfl,
    "fedavg": FedAvg,
    "local": LocalOnly,
    "fine-tuned": FineTuned,
    "scaffold": Scaffold,
    "vfb2": Vfb2,
    "compare": Compare,
    "show": Show,
    "export": ExportResults,
    "predict": Predict,
    "theory": Theory,
    "attack": Attack,
}


def class_of(command: str) -> type:
    """Return the options of a command: those of COMMANDS by name, those of SWEEPS as "sweep apfl"."""
    kind, _, algorithm = command.partition(" ")
    return SWEEPS[algorithm] if kind == "sweep" else COMMANDS[command]
