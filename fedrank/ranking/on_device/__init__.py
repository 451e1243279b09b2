"""What a device without JAX runs: messages and scores, with NumPy."""
