"""What the experiments on VFB2 share: the problem, its parties, and a sweep's error curves."""

import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

import jaxfed as jf
from jaxfed.vertical import BilevelAsync, Epochs, Objective

L2 = 1e-2
PARTIES, ACTIVE = 8, 3
ROUNDING = 1e-13  # of f near f*: a gap below it is no measurement
CONVEX, NONCONVEX = Objective("logistic", "l2", L2), Objective("logistic", "nonconvex", L2)  # the paper's (13), (14)


class Size(NamedTuple):
    """seeds: draws of samples (of rows and columns too in `lossless`). epochs: passes over the rows. steps: lr."""

    seeds: int
    epochs: int
    steps: Sequence[float]

    def scaled(self, objective: Objective) -> "Size":
        """Return the size with its steps times 1 / L, L the greatest Lipschitz constant of a row's gradient."""
        step = objective.constants(common_party()).step
        return self._replace(steps=tuple(float(lr * step) for lr in self.steps))


def all_rows() -> tuple[np.ndarray, np.ndarray]:
    """Return all rows of the set, training and test, and their labels."""
    ex: Any = jf.datasets.load("breast_cancer")
    return np.concatenate([ex.x, ex.x_test]), np.concatenate([ex.y, ex.y_test])


@cache
def common_party() -> jf.PartyData:
    """Return the training rows, their columns dealt to 8 parties, 3 with labels."""
    ex = jf.datasets.load("breast_cancer")
    return jf.vertical.split(ex.x, ex.y, PARTIES, ACTIVE, 0, intercept=True)


def runs(
    algorithm: Any,
    objective: Objective,
    size: Size,
    seed: int,
    scheduler: Any = None,
    axes: Any = None,
    every: float = 1,
) -> xr.Dataset:
    """Return `gap`, f - f*, and `gradient_norm`: dims lr (or "point" for axes that are a list), seed, round (in epochs,
    from 0, a record each `every`).

    One compiled sweep, bilevel asynchronous with bounds of 8 dominated updates unless a scheduler is given.
    """
    party = common_party()
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*diverged")  # a lane that does is a finding, and counted as one
        ds = jf.sweep(seed, algorithm(objective, lr=size.steps[0]), party, axes=axes or {"lr": list(size.steps)},
                      seeds=size.seeds, scheduler=scheduler or BilevelAsync(party, seed=seed),
                      num_rounds=Epochs(size.epochs), every=Epochs(every), progress=False)  # fmt: skip
    gap = ds["objective"].astype(float) - _least(objective.regularizer)
    kept = xr.Dataset({"gap": gap, "gradient_norm": ds["gradient_norm"].astype(float)}).reset_coords(drop=True)
    return kept.assign_coords(round=every * np.arange(ds.sizes["round"]))


@cache
def _least(regularizer: str) -> float:
    """Return f* of the common party's rows; a stationary point's f for the nonconvex regularizer."""
    return jf.vertical.optimum(Objective("logistic", regularizer, L2), common_party()).value


def above(gap: np.ndarray) -> np.ndarray:
    """Return which gaps are measurements, and not rounding."""
    return gap > ROUNDING


def first(gap: xr.DataArray, epsilon: float) -> xr.DataArray:
    """Return the epochs after which the gap is first at most epsilon, nan where it never is. Dimension `round` goes.

    The log of the gap is interpolated between records.
    """

    def one(curve, at):
        below = np.flatnonzero(curve <= epsilon)
        if not len(below) or below[0] == 0:
            return np.nan if not len(below) else at[0]
        j = below[0]
        high, low = np.log(curve[j - 1] / epsilon), np.log(epsilon / max(curve[j], 1e-16))
        return at[j - 1] + (at[j] - at[j - 1]) * high / (high + low)

    return xr.apply_ufunc(one, gap, gap["round"], input_core_dims=[["round"], ["round"]], vectorize=True)
