"""Central differential privacy per client: clipped updates and noise on their sum (DP-FedAvg; McMahan et al. 2018).

Client i of the cohort sends u_i = w_i - w, cut to u_i min(1, clip / |u_i|), the norm over all its leaves together. The
server adds N(0, (noise_multiplier clip)^2) to every coordinate of the SUM of the cohort's updates, divides by the
number of clients, and does with the mean whatever it does without privacy. `accounting.epsilon` says what that is
worth: replacing one client's rows moves the sum by at most 2 clip.

What is protected is what the server sends out, so a server that everyone trusts is assumed. Departures: cohorts have a
fixed size (there clients come by themselves, each with the same probability); an update that is not finite counts as
zero, or one client could break the bound. What a run records (losses, `update_norm` and `drift`, both before the noise)
is for whoever looks at the simulation and protected by nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import trees
from jaxfed.checks import fail, numbers
from jaxfed.horizontal.federate import federate
from jaxfed.horizontal.local_only import LocalOnly
from jaxfed.horizontal.personal import personal_models, predict, server_params
from jaxfed.nodes import PyTreeNode
from jaxfed.types import Array, FedState, Key, Params

NOISE = np.uint32(2**32 - 1)  # folded into a round's key; clients fold in their numbers, which are below 2^31


class PrivateUpdates(PyTreeNode):
    """Any horizontal algorithm that sends updates, its updates clipped and its server's sum noisy.

    Fields, traced: `inner`, the algorithm; `clip`, a norm; `noise_multiplier`, the noise's standard deviation over
    `clip`. What stays with the clients (APFL's v and alpha, SCAFFOLD's controls, personal models) is untouched, and
    personal models that hold the noisy server's inherit no more of others than it shows. SCAFFOLD sends the change of
    its control too: both are clipped together and get the same noise, so one account holds for both; the control's
    change is 1 / (K lr) times as long as the model's and `clip` has to suit it, and c is then no more the mean of the
    clients' controls.
    """

    inner: Any
    clip: Any = 1.0
    noise_multiplier: Any = 1.0

    step = federate
    server_params = server_params
    client_params = personal_models
    predict = predict

    @property
    def model(self):
        """The inner algorithm's model."""
        return self.inner.model

    @property
    def weights(self) -> str:
        """Clients count equally: the only weights that `check` admits."""
        return self.inner.weights

    @property
    def max_staleness(self) -> int:
        """The inner algorithm's, in rounds."""
        return self.inner.max_staleness

    def init(self, key: Key, data: Any) -> FedState:
        """Return the inner algorithm's initial state."""
        return self.inner.init(key, data)

    def client_update(self, key: Key, server: Any, client: Any, view: Any) -> tuple[Any, Any, dict[str, Array]]:
        """Return (the clipped update, the client's new state, what the inner algorithm reports)."""
        update, client, report = self.inner.client_update(key, server, client, view)
        return clipped(update, self.clip), client, report

    def noisy(self, key: Key, mean: Any, count: Array) -> Any:
        """Return the mean update of `count` clients with the noise of their sum; `key` is the round's."""
        std = self.noise_multiplier * self.clip / jnp.maximum(count, 1)
        leaves, structure = jax.tree.flatten(mean)
        keys = jax.random.split(jax.random.fold_in(key, NOISE), len(leaves))
        draws = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
        return trees.axpy(std, jax.tree.unflatten(structure, draws), mean)

    def server_update(self, server: Any, update: Any, share: Array | float = 1.0) -> Any:
        """Return the server after the noisy mean update."""
        return self.inner.server_update(server, update, share)

    def mixing_weight(self, state: FedState) -> Array | None:
        """Return the inner algorithm's mixing weights [C], or None where it has none."""
        read = getattr(self.inner, "mixing_weight", None)
        return None if read is None else read(state)

    def message(self, server: Any) -> Any:
        """Return what the server sends to a client, which sends back as much."""
        return self.inner.message(server)

    def personal(self, key: Key, server: Any, client: Any, view: Any) -> Params:
        """Return the model that one client deploys, the inner algorithm's."""
        return self.inner.personal(key, server, client, view)

    def check(self, data: Any) -> None:
        """Check the fields and what they need of the inner algorithm and of the data; raises ValueError."""
        if not hasattr(self.inner, "client_update") or isinstance(self.inner, (LocalOnly, PrivateUpdates)):
            wanted = "one whose clients send updates: FedAvg, FineTuned, APFL or Scaffold (Weighted goes around)"
            fail("inner", type(self.inner).__name__, wanted)
        if self.inner.weights != "uniform":
            wanted = "'uniform' inside PrivateUpdates: a client that counts more moves the mean by more than clip / |S|"
            fail("weights", repr(self.inner.weights), wanted)
        for field in ("clip", "noise_multiplier"):
            numbers(field, getattr(self, field), 1e-30 if field == "clip" else 0)
            if np.shape(getattr(self, field)):
                fail(field, f"shape {np.shape(getattr(self, field))}", "one number")
        sizes = np.asarray(data.train.size)
        if sizes[: data.train.num_clients].min(initial=1) == 0:
            fail("train.size", "a client without rows", "rows for all: whether it counts must not depend on its data")


def clipped(update: Any, clip: Any) -> Any:
    """Return the update (a pytree) cut to the norm `clip`; zeros where it is not finite."""
    norm = trees.norm(update)
    finite = jnp.isfinite(norm)  # also false where the square overflows: such an update counts for nothing
    factor = jnp.minimum(1, clip / jnp.where(norm > 0, norm, 1))
    factor = jnp.where(norm > 0, factor, 1)
    return trees.map(lambda x: jnp.where(finite, factor.astype(x.dtype) * x, 0), update)
