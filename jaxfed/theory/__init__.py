"""The theory of both papers as functions and as experiments: bounds, discrepancies, constants, rates, claims.

Nothing in the simulator imports from here.
"""

from jaxfed.theory import claims, constants, disagreement, discrepancy, generalization, mixtures, rates, two_laws

__all__ = [
    "claims",
    "constants",
    "disagreement",
    "discrepancy",
    "generalization",
    "mixtures",
    "rates",
    "two_laws",
]
