"""The options of `jaxfed attack`. Nothing here imports jax."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from jaxfed.commands import vertical_options as v
from jaxfed.commands.options import maybe

NAMES = (
    "sign", "clusters", "logits", "norm", "hint", "noise", "response", "start", "completion", "residue", "equality",
    "gram", "passes", "unmasking",
)  # fmt: skip


def _group(cls: type, **fields: Any) -> Any:
    return field(default_factory=lambda: cls(**fields))


@dataclass(frozen=True)
class Attacking:
    """Who attacks what."""

    attacks: Annotated[tuple[Literal[NAMES], ...], maybe("NAME [NAME ...]", "all")] = ()
    """Make these attacks only."""
    attacker: Annotated[int | None, maybe("P", "the last")] = None
    """Number of the passive party that attacks labels, from 0."""
    window: Annotated[tuple[int, int] | None, maybe("FIRST STOP", "the whole run")] = None
    """Attack what was sent in ticks FIRST to STOP - 1 only, where an attack is on the run itself."""
    known: int = 20
    """Labels that an attacker may know, where it needs any."""
    no_tradeoff: bool = False
    """Leave out the defences' trade-off of leakage against accuracy, and its figure."""
    out: Annotated[str | None, maybe("FOLDER", "only print")] = None
    """Folder for attacks.json, attacks.md, tradeoff.nc and tradeoff.png."""
    overwrite: bool = False
    """Replace the attacks that the folder holds."""
    seed: int = 0
    """Seed of the rows that are drawn, of masks and defences, and of the attackers' choices."""


@dataclass(frozen=True)
class Attack:
    """Attack: who saw what in a vertical run, and what can be inferred from it: a table, and what defences cost."""

    attacking: Attacking = _group(Attacking)
    method: v.Method = _group(v.Method, method="sgd")
    problem: v.Problem = _group(v.Problem)
    data: v.Parties = _group(v.Parties)
    protection: v.Protection = _group(v.Protection, masks="32")
    schedule: v.Schedule = _group(v.Schedule)
    length: v.Length = _group(v.Length)
