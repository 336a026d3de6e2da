"""The accountant against published values, closed forms for one Gaussian, and bounds that hold whatever the method."""

import builtins
import math

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from jaxfed.privacy import accounting

POISSON = {"sampling": "poisson"}


def gaussian_delta(sigma, eps):
    """The exact delta of one Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, theorem 8)."""
    return norm.cdf(0.5 / sigma - eps * sigma) - math.exp(eps) * norm.cdf(-0.5 / sigma - eps * sigma)


def zcdp(rho, delta):
    """rho-zCDP is (rho + 2 sqrt(rho log(1 / delta)), delta)-private (Bun and Steinke 2016, proposition 1.3)."""
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


def test_one_gaussian_of_the_librarys_documentation():
    """Its own test: noise multiplier 4.530877117 is (1, 1e-6)-private. Replacement doubles the sensitivity."""
    assert accounting.epsilon(4.530877117, 1, 1, 1, 1e-6, **POISSON) == pytest.approx(1, abs=1e-5)
    assert accounting.epsilon(2 * 4.530877117, 1, 1, 1, 1e-6) == pytest.approx(1, abs=1e-5)
    assert accounting.epsilon(4.530877117, 1, 1, 1, 1e-6) > 1.9


def poisson_epsilon(sigma, q, rounds, delta, improved):
    """Abadi et al. 2016's accountant in Mironov et al. 2019's closed form, integer orders only."""
    best = math.inf
    for order in range(2, 64):
        k = np.arange(order + 1)
        terms = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1) + k * math.log(q)
        terms = terms + (order - k) * math.log1p(-q) + (k * k - k) / (2 * sigma**2)
        rdp = rounds * logsumexp(terms) / (order - 1)
        gain = math.log1p(-1 / order) - math.log(order) / (order - 1) if improved else 0
        best = min(best, rdp + gain - math.log(delta) / (order - 1))
    return best


@pytest.mark.parametrize("noise, epochs, published", [(1.12, 60, 2.92), (0.6, 30, 9.74), (1.2, 10, 1.20)])
def test_the_table_of_tensorflow_privacys_tutorials(noise, epochs, published):
    """MNIST: 60,000 rows, batches of 256, delta 1e-5 (its tutorials/README.md, "Select Parameters").

    That table has the first conversion of Renyi orders; the library's own is never worse (Canonne et al. 2020). The
    same integer orders written out here give both; fractions are worth half a percent."""
    q, rounds = 256 / 60_000, epochs * 60_000 // 256
    assert poisson_epsilon(noise, q, rounds, 1e-5, improved=False) == pytest.approx(published, rel=5e-3)
    found = accounting.epsilon(noise, 256, 60_000, rounds, 1e-5, **POISSON)
    assert found == pytest.approx(poisson_epsilon(noise, q, rounds, 1e-5, improved=True), rel=1e-6)
    assert found < published


def test_cohorts_of_fixed_size_by_theorem_27(monkeypatch):
    """Wang, Balle and Kasiviswanathan 2019, its middle bound written out for order 2, for 1,000 rounds:
    RDP(2) <= log(1 + q^2 min(4 (e^f - 1), 2 e^f)), f the RDP of one Gaussian at order 2. More orders only help."""
    noise, q, rounds, delta = 2.0, 0.01, 1000, 1e-5
    f = 2 / (2 * (noise / 2) ** 2)
    rdp = rounds * math.log1p(q**2 * min(4 * math.expm1(f), 2 * math.exp(f)))
    at_order_2 = rdp + math.log(1 / 2) - math.log(2 * delta)
    found = accounting.epsilon(noise, 10, 1000, rounds, delta)
    assert found <= at_order_2 + 1e-9
    monkeypatch.setattr(accounting, "ORDERS", (2,))
    assert accounting.epsilon(noise, 10, 1000, rounds, delta) == pytest.approx(at_order_2, rel=1e-9)


@pytest.mark.parametrize("noise, rounds", [(2.0, 1), (10.0, 1), (10.0, 50), (60.0, 100)])
@pytest.mark.parametrize("sampling, sensitivity", [("without_replacement", 2.0), ("poisson", 1.0)])
def test_full_participation_lies_between_the_exact_value_and_zcdp(noise, rounds, sampling, sensitivity):
    """R Gaussians are one of standard deviation sigma / sqrt(R): its exact delta from below, zCDP from above."""
    sigma = noise / sensitivity / math.sqrt(rounds)
    found = accounting.epsilon(noise, 8, 8, rounds, 1e-5, sampling)
    assert gaussian_delta(sigma, found) <= 1e-5 < gaussian_delta(sigma, 0.8 * found)
    assert 0 < found <= zcdp(1 / (2 * sigma**2), 1e-5)


def test_sampling_helps_and_rounds_cost():
    few = accounting.epsilon(8.0, 10, 1000, 100, 1e-5)
    assert few < accounting.epsilon(8.0, 10, 1000, 400, 1e-5) < accounting.epsilon(8.0, 100, 1000, 400, 1e-5)
    assert few < accounting.epsilon(8.0, 1000, 1000, 100, 1e-5)
    assert accounting.epsilon(16.0, 10, 1000, 100, 1e-5) < few < accounting.epsilon(8.0, 10, 1000, 100, 1e-7)
    assert accounting.epsilon(8.0, 10, 1000, 100, 1e-5, **POISSON) < few  # of a weaker statement
    assert accounting.epsilon(0.0, 10, 1000, 1, 1e-5) == math.inf


@pytest.mark.parametrize("sampling", ["without_replacement", "poisson"])
def test_the_inverse_is_the_least_noise_that_is_enough(sampling):
    given = (20, 200, 30, 1e-5, sampling)
    noise = accounting.noise_for(2.0, *given)
    assert accounting.epsilon(noise, *given) <= 2.0 < accounting.epsilon(noise - 2e-3, *given)


def test_one_gaussians_noise_is_the_documentations():
    assert accounting.noise_for(1.0, 1, 1, 1, 1e-6, **POISSON) == pytest.approx(4.530877117, abs=1e-3)


REFUSED = {
    "noise_multiplier: got -1": (-1.0, 1, 2, 3, 0.1),
    "cohort_size: got 3, wanted at most 2": (1.0, 3, 2, 3, 0.1),
    "cohort_size: got 0": (1.0, 0, 2, 3, 0.1),
    "rounds: got 2.5": (1.0, 1, 2, 2.5, 0.1),
    "delta: got 0": (1.0, 1, 2, 3, 0.0),
    "delta: got 1": (1.0, 1, 2, 3, 1.0),
    "sampling: got 'poison'.*did you mean 'poisson'": (1.0, 1, 2, 3, 0.1, "poison"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_impossible_numbers_are_refused(message):
    with pytest.raises(ValueError, match=message):
        accounting.epsilon(*REFUSED[message])


@pytest.mark.parametrize("wanted", [0.0, 1e7])
def test_an_epsilon_of_nothing_is_refused(wanted):
    with pytest.raises(ValueError, match=f"epsilon: got {'0' if wanted == 0 else '1e.07, wanted less than'}"):
        accounting.noise_for(wanted, 1, 2, 3, 0.1)


def test_without_the_library_there_is_advice(monkeypatch):
    found = builtins.__import__

    def missing(name, *rest, **more):
        if name.startswith("dp_accounting"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return found(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match=r'pip install -e "\.\[dp\]"'):
        accounting.epsilon(1.0, 1, 2, 3, 0.1)
