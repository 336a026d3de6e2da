"""How training rows go to clients: iid, classes per client, Dirichlet labels, skewed sizes, natural ids.

A partition is a frozen dataclass that is called as `partition(y, num_clients, rng)` and returns one sorted int64 array
of row numbers per client: an exact cover, each row in exactly one of them (but for `Overlapping`, for more clients than
a pool has rows for). The work is bounded: nothing is drawn again.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Iid:
    """Rows at random, in sizes that differ by at most one."""

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers [rows of client i] for each client; ValueError where there are fewer rows than clients."""
        num_clients = check_num_clients(num_clients, len(y))
        owner = np.arange(len(y)) % num_clients
        return _rows_of(rng.permutation(owner), num_clients)


@dataclass(frozen=True)
class Overlapping:
    """No cover: each client has `rows` distinct rows of the whole pool, drawn at random for itself. Clients share rows.

    For more clients than there are rows, say 100,000 of 60,000 images. Needs a data set with test rows of its own, and
    allows no validation rows: rows set aside by one client would be training rows of another.
    """

    rows: int

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers [rows] for each client; ValueError for fewer rows in the pool or no number of clients."""
        num_clients, wanted = check_num_clients(num_clients, len(y), min_rows=0), self.rows
        if isinstance(wanted, bool) or not isinstance(wanted, int | np.integer) or not 1 <= wanted <= len(y):
            raise ValueError(
                f"Overlapping: rows: got {wanted!r}, wanted an integer from 1 to {len(y)} (rows of the pool)"
            )
        chosen = np.empty((num_clients, wanted), np.int64)
        for j in range(wanted):  # Floyd's sampling, for all clients at once
            top = len(y) - wanted + j
            drawn = rng.integers(0, top, num_clients, endpoint=True)
            chosen[:, j] = np.where((chosen[:, :j] == drawn[:, None]).any(axis=1), top, drawn)
        return list(np.sort(chosen, axis=1))


@dataclass(frozen=True)
class Classes:
    """Each client holds rows of exactly k classes (the pathological split of McMahan et al. 2017, arXiv 1602.05629).

    A class is cut into nearly equal shards, in number proportional to its rows (highest averages), and a client gets
    k shards of different classes; which classes come together is random. Every class is used. With fewer rows than
    num_clients * k shards (or too few rows of some classes), as many clients as must hold fewer classes.
    """

    k: int

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers for each client; ValueError for k outside 1..classes or num_clients * k below the classes."""
        num_clients = check_num_clients(num_clients, len(y))
        labels, rows_per_class = _classes(y, "Classes")
        num_classes = len(rows_per_class)
        if not 1 <= self.k <= num_classes:
            raise ValueError(f"Classes: k: got {self.k}, wanted 1 to {num_classes} (the classes in y)")
        if num_clients * self.k < num_classes:
            raise ValueError(
                f"Classes: num_clients * k: got {num_clients} * {self.k}, wanted >= {num_classes} (the classes of y)"
            )
        shards = _shards_per_class(rows_per_class, num_clients, num_clients * self.k)
        holds = _deal_classes(shards, num_clients, rng)
        owner = np.empty(len(y), np.int64)
        for c in range(num_classes):
            rows = rng.permutation(np.flatnonzero(labels == c))
            owners = rng.permutation(np.flatnonzero(holds[:, c]))
            owner[rows] = owners[np.arange(len(rows)) % len(owners)]
        return _rows_of(owner, num_clients)


