"""Sweeps beside single runs, in one process on two devices (the cores of a CPU); about eight minutes.

    python -m benchmarks.sweep                       # everything
    python -m benchmarks.sweep rates seeds grid      # parts: rates, seeds, grid, checkpoints, scaling, memory

A loop is what one would write: a compiled rollout with its own evaluation, called once for each lane, its records
fetched. Sweeps are timed whole, with checks, placing and labelling, after a first call that compiles. Alternatives take
turns; a figure is the median of the turns, in brackets the least and the greatest.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from importlib.metadata import version

import jax
import numpy as np

import jaxfed as jf
from jaxfed import core, lanes, runner, sweeps
from jaxfed.horizontal import FullParticipation, measures

PARTS = ("rates", "seeds", "grid", "checkpoints", "scaling", "memory")
SIZES = {"60x10": (20, 50, 60, 10), "784x10": (100, 50, 784, 10)}  # clients, rows of each, features, classes


def federation(size):
    clients, rows, d, classes = SIZES[size]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * rows, d)).astype(np.float32)
    y = (x @ rng.normal(size=(d, classes))).argmax(1)
    train = jf.ClientData.from_indices(x, y, np.arange(len(x)).reshape(clients, rows))
    return train, jf.models.logistic_regression(classes)


def apfl(model, form="auto"):
    return jf.APFL(model, lr=0.05, alpha=0.5, adaptive=True, local_steps=10, batch_size=20, form=form)


class Loop:
    """A compiled single run with its own evaluation, for lane after lane."""

    def __init__(self, train, algorithm, rounds, every):
        self.base, scheduler = algorithm, runner.cast(FullParticipation(train.num_clients))
        placed = train.with_parts().place(runner.cast(algorithm, to_float=True), scheduler)
        rest = dict(scheduler=scheduler, measures=measures.DEFAULT, num_rounds=rounds, every=every)
        self.data, self.run = placed, jax.jit(partial(core.rollout, **rest))

    def __call__(self, points, seeds):
        for seed in seeds:
            for point in points:
                algorithm = runner.cast(self.base.replace(**point), to_float=True)
                jax.device_get(self.run(jax.random.key(seed), algorithm, data=self.data)[1])


def take_turns(calls, turns):
    """{name: seconds of each turn}, after one call of each that compiles."""
    for call in calls.values():
        call()
    seconds = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def say(title, seconds, base):
    """Print a line for each alternative, and how many times as fast as the base it is, turn by turn."""
    print(title, flush=True)
    for name, spent in seconds.items():
        ratios = np.divide(seconds[base], spent)
        print(f"  {name:42} {np.median(spent):8.2f} s ({min(spent):.2f} to {max(spent):.2f})"
              f"   {np.median(ratios):5.2f} times ({ratios.min():.2f} to {ratios.max():.2f})", flush=True)  # fmt: skip


def rates(turns):
    train, model = federation("784x10")
    points = [{"lr": float(lr)} for lr in np.geomspace(0.01, 0.1, 16)]
    given = dict(axes={"lr": [p["lr"] for p in points]}, num_rounds=20, every=20, progress=False)
    plain, fast = (Loop(train, apfl(model, form), 20, 20) for form in ("plain", "auto"))
    calls = {
        "16 runs, plain form": partial(plain, points, [0]),
        "16 runs": partial(fast, points, [0]),
        "sweep, one device": lambda: jf.sweep(0, apfl(model), train, **given),
        "sweep, plain form, one device": lambda: jf.sweep(0, apfl(model, "plain"), train, **given),
        "sweep, two devices": lambda: jf.sweep(
            0, apfl(model), train, mesh=jf.parallel.mesh(client=1, sweep=2), **given
        ),
    }
    say("16 step sizes with common minibatches, 784x10, 100 clients", take_turns(calls, turns), "16 runs, plain form")


def seeds(turns):
    train, model = federation("784x10")
    given = dict(axes={"lr": [0.05]}, seeds=16, num_rounds=20, every=20, progress=False)
    calls = {
        "16 runs": partial(Loop(train, apfl(model), 20, 20), [{}], range(16)),
        "sweep, one device": lambda: jf.sweep(0, apfl(model), train, **given),
        "sweep, two devices": lambda: jf.sweep(
            0, apfl(model), train, mesh=jf.parallel.mesh(client=1, sweep=2), **given
        ),
    }
    say("16 seeds, 784x10, 100 clients", take_turns(calls, turns), "16 runs")


def grid(turns):
    alphas, lrs = np.linspace(0, 1, 11), [0.02, 0.05, 0.1]
    for size, count, rounds in (("60x10", 8, 20), ("784x10", 2, 10)):
        train, model = federation(size)
        points = [{"alpha": float(a), "lr": lr} for a in alphas for lr in lrs]
        given = dict(axes={"alpha": alphas, "lr": lrs}, seeds=count, num_rounds=rounds, every=5, progress=False)
        before = lanes.compiled_programs()
        calls = {
            "loop": partial(Loop(train, apfl(model), rounds, 5), points, range(count)),
            "sweep, one device": lambda t=train, m=model, g=given: jf.sweep(0, apfl(m), t, **g),
            "sweep, two devices": lambda t=train, m=model, g=given: jf.sweep(
                0, apfl(m), t, mesh=jf.parallel.mesh(client=1, sweep=2), **g
            ),
        }
        say(f"11 alphas x 3 rates x {count} seeds, {size}, {train.num_clients} clients, {rounds} rounds, every 5",
            take_turns(calls, turns), "loop")  # fmt: skip
        print(f"  programs compiled for both sweeps: {lanes.compiled_programs() - before} (a start and a play each)")


def checkpoints(turns):
    """Rounds for about a minute, with a checkpoint in the middle and at the end, and without."""
    train, model = federation("784x10")

    def run(folder):
        options = {} if folder is None else dict(checkpoint=folder, checkpoint_seconds=20)
        jf.run(0, apfl(model), train, num_rounds=600, every=100, progress=False, **options)

    def kept():
        with tempfile.TemporaryDirectory() as folder:
            run(folder)

    say("600 rounds, 784x10, 100 clients; a checkpoint each 20 s",
        take_turns({"without": lambda: run(None), "with": kept}, max(turns // 2, 1)), "without")  # fmt: skip


def scaling(turns):
    """Weak scaling: as many lanes for each device."""
    train, model = federation("784x10")
    given = dict(axes={"lr": [0.05]}, num_rounds=20, every=20, progress=False)
    calls = {
        f"{8 * n} seeds on {n} device(s)": lambda n=n: jf.sweep(
            0,
            apfl(model),
            train,
            seeds=8 * n,
            mesh=jf.parallel.mesh(client=1, sweep=n, devices=jax.devices()[:n]),
            **given,
        )
        for n in (1, 2)
    }
    say("weak scaling, 784x10 (1 would be perfect)", take_turns(calls, turns), "8 seeds on 1 device(s)")


MEMORY = {  # clients, rows, features, lanes, rounds
    "60x10, 20 clients, 264 lanes": (20, 50, 60, 264),
    "784x10, 100 clients, 64 lanes": (100, 50, 784, 64),
    "2000x10, 200 clients, 16 lanes": (200, 20, 2000, 16),
}


def memory(turns):
    """The estimate beside the measured peak, each setting in a process of its own."""
    del turns
    for name in MEMORY:
        subprocess.run([sys.executable, "-m", "benchmarks.sweep", "--memory-of", name], check=True)


def memory_of(name):
    """Print what the estimate says, and by how much the process's peak of resident memory grew."""
    clients, rows, d, count = MEMORY[name]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(clients * rows, d)).astype(np.float32)
    y = rng.integers(0, 10, len(x))
    train = jf.ClientData.from_indices(x, y, np.arange(len(x)).reshape(clients, rows))
    model = jf.models.logistic_regression(10)
    given = dict(axes={"lr": np.linspace(0.01, 0.1, count)}, num_rounds=2, every=1, batch=count, progress=False)
    small = dict(given, axes={"lr": [0.01]}, batch=1)
    jf.sweep(0, apfl(model), train, **small)  # what jax and its compiler take is there
    found = sweeps.estimate(0, apfl(model), train, measure_time=False, **given)
    reset = "/proc/self/clear_refs"
    with open(reset, "w") as file:
        file.write("5")  # the peak starts anew
    before = status("VmRSS")
    jf.sweep(0, apfl(model), train, **given)
    grew = status("VmHWM") - before
    print(f"  {name:34} estimate {found.bytes / 2**20:8.0f} MiB, measured {grew / 2**20:8.0f} MiB: "
          f"{found.bytes / grew:.2f}", flush=True)  # fmt: skip


def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    if options.memory_of:
        return memory_of(options.memory_of)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"parts: got {sorted(unknown)}, wanted some of {', '.join(PARTS)}")
    jf.parallel.use_cpu_cores(2)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}; jax {jax.__version__}, numpy {version('numpy')}", flush=True)
    for part in options.parts:
        globals()[part](options.turns)


if __name__ == "__main__":
    main()
