"""Local steps a second of FedAvg and APFL: jaxfed on one and on two CPU devices, PyTorch, and the obvious JAX form.

    python -m benchmarks.horizontal                 # all three models, about seven minutes on two cores
    python -m benchmarks.horizontal logistic        # one of logistic, mlp, cnn

Alternatives take turns; the table gives the median and the range over the turns. Each library has a process of its own
that waits while others run: in one process their pools of threads fight for the cores. A step is one client's local
step (for APFL the steps of w, v and alpha together). GF/s counts the useful products of matrices only, and the ceiling
is NumPy's sgemm on all cores, measured in the same turns. Without PyTorch its rows are left out.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np

# name: clients, local steps, GFLOP of one FedAvg step (forward, and backward without the input's gradient)
SETTINGS = {
    "logistic": (100, 10, 2 * 2 * 20 * 784 * 10 / 1e9),
    "mlp": (40, 10, (2 * 2 * 784 * 200 + 3 * 2 * (200 * 200 + 200 * 10)) * 20 / 1e9),
    "cnn": (4, 2, (2 * 2 * 784 * 25 * 32 + 3 * 2 * (196 * 800 * 64 + 3136 * 512 + 5120)) * 20 / 1e9),
}
BATCH, TURNS = 20, 5


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(SETTINGS), help="logistic, mlp, cnn (default: all)")
    parser.add_argument("--turns", type=int, default=TURNS, help="turns of each alternative")
    parser.add_argument("--seconds", type=float, default=1.0, help="least seconds of a turn")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.child:
        return CHILDREN[options.child[0]](options.child[1])
    load = os.getloadavg()[0]
    print(f"jax {version('jax')}, numpy {np.__version__}, {torch_version()}, {os.cpu_count()} cores, load {load:.1f}")
    for name in options.models:
        compare(name, options.turns, options.seconds)
    for what, name in (("first", "logistic"), ("first", "mlp"), ("first", "cnn"), ("memory", "mlp")):
        if name in options.models:
            subprocess.run(child_command(what, name), check=True)


def torch_version() -> str:
    return f"torch {version('torch')}" if find_spec("torch") else "no PyTorch"


def child_command(kind: str, name: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.horizontal", "--child", kind, name]


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
    from jaxfed import machine, runner

    mesh = jf.parallel.mesh(client=devices) if devices > 1 else None
    algorithm = runner.cast(algorithm, to_float=True)
    whole = clients.with_parts()
    scheduler = runner.cast(whole.default_scheduler())
    placed = whole.place(algorithm, scheduler, mesh)
    key = jax.random.key(0)
    carry = [jf.parallel.put_carry(machine.compiled_start(key, algorithm, placed), mesh)]

    def run(rounds=1):
        carry[0], _ = machine.compiled_advance(mesh, key, algorithm, scheduler, placed, carry[0], rounds)
        jax.block_until_ready(carry[0])

    return run


def sgemm() -> float:
    """GF/s of NumPy's product of two 2048 x 2048 matrices."""
    a = np.random.default_rng(0).random((2048, 2048), np.float32)
    a @ a
    start = time.perf_counter()
    for _ in range(10):
        a @ a
    return 10 * 2 * 2048**3 / 1e9 / (time.perf_counter() - start)


class Worker:
    """A process that holds some alternatives, and times one of them when asked."""

    def __init__(self, kind: str, name: str):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(child_command(kind, name), stdin=pipe, stdout=pipe, text=True)
        self.labels = self.ask("labels")

    def ask(self, *words):
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def serve(programs: dict) -> None:
    """Answer a Worker: what there is, and rounds a second of one of them."""
    for line in sys.stdin:
        command, *rest = json.loads(line)
        if command == "labels":
            for run, _ in programs.values():
                run()  # compile
            print(json.dumps({label: factor for label, (_, factor) in programs.items()}), flush=True)
            continue
        (label, seconds), rounds, start = rest, 0, time.perf_counter()
        while time.perf_counter() - start < seconds or rounds == 0:
            programs[label][0]()
            rounds += 1
        print(json.dumps(rounds / (time.perf_counter() - start)), flush=True)


