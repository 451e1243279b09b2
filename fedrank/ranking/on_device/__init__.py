"""Code of a device without JAX: messages and scores, with NumPy."""
