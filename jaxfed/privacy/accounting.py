"""What `clients.PrivateUpdates` is worth in (epsilon, delta), by Google's dp-accounting (Renyi accountant).

    pip install -e ".[dp]"

Cohorts are those of `UniformCohort`: `cohort_size` of `num_clients`, drawn uniformly without replacement, anew each
round. For these the library has Theorem 27 of Wang, Balle and Kasiviswanathan 2019, whose neighbours differ by the
REPLACEMENT of one client's rows (the number of clients is public). Replacing one clipped update by another moves the
sum by up to 2 clip, so the noise there is noise_multiplier / 2 of the sensitivity: we pass that on, as the library does
not know what was clipped.

Much of the literature assumes Poisson cohorts instead (every client by its own coin) and neighbours that differ by
ADDING OR REMOVING one client, whose sensitivity is clip: sampling="poisson", to compare with published numbers. It is
a smaller epsilon of another statement, and not what a cohort of fixed size has.
"""

from typing import Any

from jaxfed.checks import fail, number, one_of, whole

LEAST = 0.05  # noise below it is worth nothing, and the library's sums overflow
# Renyi orders; any choice gives a valid epsilon. Theorem 27 costs the square of an order and only interpolates between
# integers; fractions often do not converge for Poisson cohorts. Full participation takes the library's own.
ORDERS = (*range(2, 33), *range(36, 65, 4), 80, 96, 128, 256)
POISSON_ORDERS = (*range(2, 65), *range(72, 129, 8), 192, 256, 512, 1024)


def epsilon(
    noise_multiplier: float,
    cohort_size: int,
    num_clients: int,
    rounds: int,
    delta: float,
    sampling: str = "without_replacement",
) -> float:
    """Return epsilon of `rounds` rounds at `delta`; inf for a noise multiplier below 0.05.

    sampling: "without_replacement" or "poisson", with what goes with it (see above). cohort_size = num_clients is full
    participation. Raises ValueError for impossible numbers, ModuleNotFoundError where dp-accounting is missing.
    """
    number("noise_multiplier", noise_multiplier, 0)
    make, event = _mechanism(cohort_size, num_clients, rounds, delta, sampling)
    if noise_multiplier < LEAST:
        return float("inf")
    return float(make().compose(event(noise_multiplier)).get_epsilon(delta))


def noise_for(
    epsilon: float,
    cohort_size: int,
    num_clients: int,
    rounds: int,
    delta: float,
    sampling: str = "without_replacement",
) -> float:
    """Return the least noise multiplier, to 1e-4 and rounded up, whose `epsilon` is at most this one.

    Arguments as in `epsilon`; raises ValueError for an epsilon that a multiplier of 0.05 has already.
    """
    number("epsilon", epsilon, 1e-6)
    make, event = _mechanism(cohort_size, num_clients, rounds, delta, sampling)
    most = make().compose(event(LEAST)).get_epsilon(delta)
    if epsilon >= most:
        fail("epsilon", f"{epsilon:g}", f"less than {most:g}, which is no privacy at all")
    dp = _library()
    bracket = dp.LowerEndpointAndGuess(LEAST, 1.0)
    return float(dp.calibrate_dp_mechanism(make, event, epsilon, delta, bracket, tol=1e-4))


def _mechanism(cohort_size: Any, num_clients: Any, rounds: Any, delta: Any, sampling: Any) -> tuple[Any, Any]:
    """Return a function that makes a fresh accountant, and one from the noise multiplier to the event of all rounds."""
    whole("cohort_size", cohort_size, 1)
    whole("num_clients", num_clients, 1)
    whole("rounds", rounds, 1)
    number("delta", delta, 1e-300, 1 - 1e-12)
    one_of("sampling", sampling, ("without_replacement", "poisson"))
    if cohort_size > num_clients:
        fail("cohort_size", cohort_size, f"at most {num_clients}, num_clients")
    dp = _library()
    poisson = sampling == "poisson"
    relation = dp.NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else dp.NeighboringRelation.REPLACE_ONE

    def accountant() -> Any:
        orders = POISSON_ORDERS if poisson else ORDERS
        return dp.rdp.RdpAccountant(None if cohort_size == num_clients else orders, relation)

    def event(noise_multiplier: float) -> Any:
        if poisson:
            one = dp.PoissonSampledDpEvent(cohort_size / num_clients, dp.GaussianDpEvent(noise_multiplier))
        else:
            gaussian = dp.GaussianDpEvent(noise_multiplier / 2)
            one = dp.SampledWithoutReplacementDpEvent(num_clients, cohort_size, gaussian)
        return dp.SelfComposedDpEvent(one, rounds)

    return accountant, event


def _library() -> Any:
    try:
        import dp_accounting
        import dp_accounting.rdp
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("dp_accounting"):
            raise
        message = 'accounting: got no package dp_accounting, wanted Google\'s accountant: pip install -e ".[dp]"'
        raise ModuleNotFoundError(message, name=error.name) from error
    return dp_accounting
