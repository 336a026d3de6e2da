"""Very many clients: peak memory and seconds a round at a fixed cohort, each setting in a process of its own.

`python -m benchmarks.many_clients` prints the table; `--cohort`, `--rounds` and `--largest` change its sizes. APFL with
persistent states, 20 rows a client. Synthetic: softmax regression 60 x 10 on Synthetic(1, 1), rows of their own. Pool:
softmax regression 784 x 10 on 60,000 uint8 images that the clients share. Seconds a round: the median over calls after
the first, moves between host and device included. A record evaluates both models of every client on all its rows.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

SETTINGS = {  # name: (data, store, clients, the most memory in GB)
    "synthetic, device": ("synthetic", "device", 100_000, 2),
    "synthetic, host, 1e4": ("synthetic", "host", 10_000, None),
    "synthetic, host, 1e5": ("synthetic", "host", 100_000, 2),
    "synthetic, host, 1e6": ("synthetic", "host", 1_000_000, 12),
    "pool, host, 1e4": ("pool", "host", 10_000, None),
    "pool, host, 1e5": ("pool", "host", 100_000, 6),
}
ROWS = 20


def synthetic(num_clients):
    """Synthetic(1, 1), 60 features, 10 classes."""
    import jaxfed as jf

    return jf.ClientData.from_table(*jf.datasets.synthetic.fedprox_many(1, 1, num_clients, ROWS, seed=0))


def pool(num_clients):
    """MNIST-shaped images, ten noisy prototypes, of which every client draws 20 of 60,000."""
    import numpy as np

    import jaxfed as jf

    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, 60_000).astype(np.int32)
    x = np.empty((len(y), 28, 28, 1), np.uint8)
    prototypes = rng.integers(0, 128, (10, 28, 28, 1), dtype=np.uint8)
    for first in range(0, len(y), 10_000):
        part = slice(first, first + 10_000)
        x[part] = prototypes[y[part]] + rng.integers(0, 128, x[part].shape, dtype=np.uint8)
    rows = jf.horizontal.Overlapping(ROWS)(y, num_clients, rng)
    return jf.ClientData.from_table(x, y, np.array(rows, np.int32))


def timed(fn: Callable, spent: list) -> Callable:
    """Return `fn`, which then notes how long each call took until its results were there."""
    import jax

    def call(*args):
        start = time.perf_counter()
        out = fn(*args)
        jax.block_until_ready(out)
        spent.append(time.perf_counter() - start)
        return out

    return call


def one(name: str, cohort: int, rounds: int) -> None:
    """Run a setting in this process and print its line."""
    import jaxfed as jf
    from jaxfed import machine
    from jaxfed.horizontal import UniformCohort, host_store

    kind, store, count, most = SETTINGS[name]
    start = time.perf_counter()
    train = {"synthetic": synthetic, "pool": pool}[kind](count)
    made = time.perf_counter() - start
    moves, records = [], []
    if store == "host":
        host_store.HostStore.advance = timed(host_store.HostStore.advance, moves)
        host_store.HostStore.observe = timed(host_store.HostStore.observe, records)
    else:
        machine.compiled_advance, machine.compiled_observe = (
            timed(machine.compiled_advance, moves),
            timed(machine.compiled_observe, records),
        )
    apfl = jf.APFL(jf.models.logistic_regression(10), lr=0.05, alpha=0.5, adaptive=True, local_steps=10, batch_size=10)
    run = jf.run(0, apfl, train, scheduler=UniformCohort(count, cohort), num_rounds=rounds, every=rounds,
                 chunk=2, client_store=store, per_client=False, progress=False)  # fmt: skip
    before, after = run.dataset.personal_train_loss_mean_over_clients.values
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each = statistics.median(moves[1:]) / 2
    bound = "" if most is None else f" (bound {most})"
    print(f"{name:22} {count:>9,} {cohort:>6,} {each:9.3f} {records[-1]:9.1f} {made:9.1f}   {peak:.2f}{bound}"
          f"   {before:.3f} -> {after:.3f}", flush=True)  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10, help="an even number of at least 4")
    parser.add_argument("--largest", type=int, default=1_000_000, help="leave out settings with more clients")
    parser.add_argument("--one", choices=SETTINGS, help="only this setting, in this process")
    options = parser.parse_args()
    if options.one:
        one(options.one, options.cohort, options.rounds)
        return
    columns = f"{'clients':>9} {'cohort':>6} {'s/round':>9} {'s/record':>9} {'s/data':>9}"
    print(f"{'':22} {columns}   peak GB   loss", flush=True)
    for name, (_, _, count, _) in SETTINGS.items():
        if count <= options.largest:
            command = [sys.executable, "-m", "benchmarks.many_clients", "--one", name]
            subprocess.run([*command, "--cohort", str(options.cohort), "--rounds", str(options.rounds)], check=True)


if __name__ == "__main__":
    main()