@dataclass(frozen=True)
class Dirichlet:
    """Each class is spread over the clients in proportions drawn from Dir(concentration) (Hsu et al. 2019, 1909.06335).

    Small concentration: a class sits on few clients; large: iid. Drawn once; then clients below `min_rows` are filled
    up with rows taken at random from the largest clients, which are levelled down. min_rows=0 leaves clients empty.
    """

    concentration: float
    min_rows: int = 1

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers for each client; ValueError for bad fields or where min_rows cannot be met."""
        num_clients = check_num_clients(num_clients, len(y), self.min_rows)
        labels, rows_per_class = _classes(y, "Dirichlet")
        owner = np.empty(len(y), np.int64)
        for c, n in enumerate(rows_per_class):
            rows = rng.permutation(np.flatnonzero(labels == c))
            owner[rows] = _spread(n, dirichlet(self.concentration, num_clients, rng))
        return _rows_of(_fill(owner, num_clients, self.min_rows, rng), num_clients)


@dataclass(frozen=True)
class Quantity:
    """Skewed sizes, iid labels: client sizes in proportions drawn once from Dir(concentration), rows at random.

    Clients below `min_rows` are filled up from the largest, as in `Dirichlet`; min_rows=0 leaves clients empty.
    """

    concentration: float
    min_rows: int = 1

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers for each client; ValueError for bad fields or where min_rows cannot be met."""
        num_clients = check_num_clients(num_clients, len(y), self.min_rows)
        owner = rng.permutation(_spread(len(y), dirichlet(self.concentration, num_clients, rng)))
        return _rows_of(_fill(owner, num_clients, self.min_rows, rng), num_clients)


@dataclass(frozen=True, eq=False)
class ByKey:
    """A natural federation: one client for each distinct value of `key` [n], in sorted order (writers, hospitals)."""

    key: np.ndarray

    def __call__(self, y: np.ndarray, num_clients: int | None, rng: np.random.Generator) -> list[np.ndarray]:
        """Row numbers for each client; num_clients is None or must be the number of distinct keys. rng is not used."""
        key = np.asarray(self.key)
        if key.shape != (len(y),):
            raise ValueError(f"ByKey: key: got {key.shape}, wanted one value per row, shape ({len(y)},)")
        if key.dtype.kind in "fc" and not np.isfinite(key).all():
            raise ValueError("ByKey: key: got NaN or infinity, wanted no missing values")
        distinct, owner = np.unique(key, return_inverse=True)
        if num_clients not in (None, len(distinct)):
            raise ValueError(f"ByKey: num_clients: got {num_clients}, wanted None or {len(distinct)} (distinct keys)")
        return _rows_of(owner, len(distinct))


Partition = Iid | Overlapping | Classes | Dirichlet | Quantity | ByKey


