"""SCAFFOLD (Karimireddy et al. 2020, Algorithm 1): local steps corrected by control variates.

Server model x and control c, client controls c_i, all controls zero at first. Each client of the cohort S starts at
y_i = x and takes K_i steps y_i <- y_i - lr (g_i(y_i) - c_i + c), then renews its control:

- option II: c_i' = c_i - c + (x - y_i) / (K_i lr), the mean of its own gradients along the way;
- option I:  c_i' = grad f_i(x) over all its rows.

Server: x <- x + server_lr mean_S (y_i - x),  c <- c + |S| / C mean_S (c_i' - c_i). Means are uniform, as there.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed import steps, trees
from jaxfed.horizontal import personal
from jaxfed.horizontal.federate import federate, start
from jaxfed.horizontal.local import num_steps, run_steps
from jaxfed.horizontal.server import new_server
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, FedState, Key, Params


class Update(NamedTuple):
    """What a client sends: the changes of the model and of its control."""

    params: Params
    control: Params


class Scaffold(PyTreeNode):
    """SCAFFOLD. Its personal model is the server's. It sends twice the bytes of FedAvg.

    Traced fields: `model.l2`, `lr` (number or schedule), `server_lr`. Static: `option` ("II" | "I"), and the fields of
    the local steps (`horizontal.local`). A client's own number of steps K_i divides its control.
    """

    model: Any
    lr: Any = 0.1
    local_steps: int = field(pytree_node=False, default=10)
    batch_size: int | None = field(pytree_node=False, default=20)
    batches: str = field(pytree_node=False, default="with_replacement")
    local_epochs: int | None = field(pytree_node=False, default=None)
    option: str = field(pytree_node=False, default="II")
    server_lr: Any = 1.0
    max_staleness: int = field(pytree_node=False, default=0)

    @property
    def weights(self) -> str:
        """The paper's means are uniform."""
        return "uniform"

    step = federate
    server_params = personal.server_params
    client_params = personal.personal_models
    predict = personal.predict

    def init(self, key: Key, data: Any) -> FedState:
        """Return x from the model; all controls zero, those of the clients [C, ...]."""
        params = self.model.init(key, data.train.sample())
        zeros = trees.zeros_like(params)
        first = new_server(params, zeros)
        return start(self, first, trees.repeat(zeros, data.train.rows.shape[0]))

    def client_update(self, key: Key, server, client, view):
        """Return (the changes of y_i and c_i, c_i', {})."""
        x, c, lr = server.params, server.extra, steps.at(self.lr, server.round)
        correction = trees.sub(c, client)
        gradient = jax.grad(self.model.objective)

        def step(y, features, labels, weight, s):
            return trees.axpy(-lr, trees.add(gradient(y, features, labels, weight), correction), y)

        y = run_steps(self, step, x, key, view)
        if self.option == "II":
            # lr 0 takes no step, and then a control can't be read off the path: keep it, rather than 0 / 0
            inverse = jnp.where(lr == 0, 0.0, 1 / jnp.where(lr == 0, 1.0, num_steps(self, view) * lr))
            renewed = trees.axpy(inverse, trees.sub(x, y), trees.scale(-1, correction))
            renewed = trees.where(lr == 0, client, renewed)
        else:
            rows, labels = view.take(view.rows)
            renewed = gradient(x, rows, labels, view.mask().astype(rows.dtype))
        return Update(trees.sub(y, x), trees.sub(renewed, client)), renewed, {}

    def server_update(self, server, update, share: Array | float = 1.0):
        """Return the server after the mean update; `share` is |S| / C, both without clients that have no rows."""
        return server._replace(
            params=trees.axpy(self.server_lr, update.params, server.params),
            extra=trees.axpy(share, update.control, server.extra),
        )

    def message(self, server):
        """Return what the server sends to a client, which sends back as much: the server's model and control."""
        return (server.params, server.extra)

    def personal(self, key: Key, server, client, view) -> Params:
        """Return the model that one client deploys: the server's."""
        del key, client, view
        return server.params
