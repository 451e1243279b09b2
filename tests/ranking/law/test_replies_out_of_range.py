"""A server of evolution strategies gives no weight to a reply that no honest device can send."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import tiny_protocol

from fedrank.core.rng import perturbation
from fedrank.privacy.piecewise import Piecewise
from fedrank.ranking.on_device import PrivateReply, Reply


def told(protocol, plus, minus, arrived):
    seeds = jnp.arange(len(plus), dtype=jnp.uint32)
    replies = Reply(seeds, jnp.asarray(plus, jnp.int32), jnp.asarray(minus, jnp.int32))
    state = protocol.exchanges[0].tell(protocol.init(jax.random.key(0)), replies, jnp.asarray(arrived))
    return np.asarray(state.weights)


@pytest.mark.parametrize("beyond", [(1, 0), (0, 1)], ids=["plus", "minus"])
def test_a_sum_beyond_the_largest_is_as_if_it_had_not_arrived(beyond):
    protocol = tiny_protocol()
    most = protocol.per_half * protocol.metric.largest
    plus, minus = [most, 0, most + beyond[0]], [0, most, most + beyond[1]]
    with_lie = told(protocol, plus, minus, [True, True, True])
    without = told(protocol, plus, minus, [True, True, False])
    np.testing.assert_array_equal(with_lie, without)
    in_range = told(protocol, [most, 0, most], [0, most, most - 1], [True, True, True])
    assert np.abs(in_range - without).max() > 0  # the third reply would have counted


def test_a_gradient_has_the_size_of_equation_4():
    """v·(m⁺ − m⁻)/(2σ), the mean over devices: Adam's step hides its size, but its first moment is a tenth of it."""
    protocol = tiny_protocol()
    plus, minus, seeds = np.array([5040, 0, 2520]), np.array([0, 1260, 2520]), np.arange(3, dtype=np.uint32)
    replies = Reply(jnp.asarray(seeds), jnp.asarray(plus, jnp.int32), jnp.asarray(minus, jnp.int32))
    state = protocol.exchanges[0].tell(protocol.init(jax.random.key(0)), replies, jnp.ones(3, bool))
    v = np.stack([perturbation(int(seed), protocol.ranker.size) for seed in seeds])
    difference = (plus - minus) / (protocol.per_half * protocol.metric.scale)
    expected = (v * difference[:, None]).mean(axis=0) / (2 * protocol.sigma)
    np.testing.assert_allclose(state.optimiser.first, 0.1 * expected, rtol=1e-5)


def test_a_report_that_the_mechanism_does_not_make_is_as_if_it_had_not_arrived():
    protocol = tiny_protocol(mechanism="piecewise", p=1.0, piecewise=Piecewise(1.0, 1, 2))

    def told_reports(reports, arrived):
        replies = PrivateReply(jnp.arange(len(reports), dtype=jnp.uint32), jnp.asarray(reports, jnp.int32))
        state = protocol.exchanges[0].tell(protocol.init(jax.random.key(0)), replies, jnp.asarray(arrived))
        return np.asarray(state.weights)

    beyond = protocol.privacy.mechanism.reports
    without = told_reports([0, 2, beyond], [True, True, False])
    np.testing.assert_array_equal(told_reports([0, 2, beyond], [True, True, True]), without)
    np.testing.assert_array_equal(told_reports([0, 2, -1], [True, True, True]), without)
    assert np.abs(told_reports([0, 2, beyond - 1], [True, True, True]) - without).max() > 0
