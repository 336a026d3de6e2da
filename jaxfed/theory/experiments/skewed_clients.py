"""Federations of label-skewed Gaussians over one pool of rows, as `adaptive` sweeps over them.

All share the class means, so one pool of test rows gives the true risk on every client's law: client i is tested on
rows of each class in exactly the proportions of its law.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxfed.checks import fail
from jaxfed.datasets.synthetic import label_skewed_gaussians
from jaxfed.horizontal.data import ClientData

TEST_ROWS = 480  # of each class there are, and of each client


class Kind(NamedTuple):
    """A kind of federation: label laws [client, class] and training rows of each client, int [client]."""

    laws: np.ndarray
    rows: np.ndarray

    @property
    def divergences(self) -> np.ndarray:
        """||Dbar - D_i||_1 = sum_c |mean law - law_i|, [client], exact as class conditionals are shared."""
        return np.abs(self.laws.mean(0) - self.laws).sum(1)


class Pool(NamedTuple):
    """Rows x [n, feature], y [n]; row numbers `rows[kind][draw][client]`, and `test[class]` of the test rows."""

    x: np.ndarray
    y: np.ndarray
    rows: dict[str, list[list[np.ndarray]]]
    test: list[np.ndarray]


def pool(kinds: Mapping[str, Kind], draws: int, features: int, separation: float, seed: int) -> Pool:
    """Draw `draws` federations of each kind, independent but for the class means, and the test rows."""
    classes = next(iter(kinds.values())).laws.shape[1]
    parts = [kind for kind in kinds.values() for _ in range(draws)]
    parts.append(Kind(np.eye(classes), np.full(classes, TEST_ROWS)))
    laws, rows = (np.concatenate([part[i] for part in parts]) for i in range(2))
    found = label_skewed_gaussians(
        laws, features, separation=separation, sizes=rows.tolist(), test_fraction=0, seed=seed
    )
    x, y = (np.concatenate([client[i] for client in found.train]) for i in range(2))
    numbers, by_kind = iter(np.split(np.arange(len(y)), np.cumsum(rows)[:-1])), {}
    for name, kind in kinds.items():
        by_kind[name] = [[next(numbers) for _ in kind.rows] for _ in range(draws)]
    return Pool(x, y, by_kind, list(numbers))


def federation(drawn: Pool, rows: Sequence[np.ndarray], laws: np.ndarray) -> Any:
    """Return clients with these training rows, tested on the laws [client, class].

    Raises ValueError where a law's share of the test rows is not a whole number of rows.
    """
    counts = np.rint(laws * TEST_ROWS).astype(int)
    if not np.allclose(counts, laws * TEST_ROWS):
        fail("laws", laws.tolist(), f"multiples of 1/{TEST_ROWS}")
    test = [np.concatenate([drawn.test[c][:count] for c, count in enumerate(own)]) for own in counts]
    train = ClientData.from_indices(drawn.x, drawn.y, rows)
    return train.with_parts(ClientData.from_indices(drawn.x, drawn.y, test, name="test"))
