"""Vertical federated learning: parties that hold different columns of the same rows."""
