"""Local Descent APFL (Deng et al. 2020, arXiv 2003.13461v3, Algorithm 1) on least squares with known optima.

What `descent` measures is played here: federations drawn from `datasets.quadratics`, one compiled program for all
settings, and the gaps to the closed-form optima, in float64 on the host.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import core, trees
from jaxfed.datasets.synthetic import quadratics
from jaxfed.horizontal.apfl import APFL
from jaxfed.horizontal.data import ClientData
from jaxfed.horizontal.federate import Event
from jaxfed.models import Model
from jaxfed.nodes import PyTreeNode, field
from jaxfed.types import Array, FedState, Key

CLIENTS, FEATURES, ROWS, CONDITION = 12, 4, 60, 2.0
QUICK = {"xla_backend_optimization_level": 0}
NEAREST = 0.1  # heterogeneity of client 0; it grows geometrically to 1 at the last


class Problem(NamedTuple):
    """Least-squares clients f_i(w) = 1/2 mean_j (x_ij . w - y_ij)^2, F = mean_i f_i, and what is known of them.

    clients: one (x [n_i, d], y [n_i]) each; hessians [C, d, d]; local_optima v_i* [C, d]; optimum w* [d].
    """

    clients: list[tuple[np.ndarray, np.ndarray]]
    hessians: np.ndarray
    local_optima: np.ndarray
    optimum: np.ndarray

    @property
    def distances(self) -> np.ndarray:
        """Delta_i = |v_i* - w*|^2, [C]."""
        return np.sum((self.local_optima - self.optimum) ** 2, axis=1)

    @property
    def gradients(self) -> np.ndarray:
        """grad f_i(w*) [C, d]."""
        return np.einsum("cij,cj->ci", self.hessians, self.optimum - self.local_optima)

    @property
    def diversities(self) -> np.ndarray:
        """zeta_i at w*: |grad f_i(w*) - grad F(w*)|^2 = |grad f_i(w*)|^2, [C].

        The paper's is the supremum over w, which is infinite for quadratics whose Hessians differ.
        """
        return np.sum(self.gradients**2, axis=1)

    @property
    def global_gaps(self) -> np.ndarray:
        """f_i(w*) - f_i(v_i*), [C]: what client i loses with the optimal global model."""
        return gaps(self.hessians, self.optimum - self.local_optima)


def problem(seed: int) -> Problem:
    """Draw a federation whose client i has targets x . (w_0 + h_i z_i) + noise, h_i from NEAREST to 1.

    `quadratics` gives the same x, w_0, z_i and noise at heterogeneity 0 and 1, and targets and local optima are linear
    in between.
    """
    draw = [quadratics(CLIENTS, FEATURES, sizes=ROWS, condition=CONDITION, heterogeneity=h, seed=seed) for h in (0, 1)]
    own = np.geomspace(NEAREST, 1, CLIENTS)
    clients = [
        (x, (1 - h) * y_0 + h * y_1) for h, (x, y_0), (_, y_1) in zip(own, *(q.clients for q in draw), strict=True)
    ]
    optima = (1 - own)[:, None] * draw[0].local_optima + own[:, None] * draw[1].local_optima
    hessians = draw[0].hessians
    optimum = np.linalg.solve(hessians.mean(0), np.einsum("cij,cj->i", hessians, optima) / CLIENTS)
    return Problem(clients, hessians, optima, optimum)


def curvature(problems: Sequence[Problem]) -> tuple[float, float]:
    """Return (mu, L), the smallest and the largest eigenvalue of any client's Hessian in any of the problems."""
    values = np.linalg.eigvalsh(np.stack([p.hessians for p in problems]))
    return float(values.min()), float(values.max())


