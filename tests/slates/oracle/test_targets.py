"""Targets against loops in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from slate_worlds import DISCOUNT, SLATE, N, choices, f64, greedy, settings, worth

from fedrank.slates.fedslate.learner import SlateQ
from fedrank.slates.fedslate.state import Transition

LEARNT, MEAN = np.array([-2.0, 0.5]), 0.25


def rows(rng, overs):
    """Moments with a reward and an end each; the last is the one that is looked ahead to."""
    for over in overs:
        yield Transition(
            user=jnp.asarray(rng.normal(size=4), jnp.float32),
            items=jnp.asarray(rng.normal(size=(N, 1)), jnp.float32),
            slate=jnp.asarray(rng.permutation(N)[:SLATE], jnp.int32),
            item=jnp.int32(0),
            slot=jnp.int32(0),
            engagement=jnp.float32(rng.normal()),
            over=jnp.float32(over),
        )


@pytest.mark.parametrize("over", [0, 1])
def test_a_target_is_the_reward_and_until_the_stay_is_over_the_worth_of_the_next_slate(over):
    rng = np.random.default_rng(7)
    s, (row, after), values = settings(choice="learned"), list(rows(rng, (over, 0))), rng.normal(size=N)
    v = choices(LEARNT, f64(after.items))
    wanted = float(row.engagement) - MEAN + (0 if over else DISCOUNT * worth(v, values, greedy(v, values)))
    values, learnt, mean = (jnp.asarray(one, jnp.float32) for one in (values, LEARNT, MEAN))
    np.testing.assert_allclose(SlateQ(s).target(values, row, after, learnt, mean), wanted, rtol=1e-5)
