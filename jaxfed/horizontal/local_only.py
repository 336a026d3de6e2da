"""Local training only: every client fits its own model and sends nothing. The baseline without federation."""

from typing import Any

from jaxfed import steps, trees
from jaxfed.horizontal import personal
from jaxfed.horizontal.federate import federate, start
from jaxfed.horizontal.local import local_sgd
from jaxfed.horizontal.server import new_server
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, FedState, Key, Params


class LocalOnly(PyTreeNode):
    """Client i of the cohort takes local steps on its own w_i. `server_*` is the mean of all clients' models.

    Fields as in `FedAvg`. The mean is kept up to date by adding (w_i' - w_i) / C, so a round never reads all clients;
    it carries the rounding of that sum.
    """

    model: Any
    lr: Any = 0.1
    local_steps: int = field(pytree_node=False, default=10)
    batch_size: int | None = field(pytree_node=False, default=20)
    batches: str = field(pytree_node=False, default="with_replacement")
    local_epochs: int | None = field(pytree_node=False, default=None)
    optimizer: Any = field(pytree_node=False, default=None)

    @property
    def weights(self) -> str:
        """Clients count equally in the mean of the models."""
        return "uniform"

    @property
    def max_staleness(self) -> int:
        """Nothing is read from the server, so nothing is stale."""
        return 0

    step = federate
    server_params = personal.server_params
    client_params = personal.personal_models
    predict = personal.predict

    def init(self, key: Key, data: Any) -> FedState:
        """Return the same initial model for all: clients [C, ...]."""
        params = self.model.init(key, data.train.sample())
        return start(self, new_server(params), trees.repeat(params, data.train.rows.shape[0]))

    def client_update(self, key: Key, server, client, view):
        """Return (the change of the client's model, the new model, {})."""
        params, _ = local_sgd(self, client, steps.at(self.lr, server.round), key, view, self.optimizer)
        return trees.sub(params, client), params, {}

    def server_update(self, server, update, share: Array | float = 1.0):
        """Return the server with the mean of all clients' models; `share` of them changed."""
        return server._replace(params=trees.axpy(share, update, server.params))

    def message(self, server):
        """Return what the server sends to a client, which sends back as much: nothing."""
        return ()

    def personal(self, key: Key, server, client, view) -> Params:
        """Return the client's own model."""
        del key, server, view
        return client
