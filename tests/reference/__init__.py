"""Slow, plain NumPy versions of the methods, written from the papers. Nothing here imports jax or jaxfed.

A model is an object with loss(params, x, y) and grad(params, x, y); params is a dict of float64 arrays. A client is a
pair (x_i, y_i) whose first axis counts examples; clients are named by their position in a list, and a cohort is a list
of distinct names. `batches` maps a client to one array of its own row numbers per local step, so that the library can
be fed exactly the same rows. No function changes its arguments.
"""
