"""Microseconds a tick of jaxfed's vertical engine, beside compiled sequential loops of the same events.

    python -m benchmarks.vertical                     # everything, about ten minutes on two cores
    python -m benchmarks.vertical dense masks         # parts: dense, masks, sweep, delays, sparse, ring, queue

All replay the same table of ticks (`BilevelAsync`, link 0.3, jitter 10 %) with the same samples in float32. numba's
loop sends early too and is compiled for its shapes, with fastmath; "plain" is the same for any shapes and without
fastmath, what one would write. It is given its samples, jaxfed draws them in the run. Alternatives take turns; a figure
is the shortest of the turns, in brackets the median. SVRG's full passes are in both. A ratio is numba's time over
jaxfed's: above 1 jaxfed is faster.
"""

import argparse
import copy
import os
import time
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np

import jaxfed as jf
from benchmarks import vertical_numba as numba_loops
from jaxfed import core, runner
from jaxfed.datasets import synthetic
from jaxfed.vertical import BilevelAsync, FixedDelay, Objective, SecureAggregation, engine, samples
from jaxfed.vertical.data import Depths
from jaxfed.vertical.shifted import Shifted

METHODS = {"sgd": jf.VFB2SGD, "svrg": jf.VFB2SVRG, "saga": jf.VFB2SAGA}
PARTS = ("dense", "masks", "sweep", "delays", "sparse", "ring", "queue")
L2 = 1e-4


class Case:
    """One method on one federation and table: replays by jaxfed and, on request, by the other loops."""

    def __init__(self, method, party, ticks, lr, batch_size=1, scheduler=None):
        self.method, self.party, self.ticks = method, party, ticks
        self.algorithm = METHODS[method](Objective("logistic", "l2", L2), lr=lr, batch_size=batch_size)
        scheduler = BilevelAsync(party, link=0.3) if scheduler is None else scheduler
        self.plan = jf.vertical.plan(self.algorithm, party, scheduler, ticks)
        depths = Depths(self.plan.read_depth, self.plan.message_depth)
        self.placed = party.place(depths)
        self.scheduler = runner.cast(Shifted(self.plan.scheduler, 0, 0.0, depths))
        self.traced = runner.cast(self.algorithm, to_float=True)
        self.key = jax.random.key(0)
        self.first = None

    def jaxfed(self):
        """A function that runs all ticks and returns the weights."""
        advance = jax.jit(core.advance, donate_argnums=4)
        begin = time.perf_counter()
        start = jax.jit(core.init)(self.key, self.traced, self.placed)
        run = lambda carry, ticks: advance(self.key, self.traced, self.scheduler, self.placed, carry, ticks)  # noqa: E731
        copy = lambda: jax.block_until_ready(jax.tree.map(jnp.copy, start))  # noqa: E731
        jax.block_until_ready(run(copy(), 1))
        self.first = time.perf_counter() - begin

        def replay():
            carry = copy()
            begin = time.perf_counter()
            carry, _ = jax.block_until_ready(run(carry, self.ticks))
            return time.perf_counter() - begin, engine.weights(self.algorithm, carry.state)

        return replay

    def rows(self):
        """The samples of each dominator's updates, [m, update, b]."""
        key = jax.random.split(self.key, 3)[2]
        count = int(self.plan.table().complete.sum(0).max()) + 2
        first = jnp.zeros(self.party.num_active, jnp.int32)
        return np.asarray(samples.rows(key, first, count, self.algorithm.batch_size, self.party.num_rows))

    def numba(self, table=None, **options):
        """The same by numba (or, with kernel=False, by NumPy)."""
        table = self.plan.table(0, self.ticks) if table is None else table
        given = {"lr": float(self.algorithm.lr), "l2": L2}
        if hasattr(self.party.blocks, "x"):
            x = np.moveaxis(np.asarray(self.party.blocks.x), 1, 0)
            run = numba_loops.dense(table, self.rows(), x, self.party.y, method=self.method, **given, **options)
        else:
            blocks = self.party.blocks
            packed = numba_loops.pack(np.moveaxis(blocks.indices, 1, 0), np.moveaxis(blocks.values, 1, 0))
            run = numba_loops.sparse(table, self.rows(), *packed, blocks.offsets, self.party.y, **given, **options)
        run()
        return timed(run)


def timed(run):
    """A function that returns (seconds, what run returns)."""

    def replay():
        begin = time.perf_counter()
        out = run()
        return time.perf_counter() - begin, out

    return replay


def take_turns(replays, turns):
    """{name: (shortest, median) seconds}, and what each returned last."""
    seconds, results = {name: [] for name in replays}, {}
    for _ in range(turns):
        for name, replay in replays.items():
            spent, results[name] = replay()
            seconds[name].append(spent)
    return {name: (min(s), float(np.median(s))) for name, s in seconds.items()}, results


