"""The weighted average of an algorithm's iterates: the output models of APFL's Algorithm 1.

There vhat_i = sum_t p_t vbar_i^t / S_T and what = sum_t p_t wbar^t / S_T with p_t = (t + a)^2 over local steps t. Here
t counts rounds, the points at which wbar is the server's model (departure: the paper averages every local step). As
(tau r + a)^2 = tau^2 (r + a / tau)^2, `offset` = a / tau gives the paper's weights at the ends of rounds.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxfed import trees
from jaxfed.nodes import PyTreeNode
from jaxfed.types import Array, FedState, Key, Params


class Averages(NamedTuple):
    """An inner algorithm's part of the state, and the average that goes with it."""

    inner: Any
    average: Params
    round: Array | tuple = ()
    visits: Array | tuple = ()
    total: Array | tuple = ()


class Weighted(PyTreeNode):
    """Any horizontal algorithm, with its server and personal models replaced by averages over rounds.

    Fields: `inner`, the algorithm; `offset` (traced), the a of p_t = (t + a)^2 in rounds, t = 1 after the first round.
    Each round costs a pass over the personal models of all clients. Mixtures of outputs (APFL's mix="logits") have no
    average among models and are refused.
    """

    inner: Any
    offset: Any = 0.0

    @property
    def model(self):
        """The inner algorithm's model."""
        return self.inner.model

    def init(self, key: Key, data: Any) -> FedState:
        """Return the inner state, with averages that hold the initial models until the first round."""
        return self._wrap(self.inner.init(key, data), None, data)

    def step(self, key: Key, state: FedState, data: Any, event: Any) -> tuple[FedState, Any]:
        """Return the state after one round of the inner algorithm, averages moved on."""
        inner = FedState(state.server.inner, state.clients.inner)
        inner, info = self.inner.step(key, inner, data, event)
        return self._wrap(inner, state, data), info

    def _wrap(self, inner: FedState, old: FedState | None, data: Any) -> FedState:
        server, clients = self.inner.server_params(inner), self.inner.client_params(inner, data)
        now = getattr(inner.server, "now", inner.server)
        total = jnp.zeros((), jnp.result_type(float))
        if old is not None:
            p = jnp.square(now.round + self.offset).astype(total.dtype)
            total = old.server.total + p
            share = jnp.where(total > 0, p / jnp.where(total > 0, total, 1), 1)
            server = trees.lerp(old.server.average, server, share)
            clients = trees.lerp(old.clients.average, clients, share)
        first = Averages(inner.server, server, now.round, now.visits, total)
        return FedState(first, Averages(inner.clients, clients))

    def server_params(self, state: FedState) -> Params:
        """Return the average of the server's models."""
        return state.server.average

    def message(self, server: Any) -> Any:
        """Return what the inner algorithm sends."""
        return self.inner.message(getattr(server.inner, "now", server.inner))

    def mixing_weight(self, state: FedState) -> Array | None:
        """Return the inner algorithm's mixing weights [C], or None where it has none."""
        read = getattr(self.inner, "mixing_weight", None)
        return None if read is None else read(FedState(state.server.inner, state.clients.inner))

    def personal(self, key: Key, server: Any, client: Averages, view: Any) -> Params:
        """Return the average of the client's personal models."""
        del key, server, view
        return client.average

    def predict(self, state: FedState, x: Any, client: int | None = None, data: Any = None) -> Array:
        """Return outputs for rows x [n, ...] of the averaged server's model, or of one client's average."""
        from jaxfed.horizontal.personal import predict

        return predict(self, state, x, client, data)

    def client_params(self, state: FedState, data: Any = None, key: Key | None = None) -> Params:
        """Return the averages of all clients' personal models [C, ...]."""
        del data, key
        return state.clients.average
