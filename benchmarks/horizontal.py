"""Local steps a second of FedAvg and APFL: jaxfed on one and on two CPU devices, PyTorch, and the obvious JAX form.

    python benchmarks/horizontal.py                 # all three models, about ten minutes on two cores
    python benchmarks/horizontal.py logistic        # one of logistic, mlp, cnn

Alternatives take turns in one process; the table gives the median and the range over the turns. A step is one
client's local step (for APFL the steps of w, v and alpha together). GF/s counts the useful products of matrices only,
and the ceiling is NumPy's sgemm on all cores, measured in the same turns. Without PyTorch its column is left out.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# name: clients, cohort, local steps, GFLOP of one FedAvg step (forward, and backward without the input's gradient)
SETTINGS = {
    "logistic": (100, 100, 10, 2 * 2 * 20 * 784 * 10 / 1e9),
    "mlp": (40, 40, 10, (2 * 2 * 784 * 200 + 3 * 2 * (200 * 200 + 200 * 10)) * 20 / 1e9),
    "cnn": (4, 4, 2, (2 * 2 * 784 * 25 * 32 + 3 * 2 * (196 * 800 * 64 + 3136 * 512 + 5120)) * 20 / 1e9),
}
BATCH, TURNS = 20, 5


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SETTINGS), help="logistic, mlp, cnn (default: all)")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each alternative")
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of a turn")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        return child(options.child)
    import jax

    import jaxfed as jf

    jf.parallel.use_cpu_cores()
    print(f"jax {jax.__version__}, numpy {np.__version__}, {torch_version()}, {len(jax.devices())} CPU devices,"
          f" load {os.getloadavg()[0]:.1f}")  # fmt: skip
    for name in options.models:
        compare(name, options.turns, options.seconds)
    for what in ("first logistic", "first mlp", "first cnn", "memory mlp"):
        if what.split()[1] in options.models:
            subprocess.run([sys.executable, str(Path(__file__)), "--child", what], check=True)


def torch_version() -> str:
    if not find_spec("torch"):
        return "no PyTorch (its column is left out)"
    import torch

    return f"torch {torch.__version__} with {torch.get_num_threads()} threads"


def data(name: str):
    """Uniform noise in MNIST's shape: speed doesn't depend on the values. 500 rows a client."""
    import jaxfed as jf

    clients = SETTINGS[name][0]
    rng = np.random.default_rng(0)
    x = rng.random((500 * clients, 28, 28, 1), np.float32)
    y = rng.integers(0, 10, len(x)).astype(np.int32)
    rows = np.arange(len(x)).reshape(clients, 500)
    return x, y, rows, jf.ClientData.from_indices(x, y, list(rows))


def model(name: str):
    import jaxfed as jf

    return {"logistic": jf.models.logistic_regression, "mlp": jf.models.mlp, "cnn": jf.models.cnn}[name](10)


def program(algorithm, clients, devices: int):
    """Return a function (rounds) that advances a run of jaxfed and waits for all of its state."""
    import jax

    import jaxfed as jf
    from jaxfed import runner

    mesh = jf.parallel.mesh(client=devices) if devices > 1 else None
    algorithm = runner.cast(algorithm, to_float=True)
    whole = clients.join()
    scheduler = runner.cast(whole.default_scheduler())
    placed = whole.place(algorithm, scheduler, mesh)
    key = jax.random.key(0)
    carry = [jf.parallel.put_carry(runner._start(key, algorithm, placed), mesh)]

    def run(rounds=1):
        carry[0], _ = runner._advance(mesh, key, algorithm, scheduler, placed, carry[0], rounds)
        jax.block_until_ready(carry[0])

    return run


def sgemm() -> float:
    """GF/s of NumPy's product of two 2048 x 2048 matrices."""
    a = np.random.default_rng(0).random((2048, 2048), np.float32)
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    return 3 * 2 * 2048**3 / 1e9 / (time.perf_counter() - start)


