"""Sessions of one user, from given draws."""

import jax.numpy as jnp

from fedrank.ranking.clicks.cascade import decision_tables, pattern_from


def sample_pattern(user, labels, where, rng_bits):
    """The pattern of each list: bit i is set when the document at rank i + 1 was clicked."""
    click, leave = (jnp.asarray(table[0]) for table in decision_tables((user,)))
    return pattern_from(click, leave, labels, where, rng_bits)