def jaxfed_programs(name: str, devices: int) -> None:
    import jaxfed as jf

    jf.parallel.use_cpu_cores(devices)
    federation = data(name)[3]
    fields = dict(lr=0.1, local_steps=SETTINGS[name][1], batch_size=BATCH)
    ending = f"{devices} device{'s' * (devices > 1)}"
    programs = {f"FedAvg jaxfed, {ending}": (program(jf.FedAvg(model(name), **fields), federation, devices), 1)}
    for form in ("plain", "auto") if name == "logistic" else ("plain",):
        label = f"APFL jaxfed {'linear.py' if form == 'auto' else 'plain'}, {ending}"
        algorithm = jf.APFL(model(name), adaptive=True, form=form, **fields)
        programs[label] = (program(algorithm, federation, devices), 2)
    serve(programs)


def baseline_programs(name: str, make, library: str) -> None:
    x, y, rows, _ = data(name)
    flat = x.transpose(0, 3, 1, 2).copy() if name == "cnn" else x.reshape(len(x), -1)
    steps = SETTINGS[name][1]
    serve({f"{kind} {library}": (make(name, flat, y, rows, kind == "APFL", steps, BATCH), factor)
           for kind, factor in (("FedAvg", 1), ("APFL", 2))})  # fmt: skip


def compare(name: str, turns: int, seconds: float) -> None:
    clients, steps, gflop = SETTINGS[name]
    kinds = ["jaxfed1", "jaxfed2", "obvious"] + ["torch"] * bool(find_spec("torch"))
    workers = [Worker(kind, name) for kind in kinds]
    rates = {label: [] for worker in workers for label in worker.labels}
    work = {label: factor * gflop for worker in workers for label, factor in worker.labels.items()}
    ceiling = []
    for _ in range(turns):
        ceiling.append(float(subprocess.run(child_command("sgemm", name), check=True, capture_output=True).stdout))
        for worker in workers:
            for label in worker.labels:
                rates[label].append(worker.ask("time", label, seconds) * clients * steps)
    for worker in workers:
        worker.process.kill()
    top = np.median(ceiling)
    print(f"\n{name}: {clients} clients, {steps} local steps, batch {BATCH}, {turns} turns;"
          f" sgemm {top:.0f} GF/s ({min(ceiling):.0f}-{max(ceiling):.0f})")  # fmt: skip
    print(f"{'':36}{'steps/s':>10}{'range':>18}{'GF/s':>8}{'of sgemm':>10}{'x PyTorch':>11}{'x obvious':>11}")
    for label in sorted(rates):
        values = rates[label]
        rate, kind = float(np.median(values)), label.split()[0]
        ratios = [f"{rate / np.median(rates[f'{kind} {other}']):.1f}" if f"{kind} {other}" in rates else "-"
                  for other in ("PyTorch", "obvious JAX")]  # fmt: skip
        span = f"{min(values):,.0f}-{max(values):,.0f}"
        print(f"{label:36}{rate:10,.0f}{span:>18}{rate * work[label]:8.1f}{rate * work[label] / top:10.0%}"
              f"{ratios[0]:>11}{ratios[1]:>11}", flush=True)  # fmt: skip


def first_call(name: str) -> None:
    """Print the seconds of the first call in a fresh process."""
    import jaxfed as jf

    federation = data(name)[3]
    algorithm = jf.APFL(model(name), adaptive=True, local_steps=SETTINGS[name][1], batch_size=BATCH)
    start = time.perf_counter()
    program(algorithm, federation, 1)(1)
    print(f"first call, APFL {name}: {time.perf_counter() - start:.1f} s (placement, compilation and one round)")


def memory(name: str) -> None:
    """Print the peak memory of 100 clients after 10 and after 200 rounds."""
    import jaxfed as jf

    x, y, _, _ = data(name)
    federation = jf.ClientData.from_indices(x, y, [np.arange(150) + 150 * i for i in range(100)])
    run = program(jf.APFL(model(name), adaptive=True, local_steps=2, batch_size=BATCH), federation, 1)
    peaks = []
    for rounds in (10, 190):
        run(rounds)
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(f"peak memory, APFL {name}, 100 clients: {peaks[0]:.0f} MB after 10 rounds, {peaks[1]:.0f} MB after 200")


def torch_baseline(name: str) -> None:
    from benchmarks import baselines

    baseline_programs(name, baselines.torch_round, "PyTorch")


def obvious_baseline(name: str) -> None:
    from benchmarks import baselines

    baseline_programs(name, baselines.obvious_round, "obvious JAX")


CHILDREN = {
    "jaxfed1": lambda name: jaxfed_programs(name, 1),
    "jaxfed2": lambda name: jaxfed_programs(name, 2),
    "obvious": obvious_baseline,
    "torch": torch_baseline,
    "sgemm": lambda name: print(sgemm()),
    "first": first_call,
    "memory": memory,
}


if __name__ == "__main__":
    main()
