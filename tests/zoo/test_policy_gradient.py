"""MDPRank's gradient from clicks: its mean over all rankings and clicks is the gradient of the expected reward."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedrank.core.errors import ConfigError
from fedrank.ranking.clicks.cascade import CascadeUser, cascade, pattern_probabilities
from fedrank.ranking.rankers.linear import Linear
from fedrank_zoo.mdprank import MDPRank, policy_gradient

USER = CascadeUser("some", (0.2, 0.6, 0.9), (0.1, 0.5, 0.6), depth=3)
FEATURES = np.random.default_rng(2).normal(size=(5, 2)).astype(np.float32)  # the last document is padding
LABELS, WHERE = np.array([2, 0, 1, 0, 0]), np.array([True, True, True, True, False])
REWARD = np.array([sum(1 / np.log2(2 + k) for k in range(3) if p >> k & 1) for p in range(8)])

pytestmark = pytest.mark.slow


def expected_reward(weights):
    """Σ over rankings and patterns of their probabilities and the DCG of clicks, in float64."""
    scores, total = FEATURES.astype(float) @ weights, 0.0
    for ranking in itertools.permutations(range(4), 3):
        left, p = [0, 1, 2, 3], 1.0
        for document in ranking:
            p *= np.exp(scores[document]) / np.exp(scores[left]).sum()
            left.remove(document)
        total += p * (np.asarray(pattern_probabilities(USER, LABELS[list(ranking)], np.ones(3, bool))) @ REWARD)
    return total


def test_the_mean_gradient_is_that_of_the_expected_reward():
    weights = np.array([0.4, -0.7])
    rankings = list(itertools.permutations(range(4), 3))
    pairs = [(ranking, pattern) for ranking in rankings for pattern in range(8)]
    shown, patterns = np.array([r for r, _ in pairs], np.int32), np.array([p for _, p in pairs], np.int32)
    gradients = jax.vmap(
        lambda ranking, pattern: policy_gradient(
            Linear(2), jnp.asarray(weights, jnp.float32), FEATURES, WHERE, ranking, pattern
        )
    )(shown, patterns)
    mean = np.zeros(2)
    scores = FEATURES @ weights
    for (ranking, pattern), gradient in zip(pairs, np.asarray(gradients, float), strict=True):
        left, p = [0, 1, 2, 3], 1.0
        for document in ranking:
            p *= np.exp(scores[document]) / np.exp(scores[left]).sum()
            left.remove(document)
        clicks = np.asarray(pattern_probabilities(USER, LABELS[list(ranking)], np.ones(3, bool)))
        mean += p * clicks[pattern] * gradient
    step = 1e-5
    differences = [
        (expected_reward(weights + step * e) - expected_reward(weights - step * e)) / (2 * step) for e in np.eye(2)
    ]
    np.testing.assert_allclose(mean, differences, atol=2e-5)
    assert np.linalg.norm(differences) > 0.01


def test_padding_and_no_click():
    ranking = jnp.asarray([2, 0, 4], jnp.int32)
    few = WHERE & (np.arange(5) % 2 == 0)  # two documents, and padding at the last rank
    assert not np.asarray(policy_gradient(Linear(2), jnp.zeros(2), FEATURES, few, ranking, 0)).any()
    # Both documents are shown: the first choice is one of two, the second was none. A click on the second credits both.
    got = policy_gradient(Linear(2), jnp.zeros(2), FEATURES, few, ranking, 0b010)
    np.testing.assert_allclose(got, (FEATURES[2] - FEATURES[0]) / 2 / np.log2(3), rtol=1e-5)
    # γ = 0: only the clicked rank itself is credited, and there was no choice left.
    np.testing.assert_allclose(
        policy_gradient(Linear(2), jnp.zeros(2), FEATURES, few, ranking, 0b010, 0.0), 0, atol=1e-7
    )


def test_there_is_no_kernel():
    with pytest.raises(ConfigError, match="no compiled kernel"):
        MDPRank(Linear(2), cascade("perfect"), kernels=True)
