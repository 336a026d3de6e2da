"""Models: a network, a pointwise loss, and an l2 penalty.

A network is a flax.linen module or any pure pair `(init, apply)` with `init(key, x) -> params` and
`apply(params, x) -> outputs`; x is [b, ...]. Networks and losses are static: they compile in. `l2` is traced, but None
(no penalty) compiles to nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.errors import InvalidRngError

from jaxfed import losses, trees
from jaxfed.conv import Cnn
from jaxfed.layers import Dense
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, Key, Params


class Mixture(NamedTuple):
    """A model whose outputs are weight * outputs(local) + (1 - weight) * outputs(shared)."""

    local: Params
    shared: Params
    weight: Array


class Model(PyTreeNode):
    """What the clients fit: f(w) = mean over rows of loss(net(w, x), y) + l2 / 2 |w|^2.

    Fields: `net` (flax module, or a pair of pure functions), `loss` (a name in `losses.LOSSES`), `l2` (traced; covers
    weights and biases; None: no penalty, and no time for it).
    """

    net: Any = field(pytree_node=False)
    loss: str = field(pytree_node=False, default="softmax_cross_entropy")
    l2: Any = None

    @property
    def linear(self) -> bool:
        """Whether outputs are linear in the parameters, each leaf with the output axis first."""
        return bool(getattr(self.net, "linear", False))

    def init(self, key: Key, x: Array) -> Params:
        """Return parameters for rows like x [b, ...].

        Raises ValueError for a flax module with variables other than parameters (running statistics, say): federated
        averaging of such variables has no agreed meaning.
        """
        if not isinstance(self.net, nn.Module):
            return functions(self.net)[0](key, x)
        variables = self.net.init(key, x)
        if other := set(variables) - {"params"}:
            raise ValueError(
                f"model.net: got a module with the collections {sorted(other)}, wanted parameters only"
                " (use GroupNorm or LayerNorm in place of BatchNorm)"
            )
        return variables["params"]

    def outputs(self, params: Params, x: Array) -> Array:
        """Return the network's outputs for rows x [b, ...]: [b, classes], or [b] for a single output.

        Raises ValueError for a flax module whose layers draw random numbers.
        """
        if isinstance(params, Mixture):
            z_local, z_shared = self.outputs(params.local, x), self.outputs(params.shared, x)
            return params.weight * z_local + (1 - params.weight) * z_shared
        if isinstance(self.net, nn.Module):
            try:
                z: Any = self.net.apply({"params": params}, x)
            except InvalidRngError as error:
                got = "a module whose layers draw random numbers (dropout)"
                raise ValueError(f"model.net: got {got}, wanted a deterministic one") from error
        else:
            z = functions(self.net)[1](params, x)
        return z if self.classifies_many else z.reshape(z.shape[0])

    @property
    def classifies_many(self) -> bool:
        """Whether labels are class numbers (else: targets, or -1 and +1)."""
        return self.loss == "softmax_cross_entropy"

    def losses(self, z: Array, y: Array) -> Array:
        """Return the loss of each row, [b]."""
        return losses.LOSSES[self.loss][0](z, y)

    def correct(self, z: Array, y: Array) -> Array | None:
        """Return whether each row is classified rightly, [b]; None for a regression loss."""
        if self.classifies_many:
            return jnp.argmax(z, axis=-1) == y
        if self.loss in ("logistic", "squared_hinge"):
            return jnp.where(z >= 0, 1, -1) == y
        return None

    def penalty(self, params: Params) -> Array:
        """Return l2 / 2 |params|^2; for a mixture of outputs, that of the mixed parameters."""
        if isinstance(params, Mixture):
            params = trees.lerp(params.shared, params.local, params.weight)
        return jnp.zeros(()) if self.l2 is None else self.l2 / 2 * trees.dot(params, params)

    def objective(self, params: Params, x: Array, y: Array, weight: Array | None = None) -> Array:
        """Return f at params on rows x [b, ...], y [b]; `weight` [b] weighs (or masks) rows."""
        loss = mean(self.losses(self.outputs(params, x), y), weight)
        return loss if self.l2 is None else loss + self.penalty(params)


def mean(values: Array, weight: Array | None) -> Array:
    """Return the mean of values [b] with weights [b]; 0 where all weights are 0."""
    if weight is None:
        return jnp.mean(values)
    total = jnp.sum(weight)
    return jnp.sum(jnp.where(weight > 0, weight * values, 0)) / jnp.where(total > 0, total, 1)


def functions(net) -> tuple[Callable, Callable]:
    """Return (init, apply) of a network that is not a flax module."""
    if hasattr(net, "init") and hasattr(net, "apply"):
        return net.init, net.apply
    if isinstance(net, tuple) and len(net) == 2 and all(map(callable, net)):
        return net
    wanted = "a module of flax.linen, or a pair of pure functions (init, apply)"
    raise ValueError(f"model.net: got {type(net).__name__}, wanted {wanted}")


@dataclass(frozen=True)
class Linear:
    """A linear map of the flattened features, a pair (init, apply) that compares equal when built again.

    Parameters: kernel [outputs, d] and bias [outputs], both zero at the start (the problem is convex).
    """

    num_outputs: int
    linear: bool = True

    def init(self, key: Key, x: Array) -> Params:
        """Return zeros; the key is not used."""
        del key
        dtype = jnp.result_type(float)
        d = x[0].size
        return {"kernel": jnp.zeros((self.num_outputs, d), dtype), "bias": jnp.zeros((self.num_outputs,), dtype)}

    def apply(self, params: Params, x: Array) -> Array:
        """Return x W^T + b, [b, outputs]."""
        # the kernel first: over lanes of a sweep XLA then makes one product of matrices, without copies of kernels
        z = jax.lax.dot_general(params["kernel"], x.reshape(x.shape[0], -1), (((1,), (1,)), ((), ())))
        return z.T + params["bias"]


class Mlp(nn.Module):
    """Dense layers with ReLU between them, on flattened features."""

    num_outputs: int
    hidden: tuple[int, ...] = (200, 200)

    @nn.compact
    def __call__(self, x):
        """Return outputs [b, outputs]."""
        x = x.reshape(x.shape[0], -1)
        for width in self.hidden:
            x = jax.nn.relu(Dense(width)(x))
        return Dense(self.num_outputs)(x)


def logistic_regression(num_classes: int, l2: float | None = None) -> Model:
    """Multinomial logistic regression with a bias, starting at zero."""
    return Model(Linear(num_classes), l2=l2)


def linear_regression(l2: float | None = None, loss: str = "half_squared") -> Model:
    """Least squares with a bias, starting at zero; or another loss of one output ("logistic", "squared_hinge")."""
    return Model(Linear(1), loss=loss, l2=l2)


def mlp(num_classes: int, hidden: tuple[int, ...] = (200, 200), l2: float | None = None) -> Model:
    """A multilayer perceptron with ReLU, by default the 2 x 200 of the FedAvg and APFL papers."""
    return Model(Mlp(num_classes, tuple(hidden)), l2=l2)


def cnn(num_classes: int, l2: float | None = None) -> Model:
    """5x5 convolutions with 32 and 64 channels, each with a 2x2 max-pool, and a dense layer of 512 (McMahan et al.)."""
    return Model(Cnn(num_classes), l2=l2)
