"""Experiments that test the papers' claims: each module has PARTS, functions of a size that return claims and data."""
