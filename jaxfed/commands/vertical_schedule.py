"""From the options of a vertical run to its schedule: how long, who when, and the table as a file."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxfed import checks, vertical
from jaxfed.commands import vertical_options as o
from jaxfed.vertical import PartyData

UNITS = {"epochs": vertical.Epochs, "ticks": int, "seconds": vertical.Seconds}
EPOCHS, RECORDS = 20, 20  # how long a run is, and how many records one of ticks or seconds has, if nothing is said

# whose the options are that not all schedulers have
OWNERS = {
    **dict.fromkeys(("tau1", "tau2", "strict"), ("async",)),
    **dict.fromkeys(("read_delay", "message_delay"), ("fixed",)),
    **dict.fromkeys(("reply_time", "link_time", "jitter", "threads", "straggler", "schedule_seed"), ("sync", "async")),
}


def check(given: o.Schedule) -> None:
    """Raise ValueError, with the option's name, for what no parties can have."""
    defaults = o.Schedule()
    for field, owners in OWNERS.items():
        got = getattr(given, field)
        if got != getattr(defaults, field) and given.scheduler not in owners:
            checks.fail(field, f"{got} with --scheduler {given.scheduler}", f"--scheduler {' or '.join(owners)}")
    if given.straggler is None and given.straggler_party is not None:
        checks.fail("straggler_party", given.straggler_party, "--straggler with it, which says how slow it is")
    if given.straggler is None and given.straggler_kind != defaults.straggler_kind:
        checks.fail("straggler_kind", given.straggler_kind, "--straggler with it, which says how slow it is")
    for field in ("read_delay", "message_delay"):
        checks.numbers(field, getattr(given, field), 0, 120)
    for field in ("update_time", "reply_time", "link_time"):
        checks.numbers(field, getattr(given, field), 0)
    if not given.update_time > 0:
        checks.fail("update_time", f"{given.update_time:g}", "more than 0 seconds")
    checks.whole("schedule_seed", given.schedule_seed, 0)
    if given.straggler is not None:
        checks.numbers("straggler", given.straggler, 0)


def scheduler(given: o.Schedule, train: PartyData) -> Any:
    """Return the scheduler, with its straggler."""
    if given.scheduler == "fixed":
        return vertical.FixedDelay(train, given.read_delay, given.message_delay, tick=given.update_time)
    fields: dict[str, Any] = {name: getattr(given, f"{name}_time") for name in ("update", "reply", "link")}
    fields |= {"jitter": given.jitter, "threads": given.threads, "seed": given.schedule_seed}
    if given.scheduler == "sync":
        made = vertical.Synchronous(train, **fields)
    else:
        made = vertical.BilevelAsync(train, tau1=given.tau1, tau2=given.tau2, strict=given.strict, **fields)
    if given.straggler is None:
        return made
    party = train.num_parties - 1 if given.straggler_party is None else given.straggler_party
    checks.whole("straggler_party", party, 0)
    if party >= train.num_parties:
        checks.fail("straggler_party", party, f"0 to {train.num_parties - 1}")
    slower = given.straggler + (given.straggler_kind != "start")  # a factor, but for the start: seconds
    return made.slow(party, **{given.straggler_kind: slower})


def lengths(length: o.Length) -> tuple[Any, Any]:
    """Return how long the run is and how often it is recorded: ticks, Epochs or Seconds."""
    given = [unit for unit in UNITS if getattr(length, unit) is not None]
    if len(given) > 1:
        got = " and ".join(f"--{unit}" for unit in given)
        checks.fail("length", got, f"one of {', '.join(f'--{unit}' for unit in UNITS)}")
    unit = given[0] if given else "epochs"
    count, every = getattr(length, unit) if given else EPOCHS, length.every
    if unit == "ticks":
        checks.whole("ticks", count, 1)
        if every is not None and not (every >= 1 and float(every).is_integer()):
            checks.fail("every", f"{every:g} with --ticks", "a whole number of ticks, at least 1")
        return count, max(count // RECORDS, 1) if every is None else int(every)
    if every is None:
        every = 1 if unit == "epochs" else count / RECORDS
    for field, value in ((unit, count), ("every", every)):
        checks.numbers(field, value, 0)
        if not value > 0:
            checks.fail(field, f"{value:g}", "more than 0")
    return UNITS[unit](count), UNITS[unit](every)


def complete(length: o.Length, ds: Any) -> bool:
    """Return whether a run's results reach its length, rather than having been ended early."""
    num_rounds, _ = lengths(length)
    name = {vertical.Epochs: "epochs", vertical.Seconds: "time"}.get(type(num_rounds), "round")
    done = float(ds[name][-1] - ds[name][0])
    return done >= (num_rounds if isinstance(num_rounds, int) else num_rounds.count) * (1 - 1e-9)


def check_export(file: str | None, overwrite: bool) -> None:
    """Raise ValueError for a file that is not a .npz, FileExistsError for one that is there (without overwrite)."""
    if file is None:
        return
    if Path(file).suffix != ".npz" or not Path(file).resolve().parent.is_dir():
        checks.fail("export_schedule", file, "a name that ends in .npz, in a folder that is there")
    if Path(file).exists() and not overwrite:
        raise FileExistsError(f"export_schedule: got {file}, which is there already; wanted another, or --overwrite")


def export(file: str, arguments: dict[str, Any], algorithm: Any) -> None:
    """Write the table of a run's schedule, the last ticks included that only apply what is still on its way.

    Arrays as in `ticks.Table`, and `active`, the parties of the dominators, and `num_ticks`, those before the last.
    """
    train = arguments["data"].train
    plan = vertical.plan(algorithm, train, arguments["scheduler"], arguments["num_rounds"])
    with open(file, "wb") as opened:
        np.savez_compressed(opened, **plan.table()._asdict(), active=train.active, num_ticks=plan.num_ticks)
