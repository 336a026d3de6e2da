"""Very many clients: their states, row tables and rows stay in host memory, and only those at work visit the device.

The loop on the host draws some rounds' events, gathers the clients that take part in them into a small federation under
their own global numbers (from which their random numbers derive), plays the rounds by the same compiled `advance` as a
resident run does, and writes the clients' states back. Shapes are fixed, so nothing is compiled twice, and what moves
is the rounds' cohorts, however many clients there are. Records stream over blocks of clients.

Everything that moves goes through `transfers.put` and `transfers.fetch`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import core, nodes, trees
from jaxfed.checks import fail
from jaxfed.horizontal import measures, transfers
from jaxfed.horizontal.data import ClientData
from jaxfed.horizontal.federate import Event, federate
from jaxfed.horizontal.federation import FedData
from jaxfed.nodes import PyTreeNode
from jaxfed.types import Array, Carry, Key, Measure

RESIDENT_BYTES = 256 << 20  # a pool of rows no larger than this stays on the device: clients may share its rows
MOVED_BYTES = 16 << 20  # what is moved at once, about: below the 32 MiB from which malloc takes new pages each time
MOST_ROUNDS = 10  # that are moved together


class Window(PyTreeNode):
    """Events of some rounds from round `first` on, in tables [rounds, ...]; ids are positions in a small federation."""

    events: Event
    first: Any

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t."""
        del key
        return jax.tree.map(lambda table: table[t - self.first], self.events)


class HostStore(NamedTuple):
    """What a run keeps on the host, and how it cuts it.

    `data`: all clients, NumPy arrays with the run's layout. `pools`: by part, the pools (x, y) that are on the device.
    `rounds`: how many are played at a call at most; `slots`: how many clients a call moves; `block`: how many clients
    are evaluated at a call.
    """

    data: FedData
    pools: dict[str, tuple[Array, Array]]
    rounds: int
    slots: int
    block: int

    def gather(self, clients: np.ndarray, slots: int, most_rows: dict[str, int]) -> FedData:
        """Return a small federation on the device: these clients (positions, ascending), then empty padding clients.

        Of a pool that stays on the host come the clients' rows, filled up to `most_rows` of the part.
        """
        found = {}
        for name, part in self.data.parts().items():
            if name in most_rows:
                pool = self.pools.get(name)
                found[name] = transfers.put(transfers.few(part, clients, slots, None if pool else most_rows[name]))
                if pool is not None:
                    found[name] = found[name].replace(x=pool[0], y=pool[1])
        return FedData(**found)

    def over(self, start: Callable, observe: Callable, advance: Callable, dims: dict) -> tuple[Callable, ...]:
        """Return functions of the same arguments as the runner's compiled ones, which take clients from the host.

        `dims` names the axes of every measured array.
        """
        return (
            lambda key, algorithm, data: self.start(start, key, algorithm),
            lambda mesh, recorded, algorithm, data, carry: self.observe(observe, recorded, algorithm, carry, dims),
            lambda mesh, key, algorithm, scheduler, data, carry, length: self.advance(
                advance, key, algorithm, scheduler, carry, length
            ),
        )

    def start(self, start: Callable, key: Key, algorithm: Any) -> Carry:
        """Return the carry before the first round, its clients' states on the host, made block by block.

        Neighbouring blocks share a client, and every block makes the server: raises ValueError where the two differ,
        for an `init` that gives a client something that depends on who is beside it.
        """
        shape = jax.eval_shape(core.init, key, algorithm, self.data).state.clients
        clients, carry, server, filled = trees.map(lambda s: np.empty(s.shape, s.dtype), shape), None, None, 0
        for first, block in self.blocks(overlap=1):
            carry = start(key, algorithm, block)
            new, one = transfers.fetch(carry.state.clients), transfers.fetch(carry.state.server)
            alike = server is None or _same(server, one)
            if first < filled:
                alike &= _same(trees.map(lambda x, i=first: x[i], clients), trees.map(lambda x: x[0], new))
            if not alike:
                fail("client_store", f"'host' and an init of {type(algorithm).__name__} that depends on which clients"
                     " it is given", "'device' for it")  # fmt: skip
            server, filled = one, first + self.block
            trees.map(lambda all, some, i=first, j=filled: all.__setitem__(slice(i, j), some), clients, new)
        assert carry is not None
        return carry._replace(state=carry.state._replace(clients=clients))

    def blocks(self, overlap: int = 0) -> Iterator[tuple[int, FedData]]:
        """Yield (the first client's position, a block of `block` clients) until all have been in one.

        The last block begins early enough to be whole. Neighbours share at least `overlap` clients.
        """
        count, most = self.data.train.num_clients, {}
        firsts = np.unique(np.minimum(np.arange(0, count, max(self.block - overlap, 1)), count - self.block))
        for name, part in self.data.parts().items():
            ends = np.concatenate([[0], np.cumsum(part.size, dtype=np.int64)])
            most[name] = int((ends[firsts + self.block] - ends[firsts]).max())
        for first in firsts:
            yield int(first), self.gather(np.arange(first, first + self.block), self.block, most)

    def observe(
        self, observe: Callable, recorded: Sequence[Measure], algorithm: Any, carry: Carry, dims: dict
    ) -> dict[str, Any]:
        """Return the record of `core.observe`, of all clients, from one block after another."""
        count, record, finite = self.data.train.num_clients, {}, True
        for first, block in self.blocks():
            some = trees.map(lambda x, i=first: x[i : i + self.block], carry.state.clients)
            one = carry._replace(state=carry.state._replace(clients=transfers.put(some)))
            found = transfers.fetch(observe(None, recorded, algorithm, block, one))
            finite = finite and bool(found["finite"])
            for name, value in found.items():
                axes = dims.get(name, ())
                if "client" not in axes:
                    record[name] = value
                    continue
                axis = axes.index("client")
                whole = record.setdefault(
                    name, np.empty(value.shape[:axis] + (count,) + value.shape[axis + 1 :], value.dtype)
                )
                whole[(slice(None),) * axis + (slice(first, first + self.block),)] = value
        return record | {"finite": np.asarray(finite)}

    def advance(
        self, advance: Callable, key: Key, algorithm: Any, scheduler: Any, carry: Carry, length: int
    ) -> tuple[Carry, Any]:
        """Return (the carry `length` rounds later, the info of the last); the clients' states change in place."""
        first = int(carry.round)
        events = jax.device_get(_draw(key, scheduler, np.arange(first, first + self.rounds, dtype=np.int32)))
        played = np.arange(self.rounds)[:, None] < length
        active = np.broadcast_to(played if events.active is None else played & events.active, events.ids.shape)
        clients = np.unique(events.ids[active])
        position = np.where(active, np.searchsorted(clients, events.ids), 0).astype(np.int32)
        mask = None if events.active is None else active
        window = Window(transfers.put(events._replace(ids=position, active=mask)), jnp.int32(first))

        size = self.data.train.size
        rows = {"train": min(self.rounds * _largest(size, events.ids.shape[1]), int(size.sum(dtype=np.int64)))}
        small = self.gather(clients, self.slots, rows)
        states = transfers.put(trees.map(lambda x: transfers.padded(x, clients, self.slots), carry.state.clients))
        carry_in = carry._replace(state=carry.state._replace(clients=states))
        out, info = advance(None, key, algorithm, window, small, carry_in, length)
        new = transfers.fetch(out.state.clients)
        trees.map(lambda x, some: x.__setitem__(clients, some[: len(clients)]), carry.state.clients, new)
        return out._replace(state=out.state._replace(clients=carry.state.clients)), info


