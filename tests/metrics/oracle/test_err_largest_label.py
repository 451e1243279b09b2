"""Expected reciprocal rank with labels beyond the largest of the scale: they count as the largest."""

import jax.numpy as jnp
import pytest

from fedrank.metrics.offline import err


def test_a_label_above_the_largest_counts_as_the_largest():
    """(2² − 1)/2² at rank 1; then a document of label 1, met with the rest of the probability."""
    for label in [2, 3, 4, 30]:
        value = err(jnp.array([2.0, 1.0]), jnp.array([label, 1]), jnp.ones(2, bool), max_label=2)
        assert float(value) == pytest.approx(3 / 4 + 1 / 4 * 1 / 4 / 2, abs=1e-7)