def gaps(hessians: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Return 1/2 e^T H e for hessians [..., d, d] and errors [..., d]: the excess of a quadratic over its minimum."""
    return 0.5 * np.einsum("...i,...ij,...j->...", errors, hessians, errors)


class LocalDescent(APFL):
    """APFL with the number of local steps traced, which `batch_size=None` (full gradients) allows.

    So tau is an axis of experiments, and all of them are one program.
    """

    local_steps: Any = 10


class StepSize(PyTreeNode):
    """value / (1 + rate t) in round t: a constant at rate 0; c / (mu (tau t + a)) at value c / (mu a), rate tau / a.

    Departure: the theorems lower the step size at every local step, here it is that of the round's first.
    """

    value: Any
    rate: Any = 0.0

    def __call__(self, t):
        """Return the step size of round t."""
        return self.value / (1 + self.rate * t)


class Cohort(PyTreeNode):
    """K of n clients, uniformly without replacement, anew each round; `size` K is traced (`UniformCohort`'s is not).

    Every client has a slot and those outside the cohort are masked, so full participation costs the same.
    """

    size: Any
    num_clients: int = field(pytree_node=False)

    def __call__(self, key: Key, t: Array) -> Event:
        """Return the event of round t; a round takes one simulated second."""
        ids = jnp.arange(self.num_clients, dtype=jnp.int32)
        rank = jax.random.permutation(key, self.num_clients)
        return Event((t + 1) * 1.0, ids, rank < self.size)


class Slope(NamedTuple):
    """x . w without intercept, as a model's (init, apply); starts at zero."""

    linear: bool = False  # the plain form of the local steps: it takes every variant

    def init(self, key: Key, x: Array) -> dict[str, Array]:
        """Return {"w": zeros [d]}."""
        del key
        return {"w": jnp.zeros(x.shape[1:], jnp.result_type(float))}

    def apply(self, params: dict[str, Array], x: Array) -> Array:
        """Return x . w, [b]."""
        return x @ params["w"]


MODEL = Model(Slope(), loss="half_squared")


class Played(NamedTuple):
    """Models after each window of rounds: `server` [S, R, d], and the clients' mixtures alpha_i v_i + (1 - alpha_i) w
    [S, R, C, d], once with the server's w (`personal`) and once with the client's own last w_i (`local`)."""

    server: np.ndarray
    personal: np.ndarray
    local: np.ndarray


def play(
    algorithm: Any,
    problems: Sequence[Problem],
    windows: Sequence[int] | np.ndarray,
    cohort: int = CLIENTS,
    seed: int = 0,
    quick: bool = False,
) -> Played:
    """Return the models of a run on each problem, after windows[0], windows[0] + windows[1], ... rounds.

    `algorithm`: an APFL, or a `Weighted` one whose models are then the averages (`local` is `personal` there). Runs
    differ in their problem and in their minibatches and cohorts (seed, seed + 1, ...). `quick` compiles without
    optimization, for runs that take less time than their compilation.
    """
    data = [_client_data(p) for p in problems]
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *data)
    keys = jax.vmap(jax.random.key)(seed + np.arange(len(problems)))
    sizes = jnp.asarray(windows, jnp.int32)
    run = _quick if quick else _play
    found = run(jax.tree.map(_number, algorithm), Cohort(jnp.int32(cohort), CLIENTS), stacked, keys, sizes)
    return Played(*(np.asarray(x, float) for x in found))


def _number(x: Any) -> Array:
    return jnp.asarray(x, jnp.int32 if isinstance(x, int) else jnp.result_type(float))


def _client_data(problem: Problem) -> ClientData:
    data = ClientData.from_list(problem.clients)
    return data.replace(layout=dataclasses.replace(data.layout, group=CLIENTS))


def _rollout(algorithm: Any, scheduler: Any, data: ClientData, keys: Key, windows: Array) -> Played:
    def one(key, data):
        def window(carry, length):
            carry, _ = core.advance(key, algorithm, scheduler, data, carry, length)
            return carry, _models(algorithm, carry.state)

        return jax.lax.scan(window, core.init(key, algorithm, data), windows)[1]

    return jax.vmap(one)(keys, data)


_play, _quick = jax.jit(_rollout), jax.jit(_rollout, compiler_options=QUICK)


def _models(algorithm: Any, state: FedState) -> Played:
    server = algorithm.server_params(state)["w"]
    if not hasattr(algorithm, "evaluate_with"):
        personal = algorithm.client_params(state)["w"]
        return Played(server, personal, personal)
    own = algorithm.client_params(state)["w"]
    alpha = algorithm.mixing_weight(state)[:, None]
    return Played(server, trees.lerp(server, state.clients.v["w"], alpha), own)
