"""The distance ||Dbar - D_i||_1 of Theorem 1 (APFL, arXiv 2003.13461, section 3.2), in three ways.

It is the integral over (x, y) of |density of Dbar - density of D_i|, twice the total variation, so from 0 to 2; Dbar
is the plain mean of the clients' laws D_i, each client's rows (x, y). Numbers without unit. `label_skew` is exact,
`monte_carlo` unbiased where the densities are known, `classifier_bound` a lower bound from rows alone.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxfed import checks
from jaxfed.types import Array, Key


class Estimate(NamedTuple):
    """Unbiased estimates of ||Dbar - D_i||_1 [n] and their standard errors [n]."""

    value: Array
    error: Array


class LowerBound(NamedTuple):
    """Point estimates [n] of what a classifier shows of ||Dbar - D_i||_1, and one-sided confidence limits `low` [n]."""

    value: np.ndarray
    low: np.ndarray


class Gaussians(NamedTuple):
    """Label-skewed Gaussians, as `datasets.synthetic.label_skewed_gaussians` draws them; [n, ...] for n clients.

    Fields: `label_probs` [class]; `means` [class, feature] and `noise` []: x given class c is N(means[c], noise^2 I).
    """

    label_probs: Array
    means: Array
    noise: Array


def label_skew(label_probs: Array) -> Array:
    """Return ||Dbar - D_i||_1 [n] of clients with the laws of labels label_probs [n, class]: sum_c |pbar_c - p_ic|.

    Exact for the joint law of (x, y), over which Theorem 1 integrates, where all clients share the law of x given y,
    whatever that is: each class's integral of |pbar_c - p_ic| p(x|c) is |pbar_c - p_ic|. Otherwise a lower bound, as it
    is the distance of the laws of y alone. The distance of the laws of x alone is as large if no two classes overlap,
    else smaller: `monte_carlo` with `feature_log_density`.
    """
    label_probs = jnp.asarray(label_probs)
    return jnp.abs(label_probs.mean(axis=0) - label_probs).sum(axis=1)


def gaussians(federation: Any) -> Gaussians:
    """Return the laws [n, ...] of a `datasets.synthetic.LabelSkew`; `label_skew` of its label_probs is exact."""
    count = len(federation.label_probs)
    shared = lambda x: jnp.broadcast_to(jnp.asarray(x, float), (count, *np.shape(x)))  # noqa: E731
    return Gaussians(jnp.asarray(federation.label_probs, float), shared(federation.means), shared(federation.noise))


def draw(key: Key, law: Gaussians) -> tuple[Array, Array]:
    """Return one row (x [feature], y []) of one client."""
    label_key, noise_key = jax.random.split(key)
    y = jax.random.categorical(label_key, jnp.log(law.label_probs))
    return law.means[y] + law.noise * jax.random.normal(noise_key, law.means.shape[1:], law.means.dtype), y


def joint_log_density(law: Gaussians, row: tuple[Array, Array]) -> Array:
    """Return the log density [] of one client's law at a row (x, y)."""
    return _class_log_densities(law, row[0])[row[1]]


def feature_log_density(law: Gaussians, row: tuple[Array, Array]) -> Array:
    """Return the log density [] of one client's law of x alone, at a row (x, y)."""
    return jax.nn.logsumexp(_class_log_densities(law, row[0]))


def _class_log_densities(law: Gaussians, x: Array) -> Array:
    scale = x.shape[0] * jnp.log(jnp.sqrt(2 * jnp.pi) * law.noise)
    return jnp.log(law.label_probs) - jnp.sum(((x - law.means) / law.noise) ** 2, axis=1) / 2 - scale


def monte_carlo(key: Key, laws: Any, log_density: Callable, draw: Callable, num_samples: int) -> Estimate:
    """Return unbiased estimates of ||Dbar - D_i||_1 for all n clients from rows drawn from known laws.

    Args:
      laws: a pytree with the clients on the first axis of its leaves.
      log_density: (one client's law, one row) -> [], the log of its density (-inf where that is 0).
      draw: (key, one client's law) -> one row drawn from it.
      num_samples: rows drawn from each client (at least 2); n^2 num_samples densities are held at once.

    Importance sampling from the mixture q_i = (Dbar + D_i) / 2, in which |pbar - p_i| / q_i = 2 |tanh(log(pbar / p_i)
    / 2)| lies in [0, 2], so neither tails nor many clients spoil it. The n strata of Dbar get equally many rows, which
    all clients share; the error is that of the stratified mean. vmaps and jits (log_density and draw static).
    """
    checks.whole("num_samples", num_samples, 2)
    count = jax.tree.leaves(laws)[0].shape[0]
    keys = jax.random.split(key, (count, num_samples))
    rows = jax.vmap(lambda keys, law: jax.vmap(lambda k: draw(k, law))(keys))(keys, laws)  # [source, sample, ...]
    at_rows = jax.vmap(jax.vmap(log_density, (None, 0)), (None, 0))
    logs = jax.vmap(at_rows, (0, None))(laws, rows)  # [client, source, sample]
    mean = jax.nn.logsumexp(logs, axis=0) - jnp.log(count)
    terms = 2 * jnp.abs(jnp.tanh((mean - logs) / 2))
    shares = (jnp.full((count, count), 1 / count) + jnp.eye(count)) / 2  # of source j in q_i
    value = jnp.sum(shares * terms.mean(axis=2), axis=1)
    return Estimate(value, jnp.sqrt(jnp.sum(shares**2 * terms.var(axis=2, ddof=1) / num_samples, axis=1)))


