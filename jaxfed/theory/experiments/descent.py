"""Local Descent APFL (Deng et al. 2020, section 4.1): rates, and what is left of the personal models' error.

On least squares with closed-form optima (`local_descent`). A gap is F(w) - F(w*) of the global model, or
f_i(vbar_i) - f_i(v_i*) of a personal one, vbar_i = alpha v_i + (1 - alpha) w. This is with the server's w, as in the
paper's output models; with the client's own last w_i it is the variable `local_gap`, for comparison.

Our copy of the paper ends before its theorems. Of them only the form is used: a rate O(1/T), and for the personal
models a residual that grows with (1 - alpha)^2, gradient diversity zeta_i and Delta_i = |v_i* - w*|^2 (arXiv abstract).
What the residual is on quadratics with a constant step size is derived: in a round w_i leaves the server's w by
-eta s grad f_i(w) after s steps, so v_i settles where sum_s grad f_i(alpha v_i + (1 - alpha) w_i^s) = 0, that is

    vbar_i - v_i* = (1 - alpha) eta (tau - 1) / 2 grad f_i(w)    to first order in eta tau,

whose gap grows as (1 - alpha)^2, (tau - 1)^2 and |grad f_i(w*)|^2, and is 0 for tau = 1.
"""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from jaxfed.averaging import Weighted
from jaxfed.horizontal.apfl import APFL
from jaxfed.theory.claims import Claim, Found, Interval, at_most, of_mean
from jaxfed.theory.experiments import local_descent as ld
from jaxfed.theory.experiments.descent_figures import draw as draw
from jaxfed.theory.rates import loglog_slope

NAME, SECTION = "descent", "APFL, section 4 (abstract)"
TAU, ALPHA = 10, 0.5
LENGTH = 0.25  # eta tau L of a round with a constant step size: the residual's form needs it to be small
BATCH = 5  # rows of a stochastic gradient
DECAY = 4.0  # c of eta_t = c / (mu (t + a)): 1/T needs c alpha^2 > 1, as v moves by alpha^2 eta
RECORDS = 24
STEPS = (2, 3, 5, 9)
COHORTS = (3, 6, 12)
REACHED = 0.1  # participation: rounds until the gap is this part of the initial one


class Size(NamedTuple):
    """Federations (seeds), rounds of `rates`, `residual` and `participation`, and the alphas of `residual`."""

    seeds: int
    rates: int
    residual: int
    participation: int
    alphas: tuple[float, ...]


FULL = Size(24, 2000, 2500, 400, (0.25, 0.5, 0.7, 0.85))
SMOKE = Size(3, 150, 200, 200, (0.5, 0.6, 0.75))
DRAWS = 4  # of minibatches for each federation: their mean stands for the theorem's expectation


def decreasing(mu: float, smooth: float, tau: int = TAU) -> tuple[ld.StepSize, float]:
    """Return eta_t = c / (mu (t + a)), t in local steps, and a. a = c tau L / mu, so the first is 1 / (tau L)."""
    a = DECAY * tau * smooth / mu
    return ld.StepSize(1 / (tau * smooth), tau / a), a


def constant(mu: float, smooth: float, tau: int = TAU) -> tuple[ld.StepSize, float]:
    """Return the first step size of `decreasing` for ever, and the same a (for the weights)."""
    return ld.StepSize(1 / (tau * smooth)), DECAY * tau * smooth / mu


def rates(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = APFL, step_size: Any = decreasing
) -> Found:
    """Measure how the gaps of Algorithm 1's weighted averages fall with T: stochastic gradients, tau = 10."""
    size = size or (SMOKE if smoke else FULL)
    problems, ends = _problems(seed, size), _geometric(size.rates)
    gaps, repeated = {"global_gap": [], "personal_gap": []}, problems * DRAWS
    for step in (step_size, constant):
        schedule, a = step(*ld.curvature(problems))
        inner = algorithm(ld.MODEL, lr=schedule, alpha=0.75, local_steps=TAU, batch_size=BATCH)
        windows = np.diff(ends, prepend=0)
        played = ld.play(Weighted(inner, a / TAU), repeated, windows, seed=seed, quick=size.rates < 1000)
        expected = lambda gap: gap.reshape(DRAWS, size.seeds, -1).mean(0)  # noqa: E731
        gaps["global_gap"].append(expected(_global_gaps(repeated, played.server)))
        gaps["personal_gap"].append(expected(_personal_gaps(repeated, played.personal).mean(-1)))
    dims = ("step", "seed", "steps")
    ds = xr.Dataset(
        {name: (dims, np.stack(values)) for name, values in gaps.items()},
        {"step": ["decreasing", "constant"], "seed": seed + np.arange(size.seeds), "steps": TAU * ends},
    )
    late = ends >= size.rates / 10
    found = {
        name: [loglog_slope(TAU * ends[late], ds[name].values[i][:, late]).found for i in range(2)] for name in gaps
    }
    setting = "least squares, tau = 10, batches of 5, full participation, averages with weights (t + a)^2"
    shared = dict(condition="eta_t decreases as c / (mu (t + a))", region=at_most(-0.8))
    claims = (
        _claim("global-rate", SECTION, "The global model converges at O(1/T)",
               f"log-log slope of F(what) - F(w*) in the local steps T, last decade; {setting}",
               *found["global_gap"], **shared),
        _claim("personal-rate", SECTION, "The personal models converge at O(1/T), down to a residual",
               f"log-log slope of mean_i f_i(vhat_i) - f_i(v_i*) in T, last decade, alpha = 0.75; {setting}",
               *found["personal_gap"], **shared),
    )  # fmt: skip
    return Found(claims, {"rates": ds})


