"""What is recorded of a vertical run: the objective and its gradient, and how good the scores are."""

from typing import Any

import jax.numpy as jnp

from jaxfed.types import Array, Measure
from jaxfed.vertical import engine


def fit(algorithm: Any, state: Any, data: Any) -> dict[str, Array]:
    """Return `objective` (l2 included) and `gradient_norm` over the training rows, and for every part of the data
    `{part}_accuracy` and `{part}_auc`, or `{part}_rmse` where labels are real targets."""
    objective, w = algorithm.objective, engine.weights(algorithm, state)
    train = data.train
    z = train.blocks.scores(w)
    gradient = train.blocks.pull(objective.theta(z, train.y)) / train.num_rows + objective.penalty_gradient(w)
    record = {
        "objective": jnp.mean(objective.losses(z, train.y)) + objective.penalty(w),
        "gradient_norm": jnp.sqrt(jnp.sum(jnp.square(gradient))),
    }
    for name, part in data.parts().items():
        scores = z if part is train else part.blocks.scores(w)
        if objective.classifies:
            record |= {f"{name}_accuracy": accuracy(scores, part.y), f"{name}_auc": auc(scores, part.y)}
        else:
            record[f"{name}_rmse"] = jnp.sqrt(jnp.mean(jnp.square(scores - part.y)))
    return record


def accuracy(z: Array, y: Array) -> Array:
    """Return the share of rows whose score z [n] has the sign of the label y [n] in {-1, +1}; 0 counts as -1."""
    return jnp.mean((z > 0) == (y > 0))


def auc(z: Array, y: Array) -> Array:
    """Return the area under the ROC curve: the chance that a positive row scores above a negative one, ties a half.

    By ranks, O(n log n); nan where one class is missing or a score is.
    """
    order = jnp.sort(z)
    below, upto = (jnp.searchsorted(order, z, side=side) for side in ("left", "right"))
    # places 0.. n - 1 shared by equal scores; in units of n, as float32 can't hold sums of n^2
    rank = (below + upto - 1) / (2 * z.shape[0])
    positive = y > 0
    p, n = jnp.sum(positive), jnp.sum(~positive)
    mean_rank = jnp.sum(jnp.where(positive, rank, 0)) / p
    value = (mean_rank * z.shape[0] - (p - 1) / 2) / n
    unknown = jnp.any(jnp.isnan(z)) | (p == 0) | (n == 0)
    return jnp.where(unknown, jnp.nan, jnp.clip(value, 0, 1))  # rounding may leave 1 + 2e-7


DEFAULT = (Measure(fit),)