def cell(found, scale):
    return f"{found[0] * scale:8.3f} ({found[1] * scale:.3f})"


def compare(title, case, turns, numpy_loop=False, other=None):
    """Print a line: jaxfed, numba, numba without fastmath, ratios; and check that all end at the same weights."""
    plain = {"fastmath": False} | ({"fixed": False} if hasattr(case.party.blocks, "x") else {})
    replays = {"jaxfed": case.jaxfed(), "numba": case.numba(), "plain": case.numba(**plain)}
    found, results = take_turns(replays, turns)
    ours = np.asarray(results["jaxfed"])
    gap = np.abs(ours.reshape(results["numba"].shape) - results["numba"]).max()
    if case.method == "sgd" or hasattr(case.party.blocks, "x"):
        assert gap < 2e-3, f"{title}: jaxfed and numba end {gap:.2g} apart"
    scale = 1e6 / case.ticks
    ratio, plain = (found[name][0] / found["jaxfed"][0] for name in ("numba", "plain"))
    rate = case.plan.dominated[case.ticks - 1] / found["jaxfed"][0] / 1e6
    line = f"{title:30} jaxfed {cell(found['jaxfed'], scale)}  numba {cell(found['numba'], scale)}  plain"
    line += f" {cell(found['plain'], scale)}  ratio {ratio:.2f}, to plain {plain:.2f}  {rate:.2f} M updates/s"
    line += f"  first call {case.first:.1f} s"
    if numpy_loop:
        few = 1500
        slow, _ = take_turns({"numpy": case.numba(case.plan.table(0, few), kernel=False)}, 2)
        line += f"  {slow['numpy'][0] / few / (found['jaxfed'][0] / case.ticks):.0f} x a NumPy loop"
    print(line, flush=True)
    return found


def dense(turns):
    credit = synthetic.credit_like(seed=0)
    party = jf.vertical.split(credit.x, credit.y, num_parties=8, num_active=3)
    print("dense, microseconds a tick: 24,000 x 90, 8 parties, 3 active")
    for method in METHODS:
        compare(f"{method}, b 1", Case(method, party, 60_000, 0.01), turns, numpy_loop=True)
    for method in METHODS:
        compare(f"{method}, b 32", Case(method, party, 3_000, 0.05, batch_size=32), turns)
    wide = synthetic.credit_like(d=768, seed=0)
    party = jf.vertical.split(wide.x, wide.y, num_parties=64, num_active=3)
    for method in METHODS:
        compare(f"{method}, b 1, 64 parties, d 768", Case(method, party, 12_000, 0.002), turns)


def masks(turns):
    """Secure aggregation beside plain sums, under the plain run's table and over the same trees."""
    credit = synthetic.credit_like(seed=0)
    party = jf.vertical.split(credit.x, credit.y, num_parties=8, num_active=3)
    kinds = {"plain": None, "floats": SecureAggregation(bits=None)}
    kinds |= {f"2^{bits}": SecureAggregation(bits=bits) for bits in (32, 64)}
    for method, batch_size, ticks in (*((method, 1, 60_000) for method in METHODS), ("sgd", 32, 3_000)):
        case, replays = Case(method, party, ticks, 0.01, batch_size=batch_size), {}
        for name, secure in kinds.items():
            own = copy.copy(case)
            own.traced = runner.cast(case.algorithm.replace(secure=secure), to_float=True)
            replays[name] = own.jaxfed()
        found, _ = take_turns(replays, turns)
        ratio = {name: each[0] / found["plain"][0] for name, each in found.items()}
        line = "  ".join(f"{name} {cell(each, 1e6 / ticks)} x {ratio[name]:.2f}" for name, each in found.items())
        print(f"{method}, b {batch_size}, masks: {line}", flush=True)


def sweep(turns):
    """64 step sizes under one table, the axis of lanes last, against 64 runs of numba."""
    credit = synthetic.credit_like(seed=0)
    party = jf.vertical.split(credit.x, credit.y, num_parties=8, num_active=3)
    for method in ("sgd", "svrg", "saga"):
        case = Case(method, party, 10_000, 0.01)
        one = case.numba()
        case.traced = case.traced.replace(lr=jnp.geomspace(1e-3, 1e-1, 64))
        found, _ = take_turns({"jaxfed": case.jaxfed(), "numba": one}, turns)
        each = found["jaxfed"][0] / 64
        ours, theirs = each / case.ticks * 1e6, found["numba"][0] / case.ticks * 1e6
        print(f"{method}, 64 step sizes: jaxfed {ours:.3f} us a tick and lane, numba {theirs:.3f}: "
              f"{theirs / ours:.2f} times 64 runs of numba")  # fmt: skip