def residual(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = ld.LocalDescent
) -> Found:
    """Measure where the personal models settle: full gradients, full participation, constant step size."""
    size = size or (SMOKE if smoke else FULL)
    problems = _problems(seed, size)
    smooth = ld.curvature(problems)[1]
    scale = np.array([p.global_gaps.mean() for p in problems])  # what the optimal global model loses

    def settled(alpha: float, tau: int, lr: float, rounds: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the last personal gaps [S, C], with the server's w and with the client's own."""
        run = algorithm(ld.MODEL, lr=ld.StepSize(lr), alpha=alpha, local_steps=tau, batch_size=None,
                        evaluate_with="local")  # fmt: skip
        played = ld.play(run, problems, [*[0] * (RECORDS - 1), rounds], seed=seed)
        last = lambda own: _personal_gaps(problems, own[:, -1:])[:, 0]  # noqa: E731
        return last(played.personal), last(played.local)

    short, whole = LENGTH / (TAU * smooth), LENGTH / smooth
    one = {a: settled(a, 1, whole, size.residual) for a in size.alphas}
    ten = {a: settled(a, TAU, short, size.residual) for a in size.alphas}
    by_steps = {tau: settled(ALPHA, tau, short, size.residual * TAU // tau) for tau in STEPS}

    mean = lambda runs, which=0: np.stack([run[which].mean(-1) for run in runs.values()]) / scale  # noqa: E731
    ds = xr.Dataset(
        {
            "one_step_gap": (("alpha", "seed"), mean(one)),
            "one_step_local_gap": (("alpha", "seed"), mean(one, 1)),
            "gap": (("alpha", "seed"), mean(ten)),
            "local_gap": (("alpha", "seed"), mean(ten, 1)),
            "gap_of_steps": (("tau", "seed"), mean(by_steps)),
            "client_gap": (("seed", "client"), ten[ALPHA][0]),
            "diversity": (("seed", "client"), np.stack([p.diversities for p in problems])),
            "distance": (("seed", "client"), np.stack([p.distances for p in problems])),
            "derived": (("tau", "seed"), np.stack([_derived(problems, ALPHA, tau, short) for tau in STEPS]) / scale),
        },
        {"alpha": list(size.alphas), "tau": list(STEPS), "seed": seed + np.arange(size.seeds)},
    )
    worst = [of_mean(np.log10(ds[name].max("alpha"))) for name in ("one_step_gap", "gap")]
    near = lambda x: Interval(0.9 * x, 1.1 * x)  # noqa: E731
    within = "least squares, full gradients and participation, constant step size"
    exact = "the personal gap over that of w*"
    claims = (
        _claim("one-step", "derived from APFL, equations 6-8",
               "Every alpha > 0 reaches the client's own optimum v_i*: alpha sets the speed, not the limit",
               f"log10 of the mean of {exact}, largest over alpha; {within}",
               *worst, condition="tau = 1 (otherwise tau = 10)", region=at_most(-6)),
        _claim("residual-alpha", SECTION, "The personal models' residual grows as (1 - alpha)^2",
               f"log-log slope of {exact} in 1 - alpha; {within}, tau = 10",
               loglog_slope(1 - ds["alpha"].values, ds["gap"].values.T).found, region=near(2)),
        _claim("residual-steps", "derived from APFL, equations 6-8", "The residual grows as (tau - 1)^2",
               f"log-log slope of {exact} in tau - 1, tau = 2 to 9; {within}, alpha = 0.5",
               loglog_slope(np.array(STEPS) - 1, ds["gap_of_steps"].values.T).found, region=near(2)),
        _claim("residual-diversity", SECTION, "The residual grows in proportion to the gradient diversity zeta_i",
               f"log-log slope over clients of the personal gap in zeta_i at w*; {within}, tau = 10, alpha = 0.5",
               loglog_slope(ds["diversity"].values, ds["client_gap"].values).found, region=near(1)),
        _claim("residual-distance", SECTION, "The residual grows in proportion to Delta_i = |v_i* - w*|^2",
               f"log-log slope over clients of the personal gap in Delta_i; {within}, tau = 10, alpha = 0.5",
               loglog_slope(ds["distance"].values, ds["client_gap"].values).found, region=near(1)),
    )  # fmt: skip
    return Found(claims, {"residual": ds})


def participation(
    smoke: bool = False, seed: int = 0, *, size: Size | None = None, algorithm: Any = ld.LocalDescent,
    cohorts: tuple[int, ...] = COHORTS,
) -> Found:  # fmt: skip
    """Measure how many rounds the personal models need as fewer clients take part; `cohorts`: who does, for each K."""
    size = size or (SMOKE if smoke else FULL)
    problems, ends = _problems(seed, size), np.rint(np.linspace(0, size.participation, RECORDS + 1)).astype(int)[1:]
    lr = LENGTH / (TAU * ld.curvature(problems)[1])
    run = algorithm(ld.MODEL, lr=ld.StepSize(lr), alpha=0.75, local_steps=TAU, batch_size=None, evaluate_with="local")
    start = _personal_gaps(problems, np.zeros((size.seeds, 1, ld.CLIENTS, ld.FEATURES))).mean(-1)
    gaps = np.stack([
        _personal_gaps(problems, ld.play(run, problems, np.diff(ends, prepend=0), k, seed).personal).mean(-1) / start
        for k in cohorts
    ])  # fmt: skip
    share = np.array(COHORTS) / ld.CLIENTS
    needed = np.stack([[_first_below(ends, g) for g in of_k] for of_k in gaps])
    ds = xr.Dataset(
        {"gap": (("share", "seed", "rounds"), gaps), "needed": (("share", "seed"), needed)},
        {"share": share, "seed": seed + np.arange(size.seeds), "rounds": ends},
    )
    claims = (
        _claim("participation", SECTION, "The personal models need rounds in proportion to n/K",
               "log-log slope in K/n of the rounds until mean_i f_i(vbar_i) - f_i(v_i*) is a tenth of the initial one;"
               " least squares, full gradients, tau = 10, alpha = 0.75, constant step size",
               loglog_slope(share, needed.T).found, region=Interval(-1.2, -0.8)),
    )  # fmt: skip
    return Found(claims, {"participation": ds})


PARTS = {
    rates: ("descent-global-rate", "descent-personal-rate"),
    residual: ("descent-one-step", "descent-residual-alpha", "descent-residual-steps", "descent-residual-diversity",
               "descent-residual-distance"),
    participation: ("descent-participation",),
}  # fmt: skip


def _claim(
    name: str, source: str, statement: str, statistic: str, found: Interval, otherwise: Interval | None = None, *,
    region: Interval, condition: str = "",
) -> Claim:  # fmt: skip
    return Claim(f"{NAME}-{name}", source, statement, NAME, statistic, found, region, condition, otherwise)


def _problems(seed: int, size: Size) -> list[ld.Problem]:
    return [ld.problem(seed + i) for i in range(size.seeds)]


def _geometric(rounds: int) -> np.ndarray:
    """Return RECORDS rounds at which to record, evenly in the logarithm over two decades; early ones may repeat."""
    return np.maximum(np.rint(np.geomspace(rounds / 100, rounds, RECORDS)), 1).astype(int)


def _global_gaps(problems: list[ld.Problem], server: np.ndarray) -> np.ndarray:
    """F(w) - F(w*), [S, R], for w [S, R, d]."""
    return np.stack([ld.gaps(p.hessians.mean(0), w - p.optimum) for p, w in zip(problems, server, strict=True)])


def _personal_gaps(problems: list[ld.Problem], own: np.ndarray) -> np.ndarray:
    """f_i(vbar_i) - f_i(v_i*), [S, R, C], for vbar [S, R, C, d]."""
    return np.stack([ld.gaps(p.hessians, v - p.local_optima) for p, v in zip(problems, own, strict=True)])


def _derived(problems: list[ld.Problem], alpha: float, tau: int, lr: float) -> np.ndarray:
    """The residual gap of the module's docstring at w = w*, mean over clients, [S]."""
    reach = (1 - alpha) * lr * (tau - 1) / 2
    return np.array([ld.gaps(p.hessians, reach * p.gradients).mean() for p in problems])


def _first_below(rounds: np.ndarray, gap: np.ndarray) -> float:
    """Return where the gap first falls to REACHED, between records by a line in its logarithm; nan: never."""
    at = np.flatnonzero(gap <= REACHED)
    if len(at) == 0:
        return np.nan
    i = at[0]
    (r_0, g_0), (r_1, g_1) = ((0, 1.0) if i == 0 else (rounds[i - 1], gap[i - 1])), (rounds[i], gap[i])
    return float(r_0 + (r_1 - r_0) * np.log(g_0 / REACHED) / np.log(g_0 / g_1))