def compare(name: str, turns: int, seconds: float) -> None:
    import jaxfed as jf
    from benchmarks import baselines

    clients, _, steps, gflop = SETTINGS[name]
    x, y, rows, federation = data(name)
    fields = dict(lr=0.1, local_steps=steps, batch_size=BATCH)
    flat = x.transpose(0, 3, 1, 2).copy() if name == "cnn" else x.reshape(len(x), -1)
    programs, work = {}, {}

    def add(label, run, factor):
        programs[label], work[label] = run, factor * gflop

    for kind, factor in (("FedAvg", 1), ("APFL", 2)):
        apfl = kind == "APFL"
        for devices in (1, 2):
            if not apfl:
                fedavg = jf.FedAvg(model(name), **fields)
                add(f"FedAvg jaxfed, {devices} device", program(fedavg, federation, devices), 1)
                continue
            for form in ("plain", "auto") if name == "logistic" else ("plain",):
                algorithm = jf.APFL(model(name), adaptive=True, form=form, **fields)
                label = "linear.py" if form == "auto" else "plain"
                add(f"APFL jaxfed {label}, {devices} device", program(algorithm, federation, devices), 2)
        add(f"{kind} obvious JAX", baselines.obvious_round(name, flat, y, rows, apfl, steps, BATCH), factor)
        if find_spec("torch"):
            add(f"{kind} PyTorch", baselines.torch_round(name, flat, y, list(rows), apfl, steps, BATCH), factor)

    rates = {label: [] for label in programs}
    ceiling = []
    for run in programs.values():
        run()  # compile
    for _ in range(turns):
        ceiling.append(sgemm())
        for label, run in programs.items():
            start, rounds = time.perf_counter(), 0
            while time.perf_counter() - start < seconds or rounds == 0:
                run()
                rounds += 1
            rates[label].append(rounds * clients * steps / (time.perf_counter() - start))
    top = np.median(ceiling)
    print(f"\n{name}: {clients} clients, {steps} local steps, batch {BATCH}, {turns} turns;"
          f" sgemm {top:.0f} GF/s ({min(ceiling):.0f}-{max(ceiling):.0f})")  # fmt: skip
    print(f"{'':36}{'steps/s':>10}{'range':>18}{'GF/s':>8}{'of sgemm':>10}{'x PyTorch':>11}{'x obvious':>11}")
    for label, values in rates.items():
        rate, kind = float(np.median(values)), label.split()[0]
        ratios = [f"{rate / np.median(rates[f'{kind} {other}']):.1f}" if f"{kind} {other}" in rates else "-"
                  for other in ("PyTorch", "obvious JAX")]  # fmt: skip
        span = f"{min(values):,.0f}-{max(values):,.0f}"
        print(f"{label:36}{rate:10,.0f}{span:>18}{rate * work[label]:8.1f}{rate * work[label] / top:10.0%}"
              f"{ratios[0]:>11}{ratios[1]:>11}")  # fmt: skip


def child(what: str) -> None:
    """A fresh process: seconds of the first call, or peak memory after 10 and after 200 rounds."""
    import jaxfed as jf

    kind, name = what.split()
    federation = data(name)[3]
    if kind == "memory":
        federation = jf.ClientData.from_indices(*data(name)[:2], [np.arange(500) + 100 * i for i in range(100)])
    algorithm = jf.APFL(model(name), adaptive=True, local_steps=2 if name == "cnn" else 10, batch_size=BATCH)
    start = time.perf_counter()
    run = program(algorithm, federation, 1)
    run(1)
    if kind == "first":
        print(f"first call, APFL {name}: {time.perf_counter() - start:.1f} s (placement, compilation and one round)")
        return
    run(9)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    run(190)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory, APFL {name}, 100 clients: {before:.0f} MB after 10 rounds, {after:.0f} MB after 200")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
