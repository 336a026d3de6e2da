"""The commands `jaxfed sweep ALGORITHM`: as those in `catalogue`, with the groups of `sweep_options`."""

from dataclasses import dataclass, field
from typing import Any

from jaxfed.commands import options as o
from jaxfed.commands import sweep_options as s
from jaxfed.commands import vertical_options as v


def _group(cls: type) -> Any:
    return field(default_factory=cls)


@dataclass(frozen=True)
class SweepApfl:
    """Sweep of APFL, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    mixing: s.Mixing = _group(s.Mixing)
    local: s.Local = _group(s.Local)
    rate: s.ServerRate = _group(s.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: s.Net = _group(s.Net)
    running: s.Running = _group(s.Running)
    output: s.Output = _group(s.Output)


@dataclass(frozen=True)
class SweepFedAvg:
    """Sweep of FedAvg, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    local: s.Local = _group(s.Local)
    momentum: o.Momentum = _group(o.Momentum)
    rate: s.ServerRate = _group(s.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: s.Net = _group(s.Net)
    running: s.Running = _group(s.Running)
    output: s.Output = _group(s.Output)


@dataclass(frozen=True)
class SweepLocalOnly:
    """Sweep of local training, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    local: s.Local = _group(s.Local)
    momentum: o.Momentum = _group(o.Momentum)
    data: o.Data = _group(o.Data)
    net: s.Net = _group(s.Net)
    running: s.Running = _group(s.Running)
    output: s.Output = _group(s.Output)


@dataclass(frozen=True)
class SweepFineTuned:
    """Sweep of FedAvg with fine-tuning, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    tuning: s.Tuning = _group(s.Tuning)
    local: s.Local = _group(s.Local)
    momentum: o.Momentum = _group(o.Momentum)
    rate: s.ServerRate = _group(s.ServerRate)
    server: o.Server = _group(o.Server)
    data: o.Data = _group(o.Data)
    net: s.Net = _group(s.Net)
    running: s.Running = _group(s.Running)
    output: s.Output = _group(s.Output)


@dataclass(frozen=True)
class SweepScaffold:
    """Sweep of SCAFFOLD, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    control: o.Control = _group(o.Control)
    local: s.Local = _group(s.Local)
    rate: s.ServerRate = _group(s.ServerRate)
    data: o.Data = _group(o.Data)
    net: s.Net = _group(s.Net)
    running: s.Running = _group(s.Running)
    output: s.Output = _group(s.Output)


@dataclass(frozen=True)
class SweepVfb2:
    """Sweep of VFB2, in one program: every option that takes several values may be an axis."""

    sweep: s.Sweep = _group(s.Sweep)
    method: s.Method = _group(s.Method)
    problem: s.Problem = _group(s.Problem)
    data: v.Parties = _group(v.Parties)
    protection: v.Protection = _group(v.Protection)
    schedule: s.Schedule = _group(s.Schedule)
    length: v.Length = _group(v.Length)
    running: s.VerticalRunning = _group(s.VerticalRunning)
    output: s.Output = _group(s.Output)


SWEEPS: dict[str, type] = {
    "apfl": SweepApfl,
    "fedavg": SweepFedAvg,
    "local": SweepLocalOnly,
    "fine-tuned": SweepFineTuned,
    "scaffold": SweepScaffold,
    "vfb2": SweepVfb2,
}
