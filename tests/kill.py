"""Kill -9 at random moments, again and again, and compare with the run that nobody killed: `python -m tests.kill`.

Every call of a command or of `run` is a fork of this process, which has imported jax and never starts it. A call is
killed after it has written a random number of checkpoints and some milliseconds more, or, one time in four, at a random
moment after its start. After each kill the checkpoint must be whole and hold no fewer rounds than before.
"""

import argparse
import importlib
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jaxfed as jf
from jaxfed import resume
from jaxfed.cli import main as command
from jaxfed.vertical import BilevelAsync, Objective

ROUNDS = 100  # for each kill: more than a call can do until it is killed
HEAVY = {  # what a fork would import, each time
    "horizontal": ("jaxfed.commands.train", "matplotlib.pyplot", "optax", "pandas", "sklearn.datasets"),
    "vertical": ("h5netcdf", "jaxfed.runner", "optax", "pandas"),
}


def horizontal(folder: Path, kills: int, checkpoint: Path | None) -> None:
    """Run adaptive APFL on cohorts, by the command line."""
    line = f"apfl --adaptive --dataset digits --num-clients 8 --cohort-size 3 --devices 1 --rounds {ROUNDS * kills}"
    words = [*line.split(), "--every", "4", "--quiet", "--out", str(folder)]
    keep = [] if checkpoint is None else ["--checkpoint", str(checkpoint), "--checkpoint-seconds", "0"]
    if status := command([*words, *keep]):
        raise SystemExit(status)


def vertical(folder: Path, kills: int, checkpoint: Path | None) -> None:
    """Run SVRG with parties that wait for nobody, by `run`; windows are longer than calls of the device."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 10))
    party = jf.vertical.split(x, np.sign(x.sum(1)), num_parties=4, num_active=2, seed=0)
    algorithm = jf.VFB2SVRG(Objective("logistic", "l2", 0.05), lr=0.1)
    options = {"scheduler": BilevelAsync(party, link=2.0), "num_rounds": ROUNDS * kills, "every": 20, "chunk": 3}
    keep = {"checkpoint": checkpoint, "checkpoint_seconds": 0}
    jf.run(0, algorithm, party, progress=False, **options, **keep).save(folder, overwrite=True)


def start(kind: Callable, *arguments) -> int:
    """Fork a process that does it and return its number."""
    child = os.fork()
    if child:
        return child
    try:
        kind(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def changes(path: Path) -> int:
    """The file's last change, 0 where there is none."""
    return path.stat().st_mtime_ns if path.exists() else 0


def kill(child: int, checkpoint: Path, chance: random.Random) -> bool:
    """Kill a process at a random moment. False: it ended before."""
    file, wanted = checkpoint / resume.NAME, chance.choice([0, 1, 3, 10])
    end = time.monotonic() + (chance.uniform(0, 2) if wanted == 0 else 120)
    seen, count = changes(file), 0
    while time.monotonic() < end and count < (wanted or 10):
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        now = changes(file)
        seen, count = now, count + (now != seen)
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.02))
    os.kill(child, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def rounds(checkpoint: Path) -> int:
    """How many rounds of the device a checkpoint has behind it."""
    if not (checkpoint / resume.NAME).exists():
        return 0
    return resume.Keeper(checkpoint, 0)._read(resume.NAME)[0]["now"]


def trial(kind: Callable, kills: int, folder: Path, chance: random.Random) -> str:
    """Kill one run `kills` times, let it end, and compare; what happened, in a line. AssertionError if it differs."""
    checkpoint, out, moments = folder / "checkpoint", folder / "killed", []
    while len(moments) < kills:
        assert kill(start(kind, out, kills, checkpoint), checkpoint, chance), f"ended before it was killed: {moments}"
        moments.append(rounds(checkpoint))
    assert moments == sorted(moments), f"rounds were lost: {moments}"
    for arguments in ((out, kills, checkpoint), (folder / "whole", kills, None), (out, kills, checkpoint)):
        assert os.waitpid(start(kind, *arguments), 0)[1] == 0, f"{arguments} failed"
        left = sorted(path.suffix for path in checkpoint.iterdir())
        assert ".partial" not in left, left
        if (folder / "whole").exists():
            compare(out, folder / "whole")
    return f"{kind.__name__}: killed after rounds {moments}, then bit for bit the run in one piece"


def compare(one: Path, other: Path) -> None:
    """Assert that two saved runs hold the same bits."""
    a, b = jf.load(one), jf.load(other)
    assert a.dataset.identical(b.dataset), "records differ"
    assert pickle.dumps(a.state) == pickle.dumps(b.state), "states differ"


def main() -> None:
    """Run the trials of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of all trials together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", default=["horizontal", "vertical"], choices=["horizontal", "vertical"])
    given = parser.parse_args()
    chance = random.Random(given.seed)
    for name in {name for kind in given.kinds for name in HEAVY[kind]}:
        importlib.import_module(name)
    kinds = [globals()[name] for name in given.kinds]
    for i, kind in enumerate(kinds):
        share = (given.kills + i) // len(kinds)
        with tempfile.TemporaryDirectory() as folder:
            print(trial(kind, share, Path(folder), chance), flush=True)


if __name__ == "__main__":
    sys.exit(main())
