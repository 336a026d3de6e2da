"""What is recorded of a horizontal run: every client's loss and accuracy, of the server's and of its personal model.

All clients are evaluated each time, not only the cohort, on their own rows. The personal model is
`algorithm.personal`: after the round's aggregation, so mixtures hold the server's new w unless the algorithm was told
to evaluate with the client's own (`APFL.evaluate_with`). Losses include l2. A client without rows of a part gets nan.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxfed import trees
from jaxfed.horizontal.federate import current
from jaxfed.horizontal.personal import evaluation_key
from jaxfed.models import mean
from jaxfed.types import Array, FedState, Measure


def evaluate(algorithm, state: FedState, data: Any) -> dict[str, Array]:
    """Return arrays [C] named {server,personal}_{train,validation,test}_{loss,accuracy}, in one pass over the clients.

    Accuracy is absent for regression losses. FineTuned draws minibatches here, from `evaluation_key` and the
    client's number.
    """
    model, server, shared = algorithm.model, current(state.server), algorithm.server_params(state)
    key = evaluation_key(server)

    def one(i):
        view = data.train.view(i)
        own = algorithm.personal(jax.random.fold_in(key, view.id), server, trees.take(state.clients, i), view)
        record = {}
        for part, rows in data.parts().items():
            view = rows.view(i)
            (x, y), weight = view.take(view.rows), view.mask().astype(jnp.result_type(float))
            some = lambda value, size=view.size: jnp.where(size > 0, value, jnp.nan)  # noqa: E731
            for name, params in (("server", shared), ("personal", own)):
                z = model.outputs(params, x)
                record[f"{name}_{part}_loss"] = some(mean(model.losses(z, y), weight) + model.penalty(params))
                right = model.correct(z, y)
                if right is not None:
                    right = right & jnp.isfinite(z.reshape(z.shape[0], -1)).all(axis=1)  # nan decides for no class
                    record[f"{name}_{part}_accuracy"] = some(mean(right.astype(weight.dtype), weight))
        return record

    positions = jnp.arange(data.train.rows.shape[0])
    return jax.lax.map(one, positions, batch_size=data.train.layout.eval_block)


def mixing_weight(algorithm, state: FedState, data: Any) -> dict[str, Array]:
    """Return the mixing weight alpha of every client [C], also where it is fixed; nothing for algorithms without."""
    del data
    read = getattr(algorithm, "mixing_weight", None)
    alpha = None if read is None else read(state)
    return {} if alpha is None else {"mixing_weight": alpha}


def visits(algorithm, state: FedState, data: Any) -> dict[str, Array]:
    """Return how many times clients have trained so far, summed over rounds."""
    del algorithm, data
    return {"visits": current(state.server).visits}


EVALUATE = Measure(evaluate, ("client",), per_device=True)
MIXING_WEIGHT = Measure(mixing_weight, ("client",), per_device=True)
VISITS = Measure(visits, (), per_device=True)
DEFAULT = (EVALUATE, MIXING_WEIGHT, VISITS)
