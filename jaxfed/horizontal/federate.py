"""The round that every horizontal algorithm shares.

An algorithm file holds only its mathematics: `client_update` for one client, and `server_update`. This file reads the
(possibly stale) server model, maps the cohort over `client_update`, sums the weighted updates, updates the server and
puts the clients' states back. Clients outside the cohort keep theirs, bit for bit. An algorithm may have
`noisy(key, mean, count)`: what the server gets in place of the mean update of `count` clients (`privacy.clients`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed import history, parallel, trees
from jaxfed.history import History
from jaxfed.horizontal.data import ClientData
from jaxfed.types import Array, FedState, Key


class Event(NamedTuple):
    """Who takes part in a round, and when it ends.

    `time`: simulated seconds at the end of the round. `ids` int32 [K]: global client numbers, distinct. `active` bool
    [K] or None: masked slots do nothing. `delay` int32 [K] or None: how many rounds old is the server model they read.
    """

    time: Array
    ids: Array
    active: Array | None = None
    delay: Array | None = None


class Versions(NamedTuple):
    """A server with a past: what is current, and the last versions for clients that read late."""

    now: Any
    past: History


class Sums(NamedTuple):
    """What a round adds up over its cohort, each client's part times its weight: one all-reduce on a mesh."""

    update: Any
    square: Array
    report: dict[str, Array]
    weight: Array
    count: Array


def start(algorithm, server: Any, clients: Any) -> FedState:
    """Return the initial state; keeps `algorithm.max_staleness` old versions of the server where that is not 0."""
    if algorithm.max_staleness:
        server = Versions(server, history.start(server, algorithm.max_staleness + 1))
    return FedState(server, clients)


def current(server: Any) -> Any:
    """Return the current server of a state's `server`, whether or not it has a past."""
    return server.now if isinstance(server, Versions) else server


def federate(algorithm, key: Key, state: FedState, data: Any, event: Event) -> tuple[FedState, dict[str, Array]]:
    """Return the state after a round of the event's cohort, and scalars to look at.

    The scalars: `cohort` (clients that trained), `update_norm` |u| of the mean update u, `drift`
    sqrt(mean_i |u_i - u|^2), how far apart the clients ended (from sums of squares: in float32, drifts below a
    thousandth of `update_norm` are rounding), and the means of what `client_update` reports.
    """
    train: ClientData = data.train
    layout = train.layout
    server = current(state.server)
    position, delay, rounds = _arrange(train, event, layout)

    def one(position, delay, client):
        view = train.view(position)
        valid = (position < train.rows.shape[0]) & (view.size > 0)
        read = server
        if delay is not None:  # an old model, but the rates of this round
            read = history.read(state.server.past, delay)._replace(round=server.round)
        update, new, report = algorithm.client_update(jax.random.fold_in(key, view.id), read, client, view)
        weight = jnp.where(valid, view.size if algorithm.weights == "examples" else 1, 0).astype(jnp.result_type(float))
        # a slot that is idle or has no rows may hold anything, even nan: it must add exactly nothing
        weigh = lambda tree: trees.map(lambda x: jnp.where(valid, weight.astype(x.dtype) * x, 0), tree)  # noqa: E731
        model = getattr(update, "params", update)  # of what SCAFFOLD sends, its control is not the model's move
        square, count = weigh(trees.dot(model, model)), valid.astype(weight.dtype)
        return Sums(weigh(update), square, weigh(report), weight, count), trees.where(valid, new, client)

    def group(g, carry):
        # The group's states were read at the end of the turn before, after the write: a read that may come after the
        # write makes XLA copy the stacked states of all clients, in every turn.
        sums, clients, rows = carry
        slots, late = position[g], None if delay is None else delay[g]
        if layout.group == 1:  # no vmap: a batch of one would only slow the matrix products down
            more, new = one(slots[0], None if late is None else late[0], rows)
            sums, clients = trees.add(sums, more), trees.put_row(clients, slots[0], new)
        else:
            more, new = jax.vmap(one, in_axes=(0, None if late is None else 0, 0))(slots, late, rows)
            sums = trees.add(sums, trees.map(lambda x: jnp.sum(x, axis=0), more))
            clients = trees.scatter(clients, slots, new)
        return sums, clients, read_rows(clients, jnp.minimum(g + 1, position.shape[0] - 1))

    def read_rows(clients, g):
        return trees.take(clients, position[g, 0] if layout.group == 1 else position[g])

    first, late = trees.take(state.clients, position[0, 0]), None if delay is None else delay[0, 0]
    shapes = jax.eval_shape(one, position[0, 0], late, first)[0]
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    carry = (zeros, state.clients, read_rows(state.clients, 0))
    sums, clients, _ = jax.lax.fori_loop(0, rounds, group, carry)
    sums = parallel.reduce_sum(layout.axis, sums)

    scale = jnp.where(sums.weight > 0, 1 / jnp.where(sums.weight > 0, sums.weight, 1), 0)
    update, square, report = trees.scale(scale, (sums.update, sums.square, sums.report))
    received = update if not hasattr(algorithm, "noisy") else algorithm.noisy(key, update, sums.count)
    new = algorithm.server_update(server, received, sums.count / max(layout.num_filled, 1))
    visits = server.visits + sums.count.astype(jnp.int32)
    new = trees.where(sums.weight > 0, new, server)._replace(round=server.round + 1, visits=visits)
    if isinstance(state.server, Versions):
        new = Versions(new, history.push(state.server.past, new))
    norm = trees.norm(getattr(update, "params", update))
    drift = jnp.sqrt(jnp.maximum(square - norm**2, 0))
    info = {"cohort": sums.count, "update_norm": norm, "drift": drift}
    return FedState(new, clients), info | report


def _arrange(train: ClientData, event: Event, layout) -> tuple[Array, Array | None, Any]:
    """Return slots as positions in this device's table [groups, group], their delays, and how many groups to run.

    Positions past the table mark idle slots. On a mesh every device sees the same cohort, takes its own clients to the
    front and runs only their groups, so no data moves and the cohort doesn't depend on the number of devices.
    """
    ids, delay, here = event.ids, event.delay, train.rows.shape[0]
    slots, size = ids.shape[0], layout.group
    active = jnp.ones(slots, bool) if event.active is None else event.active
    groups = rounds = -(-slots // size)
    if layout.axis is not None:
        ids = ids - jax.lax.axis_index(layout.axis) * here
        active = active & (ids >= 0) & (ids < here)
        order = jnp.argsort(~active, stable=True)
        ids, active, delay = ids[order], active[order], None if delay is None else delay[order]
        rounds = -(-jnp.sum(active) // size)
    fill = (0, groups * size - slots)
    position = jnp.pad(jnp.where(active, ids, here), fill, constant_values=here).reshape(groups, size)
    return position, None if delay is None else jnp.pad(delay, fill).reshape(groups, size), rounds
