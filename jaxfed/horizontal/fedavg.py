"""FedAvg (McMahan et al. 2017), with any optimizer on the clients and on the server (FedOpt).

Each client of the cohort takes local steps from the server's w and sends u_i = w_i - w; then w <- w + server_lr u,
u the mean of the u_i weighted by the clients' numbers of rows (`weights="examples"`) or equally (`"uniform"`).
"""

from typing import Any

from jaxfed import steps, trees
from jaxfed.horizontal import personal
from jaxfed.horizontal.federate import federate, start
from jaxfed.horizontal.local import local_sgd
from jaxfed.horizontal.server import apply_update, start_server
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import FedState, Key, Params


class FedAvg(PyTreeNode):
    """FedAvg. Its personal model is the server's.

    Traced fields: `model.l2`, `lr` (a number or a schedule of `steps`, by global round), `server_lr`.
    Static fields: `local_steps`, `batch_size`, `batches`, `local_epochs` (see `horizontal.local`); `optimizer` and
    `server_optimizer` (functions of a rate that return an optax transformation; None: SGD); `keep_optimizer` (keep a
    client's optimizer state between its rounds; by default it starts anew); `weights`; `max_staleness` (rounds).
    """

    model: Any
    lr: Any = 0.1
    local_steps: int = field(pytree_node=False, default=10)
    batch_size: int | None = field(pytree_node=False, default=20)
    batches: str = field(pytree_node=False, default="with_replacement")
    local_epochs: int | None = field(pytree_node=False, default=None)
    optimizer: Any = field(pytree_node=False, default=None)
    keep_optimizer: bool = field(pytree_node=False, default=False)
    weights: str = field(pytree_node=False, default="examples")
    server_lr: Any = 1.0
    server_optimizer: Any = field(pytree_node=False, default=None)
    max_staleness: int = field(pytree_node=False, default=0)

    step = federate
    server_params = personal.server_params
    client_params = personal.personal_models
    predict = personal.predict

    def init(self, key: Key, data: Any) -> FedState:
        """Return w from the model, and no client states (or optimizer states [C, ...] with `keep_optimizer`)."""
        params = self.model.init(key, data.train.sample())
        clients = ()
        if self.keep_optimizer and self.optimizer is not None:
            clients = trees.repeat(self.optimizer(steps.initial(self.lr)).init(params), data.train.rows.shape[0])
        return start(self, start_server(self, params), clients)

    def client_update(self, key: Key, server, client, view):
        """Return (w_i - w, the client's state, {})."""
        kept = client if self.keep_optimizer and self.optimizer is not None else None
        lr = steps.at(self.lr, server.round)
        params, opt_state = local_sgd(self, server.params, lr, key, view, self.optimizer, kept)
        return trees.sub(params, server.params), client if kept is None else opt_state, {}

    def server_update(self, server, update, share=1.0):
        """Return the server after the mean update."""
        del share
        return apply_update(self, server, update)

    def message(self, server):
        """Return what the server sends to a client, which sends back as much: the server's model."""
        return server.params

    def personal(self, key: Key, server, client, view) -> Params:
        """Return the model that one client deploys: the server's."""
        del key, client, view
        return server.params
