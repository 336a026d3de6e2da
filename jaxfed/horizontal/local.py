"""A client's local steps: which rows each step sees, the loop over them, and plain SGD on it.

The fields that say which rows (`local_steps`, `batch_size`, `batches`, `local_epochs`) are the same on every algorithm:

- `batch_size=None`: every step sees all of the client's rows.
- `batches="with_replacement"`: rows drawn independently and uniformly, the theory's minibatch.
- `batches="epochs"`: passes over the client's rows in a new order each time, without replacement. A pass's last batch
  may be smaller (it is masked; no row is seen twice). `local_steps` cuts the passes off; `local_epochs=E` instead makes
  E whole passes, so a client takes ceil(n_i / batch_size) E steps of its own.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxfed import trees
from jaxfed.horizontal.data import View
from jaxfed.types import Array, Key, Params

Step = Callable[[Any, Array, Array, Array | None, Array], Any]  # (carry, x, y, weight, s) -> carry


def num_steps(algorithm, view: View) -> Array | int:
    """Return how many local steps this client takes in a round (K_i), at least 1."""
    if algorithm.local_epochs is None:
        return algorithm.local_steps
    batch = view.size if algorithm.batch_size is None else algorithm.batch_size
    return jnp.maximum(-(-view.size // jnp.maximum(batch, 1)), 1) * algorithm.local_epochs


def run_steps(algorithm, step: Step, carry: Any, key: Key, view: View) -> Any:
    """Return the carry after the client's local steps, each `step(carry, x [b, ...], y [b], weight [b] | None, s)`.

    `weight` masks rows of a batch that is not full. All row numbers are drawn in one call before the loop; rows of x
    are gathered inside it, so memory holds one batch.
    """
    if algorithm.batch_size is None:
        (x, y), weight = view.take(view.rows), view.mask().astype(jnp.result_type(float))
        steps = algorithm.local_steps if algorithm.local_epochs is None else algorithm.local_epochs
        return jax.lax.fori_loop(0, steps, lambda s, carry: step(carry, x, y, weight, s), carry)
    rows, weight = draw(algorithm, key, view)

    def body(carry, xs):
        s, rows, weight = xs
        x, y = view.take(rows)
        new = step(carry, x, y, weight, s)
        if algorithm.local_epochs is not None:  # the others' last steps: this client has made its passes
            new = trees.where(jnp.any(weight > 0), new, carry)
        return new, None

    return jax.lax.scan(body, carry, (jnp.arange(rows.shape[0]), rows, weight))[0]


def draw(algorithm, key: Key, view: View) -> tuple[Array, Array | None]:
    """Return the pool rows of all local steps [steps, b], and their weights (None: all 1), from the client's key."""
    if algorithm.batches == "with_replacement":
        return _with_replacement(key, view, (algorithm.local_steps, algorithm.batch_size)), None
    return _epochs(key, view, algorithm.local_steps, algorithm.batch_size, algorithm.local_epochs)


def local_sgd(
    algorithm, params: Params, lr, key: Key, view: View, optimizer=None, opt_state=None
) -> tuple[Params, Any]:
    """Return the parameters after the client's local steps from `params`, and the optimizer's state.

    Without an `optimizer` (a function of lr that returns an optax transformation) this is w <- w - lr grad f_i(w).
    A given `opt_state` is continued; None starts a new one, so nothing leaks from one round to the next.
    """
    gradient = jax.grad(algorithm.model.objective)
    if optimizer is None:
        sgd = lambda w, x, y, weight, s: trees.axpy(-lr, gradient(w, x, y, weight), w)  # noqa: E731
        return run_steps(algorithm, sgd, params, key, view), opt_state
    transform = optimizer(lr)

    def step(carry, x, y, weight, s):
        w, opt = carry
        updates, opt = transform.update(gradient(w, x, y, weight), opt, w)
        return trees.add(w, updates), opt

    opt_state = transform.init(params) if opt_state is None else opt_state
    return run_steps(algorithm, step, (params, opt_state), key, view)


def _with_replacement(key: Key, view: View, shape: tuple[int, int]) -> Array:
    """Pool rows [steps, b], uniform over the client's own. An empty client reads padding and is masked by the round."""
    return view.rows[jax.random.randint(key, shape, 0, jnp.maximum(view.size, 1), dtype=jnp.int32)]


def _epochs(key: Key, view: View, steps: int, batch: int, epochs: int | None) -> tuple[Array, Array]:
    """Pool rows and weights [steps, b] of reshuffled passes over the client's rows."""
    n_max = view.rows.shape[0]
    per_pass = jnp.maximum(-(-view.size // batch), 1)
    passes = steps if epochs is None else epochs  # a one-row client makes a pass a step
    steps = steps if epochs is None else epochs * -(-n_max // batch)

    def order(e):  # the client's rows first, in a random order; draws don't depend on the table's width
        noise = jax.random.uniform(jax.random.fold_in(key, e), (n_max,), jnp.float32)
        return jnp.argsort(jnp.where(view.mask(), noise, 2.0))

    orders = jax.vmap(order)(jnp.arange(passes))
    s = jnp.arange(steps)
    position = (s % per_pass)[:, None] * batch + jnp.arange(batch)  # [steps, b], within the pass
    weight = (position < view.size) & (s < per_pass * passes)[:, None]
    chosen = orders[jnp.minimum(s // per_pass, passes - 1)[:, None], jnp.minimum(position, n_max - 1)]
    return view.rows[chosen], weight.astype(jnp.result_type(float))
