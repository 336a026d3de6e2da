"""Play a vertical run, attack what its parties saw, and say what came of it."""

import dataclasses
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from jaxfed import checks
from jaxfed.commands import vertical, vertical_schedule
from jaxfed.commands.attack_options import NAMES, Attack
from jaxfed.commands.train import make
from jaxfed.commands.vertical_options import VerticalRunning

LABELS = ("sign", "clusters", "logits", "norm", "hint", "noise", "response", "start", "completion", "residue")
FILES = ("attacks.json", "attacks.md", "tradeoff.nc", "tradeoff.png")


def attack(options: Attack) -> int:
    """Attack, print the matrix, and return 0, whatever the verdicts: a difference is a finding.

    An attack that the run gives nothing to work on is a line that says so, unless there is no other.
    """
    import numpy as np

    from jaxfed import results
    from jaxfed.privacy import matrix, matrix_features, matrix_labels, tradeoff

    given, runs, about = options.attacking, *prepare(options)
    every = matrix_labels.ATTACKS | matrix_features.ATTACKS
    lost = not np.isfinite(runs.plain.weights).all()  # of masked runs that leave their range thetas may be finite yet
    if lost:
        warnings.warn("diverged: weights are not finite when the window ends, so its numbers mean little", stacklevel=2)
    out = None if given.out is None else Path(given.out)
    rows, refused = [], []
    for name in dict.fromkeys(given.attacks or NAMES):
        print(f"attacking: {name}", file=sys.stderr)
        try:
            with np.errstate(all="ignore") if lost else nullcontext():
                rows += every[name](runs)
        except ValueError as error:
            refused.append(error)
            rows.append(matrix.not_made(name, str(error)))
        if out is not None and len(refused) < len(rows):  # what is done outlives a kill
            matrix.save(rows, out / "attacks.json", about)
    if len(refused) == len(rows):
        raise refused[0]
    text = matrix.table(rows)
    print(f"{about['title']}\n\n{runs.plain.seen()}\n\n{text}")
    if out is not None:
        (out / "attacks.md").write_text(f"{about['title']}\n\n{text}\n")
    if not given.no_tradeoff:
        print("measuring: what defences cost", file=sys.stderr)
        ds = tradeoff.measure(runs)
        print(f"\n{tradeoff.table(ds)}")
        if out is not None:
            results.save_dataset(ds, out / "tradeoff.nc")
            tradeoff.draw(ds).savefig(out / "tradeoff.png", dpi=150)
    print("\nnot saved: no --out was given" if out is None else f"\nsaved in {out}")
    return 0


def prepare(options: Attack) -> tuple[Any, dict[str, Any]]:
    """Return the runs to attack and what to say of them, after everything that can be refused before has been."""
    from jaxfed.privacy.recording import in_run
    from jaxfed.privacy.runs import Runs
    from jaxfed.vertical import plan
    from jaxfed.vertical.checks import settings

    given = options.attacking
    checks.whole("seed", given.seed, 0)
    checks.whole("known", given.known, 2)
    whole = _as_a_run(options)
    num_rounds, _ = vertical_schedule.lengths(options.length)
    vertical.check(whole)
    train, test = vertical.party_data(options.data)
    whole = vertical.settle(whole, train)
    algorithm = vertical.method(whole)
    settings(algorithm, train.with_parts(test))
    if given.known > train.num_rows - 2:
        checks.fail("known", given.known, f"at most {train.num_rows - 2}, so that some of the rows are left to guess")
    if options.method.forward_only and not (given.no_tradeoff and given.attacks and not set(given.attacks) & {*LABELS}):
        active = " ".join(name for name in NAMES if name not in LABELS)
        checks.fail("forward_only", True, f"--attacks {active} and --no-tradeoff: passive parties get nothing")
    if algorithm.objective.loss != "logistic":
        checks.fail("loss", algorithm.objective.loss, "logistic, on labels of two classes: the attacks are on these")
    passive = [p for p in range(train.num_parties) if p not in train.active]
    attacker = passive[-1] if given.attacker is None and passive else given.attacker
    if not passive:
        checks.fail("active", options.data.active, f"fewer than the {train.num_parties} parties: a passive one attacks")
    if attacker not in passive:
        checks.fail("attacker", attacker, f"a passive party: {passive}")
    scheduler = vertical_schedule.scheduler(options.schedule, train)
    if given.window is not None:
        in_run(given.window, len(plan(algorithm, train, scheduler, num_rounds).time))
    _check_out(given)
    runs = Runs(given.seed, algorithm, train, test, scheduler, num_rounds, attacker, given.window, given.known)
    title = (f"{options.data.dataset}: {train.num_rows} rows, {train.num_parties} parties of {train.sizes} features, "
             f"active {train.active}; {whole.method.method}, lr {whole.method.lr:g}, masks {options.protection.masks}, "
             f"defence {options.protection.defence}, {options.schedule.scheduler}")  # fmt: skip
    return runs, {"title": title, "options": dataclasses.asdict(options)}


def _as_a_run(options: Attack) -> Any:
    """Return the options as those of a `vfb2` run, which has the same groups."""
    from jaxfed.commands.catalogue import Vfb2

    shared = {field.name: getattr(options, field.name) for field in dataclasses.fields(Attack)}
    del shared["attacking"]
    return Vfb2(**shared, running=VerticalRunning(seed=options.attacking.seed))


def _check_out(given: Any) -> None:
    """Raise where the folder is a file, can't be made or holds attacks already; else make it."""
    if given.out is None:
        return
    out = Path(given.out)
    if out.exists() and not out.is_dir():
        raise NotADirectoryError(f"out: got {out}, which is a file; wanted a folder")
    held = [name for name in FILES if (out / name).exists()]
    if held and not given.overwrite:
        raise FileExistsError(f"out: got {out}, which holds {held[0]} already; wanted another, or --overwrite")
    make(given)
