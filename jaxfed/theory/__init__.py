"""The theory of both papers as functions and as experiments: bounds, discrepancies, constants, rates, claims.

Nothing in the simulator imports from here.
"""
