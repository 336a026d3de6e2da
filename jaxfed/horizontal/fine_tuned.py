"""FedAvg, then fine-tuning: the personal model is w after some more local steps. The baseline that is hard to beat."""

from typing import Any

from jaxfed import steps, trees
from jaxfed.horizontal import personal
from jaxfed.horizontal.federate import federate, start
from jaxfed.horizontal.local import local_sgd
from jaxfed.horizontal.server import apply_update, start_server
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import FedState, Key, Params


class FineTuned(PyTreeNode):
    """Trains as `FedAvg` (fields as there); client i deploys w after `tune_steps` SGD steps on its own rows.

    Traced: `tune_lr` (None: `lr`). Static: `tune_steps`. Fine-tuning changes nothing in training: it is done anew, with
    fresh minibatches, at each evaluation.
    """

    model: Any
    lr: Any = 0.1
    tune_lr: Any = None
    tune_steps: int = field(pytree_node=False, default=10)
    local_steps: int = field(pytree_node=False, default=10)
    batch_size: int | None = field(pytree_node=False, default=20)
    batches: str = field(pytree_node=False, default="with_replacement")
    local_epochs: int | None = field(pytree_node=False, default=None)
    optimizer: Any = field(pytree_node=False, default=None)
    weights: str = field(pytree_node=False, default="examples")
    server_lr: Any = 1.0
    server_optimizer: Any = field(pytree_node=False, default=None)
    max_staleness: int = field(pytree_node=False, default=0)

    step = federate
    server_params = personal.server_params
    client_params = personal.personal_models
    predict = personal.predict

    def init(self, key: Key, data: Any) -> FedState:
        """Return w from the model, and no client states."""
        return start(self, start_server(self, self.model.init(key, data.train.sample())), ())

    def client_update(self, key: Key, server, client, view):
        """Return (w_i - w, client, {})."""
        params, _ = local_sgd(self, server.params, steps.at(self.lr, server.round), key, view, self.optimizer)
        return trees.sub(params, server.params), client, {}

    def server_update(self, server, update, share=1.0):
        """Return the server after the mean update."""
        del share
        return apply_update(self, server, update)

    def message(self, server):
        """Return what the server sends to a client, which sends back as much: the server's model."""
        return server.params

    def personal(self, key: Key, server, client, view) -> Params:
        """Return w after `tune_steps` local steps on the client's rows; w itself for a client without rows.

        Raises ValueError where no rows are at hand (`client_params` and `predict` need `data`).
        """
        del client
        if view is None:
            raise ValueError("data: got None, wanted the training data: FineTuned trains on each client's own rows")
        rate = steps.at(self.lr if self.tune_lr is None else self.tune_lr, server.round)
        tuning = self.replace(local_steps=self.tune_steps, local_epochs=None)
        tuned, _ = local_sgd(tuning, server.params, rate, key, view)
        return trees.where(view.size > 0, tuned, server.params)
