"""The average of iterates that APFL's theorems speak of (Deng et al. 2020, section 4.1, Algorithm 1's output)."""

from tests.reference.trees import weighted_mean


def polynomial_average(iterates, a, first=1):
    """sum_t p_t x_t / sum_t p_t with p_t = (t + a)^2; the first iterate has t = `first` (the paper sums from t = 1)."""
    return weighted_mean(iterates, [(t + a) ** 2 for t in range(first, first + len(iterates))])
