"""Clipping at a quantile: the quantile is one of the differences that are not zero."""

import jax.numpy as jnp
import numpy as np

from fedrank.aggregation.differences import clip_at_quantile


def test_differences_of_zero_do_not_lower_the_quantile():
    differences = jnp.array([0.0, 0.0, 0.0, 0.0, 0.1, -0.2, 10.0], jnp.float32)
    found = clip_at_quantile(differences, jnp.ones(7, bool), 0.5)
    # The median size of 0.1, 0.2 and 10 is 0.2; of all seven it would be 0.
    np.testing.assert_allclose(found, np.array([0, 0, 0, 0, 0.1, -0.2, 0.2]) / 7, rtol=1e-6)


def test_only_what_arrived_is_counted():
    differences = jnp.array([5.0, 5.0, 0.1, 0.2, 0.4], jnp.float32)
    found = clip_at_quantile(differences, jnp.array([False, False, True, True, True]), 0.5)
    np.testing.assert_allclose(found, np.array([0, 0, 0.1, 0.2, 0.2]) / 3, rtol=1e-6)
