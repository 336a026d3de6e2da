"""What `alpha_star` measures: all draws of all settings, alpha* of each, and resampling."""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from jaxfed.theory import generalization, mixtures, two_laws
from jaxfed.theory.claims import Interval

DELTA = 0.05  # the theorem's
SHARES = (0.0, 0.01, 0.1, 1.0)  # C / B
FACTORS = ("distance", "local_rows", "rows", "noise", "radius")


class Size(NamedTuple):
    """How much is computed: `seeds` draws of all rows, `alphas` points of the grid on [0, 1], `d` features, and each
    factor's values, its base value among them (units as in `two_laws.Settings`).
    """

    seeds: int = 400
    alphas: int = 101
    d: int = 10
    distance: tuple[float, ...] = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)
    local_rows: tuple[int, ...] = (10, 20, 40, 80, 160, 320)
    rows: tuple[int, ...] = (40, 80, 160, 320, 640, 1280)
    noise: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0, 4.0)
    radius: tuple[float, ...] = (1.0, 1.5, 2.0, 4.0, np.inf)
    resamples: int = 1000


# the base: laws as far apart as they are long, signal and noise of one size, twice as many rows as features, the least
# ball that holds both truths (the theorem's class should be no larger than it must)
BASE = two_laws.Settings(local_rows=20, rows=640, distance=1.0, noise=1.0, radius=1.0)
FULL = Size()
SMOKE = Size(8, 21, 10, (0.0, 1.0, 2.0), (10, 20, 80), (40, 160, 640), (0.25, 1.0, 4.0), (1.0, 4.0, np.inf), 200)


class Measured(NamedTuple):
    """All draws of a `size`: `factor` and `value` [S] name the `settings`, `bounded` [S] says whether their class is a
    ball; `alphas` [alpha]; `draw`, leaves [seed, S, ...]; `star` [C, seed, S] and `terms` likewise, for each of SHARES.
    """

    size: Size
    factor: np.ndarray
    value: np.ndarray
    settings: two_laws.Settings
    bounded: np.ndarray
    alphas: np.ndarray
    draw: two_laws.Draw
    terms: generalization.Terms
    star: np.ndarray

    def at(self, factor: str) -> np.ndarray:
        """Return the positions of a factor's settings whose class is bounded, in the order of its values."""
        return np.flatnonzero((self.factor == factor) & self.bounded)


def measure(
    smoke: bool = False, seed: int = 0, size: Size | None = None, best_alpha: Any = generalization.best_alpha,
    fit: Any = mixtures.least_in_ball, mixed: Any = mixtures.mixed_models,
) -> Measured:  # fmt: skip
    """Return all draws of all settings. The last ones computed are kept for the next part."""
    size = size or (SMOKE if smoke else FULL)
    factor, value, settings = _settings(size)
    alphas, found, terms = _draws(size, seed, fit, mixed)
    star = np.broadcast_to(np.asarray(jax.jit(best_alpha)(terms)), (len(SHARES), *found.global_risk.shape))
    return Measured(size, factor, value, settings, np.isfinite(settings.radius), alphas, found, terms, star)


def _settings(size: Size) -> tuple[np.ndarray, np.ndarray, two_laws.Settings]:
    """Each factor's values about the base, one after the other."""
    points = [(name, v, BASE._replace(**{name: v})) for name in FACTORS for v in getattr(size, name)]
    factor, value, settings = zip(*points, strict=True)
    return np.array(factor), np.array(value, float), two_laws.Settings(*map(np.array, zip(*settings, strict=True)))


@lru_cache(maxsize=2)
def _draws(size: Size, seed: int, fit: Any, mixed: Any) -> tuple[np.ndarray, two_laws.Draw, generalization.Terms]:
    alphas, settings = np.linspace(0, 1, size.alphas), _settings(size)[2]
    found = two_laws.draws(seed, size.seeds, settings, jnp.asarray(alphas), size.d, fit, mixed)
    return alphas, found, two_laws.theorem(settings, found, size.d, np.asarray(SHARES)[:, None, None], DELTA)


def resamples(got: Measured, seed: int) -> np.ndarray:
    """Return weights of the draws, [resample, seed], of sum 1: as many as there are are taken with replacement."""
    n = got.size.seeds
    return np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), got.size.resamples) / n


def mean_curves(got: Measured, weights: np.ndarray) -> np.ndarray:
    """Return the resampled means of the true risk, [resample, S, alpha]."""
    return np.tensordot(weights, got.draw.risk.astype(float), 1)


def risk_at(got: Measured, share: int) -> np.ndarray:
    """Return the true risk at alpha* of each draw and setting [seed, S]; between the grid's points, along the chord.

    `share`: position in SHARES.
    """
    last = len(got.alphas) - 1
    place = np.nan_to_num(got.star[share]) * last
    left = np.clip(np.floor(place).astype(int), 0, last - 1)[..., None]
    low, high = (np.take_along_axis(np.asarray(got.draw.risk), left + i, axis=-1)[..., 0] for i in (0, 1))
    return low + (place - left[..., 0]) * (high - low)


def interval(values: np.ndarray) -> Interval:
    """Return the 95% percentile interval of resampled values [resample]; nan if one of them is."""
    return Interval(*(float(q) for q in np.quantile(values, (0.025, 0.975))))


def correlation(a: np.ndarray, b: np.ndarray) -> Interval:
    """Return the interval of Spearman's correlation of a and b, [resample, value] each; nan where one is constant."""
    from scipy import stats

    ranks = [stats.rankdata(x.round(12), axis=1) for x in (a, b)]
    ranks = [x - x.mean(axis=1, keepdims=True) for x in ranks]
    size = np.sqrt(np.prod([np.sum(x**2, axis=1) for x in ranks], axis=0))
    with np.errstate(invalid="ignore"):
        return interval(np.sum(ranks[0] * ranks[1], axis=1) / size)


def labelled(got: Measured, at: np.ndarray) -> xr.Dataset:
    """Return a Dataset with the settings at positions `at` as its dim "setting": which factor, and its value."""
    coords = {"factor": ("setting", got.factor[at]), "value": ("setting", got.value[at])}
    return xr.Dataset(coords={**coords, "share": list(SHARES), "alpha": got.alphas})


def with_band(data: xr.Dataset, name: str, values: np.ndarray, dims: tuple[str, ...]) -> xr.Dataset:
    """Return the Dataset with resampled values [resample, ...] as `name`, its mean, and `name_low`, `name_high`."""
    low, high = np.quantile(values, (0.025, 0.975), axis=0)
    parts = {"": values.mean(axis=0), "_low": low, "_high": high}
    return data.assign({name + part: (dims, array) for part, array in parts.items()})