def classifier_bound(
    clients: Sequence[tuple[Any, Any]], *, seed: int, level: float = 0.95, make: Callable[[], Any] | None = None
) -> LowerBound:
    """Return lower bounds of ||Dbar - D_i||_1 [n] from rows [(x_i [n_i, ...], y_i [n_i]), ...] with integer labels.

    Half of every client's rows train a classifier to tell D_i from the mean D_-i of the others (`make`: a scikit-learn
    one whose `fit` takes `sample_weight`, by default logistic regression; it sees the features and the label's
    indicators, standardised). With A the rows it takes for client i's, ||Dbar - D_i||_1 = (1 - 1/n) ||D_-i - D_i||_1
    >= (1 - 1/n) 2 (D_i(A) - D_-i(A)), and D_i(A) - D_-i(A) is twice its balanced accuracy minus 1. The held-out halves
    give both shares: `value` puts in the observed ones and `low` their Clopper-Pearson limits at (1 - level) / 2 each,
    so that P(low <= distance) >= level for each client (not for all at once). The others count equally, so each gives
    as many held-out rows as the smallest has; a sum of unlike Bernoullis has lighter tails than the binomial of the
    same mean (Hoeffding 1956), so the limit stands. `low` is at least 0.

    Raises ValueError for fewer than two clients, a client with fewer than 4 rows, labels that are no class numbers, or
    a level outside (0, 1).
    """
    if len(clients) < 2:
        checks.fail("clients", len(clients), "at least 2")
    for i, (x, y) in enumerate(clients):
        if len(x) != len(y) or len(y) < 4:
            checks.fail(f"clients[{i}]", f"{len(x)} rows and {len(y)} labels", "as many of both, at least 4")
        if np.asarray(y).dtype.kind not in "iub":
            checks.fail(f"clients[{i}]", f"labels of type {np.asarray(y).dtype}", "class numbers")
    checks.number("level", level, 0, 1)
    if level in (0, 1):
        checks.fail("level", level, "more than 0 and less than 1")
    train, held = _halves(clients, seed)
    fewest, count = min(map(len, held)), len(clients)
    found = []
    for i in range(count):
        others = [j for j in range(count) if j != i]
        rows = np.concatenate([train[i], *[train[j] for j in others]])
        own = np.repeat([1, 0], [len(train[i]), len(rows) - len(train[i])])
        weight = np.concatenate([np.full(len(train[j]), 1 / len(train[j])) for j in (i, *others)])
        weight *= len(rows) / 2 * np.where(own, 1, 1 / (count - 1))  # both sides weigh the same in all
        model = _logistic_regression() if make is None else make()
        model.fit(rows, own, sample_weight=weight)
        hits = int(model.predict(held[i]).sum())
        false = int(model.predict(np.concatenate([held[j][:fewest] for j in others])).sum())
        found.append(_bound(hits, len(held[i]), false, fewest * (count - 1), 2 * (1 - 1 / count), level))
    return LowerBound(*map(np.array, zip(*found, strict=True)))


def _bound(hits: int, rows: int, false: int, other_rows: int, factor: float, level: float) -> tuple[float, float]:
    from scipy import stats

    least = stats.binomtest(hits, rows).proportion_ci(level, "exact").low
    most = stats.binomtest(false, other_rows).proportion_ci(level, "exact").high
    return factor * (hits / rows - false / other_rows), max(factor * (least - most), 0.0)


def _halves(clients: Sequence[tuple[Any, Any]], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return each client's training and held-out rows, drawn at random: features and the label's indicators, both
    standardised by the training rows of all."""
    labels = np.unique(np.concatenate([np.asarray(y) for _, y in clients]))
    rng = np.random.default_rng(seed)
    train, held = [], []
    for x, y in clients:
        x = np.asarray(x, float).reshape(len(y), -1)
        rows = rng.permutation(np.concatenate([x, np.asarray(y)[:, None] == labels], axis=1))
        train.append(rows[: len(y) // 2])
        held.append(rows[len(y) // 2 :])
    center, scale = (stat(np.concatenate(train), axis=0) for stat in (np.mean, np.std))
    scale = np.where(scale > 0, scale, 1)
    return [(rows - center) / scale for rows in train], [(rows - center) / scale for rows in held]


def _logistic_regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)
