"""The clock among FedSlate's features, and traces that fade by the number of platforms."""

import jax.numpy as jnp
import numpy as np
import pytest
from slate_worlds import EPISODE, settings

from fedrank.slates.fedslate.learner import SlateQ
from fedrank.slates.fedslate.state import empty_view


def test_the_clock_says_how_near_the_end_of_the_stay_is():
    s = settings(clock=True)
    found = [SlateQ(s).user_features(empty_view(s)._replace(into=jnp.int32(into))) for into in range(EPISODE)]
    left = EPISODE - 1 - np.arange(EPISODE)
    np.testing.assert_allclose(np.stack(found)[:, -2:], np.exp(-left[:, None] / np.array([2.5, 7.0])), rtol=1e-6)
    assert s.user_features == 6 and settings().user_features == 4


def test_traces_fade_by_the_ticks_of_a_round():
    for platforms, expected in [(1, 0.9), (2, 0.81), (3, 0.729)]:
        s = settings(world={"platforms": platforms, "time_budget": 15 * platforms})
        assert s.fade == pytest.approx(expected)