def build(data: FedData, algorithm: Any, scheduler: Any, layout: Any, chunk: int | None, window: int) -> HostStore:
    """Return the store of a run with this layout whose records are at most `window` rounds apart.

    `chunk`: rounds that are played at a call (None: as many as move about `MOVED_BYTES`, up to `MOST_ROUNDS`).

    Raises ValueError for an algorithm whose round may change clients outside of the cohort.
    """
    if getattr(type(algorithm), "step", None) is not federate:
        fail("algorithm", f"{type(algorithm).__name__}, whose step is its own",
             "one whose step is horizontal.federate, which changes only the cohort's clients,"
             " or client_store='device'")  # fmt: skip
    parts = {
        k: part.replace(**{f: np.asarray(getattr(part, f)) for f in ("x", "y", "rows", "size", "id")}, layout=layout)
        for k, part in data.parts().items()
    }
    pools: dict[str, tuple[Array, Array]] = {}
    done: dict[int, tuple[Any, Array]] = {}  # parts often share one pool
    for name, part in parts.items():
        if part.x.nbytes <= RESIDENT_BYTES:
            if id(part.x) not in done:
                done[id(part.x)] = (part.x, transfers.put(part.x))
            pools[name] = (done[id(part.x)][1], transfers.put(part.y))
    data = FedData(**parts)
    count, cohort = layout.num_clients, scheduler.cohort_size
    state = jax.eval_shape(algorithm.init, jax.random.key(0), data).clients
    own = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state)) // count
    each = {k: own + 4 * part.rows.shape[1] + (0 if k in pools else _row_bytes(part)) for k, part in parts.items()}
    rounds = chunk or int(np.clip(MOVED_BYTES // (cohort * each["train"]), 1, MOST_ROUNDS))
    rounds = min(rounds, window)
    if chunk is None:  # equal pieces of a window, so that none moves clients in vain
        rounds = -(-window // -(-window // rounds))
    block = max(MOVED_BYTES // max(sum(each.values()), 1) // layout.eval_block, 1) * layout.eval_block
    return HostStore(data, pools, rounds, min(rounds * cohort, count), min(block, count))


def own_measures(added: Sequence[Measure]) -> None:
    """Require measures that can be taken of one block of clients after another."""
    for i, measure in enumerate(added):
        blockwise = measure.per_device and "client" in measure.dims
        if measure not in measures.DEFAULT and not blockwise:
            got = f"dims {measure.dims}, per_device={measure.per_device}"
            wanted = 'per_device=True and "client" among its dims: with client_store="host" it sees blocks of clients'
            fail(f"measures[{i}]", got, wanted)


def _events(key: Key, scheduler: Any, rounds: Array) -> Event:
    event_key = jax.random.split(key, 3)[1]  # as in `core`
    return jax.vmap(lambda t: scheduler(jax.random.fold_in(event_key, t), t))(rounds)


_draw = nodes.jit(_events)


def _largest(size: np.ndarray, cohort: int) -> int:
    """Return how many rows a cohort can have at most."""
    return int(np.partition(size, len(size) - cohort)[len(size) - cohort :].sum(dtype=np.int64))


def _row_bytes(part: ClientData) -> int:
    """Return the bytes of an average client's rows."""
    return int(part.size.mean() * part.x[:1].nbytes)


def _same(a: Any, b: Any) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
