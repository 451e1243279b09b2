"""Variances of mechanisms at one ε of a message, against enumerated outcomes and closed forms."""

import itertools

import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.privacy.randomised_response import probability
from fedrank_zoo.message_variances.variances import compare_mechanisms


def test_randomised_response_on_interactions_is_compared_by_its_enumerated_variance():
    """Two values and two interactions: all eight outcomes written out."""
    epsilon, values = 2.0, np.array([0.0, 1.0])
    p = probability(epsilon / 2, 2)
    variance = []
    for plus, minus in itertools.product((0, 1), repeat=2):
        outcomes = [
            (p if a == plus else 1 - p, p if b == minus else 1 - p, ((a - (1 - p)) - (b - (1 - p))) / (2 * p - 1))
            for a, b in itertools.product((0, 1), repeat=2)
        ]
        mean = sum(x * y * d for x, y, d in outcomes)
        assert mean == pytest.approx(plus - minus)
        variance.append(sum(x * y * (d - mean) ** 2 for x, y, d in outcomes))
    row = next(row for row in compare_mechanisms(epsilon, 2, values) if row.name.startswith("randomised response"))
    assert row.mean == pytest.approx(np.mean(variance)) and row.worst == pytest.approx(max(variance))


def test_at_equal_epsilon_the_whole_message_is_cheaper_than_its_parts():
    rows = {row.name.split(" (")[0].split(",")[0]: row for row in compare_mechanisms(1.0, 4, np.linspace(0, 1, 11))}
    assert rows["piecewise"].mean < rows["one bit"].mean < rows["Laplace noise on the difference"].mean
    assert rows["randomised response on each of 4 interactions"].mean > 5 * rows["one bit"].mean
    # Clipped: one bit has the second moment s² everywhere; a triangular difference has the mean square 1/6.
    s = (np.e + 1) / (np.e - 1)
    assert rows["one bit"].clipped == pytest.approx(0.9 * (s**2 - 1) + 0.1 * (s**2 - 1 / 6), rel=1e-6)
    assert rows["one bit"].clipped < rows["piecewise"].clipped
    with pytest.raises(ConfigError, match="even"):
        compare_mechanisms(1.0, 3, [0.0, 1.0])
