"""Noise: exact discrete samplers, arrays of them, and their simulated counterparts."""
