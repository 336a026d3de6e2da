"""APFL: Adaptive Personalized Federated Learning (Deng, Kamani, Mahdavi; arXiv 2003.13461v3, Algorithm 1).

Client i of the cohort starts w_i at the server's w, keeps its own v_i, and at each local step, all from the values
before the step and on the same minibatch xi:

    w_i <- w_i - lr grad f_i(w_i; xi)                                                    (6)
    v_i <- v_i - lr alpha_i grad f_i(vbar_i; xi),  vbar_i = alpha_i v_i + (1 - alpha_i) w_i   (7)
    alpha_i <- clip(alpha_i - alpha_lr <v_i - w_i, grad f_i(vbar_i; xi)>, 0, 1)           (adaptive; section 4.2)

(7)'s factor alpha_i comes from differentiating through the mixture. alpha_i moves at the round's first local step.
Then w <- mean of the cohort's w_i, uniformly (8). Clients outside the cohort keep v_i and alpha_i. The paper's output
models, averages over the iterates, are `averaging.Weighted(APFL(...))`.

w_i, v_i, alpha_i: `params`, `ApflClient.v`, `ApflClient.alpha`; eta_t: `lr`; tau: `local_steps`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxfed import steps, trees
from jaxfed.horizontal import linear, personal
from jaxfed.horizontal.federate import federate, start
from jaxfed.horizontal.local import run_steps
from jaxfed.horizontal.server import apply_update, start_server
from jaxfed.models import Mixture
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, FedState, Key, Params


class ApflClient(NamedTuple):
    """What client i keeps: its model v, its mixing weight alpha, and its last local w if that is evaluated."""

    v: Params
    alpha: Array
    w: Params = ()


class Rates(NamedTuple):
    """The step sizes of one round for w, v and alpha."""

    w: Any
    v: Any
    alpha: Any


class APFL(PyTreeNode):
    """APFL. Defaults are the paper's; the variants are what other implementations do.

    Traced fields: `model.l2`; `lr` (number or schedule of `steps`); `alpha`, one for all or [C], the initial mixing
    weight; `alpha_lr`, `personal_lr` (the rates of alpha and v; None: `lr`); `alpha_l2`, which adds 2 alpha_l2 alpha to
    alpha's gradient; `server_lr`.
    Static fields: `adaptive`; `mix`, what is mixed in training and evaluation: "params" | "logits"; `alpha_every`
    "round" | "step"; `order`: "simultaneous" | "sequential" (w first; the mixture then holds the new w);
    `alpha_gradient`: "exact" | "fedtorch", <v' - w', alpha p + (1 - alpha) q> with p and q the mixture's gradients in v
    and w and v', w' the values after the step; `evaluate_with`: "server" | "local", whether the personal model mixes
    with the server's w or with the client's own w_i of its last round; `form`: "auto" takes the fast form of
    `horizontal.linear` where it applies, "plain" never; the rest as in `FedAvg`.
    """

    model: Any
    lr: Any = 0.1
    alpha: Any = 0.5
    adaptive: bool = field(pytree_node=False, default=False)
    alpha_lr: Any = None
    personal_lr: Any = None
    alpha_l2: Any = 0.0
    local_steps: int = field(pytree_node=False, default=10)
    batch_size: int | None = field(pytree_node=False, default=20)
    batches: str = field(pytree_node=False, default="with_replacement")
    local_epochs: int | None = field(pytree_node=False, default=None)
    mix: str = field(pytree_node=False, default="params")
    alpha_every: str = field(pytree_node=False, default="round")
    order: str = field(pytree_node=False, default="simultaneous")
    alpha_gradient: str = field(pytree_node=False, default="exact")
    evaluate_with: str = field(pytree_node=False, default="server")
    form: str = field(pytree_node=False, default="auto")
    weights: str = field(pytree_node=False, default="uniform")
    server_lr: Any = 1.0
    server_optimizer: Any = field(pytree_node=False, default=None)
    max_staleness: int = field(pytree_node=False, default=0)

    step = federate
    server_params = personal.server_params
    client_params = personal.personal_models
    predict = personal.predict

    @classmethod
    def fedtorch(cls, model, lr: float = 0.1, lr_decay: float = 1.01, alpha: float = 0.5, **fields) -> "APFL":
        """Return the recipe of the authors' code: outputs mixed, w first, alpha decayed by 0.02 alpha, batch 50.

        w's and alpha's rates fall by `lr_decay` a round and v's stays at `lr`, as there. Departures: the rate is
        indexed by the global round, not by each client's own epochs; l2 (1e-4 there) is the model's and acts through
        the mixture; all clients are evaluated, not only the cohort.
        """
        preset: dict[str, Any] = dict(
            lr=steps.ExponentialDecay(lr, 1 / lr_decay), personal_lr=lr, alpha=alpha, adaptive=True, alpha_l2=0.01,
            batch_size=50, batches="epochs", mix="logits", order="sequential", alpha_gradient="fedtorch",
            evaluate_with="local",
        )  # fmt: skip
        return cls(model, **(preset | fields))

    def init(self, key: Key, data: Any) -> FedState:
        """Return w from the model, and v = w and alpha for every client [C, ...]."""
        params = self.model.init(key, data.train.sample())
        count = data.train.rows.shape[0]
        alpha = jnp.asarray(self.alpha, jnp.result_type(float))
        alpha = jnp.take(alpha, data.train.id, mode="clip") if alpha.ndim else jnp.full((count,), alpha)
        v = trees.repeat(params, count)
        return start(self, start_server(self, params), ApflClient(v, alpha, v if self.evaluate_with == "local" else ()))

    def client_update(self, key: Key, server, client: ApflClient, view):
        """Return (w_i - w, the client's new state, {alpha_gradient: the last slope in alpha, where it is learned})."""
        lr, t = self.lr, server.round
        rates = Rates(*(steps.at(lr if r is None else r, t) for r in (lr, self.personal_lr, self.alpha_lr)))
        run = linear.apfl_steps if self.fast else plain_steps
        w, v, alpha, slope = run(self, rates, server.params, client.v, client.alpha, key, view)
        new = ApflClient(v, alpha, w if self.evaluate_with == "local" else ())
        return trees.sub(w, server.params), new, {"alpha_gradient": slope} if self.adaptive else {}

    @property
    def fast(self) -> bool:
        """Whether the fast form applies: it needs one forward pass for w and v, so the step must be simultaneous."""
        exact = self.order == "simultaneous" and self.alpha_gradient == "exact"
        return self.form == "auto" and self.model.linear and exact

    def server_update(self, server, update, share=1.0):
        """Return the server after the mean update."""
        del share
        return apply_update(self, server, update)

    def mixing_weight(self, state: FedState) -> Array:
        """Return alpha of every client [C]."""
        return state.clients.alpha

    def message(self, server):
        """Return what the server sends to a client, which sends back as much: the server's model."""
        return server.params

    def personal(self, key: Key, server, client: ApflClient, view) -> Params:
        """Return the client's mixture: of parameters, or a `Mixture` of outputs with mix="logits"."""
        del key, view
        w = client.w if self.evaluate_with == "local" else server.params
        if self.mix == "logits":
            return Mixture(client.v, w, client.alpha)
        return trees.lerp(w, client.v, client.alpha)


def plain_steps(algorithm: APFL, rates: Rates, w, v, alpha, key: Key, view):
    """Return (w, v, alpha, slope in alpha) after the client's local steps, for any model and any variant."""
    objective = algorithm.model.objective

    def step(carry, x, y, weight, s):
        w, v, alpha, slope = carry
        w_next = trees.axpy(-rates.w, jax.grad(objective)(w, x, y, weight), w)
        w_mix = w_next if algorithm.order == "sequential" else w
        if algorithm.mix == "params":
            g = jax.grad(objective)(trees.lerp(w_mix, v, alpha), x, y, weight)
            p = trees.scale(alpha, g)
            exact, q = lambda: trees.dot(trees.sub(v, w_mix), g), lambda: trees.scale(1 - alpha, g)
        else:
            mixed = lambda v, w, alpha: objective(Mixture(v, w, alpha), x, y, weight)  # noqa: E731
            p, in_w, in_alpha = jax.grad(mixed, argnums=(0, 1, 2))(v, w_mix, alpha)
            exact, q = lambda: in_alpha, lambda: in_w
        v_next = trees.axpy(-rates.v, p, v)
        if not algorithm.adaptive:
            return w_next, v_next, alpha, slope

        def slope_now():
            if algorithm.alpha_gradient == "exact":
                data_slope = exact()
            else:
                data_slope = trees.dot(trees.sub(v_next, w_next), trees.lerp(q(), p, alpha))
            return data_slope + 2 * algorithm.alpha_l2 * alpha

        alpha, slope = move_alpha(algorithm, rates, alpha, slope, slope_now, s)
        return w_next, v_next, alpha, slope

    return run_steps(algorithm, step, (w, v, alpha, jnp.zeros_like(alpha)), key, view)


def move_alpha(algorithm: APFL, rates: Rates, alpha, slope, slope_now, s):
    """Return alpha after its step, kept within [0, 1], and its slope; both unchanged in steps where alpha rests."""

    def move():
        now = slope_now().astype(alpha.dtype)
        return jnp.clip(alpha - rates.alpha * now, 0, 1).astype(alpha.dtype), now

    if algorithm.alpha_every == "step":
        return move()
    return jax.lax.cond(s == 0, move, lambda: (alpha, slope))  # s is never batched, so one branch runs
