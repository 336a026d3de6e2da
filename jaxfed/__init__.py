"""jaxfed: a JAX-compiled, vectorized simulator of federated learning."""
