"""The personal models of all clients, and predictions with them."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxfed import trees
from jaxfed.horizontal.federate import current
from jaxfed.types import Array, FedState, Key, Params


def server_params(algorithm, state: FedState) -> Params:
    """Return the server's model."""
    return current(state.server).params


def evaluation_key(server: Any) -> Key:
    """Return the key of all evaluations of a server's model: fixed for all seeds, folded with the round.

    One key for measures and predictions, so that a model which draws (FineTuned) is the same in both.
    """
    return jax.random.fold_in(jax.random.key(0), server.round)


def personal_models(algorithm, state: FedState, data: Any = None, key: Key | None = None) -> Params:
    """Return `algorithm.personal` of every client, stacked [C, ...].

    `data` (ClientData or FedData) is needed where the state alone does not tell: by FineTuned, which trains on the
    clients' rows, and by algorithms without client states, for the number of clients. Raises ValueError without it.
    """
    server = current(state.server)
    train = None if data is None else jax.tree.map(jnp.asarray, data.train)
    count = train.rows.shape[0] if train is not None else _count(state.clients)
    key = evaluation_key(server) if key is None else key

    def one(i):
        view = None if train is None else train.view(i)
        client_key = jax.random.fold_in(key, i if view is None else view.id)
        return algorithm.personal(client_key, server, trees.take(state.clients, i), view)

    return jax.vmap(one)(jnp.arange(count))


def predict(algorithm, state: FedState, x: Array, client: int | None = None, data: Any = None) -> Array:
    """Return the outputs for rows x [n, ...]: of the server's model, or of client number `client`'s personal model.

    Class numbers are `argmax` of the outputs [n, classes]. uint8 images are scaled as in training.
    """
    x = jnp.asarray(x)
    if x.dtype == jnp.uint8:
        x = x.astype(jnp.result_type(float)) / 255
    if client is None:
        return algorithm.model.outputs(algorithm.server_params(state), x)
    count = data.train.num_clients if data is not None else _count(state.clients)
    if not 0 <= client < count:
        raise ValueError(f"client: got {client}, wanted 0 to {count - 1}")
    view = None if data is None else jax.tree.map(jnp.asarray, data.train).view(client)
    key = jax.random.fold_in(evaluation_key(current(state.server)), client if view is None else view.id)
    own = trees.map(lambda leaf: jnp.asarray(leaf[client]), state.clients)  # states on the host stay there
    personal = algorithm.personal(key, current(state.server), own, view)
    return algorithm.model.outputs(personal, x)


def _count(clients: Any) -> int:
    leaves = jax.tree.leaves(clients)
    if not leaves:
        raise ValueError("data: got None, wanted the training data: this algorithm keeps no states of clients")
    return leaves[0].shape[0]
