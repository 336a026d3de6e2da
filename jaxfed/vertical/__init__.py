"""Vertical federated learning: parties hold features of the same samples."""
