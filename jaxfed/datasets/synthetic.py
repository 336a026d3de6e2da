"""Federations whose truth is known: heterogeneity is a number, optima and divergences are exact.

Every generator returns ragged lists, one (x_i, y_i) per client, as `ClientData.from_list` takes them; but
`fedprox_many` returns one pool (`synthetic_many`), and `credit_like` and `news20_like` one table for vertical runs
(`synthetic_vertical`).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from jaxfed.datasets.synthetic_many import fedprox_many as fedprox_many
from jaxfed.datasets.synthetic_vertical import credit_like as credit_like
from jaxfed.datasets.synthetic_vertical import news20_like as news20_like

Rows = list[tuple[np.ndarray, np.ndarray]]


class SyntheticClients(NamedTuple):
    """Synthetic(a, b): data and each client's true labelling rule y = argmax(weights_i x + biases_i).

    train, test: one (x float32 [n_i, feature], y int32 [n_i]) per client. weights [client, class, feature],
    biases [client, class], centers [client, feature] (the mean of x).
    """

    train: Rows
    test: Rows
    weights: np.ndarray
    biases: np.ndarray
    centers: np.ndarray


class LabelSkew(NamedTuple):
    """Clients with one law of x given y and different laws of y.

    train, test: one (x float32 [n_i, feature], y int32 [n_i]) per client. means [class, feature], noise: the law of x
    given class c is N(means[c], noise^2 I). label_probs [client, class], mean_probs [class]; divergence [client] is the
    exact ||Dbar - D_i||_1 = sum_c |mean_probs[c] - label_probs[i, c]|.
    """

    train: Rows
    test: Rows
    means: np.ndarray
    noise: float
    label_probs: np.ndarray
    mean_probs: np.ndarray
    divergence: np.ndarray


class Quadratics(NamedTuple):
    """Least-squares clients: f_i(w) = 1/2 mean_j (x_ij . w - y_ij)^2, without intercept, and F their mean.

    clients: one (x float64 [n_i, dim], y float64 [n_i]) each. truth [client, dim] made the targets; local_optima
    [client, dim] are the argmin of f_i, local_minima [client] their values; global_optimum [dim] is the argmin of F,
    global_minimum its value. hessians [client, dim, dim].
    """

    clients: Rows
    truth: np.ndarray
    local_optima: np.ndarray
    local_minima: np.ndarray
    global_optimum: np.ndarray
    global_minimum: float
    hessians: np.ndarray


def fedprox(
    a: float,
    b: float,
    num_clients: int,
    *,
    num_features: int = 60,
    num_classes: int = 10,
    sizes: int | Sequence[int] | None = None,
    test_fraction: float = 0.1,
    seed: int,
) -> SyntheticClients:
    """Synthetic(a, b) of Li et al. 2020 (FedProx, arXiv 1812.06127), section 5.1; a: local models, b: local inputs.

    u_k ~ N(0, a), entries of W_k and b_k ~ N(u_k, 1); B_k ~ N(0, b), entries of v_k ~ N(B_k, 1);
    x ~ N(v_k, diag(j^-1.2)), y = argmax softmax(W_k x + b_k). a and b are variances, as the paper writes N(mean,
    variance); the authors' code takes them as standard deviations, which is the same for 0 and 1.

    `sizes` counts train and test rows together; None: 50 + LogNormal(4, 2) rounded down, as in the authors' code.
    """
    _at_least("a", a, 0)
    _at_least("b", b, 0)
    _whole(num_clients=num_clients, num_features=num_features, num_classes=num_classes)
    rng = np.random.default_rng(seed)
    rows = 50 + rng.lognormal(4, 2, num_clients).astype(np.int64) if sizes is None else _sizes(sizes, num_clients)
    u = rng.normal(0, np.sqrt(a), num_clients)
    weights = rng.normal(u[:, None, None], 1, (num_clients, num_classes, num_features))
    biases = rng.normal(u[:, None], 1, (num_clients, num_classes))
    centers = rng.normal(rng.normal(0, np.sqrt(b), num_clients)[:, None], 1, (num_clients, num_features))
    scale = np.arange(1, num_features + 1) ** -0.6  # standard deviations
    clients = []
    for w, c, center, n in zip(weights, biases, centers, rows, strict=True):
        x = (center + scale * rng.normal(size=(n, num_features))).astype(np.float32)
        clients.append((x, np.argmax(x @ w.T + c, axis=1).astype(np.int32)))  # from the rounded x: no label is off
    return SyntheticClients(*_cut(clients, test_fraction), weights, biases, centers)


def label_skewed_gaussians(
    label_probs: np.ndarray,
    num_features: int,
    *,
    separation: float = 3.0,
    noise: float = 1.0,
    sizes: int | Sequence[int] = 100,
    test_fraction: float = 0.2,
    mean: Literal["uniform", "sizes"] = "uniform",
    seed: int,
) -> LabelSkew:
    """Clients that share N(means[c], noise^2 I) given class c and differ in label_probs [client, class] only.

    Class means are orthogonal, any two at distance `separation` in units of the noise (num_features >= classes). Dbar
    is the plain mean of the clients' laws, as in Theorem 1 of APFL (Deng et al. 2020, arXiv 2003.13461), or with
    mean="sizes" the mean weighted by `sizes`; these count train and test rows together.
    """
    label_probs = np.asarray(label_probs, np.float64)
    if label_probs.ndim != 2 or not (label_probs >= 0).all() or not np.allclose(label_probs.sum(axis=1), 1):
        raise ValueError(f"label_probs: got shape {label_probs.shape}, wanted [client, class], rows >= 0 of sum 1")
    num_clients, num_classes = label_probs.shape
    if num_features < num_classes:
        raise ValueError(f"num_features: got {num_features}, wanted at least the {num_classes} classes")
    if mean not in ("uniform", "sizes"):
        raise ValueError(f"mean: got {mean!r}, wanted 'uniform' or 'sizes'")
    _at_least("separation", separation, 0)
    if not (np.isfinite(noise) and noise > 0):
        raise ValueError(f"noise: got {noise}, wanted a finite number > 0")
    rows = _sizes(sizes, num_clients)
    rng = np.random.default_rng(seed)
    directions, _ = np.linalg.qr(rng.normal(size=(num_features, num_classes)))
    means = separation * noise / np.sqrt(2) * directions.T
    clients = []
    for probs, n in zip(label_probs, rows, strict=True):
        y = rng.choice(num_classes, n, p=probs / probs.sum())
        x = means[y] + noise * rng.normal(size=(n, num_features))
        clients.append((x.astype(np.float32), y.astype(np.int32)))
    mean_probs = np.average(label_probs, axis=0, weights=rows if mean == "sizes" else None)
    divergence = np.abs(mean_probs - label_probs).sum(axis=1)
    return LabelSkew(*_cut(clients, test_fraction), means, noise, label_probs, mean_probs, divergence)


def skewed_labels(num_clients: int, num_classes: int, skew: float) -> np.ndarray:
    """Label laws [client, class]: client i has class i mod num_classes with probability `skew` more than uniform.

    skew=0: iid; 1: one class each. With num_clients a multiple of num_classes every client has
    ||Dbar - D_i||_1 = 2 skew (1 - 1/num_classes).
    """
    _whole(num_clients=num_clients, num_classes=num_classes)
    if not 0 <= skew <= 1:
        raise ValueError(f"skew: got {skew}, wanted 0 to 1")
    return (1 - skew) / num_classes + skew * np.eye(num_classes)[np.arange(num_clients) % num_classes]


def quadratics(
    num_clients: int,
    dim: int,
    *,
    sizes: int | Sequence[int] = 50,
    heterogeneity: float = 1.0,
    noise: float = 0.1,
    condition: float = 1.0,
    mean: Literal["uniform", "sizes"] = "uniform",
    seed: int,
) -> Quadratics:
    """Least-squares clients y = x . (w_0 + heterogeneity z_i) + noise, with w_0, z_i standard normal, and their optima.

    Features are independent with variances from 1 down to 1/condition, each client with its own orthogonal axes. F is
    the plain mean of the f_i (mean="uniform") or weighted by their rows ("sizes"). Sizes must be >= dim, so that every
    optimum is unique.
    """
    _whole(num_clients=num_clients, dim=dim)
    _at_least("heterogeneity", heterogeneity, 0)
    _at_least("noise", noise, 0)
    _at_least("condition", condition, 1)
    if mean not in ("uniform", "sizes"):
        raise ValueError(f"mean: got {mean!r}, wanted 'uniform' or 'sizes'")
    rows = _sizes(sizes, num_clients)
    if rows.min() < dim:
        raise ValueError(f"sizes: got {rows.min()}, wanted at least dim = {dim} for unique optima")
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=dim) + heterogeneity * rng.normal(size=(num_clients, dim))
    scale = np.geomspace(1, condition**-0.5, dim)
    clients = []
    for w, n in zip(truth, rows, strict=True):
        axes, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
        x = (scale * rng.normal(size=(n, dim))) @ axes.T
        clients.append((x, x @ w + noise * rng.normal(size=n)))
    hessians = np.stack([x.T @ x / len(x) for x, _ in clients])
    linear = np.stack([x.T @ y / len(x) for x, y in clients])
    local_optima = np.stack([np.linalg.lstsq(x, y, rcond=None)[0] for x, y in clients])
    weights = rows if mean == "sizes" else np.ones(num_clients)
    optimum = np.linalg.solve(*(np.average(part, axis=0, weights=weights) for part in (hessians, linear)))

    def value(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
        return 0.5 * float(np.mean((x @ w - y) ** 2))

    minima = np.array([value(w, *own) for w, own in zip(local_optima, clients, strict=True)])
    minimum = float(np.average([value(optimum, *own) for own in clients], weights=weights))
    return Quadratics(clients, truth, local_optima, minima, optimum, minimum, hessians)


def _cut(clients: Rows, test_fraction: float) -> tuple[Rows, Rows]:
    """The last rows of every client are test rows (independent draws need no shuffle); one row stays for training."""
    if not 0 <= test_fraction < 1:
        raise ValueError(f"test_fraction: got {test_fraction}, wanted at least 0 and below 1")
    train = [max(1, len(y) - round(test_fraction * len(y))) for _, y in clients]
    cuts = list(zip(clients, train, strict=True))
    return [(x[:n], y[:n]) for (x, y), n in cuts], [(x[n:], y[n:]) for (x, y), n in cuts]


def _sizes(sizes: int | Sequence[int], num_clients: int) -> np.ndarray:
    """Rows of each client, int64 [client], from one number or one per client."""
    got = np.asarray(sizes)
    if got.dtype.kind not in "iu" or got.shape not in ((), (num_clients,)) or got.min() < 1:
        raise ValueError(f"sizes: got {sizes}, wanted one integer >= 1 or {num_clients} of them (one per client)")
    return np.broadcast_to(got, num_clients).astype(np.int64)


def _at_least(name: str, value: float, least: float) -> None:
    if not (np.isfinite(value) and value >= least):
        raise ValueError(f"{name}: got {value}, wanted a finite number >= {least}")


def _whole(**values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}: got {value!r}, wanted an integer >= 1")
