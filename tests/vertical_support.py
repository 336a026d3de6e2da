"""What lets a test play the same vertical federation in jaxfed and in the NumPy oracles of `tests.reference`."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxfed as jf
from jaxfed.vertical import engine, samples

SIZES = (3, 1, 4, 2)  # features of each party
METHODS = {
    "sgd": jf.VFB2SGD,
    "svrg": jf.VFB2SVRG,
    "saga": jf.VFB2SAGA,
    "saga_literal": jf.vertical.LiteralSAGA,
}
WEIGHTS = jf.Measure(lambda algorithm, state, data: {"w": engine.weights(algorithm, state)}, ("row", "column"))
FLAT = jf.Measure(lambda algorithm, state, data: {"w": engine.weights(algorithm, state)}, ("column",))


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


def table_of(scheduler, algorithm, party, num_rounds):
    """The table of ticks that a run follows, its drain included."""
    from jaxfed.vertical.federation import epoch_length

    length = epoch_length(algorithm, party)
    per_epoch = party.num_rows / algorithm.batch_size
    return scheduler.plan(num_rounds, updates_per_epoch=per_epoch, epoch_length=length).table()


def history(algorithm, party, scheduler, num_rounds, seed=0, **options):
    """The weights after every recorded tick, [T, d] in the order of parties, from a run that records every tick."""
    sparse = isinstance(party.blocks, jf.vertical.blocks.Sparse)
    out = jf.run(seed, algorithm, party, scheduler=scheduler, num_rounds=num_rounds, progress=False,
                 measures=[FLAT if sparse else WEIGHTS], **options)  # fmt: skip
    w = out.dataset["w"].values[1:]
    return w if sparse else w[:, party.blocks.mask()]
