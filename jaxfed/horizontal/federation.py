"""A federation's data: the training rows of every client, with test and validation rows of the same clients.

The driver and the runner know no kind of federation; what they need to know of this one, they ask of `FedData`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from jaxfed import parallel, trees
from jaxfed.checks import fail, rounds, same_structure
from jaxfed.horizontal import checks, measures, summaries
from jaxfed.horizontal.data import ClientData, local, shard
from jaxfed.horizontal.federate import current
from jaxfed.horizontal.schedulers import FullParticipation
from jaxfed.types import Carry, Measure, Timetable

EVALUATED_BYTES = 16 << 20  # features of the clients evaluated at once on a CPU; 64 times that on an accelerator


class FedData(NamedTuple):
    """Training, test and validation rows of the same clients, each a `ClientData` with its own or a common pool."""

    train: ClientData
    test: ClientData | None = None
    validation: ClientData | None = None

    def with_parts(self, test: ClientData | None = None, validation: ClientData | None = None) -> "FedData":
        """Return the data with test or validation rows replaced where given."""
        return self._replace(test=test or self.test, validation=validation or self.validation)

    def parts(self) -> dict[str, ClientData]:
        """Return the parts that are there, by name."""
        named = {"train": self.train, "validation": self.validation, "test": self.test}
        return {name: part for name, part in named.items() if part is not None}

    def timetable(
        self, algorithm: Any, scheduler: Any, state: Any, num_rounds: int, every: int | None, mesh: Any
    ) -> Timetable:
        """Return when to record a run of `num_rounds` more rounds, each round one of the device's.

        Raises ValueError where algorithm, scheduler and data don't go together until the last round.
        """
        del mesh
        every = 1 if every is None else every
        rounds(num_rounds, every)
        done = 0 if state is None else self._rounds_done(state)
        checks.settings(algorithm, self)
        checks.schedule(scheduler, algorithm, self.train.num_clients, done + num_rounds)
        stops = [*range(done, done + num_rounds, every), done + num_rounds]
        return Timetable(scheduler, stops, stops, every)

    def check(self, algorithm: Any) -> None:
        """Raise ValueError where an algorithm's settings don't go together with these data."""
        checks.settings(algorithm, self)

    @property
    def axis(self) -> str | None:
        """The mesh axis that shards the clients, or None."""
        return self.train.layout.axis

    def tables(self) -> dict[str, tuple[Any, Any]]:
        """Return whose rows are whose: for each part its row table and sizes. What a sweep over "data" varies."""
        return {name: (part.rows, part.size) for name, part in self.parts().items()}

    def with_tables(self, tables: dict[str, tuple[Any, Any]]) -> "FedData":
        """Return the data with other tables over the same pools."""
        own = self.parts()
        return self._replace(**{k: own[k].replace(rows=rows, size=size) for k, (rows, size) in tables.items()})

    def alike(self, others: list["FedData"]) -> list["FedData"]:
        """Return data over these pools whose row tables all have one shape: the widest."""
        wide = {name: max(data.parts()[name].rows.shape[1] for data in others) for name in self.parts()}

        def fit(name, part):
            rows = np.pad(np.asarray(part.rows), ((0, 0), (0, wide[name] - part.rows.shape[1])))
            return self.parts()[name].replace(rows=rows, size=part.size)

        return [FedData(**{name: fit(name, part) for name, part in data.parts().items()}) for data in others]

    def lanes(self, algorithm: Any, paths: tuple[str, ...]) -> tuple[str, int]:
        """Return how a sweep over those fields should hold its lanes (see `lanes.Shape.mode`), and how many points at
        once suit a CPU's cache (an accelerator takes what its memory does)."""
        del paths
        count = self._num_params(algorithm)
        # measured with 610 and 7,850 parameters (benchmarks.sweep): more than these do not fit, fewer share less
        most = int(np.clip(2 * parallel.CACHE_BYTES // (16 * max(count, 1)), 1, 64))
        return "vmap", most if jax.default_backend() == "cpu" else 1 << 16

    def default_scheduler(self) -> FullParticipation:
        """Return what runs when no scheduler is given."""
        return FullParticipation(self.train.num_clients)

    def default_measures(self) -> tuple[Measure, ...]:
        """Return what is recorded when no measures are given."""
        return measures.DEFAULT

    def coords(self) -> dict[str, Any]:
        """Return the coordinates of a Dataset: the clients' numbers, and how many rows they have of each part."""
        sizes = {
            f"{name}_size": ("client", np.asarray(parallel.fetch(part.size))) for name, part in self.parts().items()
        }
        return {"client": np.asarray(parallel.fetch(self.train.id))} | sizes

    def attributes(self, algorithm: Any) -> dict[str, Any]:
        """Return what a Dataset should say of the run: the bytes that a client's visit moves, both ways together."""
        state = jax.eval_shape(algorithm.init, jax.random.key(0), self)
        sent = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(algorithm.message(current(state.server))))
        return {"bytes_per_visit": 2 * sent, "parameters": self._num_params(algorithm)}

    def _rounds_done(self, state: Any) -> int:
        """Return how many rounds a state has behind it."""
        checks.is_state("state", state)
        return int(current(state.server).round)

    def fit_state(self, state: Any, like: Any) -> Any:
        """Return a copy of a state of this run's form, its clients filled up from `like` to what a mesh needs.

        States on the host are copied into those of `like`.
        """
        clients = trees.map(lambda x: x[: self.train.num_clients], like.clients)
        same_structure(state, like._replace(clients=clients))

        def fill(x, y):
            if isinstance(y, np.ndarray):
                np.copyto(y, x)
                return y
            return y.at[: x.shape[0]].set(x)

        filled = trees.map(fill, state.clients, like.clients)
        return like._replace(server=trees.map(lambda x: jnp.array(x, copy=True), state.server), clients=filled)

    def trim(self, records: list[dict[str, Any]], dims: dict[str, tuple[str, ...]]) -> list[dict[str, Any]]:
        """Return records without the clients that a mesh adds to even out its devices' shares."""
        count = self.train.num_clients

        def cut(name, value):
            axes = dims.get(name, ())
            return value[tuple(slice(count) if axis == "client" else slice(None) for axis in axes)] if axes else value

        return [{name: cut(name, value) for name, value in record.items()} for record in records]

    def visible(self, placed: Any, carry: Carry) -> tuple[Any, Carry]:
        """Return what measures see of the placed data and the carry: all."""
        return placed, carry

    def advice(self, algorithm: Any) -> Callable[[], str]:
        """Return what to say of a run that diverged."""
        del algorithm
        return lambda: "a smaller lr may help"

    def final(self, algorithm: Any, state: Any, timetable: Timetable, stop: int) -> Any:
        """Return the state after the device's round `stop`, without the clients that a mesh adds."""
        del algorithm, timetable, stop
        return state._replace(clients=trees.map(lambda x: x[: self.train.num_clients], state.clients))

    def place(self, algorithm: Any, scheduler: Any, mesh: Mesh | None = None, group: int | None = None) -> "FedData":
        """Return the data on the devices, with the layout that suits them.

        On a mesh each device gets its clients' part of the pool; the number of clients is padded to a multiple of the
        devices with clients that have no rows. `group`: clients trained at once (None: what suits the backend).
        """
        shards = 1 if mesh is None else mesh.shape[parallel.CLIENT]
        layout = self._layout(algorithm, scheduler, mesh, group)
        done: dict[int, Any] = {}  # parts often share one pool: put it on the devices once

        def put(x):
            if id(x) not in done:
                done[id(x)] = (x, parallel.put(x, mesh, PartitionSpec(parallel.CLIENT)))
            return done[id(x)][1]

        parts = {k: v if mesh is None else shard(v, shards, layout) for k, v in self.parts().items()}
        return FedData(**{k: jax.tree.map(put, v).replace(layout=layout) for k, v in parts.items()})

    def summaries(self, per_client: bool | None, dims: dict[str, tuple[str, ...]]) -> tuple[Callable, dict, dict]:
        """Return (what makes of a record the one to keep, its dims, its coordinates): see `horizontal.summaries`."""
        return summaries.summaries(self.parts(), per_client, dims, self.coords())

    def on_host(
        self, algorithm: Any, scheduler: Any, mesh: Any, group: int | None, chunk: int | None, stops: list, added: Any
    ) -> Any:
        """Return the `HostStore` of a run that records after these rounds: clients that stay in host memory.

        Raises ValueError for a mesh, and for an algorithm or added measures that need all clients at once.
        """
        from jaxfed.horizontal import host_store

        if mesh is not None:
            fail("mesh", mesh, "None with client_store='host': one device, on which only the cohort's clients are")
        host_store.own_measures(added)
        layout = self._layout(algorithm, scheduler, None, group)
        return host_store.build(self, algorithm, scheduler, layout, chunk, int(np.diff(stops).max()))

    def local(self) -> "FedData":
        """Return, inside a shard_map over the clients' axis, this device's part of the data."""
        return FedData(**{name: local(part) for name, part in self.parts().items()})

    def _layout(self, algorithm: Any, scheduler: Any, mesh: Mesh | None, group: int | None) -> parallel.Layout:
        num_params = self._num_params(algorithm)
        per = -(-self.train.num_clients // (1 if mesh is None else mesh.shape[parallel.CLIENT]))
        group = group or parallel.default_group(num_params, min(scheduler.cohort_size, per))
        axis = None if mesh is None else parallel.CLIENT
        count, filled = self.train.num_clients, self.train.layout.num_filled
        return parallel.Layout(count, filled, group, axis, self._eval_block(per, num_params))

    def _num_params(self, algorithm: Any) -> int:
        params = jax.eval_shape(lambda data: algorithm.server_params(algorithm.init(jax.random.key(0), data)), self)
        return trees.size(params)

    def _eval_block(self, clients: int, num_params: int) -> int:
        row = max(jax.tree.leaves(jax.eval_shape(ClientData.sample, part))[0].size for part in self.parts().values())
        rows = max(part.rows.shape[1] for part in self.parts().values())
        budget = EVALUATED_BYTES * (1 if jax.default_backend() == "cpu" else 64)
        largest = int(np.clip(budget // (4 * (rows * row + num_params)), 1, clients))
        return next((b for b in range(largest, 0, -1) if clients % b == 0 and 2 * b > largest), largest)