def dirichlet(concentration: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """One draw [size] of a symmetric Dirichlet, never NaN: below 1 the gammas are formed in logs.

    Gamma(a) = Gamma(a + 1) U^(1/a) underflows to zero in every entry for small a; the largest logarithm is subtracted
    before the division by a, so at least one entry stays and an extreme draw is one-hot, as its limit is.
    """
    if not (np.isfinite(concentration) and concentration > 0):
        raise ValueError(f"concentration: got {concentration}, wanted a finite number > 0")
    if concentration >= 1:
        logs = np.log(rng.standard_gamma(concentration, size))
        weights = np.exp(logs - logs.max())
    else:
        scaled = concentration * np.log(rng.standard_gamma(concentration + 1, size)) + np.log1p(-rng.random(size))
        with np.errstate(over="ignore"):  # -inf is the right logarithm of a weight too small to represent
            weights = np.exp((scaled - scaled.max()) / concentration)
    return weights / weights.sum()


def check_num_clients(num_clients: int | None, rows: int, min_rows: int = 1) -> int:
    """num_clients, or ValueError unless num_clients >= 1, min_rows >= 0 and every client can have min_rows rows."""
    if isinstance(num_clients, bool) or not isinstance(num_clients, int | np.integer) or num_clients < 1:
        raise ValueError(f"num_clients: got {num_clients!r}, wanted an integer >= 1")
    if min_rows < 0:
        raise ValueError(f"min_rows: got {min_rows}, wanted >= 0")
    if num_clients * min_rows > rows:
        raise ValueError(f"num_clients: got {num_clients}, wanted at most rows / min_rows = {rows} / {min_rows}")
    return int(num_clients)


def _classes(y: np.ndarray, who: str) -> tuple[np.ndarray, np.ndarray]:
    """Labels renumbered 0.. over the classes present [n], and rows of each [class]."""
    y = np.asarray(y)
    if y.dtype.kind not in "iub":
        raise ValueError(f"{who}: y: got {y.dtype}, wanted integer class labels; Iid and Quantity take real targets")
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    return labels, counts


def _spread(rows: int, proportions: np.ndarray) -> np.ndarray:
    """Owners [rows], sorted, in these proportions: cumulative rounding, so that the sizes sum to rows exactly."""
    edges = np.floor(np.cumsum(proportions) * rows + 0.5).astype(np.int64)
    edges[-1] = rows
    return np.repeat(np.arange(len(proportions)), np.diff(np.minimum(edges, rows), prepend=0))


def _fill(owner: np.ndarray, num_clients: int, min_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Move rows so that each client has at least min_rows: the largest clients are cut to one level, at random rows."""
    sizes = np.bincount(owner, minlength=num_clients)
    lacks = np.maximum(min_rows - sizes, 0)
    missing = lacks.sum()
    if missing == 0:
        return owner
    low, high = min_rows, int(sizes.max())  # the largest level at which what is above it still covers what is missing
    while low < high:
        level = (low + high + 1) // 2
        low, high = (level, high) if np.maximum(sizes - level, 0).sum() >= missing else (low, level - 1)
    gives = np.maximum(sizes - low, 0)
    spare = gives.sum() - missing
    gives[rng.permutation(np.flatnonzero(gives))[:spare]] -= 1
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]  # by client, at random within one
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    moved = order[rank < np.repeat(gives, sizes)]  # still by donor, so that a receiver's rows look alike
    filled = owner.copy()
    filled[moved] = np.repeat(np.arange(num_clients), lacks)
    return filled


def _shards_per_class(rows_per_class: np.ndarray, num_clients: int, wanted: int) -> np.ndarray:
    """Shards [class]: proportional to rows by Jefferson's highest averages, in 1..min(num_clients, its rows)."""
    limit = np.minimum(rows_per_class, num_clients)
    divisors = [rows_per_class[c] / np.arange(2, limit[c] + 1) for c in range(len(limit))]  # each class has one already
    of_class = np.repeat(np.arange(len(limit)), limit - 1)
    best = np.argsort(-np.concatenate(divisors), kind="stable")[: wanted - len(limit)]
    return 1 + np.bincount(of_class[best], minlength=len(limit))


def _deal_classes(shards: np.ndarray, num_clients: int, rng: np.random.Generator) -> np.ndarray:
    """Who holds which class, bool [client, class] with column sums `shards` and row sums as equal as can be.

    Clients choose in turn, at random in proportion to the shards left, but take any class that has as many shards left
    as there are clients to come; with that rule the rest can always be dealt.
    """
    left = shards.astype(np.int64)
    holds = np.zeros((num_clients, len(shards)), bool)
    for turn, i in enumerate(rng.permutation(num_clients)):
        to_come = num_clients - turn
        take = -(-left.sum() // to_come)
        with np.errstate(divide="ignore"):
            priority = np.log(left) + rng.gumbel(size=len(left))  # Gumbel top-k: weighted, without replacement
        priority[left == to_come] = np.inf
        chosen = np.argsort(-priority)[:take]
        holds[i, chosen] = True
        left[chosen] -= 1
    return holds


def _rows_of(owner: np.ndarray, num_clients: int) -> list[np.ndarray]:
    """Row numbers of each client, sorted, from the owner of each row [n]."""
    sizes = np.bincount(owner, minlength=num_clients)
    return np.split(np.argsort(owner, kind="stable").astype(np.int64), np.cumsum(sizes)[:-1])