def delays(turns):
    """A sweep of fixed delays, as one program."""
    credit = synthetic.credit_like(seed=0)
    party = jf.vertical.split(credit.x, credit.y, num_parties=8, num_active=3)
    ticks, lanes = 10_000, np.arange(0, 9, dtype=np.int32)
    case = Case("sgd", party, ticks, 0.01, scheduler=FixedDelay(party, 8, 8))

    def final(read, message, key, algorithm, placed):
        scheduler = FixedDelay(party, read, message, bound=8)
        carry = core.init(key, algorithm, placed)
        return core.advance(key, algorithm, scheduler, placed, carry, ticks)[0].state.weights

    def one_by_one(read, message, *rest):
        return jax.lax.map(lambda pair: final(*pair, *rest), (read, message))

    forms = {"lax.map": jax.jit(one_by_one), "vmap": jax.jit(jax.vmap(final, (0, 0, None, None, None)))}
    args = (lanes, lanes[::-1].copy(), case.key, case.traced, case.placed)
    for form in forms.values():
        jax.block_until_ready(form(*args))
    runs = {name: timed(lambda form=form: jax.block_until_ready(form(*args))) for name, form in forms.items()}
    found, _ = take_turns(runs, turns)
    for name, (best, median) in found.items():
        scale = 1e6 / ticks / len(lanes)
        print(f"9 fixed delays, {name}: {best * scale:.2f} ({median * scale:.2f}) us a tick and lane")


def news20():
    text = synthetic.news20_like(seed=0)
    return jf.vertical.split(text.x, text.y, num_parties=8, num_active=3)


def sparse(turns):
    party = news20()
    print("sparse, microseconds a tick: 18,000 x 1.35 million, 450 values a row, 8 parties, 3 active, b 1")
    for method in METHODS:
        compare(f"{method} (numba: sgd)", Case(method, party, 6_000, 0.1), turns)


def ring(turns):
    """Against the form that keeps a ring of past weights and applies the penalty to all of them, each tick."""
    party, depth, ticks = news20(), 9, 20
    case = Case("sgd", party, 6_000, 0.1)
    found, _ = take_turns({"jaxfed": case.jaxfed()}, turns)
    rows = jnp.asarray(case.rows())
    indices, values, y = (jnp.asarray(a) for a in (party.blocks.indices, party.blocks.values, party.y))

    @jax.jit
    def run(history, rows, indices, values, y):
        def tick(t, history):
            old, w = history[(t - 8) % depth], history[t % depth]
            for a in range(rows.shape[0]):
                i = rows[a, t, 0]
                z = jnp.sum(old[indices[i]] * values[i])
                theta = -y[i] * jax.nn.sigmoid(-y[i] * z)
                w = (w - 0.1 * L2 * w).at[indices[i]].add(-0.1 * theta * values[i])
            return history.at[(t + 1) % depth].set(w)

        return jax.lax.fori_loop(0, ticks, tick, history)

    args = (jnp.zeros((depth, party.num_features)), rows, indices, values, y)
    jax.block_until_ready(run(*args))
    slow, _ = take_turns({"ring": timed(lambda: jax.block_until_ready(run(*args)))}, 3)
    times = slow["ring"][0] / ticks / (found["jaxfed"][0] / case.ticks)
    print(f"a ring of weights: {slow['ring'][0] / ticks * 1e6:.0f} us a tick, {times:.0f} times ours")


def queue(turns):
    """Block updates a second of the event queue and the cut into ticks, on the host."""
    for q in (8, 64):
        party = jf.vertical.split(np.random.default_rng(0).normal(size=(4, q)), [0, 1, 0, 1], num_parties=q,
                                  num_active=3)  # fmt: skip
        seconds = []
        for seed in range(turns):
            scheduler = BilevelAsync(party, segments=None, seed=seed)
            begin = time.perf_counter()
            plan = scheduler.plan(4000, updates_per_epoch=1e9)
            seconds.append((time.perf_counter() - begin) / plan.applied[-1])
        best, median = 1e-6 / min(seconds), 1e-6 / np.median(seconds)
        print(f"queue and cut, {q} parties: {best:.2f} ({median:.2f}) million block updates a second")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--turns", type=int, default=7, help="turns of each alternative")
    options = parser.parse_args(argv)
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(
        f"{os.cpu_count()} cores, load {load}; jax {jax.__version__}, numba {version('numba')}, numpy {np.__version__}"
    )
    for part in options.parts:
        globals()[part](options.turns)


if __name__ == "__main__":
    main()
