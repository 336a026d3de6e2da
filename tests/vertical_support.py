"""What lets a test play the same vertical federation in jaxfed and in the NumPy oracles of `tests.reference`."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxfed as jf
from jaxfed import core, runner
from jaxfed.nodes import PyTreeNode
from jaxfed.vertical import engine, samples
from jaxfed.vertical.data import Depths
from jaxfed.vertical.ticks import Tick, concatenate, empty
from tests.support import QUICK

SIZES = (3, 1, 4, 2)  # features of each party
METHODS = {
    "sgd": jf.VFB2SGD,
    "svrg": jf.VFB2SVRG,
    "saga": jf.VFB2SAGA,
    "saga_literal": jf.vertical.LiteralSAGA,
}


def federation(n=40, sizes=SIZES, active=(0, 2), seed=0, targets=False, sparse=False):
    """(PartyData, its blocks, its labels): q parties with random features, one in four of them zero."""
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.75) for d in sizes]
    y = np.hstack(blocks) @ rng.normal(size=sum(sizes)) + 0.5 * rng.normal(size=n)
    y = y if targets else np.sign(y)
    given = blocks
    if sparse:
        from scipy.sparse import csr_matrix

        given = [csr_matrix(block) for block in blocks]
    return jf.PartyData.from_blocks(given, y, active=list(active)), blocks, y


def sampler(seed, party, batch_size, most=4000):
    """rows(a, u): the samples that jaxfed draws for update u of dominator a in the run with this seed."""
    key = jax.random.split(jax.random.key(seed), 3)[2]
    first = jnp.zeros(party.num_active, jnp.int32)
    drawn = np.asarray(samples.rows(key, first, most, batch_size, party.num_rows))
    return lambda a, u: drawn[a, u]


class Listed(PyTreeNode):
    """A table as the device's scheduler: empty ticks past its end."""

    ticks: Tick

    def __call__(self, key, t):
        """Tick t."""
        return jax.tree.map(lambda x: x[jnp.minimum(t, x.shape[0] - 1)], self.ticks)


@partial(jax.jit, static_argnames="num_ticks", compiler_options=QUICK)
def play(key, algorithm, scheduler, data, num_ticks):
    """The weights after every tick."""
    weights = jf.Measure(lambda algorithm, state, data: {"w": engine.weights(algorithm, state)})
    return core.rollout(key, algorithm, scheduler, data, [weights], num_rounds=num_ticks)[1]["w"]


def history(algorithm, party, scheduler, num_rounds, seed=0):
    """(the weights after every tick [T, d] in the order of parties, the table of ticks), those of the drain included.

    Tables and rings are padded to rounded sizes, so that few programs have to be compiled.
    """
    plan = jf.vertical.plan(algorithm, party, scheduler, num_rounds)
    table = plan.table()
    count = len(table.time)
    rounded = -(-(count + 1) // 150) * 150
    rows = concatenate([table, empty(rounded - count, *table.apply.shape[1:])])
    placed = party.place(Depths(1 if plan.read_depth == 1 else 7, 10))
    w = play(jax.random.key(seed), runner.cast(algorithm, to_float=True), Listed(Tick(*rows)), placed, rounded)
    return np.asarray(w)[:count, party.blocks.mask()], table
